"""The two exact tests, which read every row: accept iff Delta + X > 0.

X exponential gives Metropolis' test, P(accept) = min(1, exp(Delta)); X logistic gives Barker's, 1/(1 + exp(-Delta)).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import random as jr

from tallchain.acceptance.evidence import Moments
from tallchain.parts import part
from tallchain.types import Array, Ask, Judgement, Population


class _FullData:
    """Ask for every row, then decide."""

    is_exact = True

    def appetite(self, population: Population) -> int:
        """Everything: the source reads it in its widest windows."""
        return population.num_rows

    def open(self, noise: Array, bound: Array | None, population: Population) -> tuple[Array, Moments, Ask]:
        """Ask for every row; remember X."""
        return noise, Moments.empty(), Ask(population.num_rows, census=True)

    def judge(self, memory: Array, offset: Array, evidence: Moments, population: Population) -> Judgement:
        """Accept iff Delta + X > 0."""
        return Judgement(memory, Ask(0), True, evidence.mean + offset + memory > 0)

    def chance(self, memory: Array, offset: Array, evidence: Moments, population: Population) -> Array:
        """P(accept) given the rows."""
        return self.exact_chance(evidence.mean + offset)

    def exact_chance(self, log_ratio: Array) -> Array:
        """P(accept) at a log ratio."""
        raise NotImplementedError


@part
class Metropolis(_FullData):
    """Metropolis' test on all rows: accept iff log u < Delta (Metropolis et al. 1953; Hastings 1970).

    Exact; reads all N rows at every decision.
    """

    def draw(self, key: Array) -> Array:
        """X = -log u."""
        return jr.exponential(key)

    def exact_chance(self, log_ratio: Array) -> Array:
        """P(accept) = min(1, exp(Delta))."""
        return jnp.exp(jnp.minimum(log_ratio, 0))


@part
class Barker(_FullData):
    """Barker's test on all rows: accept with probability 1/(1 + exp(-Delta)) (Barker 1965).

    Exact; reads all N rows at every decision. `MinibatchBarker` approximates it.
    """

    def draw(self, key: Array) -> Array:
        """X_log."""
        return jr.logistic(key)

    def exact_chance(self, log_ratio: Array) -> Array:
        """P(accept) = 1/(1 + exp(-Delta))."""
        return jax.nn.sigmoid(log_ratio)
