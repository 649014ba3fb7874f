"""The paper's test: Barker's, with the minibatch's own noise as part of the test's randomness.

Seita, Pan, Chen, Canny: "An Efficient Minibatch Acceptance Test for Metropolis-Hastings" (UAI 2017), Algorithm 1.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import random as jr
from jax.scipy.special import ndtr

from tallchain.acceptance import correction as corrections
from tallchain.acceptance.correction import Correction
from tallchain.acceptance.evidence import Moments, batch_rows, check_batch, has_read_all, rows_to_add, variance_of_mean
from tallchain.types import Array, Ask, Judgement, Population, is_positive, part, set_fields, static


class _Noise(NamedTuple):
    normal: Array
    """Z: the padding is X_nc = Z sqrt(sigma^2 - s2)."""
    correction: Array
    """X_corr."""
    logistic: Array
    """X_log, for the decision that has read every row. Made from the same uniform as X_corr: no decision uses both."""


class _Memory(NamedTuple):
    offset: Array
    noise: _Noise


@part
class MinibatchBarker:
    """Read rows until s2 < sigma^2, then accept iff Delta* + X_nc + X_corr > 0.

    Delta* is the log ratio estimated from the b rows read and s2 its estimated variance. X_nc ~ N(0, sigma^2 - s2)
    pads the noise of Delta* to the variance sigma^2; X_corr is the correction variable for which
    N(0, sigma^2) + X_corr is logistic. When every row has been read Delta is exact and Barker's own test decides.
    Assumes that the mean of b rows is nearly normal. Growing the batch until s2 is small feeds the skewness of the rows
    back into the decision: with few rows between judgements this shifts the chain (README, "How right are the draws").

    Args:
        sigma: standard deviation of the noise the test absorbs, in (0, 1.6]. The rows read go as 1/sigma^2.
        correction: "minimax" (ours: least worst error in log-odds), "ridge" (the paper's table, n=4000, lambda=10), or
            a `Correction` made for this sigma.
        batch: rows to add between judgements, m in the paper; None for the source's `batch_size`.
        shortcut: decide by the sign of Delta* as soon as |Delta*| > shortcut * sqrt(s2); None (as in the paper): never.
    """

    Evidence: ClassVar = Moments

    sigma: float = static()
    batch: int | None = static()
    shortcut: float | None = static()
    atoms: Array
    """The values of X_corr."""
    weights: Array
    """Their probabilities."""
    thresholds: Array
    """Their cumulative probabilities in units of 2^-32."""

    def __init__(
        self,
        sigma: float = 1.0,
        correction: str | Correction = "minimax",
        batch: int | None = None,
        shortcut: float | None = None,
    ) -> None:
        check_batch("MinibatchBarker", batch)
        if shortcut is not None and not is_positive(shortcut):
            raise ValueError(f"`MinibatchBarker(shortcut=...)` must be positive or None; got {shortcut!r}.")
        table = _correction_for(sigma, correction)
        # float32 uniforms stop at 2^-23 and would cut the tail of X_corr at 16: compare 32-bit integers instead.
        thresholds = np.minimum(np.round(np.cumsum(table.weights) * 2.0**32), 2.0**32 - 1)
        set_fields(
            self,
            sigma=float(sigma),
            batch=None if batch is None else int(batch),
            shortcut=None if shortcut is None else float(shortcut),
            atoms=jnp.asarray(table.atoms, jnp.result_type(float)),
            weights=jnp.asarray(table.weights, jnp.result_type(float)),
            thresholds=jnp.asarray(thresholds.astype(np.uint32)),
        )

    @classmethod
    def paper(cls, batch: int | None = None) -> MinibatchBarker:
        """As printed: sigma 1 and the ridge table with n = 4000, lambda = 10."""
        return cls(sigma=1.0, correction="ridge", batch=batch)

    @classmethod
    def as_published_code(cls, batch: int | None = None) -> MinibatchBarker:
        """As run for the paper's Table 1: sigma 0.9, the ridge table with n = 2000, and a shortcut at 5 sigma.

        That experiment also left the prior out of the test: give the posterior a flat log prior to repeat it.
        """
        return cls(sigma=0.9, correction=corrections.ridge(0.9, 2000, 10.0), batch=batch, shortcut=5.0)

    def appetite(self, population: Population) -> int:
        """m, the rows between two judgements."""
        return batch_rows(self.batch, population)

    def draw(self, key: Array) -> _Noise:
        """Z, X_corr and X_log, once for the whole decision."""
        normal, uniform = jr.split(key)
        bits = jr.bits(uniform, (), jnp.uint32)
        index = jnp.searchsorted(self.thresholds, bits, side="right", method="scan_unrolled")
        correction = self.atoms[jnp.minimum(index, len(self.atoms) - 1)]
        # The nearer tail is measured in whole numbers, from 1/2 up: in float32, 1 - u would round to 0.
        is_low = bits < jnp.uint32(2**31)
        tail = jnp.where(is_low, bits, ~bits).astype(correction.dtype) + 0.5
        logistic = jnp.log(tail / (2.0**32 - tail))
        return _Noise(jr.normal(normal), correction, jnp.where(is_low, logistic, -logistic))

    def open(self, noise: _Noise, offset: Array, bound: Array | None, population: Population) -> tuple[_Memory, Ask]:
        """Ask for m rows."""
        return _Memory(offset, noise), Ask(self.appetite(population))

    def judge(self, memory: _Memory, evidence: Moments, population: Population) -> Judgement:
        """Decide if s2 < sigma^2 or every row was read; else ask for m more."""
        s2 = variance_of_mean(evidence, population)
        estimate = evidence.mean + memory.offset
        is_exact = has_read_all(evidence, population)
        padding = memory.noise.normal * jnp.sqrt(jnp.maximum(self.sigma**2 - s2, 0))
        noise = jnp.where(is_exact, memory.noise.logistic, padding + memory.noise.correction)
        is_decided = is_exact | (s2 < self.sigma**2)
        if self.shortcut is not None:
            is_clear = ~jnp.asarray(is_exact) & (jnp.abs(estimate) > self.shortcut * jnp.sqrt(s2))
            noise = jnp.where(is_clear, 0, noise)
            is_decided |= is_clear
        rows = rows_to_add(self.appetite(population), evidence, population)
        return Judgement(memory, Ask(rows), is_decided, estimate + noise > 0)

    def acceptance_probability(self, estimate: Array, s2: Array) -> Array:
        """P(accept | Delta*, s2) = sum_j p_j Phi((Delta* + y_j)/w), w = sqrt(sigma^2 - s2), over the atoms y_j.

        For s2 < sigma^2 and no shortcut: the chance that `judge` accepts, its noise integrated out.
        """
        w = jnp.sqrt(self.sigma**2 - s2)
        return jnp.sum(self.weights * ndtr((jnp.asarray(estimate)[..., None] + self.atoms) / w[..., None]), -1)


def _correction_for(sigma: float, correction: str | Correction) -> Correction:
    if isinstance(correction, Correction):
        if correction.sigma != sigma:
            raise ValueError(
                f"`MinibatchBarker(sigma={sigma!r}, correction=...)` received a correction made for sigma = "
                f"{correction.sigma}. Make one for {sigma!r}, or set sigma={correction.sigma}."
            )
        return correction
    if correction == "minimax":
        return corrections.minimax(sigma)
    if correction == "ridge":
        return corrections.ridge(sigma)
    raise ValueError(
        '`MinibatchBarker(correction=...)` must be "minimax", "ridge" or a Correction '
        f"(see `tallchain.acceptance.correction`); got {correction!r}."
    )
