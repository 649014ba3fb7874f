"""Exponentials that stay finite, and differences of functions without cancellation.

A rise is f(x + d) - f(x). For short steps it is a closed form that keeps the digits of d; for long ones it is the
difference. Branches of a `where` get arguments at which they are finite, so that reverse mode sees no NaN.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tallchain.types import Array

STEEPEST = 40.0  # as of `likelihoods.poisson_log_likelihood`
_SERIES = (-1 / 2, 1 / 24, 0.0, -1 / 2880, 0.0, 1 / 181440, 0.0, -1 / 9676800, 0.0, 1 / 479001600)
_EMPTIEST = -27.0  # log(1 - exp(-exp(x))) is x below this, to 12 digits; the cube of 1/exp(x) is still a float32
_SUREST = 7.0  # exp(-exp(x)) is 0 above this, in float64 as well


class Growth(NamedTuple):
    """Derivatives of `growth`."""

    first: Array
    second: Array
    third: Array
    """And the fourth."""


def growth(x: Array, top: float = STEEPEST) -> Array:
    """exp(x), continued beyond `top` as a parabola with the same first two derivatives there."""
    within = jnp.where(x > top, top, x)
    beyond = jnp.where(x > top, x - top, 0.0)
    return jnp.exp(within) + math.exp(top) * (beyond + 0.5 * beyond**2)


def growth_rise(x: Array, step: Array, top: float = STEEPEST) -> Array:
    """exp(x) (exp(step) - 1), with exp continued as in `growth`."""
    is_short = (jnp.abs(step) <= 1) & (jnp.maximum(x, x + step) <= top)
    is_beyond = jnp.minimum(x, x + step) > top
    short = jnp.exp(jnp.where(is_short, x, 0.0)) * jnp.expm1(jnp.where(is_short, step, 0.0))
    beyond = math.exp(top) * step * (1 + x - top + 0.5 * step)
    return jnp.where(is_short, short, jnp.where(is_beyond, beyond, growth(x + step, top) - growth(x, top)))


def growth_derivatives(x: Array, top: float = STEEPEST) -> Growth:
    """Return the derivatives of `growth`."""
    within = jnp.exp(jnp.where(x > top, top, x))
    return Growth(within * (1 + jnp.where(x > top, x - top, 0.0)), within, jnp.where(x > top, 0.0, within))


def softplus_rise(x: Array, step: Array) -> Array:
    """The rise of S(x) = log(1 + exp(x)): log(1 + (exp(step) - 1) exp(x) / (1 + exp(x))).

    For long steps by S(x) = max(x, 0) + log(1 + exp(-|x|)); the same logarithm serves both.
    """
    is_short, after = jnp.abs(step) <= 1, x + step
    is_up, goes_up = x > 0, after > 0
    here, there = jnp.exp(jnp.where(is_up, -x, x)), jnp.exp(jnp.where(goes_up, -after, after))
    short = jnp.where(is_up, 1.0, here) * jnp.expm1(jnp.where(is_short, step, 0.0))
    long = jnp.where(goes_up, after, 0.0) - jnp.where(is_up, x, 0.0)
    return jnp.where(is_short, 0.0, long) + jnp.log1p(jnp.where(is_short, short, there - here) / (1 + here))


def softplus_higher(x: Array) -> Array:
    """Derivatives of S of orders 3 to 6: w s, w (1 - 6w), w s (1 - 12w), w (1 - 30w + 120w^2), w = S'', s = 1 - 2S'."""
    w, s = jax.nn.sigmoid(x) * jax.nn.sigmoid(-x), -jnp.tanh(0.5 * x)
    return w * jnp.stack([s, 1 - 6 * w, s * (1 - 12 * w), 1 - 30 * w * (1 - 4 * w)])


# ---- log(1 - exp(-h)), h = exp(x) --------------------------------------------------------------


def log_hit(x: Array) -> Array:
    """log(1 - exp(-h)), h = exp(x): the log probability that a Poisson variable of mean h is not 0.

    For small h, x + log((1 - exp(-h)) / h), by the series -h/2 + h^2/24 - h^4/2880 + ...
    """
    h, is_small = _mean(x)
    little = jnp.where(is_small, h, 0.0)
    series = jnp.zeros_like(little)
    for coefficient in reversed(_SERIES):
        series = little * (coefficient + series)
    return jnp.where(is_small, x + series, jnp.log1p(-jnp.exp(-jnp.where(is_small, 1.0, h))))


def log_hit_rise(x: Array, step: Array) -> Array:
    """log(1 + (1 - exp(-rise of h)) / (exp(h) - 1))."""
    is_short = (jnp.abs(step) <= 1) & (x <= 3)
    h = jnp.exp(jnp.maximum(jnp.where(is_short, x, 0.0), _EMPTIEST))
    short = jnp.log1p(-jnp.expm1(-h * jnp.expm1(jnp.where(is_short, step, 0.0))) / jnp.expm1(h))
    return jnp.where(is_short, short, log_hit(x + step) - log_hit(x))


def log_hit_derivatives(x: Array) -> tuple[Array, Array, Array, Array]:
    """With r = h / (exp(h) - 1) and q = 1 - h - r: r, rq, ... by r' = rq, q' = -h - rq; the series for small h."""
    h, is_small = _mean(x)
    little, large = jnp.where(is_small, h, 0.0), jnp.where(is_small, 1.0, h)
    r = large / jnp.expm1(large)
    q = 1 - large - r
    slope = -large - r * q
    of_third = q**2 + slope
    by_formula = (r, r * q, r * of_third, r * (q * of_third + 2 * q * slope - large - r * q**2 - r * slope))
    by_series = [jnp.zeros_like(little)] * 4  # the n-th derivative by x of h^k is k^n h^k
    for k in range(len(_SERIES), 0, -1):
        by_series = [little * (_SERIES[k - 1] * k**n + sum_) for n, sum_ in enumerate(by_series, start=1)]
    by_series[0] = 1 + by_series[0]
    first, second, third, fourth = (jnp.where(is_small, *both) for both in zip(by_series, by_formula, strict=True))
    return first, second, third, fourth


def _mean(x: Array) -> tuple[Array, Array]:
    """h, level where it makes no difference, and whether it is small."""
    h = jnp.exp(jnp.where(x > _SUREST, _SUREST, x))
    return h, h < 0.5


# ---- parameters that level off -----------------------------------------------------------------


class Span(NamedTuple):
    """Where the log of a scale or shape makes a difference; beyond, the density is level in it, and so finite."""

    low: float = -math.inf
    high: float = math.inf

    def clip(self, x: Array) -> Array:
        """The nearest number within."""
        return jnp.where(x < self.low, self.low, jnp.where(x > self.high, self.high, x))

    def step(self, x: Array, step: Array) -> Array:
        """How far `clip` moves by a step; the step itself within."""
        is_within = self._holds(x) & self._holds(x + step)
        return jnp.where(is_within, step, self.clip(x + step) - self.clip(x))

    def slope(self, x: Array) -> Array:
        """The derivative of `clip`: 1 within, 0 beyond."""
        return jnp.where(self._holds(x), jnp.ones_like(x), 0.0)

    def _holds(self, x: Array) -> Array:
        return (x >= self.low) & (x <= self.high)
