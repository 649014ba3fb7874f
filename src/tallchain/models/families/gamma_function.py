"""The log of the gamma function less its main part, with short differences that keep their digits in float32.

`jax.scipy.special.gammaln` is right to a part in 10^7 of its value, x log x: for x = 10^6 that is off by 1.
"""

from __future__ import annotations

import jax.numpy as jnp

from tallchain.models.families.growth import STEEPEST, Span, growth_rise
from tallchain.types import Array

_SHIFT = 8
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_SPAN = Span(high=STEEPEST)  # beyond, the rest is -log(x)/2 to the last digit


def gamma_rest(log_x: Array) -> Array:
    """log Gamma(x) - (x log x - x) - log(2 pi)/2, about -log(x)/2 + 1/(12 x); at x = exp(log_x).

    By Gamma(x) = Gamma(a) / (x (x+1) ... (a-1)), a = x + 8, and Stirling's series at a. With L = log(a/x):
    (x + 1) L - 8 - log(a)/2 - sum_k log((x + k)/a) + 1/(12 a) - ..., k = 1..7.
    """
    at = _SPAN.clip(log_x)
    x = jnp.exp(at)
    a = x + _SHIFT
    is_small = at < 0
    log_ratio = jnp.where(is_small, jnp.log(a) - at, jnp.log1p(_SHIFT * jnp.exp(-jnp.where(is_small, 0.0, at))))
    middle = _SHIFT // 2  # against x + 4: against a, their product would be near 0 for small x
    factors = _log_product([(k - middle) / (x + middle) for k in range(1, _SHIFT)])
    factors += (_SHIFT - 1) * jnp.log1p(-middle / a)
    beyond = jnp.where(log_x > at, log_x - at, 0.0)
    return (x + 1) * log_ratio - _SHIFT - 0.5 * jnp.log(a) - factors + _series(1 / a) - 0.5 * beyond


def gamma_rest_rise(log_x: Array, step: Array) -> Array:
    """gamma_rest(log_x + step) - gamma_rest(log_x), term by term; for steps of at most 1."""
    at, by = _SPAN.clip(log_x), _SPAN.step(log_x, step)
    x, more = jnp.exp(at), growth_rise(at, by)
    a, after = x + _SHIFT, x + _SHIFT + more
    factors = _log_product([more / (x + k) * ((_SHIFT - k) / after) for k in range(1, _SHIFT)])
    is_small = at < 0
    log_ratio = jnp.where(is_small, jnp.log(after) - at - by, jnp.log1p(_SHIFT / jnp.where(is_small, 1.0, x + more)))
    return (
        (x + 1) * jnp.log1p(_SHIFT / a * jnp.expm1(-by))
        + more * log_ratio
        - 0.5 * jnp.log1p(more / a)
        - factors
        + _series_rise(1 / a, 1 / after, -(more / a) / after)
        - 0.5 * (step - by)
    )


def _log_product(excesses: list[Array]) -> Array:
    """The sum of log(1 + e), with one logarithm."""
    product = excesses[0]
    for excess in excesses[1:]:
        product = product + excess + product * excess
    return jnp.log1p(product)


def _series(inverse: Array) -> Array:
    """Stirling's: i/12 - i^3/360 + ..., i = 1/a."""
    total = jnp.zeros_like(inverse)
    for coefficient in reversed(_STIRLING):
        total = coefficient + inverse**2 * total
    return inverse * total


def _series_rise(i: Array, j: Array, rise: Array) -> Array:
    """The series at j less that at i, j - i = rise: the rise times the divided difference, by Horner's scheme."""
    total, divided = jnp.zeros_like(j), jnp.zeros_like(j)
    for coefficient in reversed(_STIRLING):
        divided = (i + j) * total + i**2 * divided
        total = coefficient + j**2 * total
    return rise * (total + i * divided)
