"""Outcomes of several levels, without an order."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

from tallchain.models.families.checks import levels
from tallchain.models.families.family import Bounds, Derivatives, Family
from tallchain.models.families.settings import check_levels
from tallchain.types import Array


@dataclasses.dataclass(frozen=True)
class Categorical(Family):
    """P(y = k) in proportion to exp(z_k), k = 0..levels-1, z_0 = 0; a linear predictor for each of the other levels."""

    levels: int

    def __post_init__(self) -> None:
        check_levels("Categorical", self.levels)

    @property
    def num_linear(self) -> int:
        """One for each level but the first."""
        return self.levels - 1

    def log_density(self, eta: Array, y: Array) -> Array:
        """z_y - log sum exp(z)."""
        z = _with_base(eta)
        return -jax.nn.logsumexp(z - self._of(z, y))

    def gain(self, eta: Array, step: Array, y: Array) -> Array:
        """-log(1 + sum over k of P(y = k) (exp(d_k - d_y) - 1))."""
        z, d = _with_base(eta), _with_base(step)
        d = d - self._of(d, y)
        is_short = jnp.max(jnp.abs(d)) <= 1
        top, peak = (lax.stop_gradient(jnp.max(values)) for values in (z, z + d))
        weights = jnp.exp(z - top)
        total = jnp.sum(weights)
        short = jnp.sum(weights * jnp.expm1(jnp.where(is_short, d, 0.0)))
        long = jnp.sum(jnp.exp(z + d - peak)) - total
        return jnp.where(is_short, 0.0, top - peak) - jnp.log1p(jnp.where(is_short, short, long) / total)

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        """1[y = k] - p_k and p_k p_l - 1[k = l] p_k; by z, the first of the predictors, those of a logit model."""
        p = self.mean(eta)[1:]
        first = self._is(y)[1:] - p
        second = p[:, None] * p - jnp.diag(p)
        return Derivatives(first, second, (1 - 2 * p[0]) * second[0], second[0, 0] * (1 + 6 * second[0, 0]))

    def derivative_bounds(self, low: Array, high: Array, y: Array) -> Bounds:
        """sqrt 2, 1/2 and sqrt 6/9, in the norm of operators: for all predictors."""
        return Bounds(*(jnp.full((), bound, low.dtype) for bound in (math.sqrt(2), 0.5, math.sqrt(6) / 9)))

    def mean(self, eta: Array) -> Array:
        """The probabilities of all levels."""
        return jax.nn.softmax(_with_base(eta))

    def draw(self, key: Array, eta: Array, size: Array | float = 1.0) -> Array:
        """Draw a level."""
        return jr.categorical(key, _with_base(eta)).astype(eta.dtype)

    def outcomes(self, call: str, y: Any) -> np.ndarray:
        """Return levels, from 0."""
        return levels(call, y, self.levels)

    def start(self, y: np.ndarray) -> np.ndarray:
        """The logs of the shares against that of level 0, with half an outcome of each level added."""
        shares = np.log(np.bincount(y.astype(np.int64), minlength=self.levels) + 0.5)
        return shares[1:] - shares[0]

    def _is(self, y: Array) -> Array:
        return jnp.arange(self.levels) == y

    def _of(self, values: Array, y: Array) -> Array:
        """The value of level y."""
        return jnp.sum(jnp.where(self._is(y), values, 0.0))


def _with_base(eta: Array) -> Array:
    return jnp.concatenate([jnp.zeros_like(eta[:1]), eta])
