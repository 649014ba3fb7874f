"""MHSubLhd, the confidence sampler (Bardenet, Doucet, Holmes 2014, "Towards scaling up Markov chain Monte Carlo")."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import random as jr

from tallchain.acceptance.evidence import (
    Extremes,
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

BOUNDS = ("bernstein", "bernstein-serfling")
_KAPPA = 7 / 3 + 3 / math.sqrt(2)


class _Memory(NamedTuple):
    log_u: Array
    range: Array
    """R, the range bound."""
    look: Array
    """j; 0 while a census determines R."""


@part
class Confidence:
    """Read rows, in batches that grow by a factor, until |mean - psi| > c_j; accept iff mean > psi.

    Agrees with Metropolis' test on all rows, at the same u, with probability at least 1 - delta, for any rows: c_j
    bounds the error of the mean of n rows with probability 1 - delta_j, delta_j = delta (p-1)/(p j^p). With R the range
    of the rows (largest minus smallest) and sd their standard deviation (divisor n),

        bernstein           c = sd sqrt(2 log(3/delta_j)/n) + 3 R log(3/delta_j)/n               (the 2014 paper)
        bernstein-serfling  c = sd sqrt(2 rho log(5/delta_j)/n) + (7/3 + 3/sqrt 2) R log(5/delta_j)/n

    rho = 1 - (n-1)/N for n <= N/2, else (1 - n/N)(1 + 1/n). R comes from the kernel's `bound`. Without one, a census
    before every decision finds it, counted separately (`rows_scanned`).

    Args:
        delta: probability of a decision that differs from the decision on all rows.
        p: how fast delta is spent over looks; above 1.
        gamma: growth of the batch from look to look; above 1.
        bound: "bernstein" or "bernstein-serfling".
        batch: rows of the first look; None for the source's `batch_size`.
    """

    delta: float = static()
    p: float = static()
    gamma: float = static()
    bound: str = static()
    batch: int | None = static()

    def __init__(
        self,
        delta: float = 0.01,
        p: float = 2.0,
        gamma: float = 1.5,
        bound: str = "bernstein",
        batch: int | None = None,
    ) -> None:
        if not is_positive(delta) or delta >= 1:
            raise ValueError(f"`Confidence(delta=...)` must be a probability between 0 and 1; got {delta!r}.")
        for name, value in (("p", p), ("gamma", gamma)):
            if not is_positive(value) or value <= 1:
                raise ValueError(f"`Confidence({name}=...)` must be above 1; got {value!r}.")
        if bound not in BOUNDS:
            raise ValueError(f"`Confidence(bound=...)` must be one of {', '.join(BOUNDS)}; got {bound!r}.")
        check_batch("Confidence", batch)
        set_fields(self, delta=float(delta), p=float(p), gamma=float(gamma), bound=bound, batch=batch)

    def appetite(self, population: Population) -> int:
        """m, the rows of the first look."""
        return batch_rows(self.batch, population)

    def draw(self, key: Array) -> Array:
        """log u = -(a standard exponential)."""
        return -jr.exponential(key)

    def open(self, noise: Array, bound: Array | None, population: Population) -> tuple[_Memory, Extremes, Ask]:
        """Ask for m rows, or for a census if there is no bound."""
        ask = first_rows(self.appetite(population), population)
        if bound is None:
            ask = Ask(population.num_rows, census=True, apart=True)
        known = jnp.asarray(0 if bound is None else bound, jnp.result_type(float))
        return _Memory(noise, known, jnp.asarray(bound is not None, jnp.int32)), Extremes.empty(), ask

    def judge(self, memory: _Memory, offset: Array, evidence: Extremes, population: Population) -> Judgement:
        """Decide if psi is outside the confidence interval or every row was read; else grow."""
        is_census = memory.look == 0
        moments = evidence.moments
        threshold = memory.log_u - offset  # psi
        gap = jnp.abs(evidence.mean - threshold)
        is_decided = (gap > self.half_width(moments, memory, population)) | has_read_all(moments, population)
        first = first_rows(self.appetite(population), population)._replace(fresh=True)
        grown = jnp.ceil((self.gamma - 1) * moments.count).astype(jnp.int32)
        ask = choose_ask(is_census, first, add_rows(grown, moments, population))
        known = _Memory(memory.log_u, jnp.where(is_census, evidence.range, memory.range), memory.look + 1)
        return Judgement(known, ask, ~is_census & is_decided, evidence.mean > threshold)

    def exact_chance(self, log_ratio: Array) -> Array:
        """P(accept) of the test on all rows: Metropolis'."""
        return jnp.exp(jnp.minimum(log_ratio, 0))

    def half_width(self, moments: Moments, memory: _Memory, population: Population) -> Array:
        """c_j."""
        n = jnp.maximum(moments.count, 1).astype(moments.mean.dtype)
        sd = jnp.sqrt(moments.squares / n)
        delta_j = self.delta * (self.p - 1) / (self.p * jnp.maximum(memory.look, 1).astype(n.dtype) ** self.p)
        if self.bound == "bernstein":
            log_term = jnp.log(3 / delta_j)
            return sd * jnp.sqrt(2 * log_term / n) + 3 * memory.range * log_term / n
        log_term = jnp.log(5 / delta_j)
        left = (population.num_rows - moments.count) / population.num_rows
        rho = jnp.where(2 * n <= population.num_rows, left + 1 / population.num_rows, left * (1 + 1 / n))
        return sd * jnp.sqrt(2 * rho * log_term / n) + _KAPPA * memory.range * log_term / n
