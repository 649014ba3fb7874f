"""Counts, with the variance of a Poisson distribution."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.models.families.checks import counts
from tallchain.models.families.family import Bounds, Derivatives, Family, largest, of_one
from tallchain.models.families.growth import growth_derivatives, growth_rise
from tallchain.types import Array


@dataclasses.dataclass(frozen=True)
class Poisson(Family):
    """Counts with mean exp(z)."""

    def log_density(self, eta: Array, y: Array) -> Array:
        """y e - y (exp(e) - 1), e = z - log y: y z - exp(z) less its best value; 1 - exp(z) for y = 0.

        See `likelihoods.poisson_log_likelihood`. Beyond e = 40, exp(e) continues as a parabola.
        """
        scale, excess = _excess(eta, y)
        return y * excess - scale * growth_rise(jnp.zeros_like(excess), excess)

    def gain(self, eta: Array, step: Array, y: Array) -> Array:
        """y d - exp(z) (exp(d) - 1)."""
        scale, excess = _excess(eta, y)
        return y * step[0] - scale * growth_rise(excess, step[0])

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        """y - exp(z), then -exp(z)."""
        scale, excess = _excess(eta, y)
        first, second, third = (scale * derivative for derivative in growth_derivatives(excess))
        return of_one(y - first, -second, -third, -third)

    def higher(self, eta: Array, y: Array) -> Array:
        """-exp(z) each."""
        scale, excess = _excess(eta, y)
        return jnp.full(4, -scale * growth_derivatives(excess).third)

    @property
    def is_concave(self) -> bool:
        """True."""
        return True

    def derivative_bounds(self, low: Array, high: Array, y: Array) -> Bounds:
        """|y - exp(z)| at an end, and exp(z) at the upper one."""
        steepest = jnp.exp(high)
        return Bounds(largest(low, high, (y - jnp.exp(low), y - steepest)), steepest, steepest)

    def mean(self, eta: Array) -> Array:
        """exp(z)."""
        return jnp.exp(eta[0])

    def draw(self, key: Array, eta: Array, size: Array | float = 1.0) -> Array:
        """Draw a count."""
        return jr.poisson(key, self.mean(eta)).astype(eta.dtype)

    def outcomes(self, call: str, y: Any) -> np.ndarray:
        """Return counts."""
        return counts(call, y)

    def start(self, y: np.ndarray) -> np.ndarray:
        """The log of the mean count, with half a count added."""
        return np.log([(y.sum(dtype=np.float64) + 0.5) / len(y)])


def _excess(eta: Array, y: Array) -> tuple[Array, Array]:
    """max(y, 1), and z less its log."""
    scale = jnp.maximum(y, 1)
    return scale, eta[0] - jnp.log(scale)
