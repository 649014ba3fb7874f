"""AustereMH, the sequential Student test (Korattikara, Chen, Welling 2014, "Austerity in MCMC land")."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy
from jax import random as jr
from numpy.typing import ArrayLike

from tallchain.acceptance import austere_design
from tallchain.acceptance.evidence import (
    Moments,
    add_rows,
    batch_rows,
    check_batch,
    choose_ask,
    first_rows,
    has_read_all,
)
from tallchain.parts import part, set_fields, static
from tallchain.types import Array, Ask, Judgement, Population
from tallchain.validation import is_positive

# Student quantiles are smooth in 1/nu: every nu up to 100 is a node, and beyond it a step of 1e-4 leaves an error below
# 1e-6 in t.
_NODES = np.concatenate([np.arange(0, 1e-2, 1e-4), 1 / np.arange(100.0, 0.0, -1.0)])


class _Memory(NamedTuple):
    log_u: Array
    is_census: Array
    design: Array
    """Which (m, epsilon) this decision uses."""


@part
class Austere:
    """Add m rows at a time until a t-test says on which side of mu0 the mean of all rows lies; accept iff above.

    With n of N rows read without replacement, mean and sd of their log ratios, and u drawn once,

        se = sd/sqrt(n) sqrt(1 - (n-1)/(N-1)),   stop when P(T_{n-1} > |mean - mu0|/se) < epsilon or n = N.

    Approximates Metropolis' test on all rows at the same u. Assumes that the mean of n rows is nearly normal, from the
    first look on. `epsilon` is the error of one look. The error of the whole decision, over all looks, is several times
    larger; `conservative` and `nonconservative` design for that error.

    Args:
        epsilon: error allowed at each look, in (0, 1/2).
        batch: m, the rows between looks; None for the source's `batch_size`.
    """

    batch: int | None = static()
    """Rows between looks, if there is one design; None for the source's `batch_size`."""
    is_designed: bool = static()
    """Whether every decision has a design of its own, which needs a census."""
    batches: Array
    """Rows between looks, by design."""
    quantiles: Array
    """Quantiles of Student's t, by design and node of 1/nu."""

    def __init__(self, epsilon: float, batch: int | None = None) -> None:
        if not is_positive(epsilon) or epsilon >= 0.5:
            raise ValueError(f"`Austere(epsilon=...)` must be between 0 and 1/2; got {epsilon!r}.")
        check_batch("Austere", batch)
        self._set(batch, is_designed=False, batches=[batch or 0], epsilons=[epsilon])

    @classmethod
    def conservative(cls, num_rows: int, error: float) -> Austere:
        """Choose (m, epsilon) once, for mu_std = 0, the hardest case: the fewest rows with error at most `error`."""
        design = austere_design.conservative(num_rows, error)
        return cls(design.epsilon, design.batch)

    @classmethod
    def nonconservative(cls, num_rows: int, error: float) -> Austere:
        """Choose (m, epsilon) at every decision, for its own mu_std. Reads all rows (counted as scanned)."""
        designs = austere_design.nonconservative(num_rows, error)
        austere = object.__new__(cls)
        austere._set(austere_design.BATCHES[0], is_designed=True, batches=designs.batch, epsilons=designs.epsilon)
        return austere

    def _set(self, batch: int | None, *, is_designed: bool, batches: ArrayLike, epsilons: ArrayLike) -> None:
        nu = 1 / _NODES[1:]
        levels = 1 - np.asarray(epsilons)[:, None]
        quantiles = np.concatenate([scipy.special.ndtri(levels), scipy.special.stdtrit(nu, levels)], 1)
        set_fields(
            self,
            batch=batch,
            is_designed=is_designed,
            batches=jnp.asarray(batches, jnp.int32),
            quantiles=jnp.asarray(quantiles, jnp.result_type(float)),
        )

    def appetite(self, population: Population) -> int:
        """m, the rows between looks; the smallest m where designs differ."""
        return batch_rows(self.batch, population)

    def draw(self, key: Array) -> Array:
        """log u = -(a standard exponential)."""
        return -jr.exponential(key)

    def open(self, noise: Array, bound: Array | None, population: Population) -> tuple[_Memory, Moments, Ask]:
        """Ask for m rows, or for a census if the design depends on mu_std."""
        ask = first_rows(self.appetite(population), population)
        if self.is_designed:
            ask = Ask(population.num_rows, census=True, apart=True)
        return _Memory(noise, jnp.asarray(self.is_designed), jnp.zeros((), jnp.int32)), Moments.empty(), ask

    def judge(self, memory: _Memory, offset: Array, evidence: Moments, population: Population) -> Judgement:
        """Stop if the t-test is sure or every row was read; else add m rows."""
        threshold = memory.log_u - offset  # N mu0
        gap = jnp.abs(evidence.mean - threshold)
        is_sure = gap > self._quantile(memory.design, evidence.count) * standard_error(evidence, population)
        is_decided = ((evidence.count > 1) & is_sure) | has_read_all(evidence, population)
        if not self.is_designed:
            ask = add_rows(self.appetite(population), evidence, population)
            return Judgement(memory, ask, is_decided, evidence.mean > threshold)
        designed = self._design(gap, evidence)
        design = jnp.where(memory.is_census, designed, memory.design)
        rows = jnp.minimum(self.batches[design], population.num_rows)
        known = _Memory(memory.log_u, jnp.zeros_like(memory.is_census), design)
        first = Ask(rows, census=population.repeats & (rows >= population.num_rows), fresh=True)
        ask = choose_ask(memory.is_census, first, add_rows(rows, evidence, population))
        return Judgement(known, ask, ~memory.is_census & is_decided, evidence.mean > threshold)

    def exact_chance(self, log_ratio: Array) -> Array:
        """P(accept) of the test on all rows: Metropolis'."""
        return jnp.exp(jnp.minimum(log_ratio, 0))

    def _quantile(self, design: Array, count: Array) -> Array:
        """The t beyond which a Student variable with n - 1 degrees of freedom falls with probability epsilon."""
        return jnp.interp(1 / jnp.maximum(count - 1.0, 1.0), jnp.asarray(_NODES), self.quantiles[design])

    def _design(self, gap: Array, census: Moments) -> Array:
        """Look up the design for mu_std = (mu - mu0) sqrt(N - 1)/sigma, with mu and sigma over all rows."""
        sigma = jnp.sqrt(census.squares / jnp.maximum(census.count, 1))
        mu_std = gap * jnp.sqrt(census.count - 1.0) / jnp.maximum(sigma, 1e-30)
        mu_std = jnp.where(jnp.isnan(mu_std), 0, mu_std)  # after an overflow nothing is known: the hardest case
        # Rounded down: the error falls with |mu_std|, so the design for a smaller value keeps its promise.
        return (jnp.minimum(mu_std, austere_design.MAX_MU_STD) / austere_design.SPACING).astype(jnp.int32)


def standard_error(moments: Moments, population: Population) -> Array:
    """sd/sqrt(n), times sqrt(1 - (n-1)/(N-1)) where rows do not repeat."""
    n = jnp.maximum(moments.count, 2).astype(moments.mean.dtype)
    variance = moments.squares / (n - 1) / n
    if not population.repeats:
        left = population.num_rows - moments.count
        variance = variance * (left / max(population.num_rows - 1, 1))
    return jnp.sqrt(variance)
