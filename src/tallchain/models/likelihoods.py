"""Plain log likelihoods of one row and a log prior, as a user writes them, up to a constant in the position.

Compiled functions are looked up by these. There is one for all data sets, so a second data set compiles nothing.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr

from tallchain.arrays import dot
from tallchain.types import Array, PyTree

_TAIL = 5.0  # below minus this, log Phi is a continued fraction
_TERMS = 8  # of it: the relative error is below 1e-8
_STEEPEST = 40.0  # largest exponent of a Poisson rate relative to its count


def logistic_log_likelihood(position: Array, row: PyTree) -> Array:
    """-log(1 + exp(-s)), s = x.t for y = 1 and -x.t for y = 0."""
    return jax.nn.log_sigmoid(_signed_predictor(position, row))


def poisson_log_likelihood(position: Array, row: PyTree) -> Array:
    """y x.t - exp(x.t), minus its value at exp(x.t) = y, the best rate for the row.

    With d = x.t - log y that is y d - y (exp(d) - 1). The two terms of the plain formula are of the size of y log y,
    and float32 would keep nothing of the log ratio of a row with a large count. Rows with y = 0 have 1 - exp(x.t).

    Beyond d = 40, exp(d) continues as a parabola: a rate of 10^17 times the count is impossible, not infinite.
    """
    scale = jnp.maximum(row["y"], 1)
    excess = _predictor(position, row) - jnp.log(scale)
    within = jnp.where(excess > _STEEPEST, _STEEPEST, excess)
    # Not `excess - within`, whose derivative is 0 as a difference of two ones: exp(40) times that is not 0 in float32.
    beyond = jnp.where(excess > _STEEPEST, excess - _STEEPEST, 0.0)
    growth = jnp.expm1(within) + math.exp(_STEEPEST) * (beyond + 0.5 * beyond**2)
    return row["y"] * excess - scale * growth


@dataclasses.dataclass(frozen=True)
class LinearLogLikelihood:
    """-(y - x.t)^2 / (2 noise_sd^2)."""

    noise_sd: float

    def __call__(self, position: Array, row: PyTree) -> Array:
        """Return the log likelihood of one row."""
        return -0.5 * ((row["y"] - _predictor(position, row)) / self.noise_sd) ** 2


@dataclasses.dataclass(frozen=True)
class NormalLogPrior:
    """-|t|^2 / (2 sd^2), or 0 without an sd."""

    sd: float | None

    def __call__(self, position: Array) -> Array:
        """Return the log prior, up to a constant."""
        if self.sd is None:
            return jnp.zeros((), position.dtype)
        return -0.5 * jnp.sum((position / self.sd) ** 2)


def log_normal_cdf(x: Array) -> Array:
    """log Phi(x), with derivatives that stay accurate far in the tail in float32.

    Below -5, by the continued fraction of Mills' ratio: phi(x)/Phi(x) = t + 1/(t + 2/(t + 3/(t + ...))), t = -x.
    Second derivatives of `jax.scipy.special.log_ndtr` cancel there: at -100 it gives 1.9 instead of -1.
    """
    is_tail = x < -_TAIL
    # Both branches are evaluated and differentiated: each gets an argument where it is finite.
    t = jnp.where(is_tail, -x, _TAIL)
    fraction = t
    for k in range(_TERMS, 0, -1):
        fraction = t + k / fraction
    tail = -0.5 * t**2 - 0.5 * math.log(2 * math.pi) - jnp.log(fraction)
    return jnp.where(is_tail, tail, log_ndtr(jnp.where(is_tail, 0.0, x)))


def _predictor(position: Array, row: PyTree) -> Array:
    """x.t."""
    features = row["x"]
    if jnp.shape(position) != jnp.shape(features):
        raise ValueError(
            f"A position of this regression is a vector of {features.shape[-1]} coefficients, one per feature (and one "
            f"for the intercept, if any, first); got shape {jnp.shape(position)}."
        )
    return dot(features, position)


def _signed_predictor(position: Array, row: PyTree) -> Array:
    return (2 * row["y"] - 1) * _predictor(position, row)
