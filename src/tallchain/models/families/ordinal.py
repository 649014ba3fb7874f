"""Outcomes of several levels, in order."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.models.families.checks import levels
from tallchain.models.families.family import ScaleFamily
from tallchain.models.families.growth import Span, growth_rise, log_hit, log_hit_rise, softplus_rise
from tallchain.models.families.settings import check_levels
from tallchain.types import Array

_SPAN = Span(high=10.0)  # of the log of a gap between cutpoints


@dataclasses.dataclass(frozen=True)
class Ordinal(ScaleFamily):
    """P(y <= k) = 1/(1 + exp(z - c_k)) with cutpoints c_0 < c_1 < ..., one less than levels.

    Shared are c_0 and the logs of the gaps between cutpoints. The cutpoints take the place of an intercept: with one,
    only its difference to them is determined.
    With b = c_y - z and a = c_(y-1) - z, P(y) = P(b) P(-a) (1 - exp(a - b)), P(x) = 1/(1 + exp(-x)), where the first
    level has no a and the last no b. No factor is a difference of probabilities.
    """

    levels: int

    def __post_init__(self) -> None:
        check_levels("Ordinal", self.levels)

    @property
    def shared(self) -> tuple[str, ...]:
        """The first cutpoint, and the logs of the gaps."""
        return ("cutpoint", *(f"log_gap_{k}" for k in range(1, self.levels - 1)))

    @property
    def takes_intercept(self) -> bool:
        """False: the cutpoints take its place."""
        return False

    def log_density(self, eta: Array, y: Array) -> Array:
        """log P(y)."""
        log_gaps = [_SPAN.clip(log_gap) for log_gap in self._log_gaps(eta)]
        cuts = _sums(eta[1], [jnp.exp(log_gap) for log_gap in log_gaps])
        above = jax.nn.log_sigmoid(_pick(cuts, y) - eta[0])
        below = jax.nn.log_sigmoid(eta[0] - _pick(cuts, y - 1))
        return self._total(y, above, below, log_hit(_pick(log_gaps, y - 1)))

    def short_gain(self, eta: Array, step: Array, y: Array) -> Array:
        """Factor by factor."""
        log_gaps = [_SPAN.clip(log_gap) for log_gap in self._log_gaps(eta)]
        by_gaps = [_SPAN.step(*both) for both in zip(self._log_gaps(eta), self._log_gaps(step), strict=True)]
        cuts = _sums(eta[1], [jnp.exp(log_gap) for log_gap in log_gaps])
        by_cuts = _sums(step[1], [growth_rise(*both) for both in zip(log_gaps, by_gaps, strict=True)])
        above = -softplus_rise(eta[0] - _pick(cuts, y), step[0] - _pick(by_cuts, y))
        below = -softplus_rise(_pick(cuts, y - 1) - eta[0], _pick(by_cuts, y - 1) - step[0])
        return self._total(y, above, below, log_hit_rise(_pick(log_gaps, y - 1), _pick(by_gaps, y - 1)))

    def mean(self, eta: Array) -> Array:
        """The probabilities of all levels."""
        return jnp.diff(jax.nn.sigmoid(self._cutpoints(eta) - eta[0]), prepend=0.0, append=1.0)

    def draw(self, key: Array, eta: Array, size: Array | float = 1.0) -> Array:
        """Draw a level: the number of cutpoints below z and logistic noise."""
        return jnp.sum(self._cutpoints(eta) < eta[0] + jr.logistic(key, dtype=eta.dtype)).astype(eta.dtype)

    def outcomes(self, call: str, y: Any) -> np.ndarray:
        """Return levels, from 0."""
        return levels(call, y, self.levels)

    def start(self, y: np.ndarray) -> np.ndarray:
        """z = 0 and the logits of the shares up to each level, with half an outcome of each level added."""
        counts = np.bincount(y.astype(np.int64), minlength=self.levels) + 0.5
        below = np.cumsum(counts)[:-1]
        cuts = np.log(below / (counts.sum() - below))
        return np.concatenate([[0.0, cuts[0]], np.log(np.diff(cuts))])

    def _log_gaps(self, eta: Array) -> list[Array]:
        """One by one: XLA makes one loop of all of it, which it would not of sums over a short axis."""
        return [eta[2 + k] for k in range(self.levels - 2)]

    def _cutpoints(self, eta: Array) -> Array:
        return jnp.stack(_sums(eta[1], [jnp.exp(_SPAN.clip(log_gap)) for log_gap in self._log_gaps(eta)]))

    def _total(self, y: Array, above: Array, below: Array, between: Array) -> Array:
        """The sum of what a level has: a cutpoint above, one below, a gap between them."""
        is_last, is_first = y >= self.levels - 1, y <= 0
        ends = jnp.where(is_last, 0.0, above) + jnp.where(is_first, 0.0, below)
        return ends + jnp.where(is_first | is_last, 0.0, between)


def _sums(first: Array, gaps: list[Array]) -> list[Array]:
    """The first, and one more gap added each time."""
    return list(itertools.accumulate(gaps, initial=first))


def _pick(values: list[Array], k: Array) -> Array:
    """The k-th value; 0 where there is none."""
    picked = jnp.zeros_like(k)
    for index, value in enumerate(values):
        picked = jnp.where(k == index, value, picked)
    return picked
