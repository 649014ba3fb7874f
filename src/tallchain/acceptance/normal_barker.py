"""Barker's test with plain normal noise (Bardenet, Doucet, Holmes 2017, "On MCMC methods for tall data", 6.3)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import random as jr
from jax.scipy.special import ndtr

from tallchain.acceptance.evidence import (
    Moments,
    add_rows,
    batch_rows,
    check_batch,
    first_rows,
    has_read_all,
    variance_of_mean,
)
from tallchain.parts import part, static
from tallchain.types import Array, Ask, Judgement, Population

SIGMA = 1.702
"""Standard deviation of the normal variable nearest to a logistic one: their CDFs differ by at most 0.0095."""


@part
class NormalBarker:
    """Read rows until s2 < 1.702^2, then accept iff Delta* + Z sqrt(1.702^2 - s2) > 0.

    Assumes that the mean of b rows is nearly normal, and also treats logistic noise as normal: the acceptance
    probability is off by up to 0.0095, and its log-odds are off without limit in the tails, however many rows are read.

    Args:
        batch: rows to add between judgements; None for the source's `batch_size`.
    """

    batch: int | None = static()

    def __init__(self, batch: int | None = None) -> None:
        check_batch("NormalBarker", batch)
        object.__setattr__(self, "batch", batch)

    def appetite(self, population: Population) -> int:
        """m, the rows between two judgements."""
        return batch_rows(self.batch, population)

    def draw(self, key: Array) -> Array:
        """Z."""
        return jr.normal(key)

    def open(self, noise: Array, bound: Array | None, population: Population) -> tuple[Array, Moments, Ask]:
        """Ask for m rows; remember Z."""
        return noise, Moments.empty(), first_rows(self.appetite(population), population)

    def judge(self, memory: Array, offset: Array, evidence: Moments, population: Population) -> Judgement:
        """Decide if s2 < 1.702^2; else ask for m more."""
        s2 = variance_of_mean(evidence, population)
        padding = memory * jnp.sqrt(jnp.maximum(SIGMA**2 - s2, 0))
        is_decided = (s2 < SIGMA**2) | has_read_all(evidence, population)
        ask = add_rows(self.appetite(population), evidence, population)
        return Judgement(memory, ask, is_decided, evidence.mean + offset + padding > 0)

    def chance(self, memory: Array, offset: Array, evidence: Moments, population: Population) -> Array:
        """P(accept) given the rows that decide, with Z integrated out."""
        padding = jnp.sqrt(jnp.maximum(SIGMA**2 - variance_of_mean(evidence, population), 1e-12))
        return ndtr((evidence.mean + offset) / padding)

    def exact_chance(self, log_ratio: Array) -> Array:
        """P(accept) of the test on all rows that it approximates: Barker's."""
        return jax.nn.sigmoid(log_ratio)
