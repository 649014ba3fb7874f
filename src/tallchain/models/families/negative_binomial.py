"""Counts, with more variance than those of a Poisson distribution."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.models.families.checks import counts
from tallchain.models.families.family import Derivatives, ScaleFamily, of_two
from tallchain.models.families.gamma_function import gamma_rest, gamma_rest_rise
from tallchain.models.families.growth import STEEPEST, Span, growth_rise, softplus_higher, softplus_rise
from tallchain.types import Array

_SPAN = Span(high=STEEPEST)  # of the log of the shape: beyond, the outcomes are Poisson to the last digit


@dataclasses.dataclass(frozen=True)
class NegativeBinomial(ScaleFamily):
    """Counts with mean m = exp(z) and variance m + m^2/c, c = exp(log_shape).

    With n = y + c, odds m/c = exp(t), t = z - log c, and the same at m = y (1 for y = 0), exp(t0):

        f = -y [S(-t) - S(-t0)] - c [S(t) - S(t0)] + R(n) - R(c),   S(x) = log(1 + exp(x)),

    R the log of the gamma function less its main part; for y = 0 the last two terms are -c S(t0). The terms of the
    plain formula are of the size of y log y, and float32 would keep nothing of the log ratio of a large count.
    """

    @property
    def shared(self) -> tuple[str, ...]:
        """The log of the shape."""
        return ("log_shape",)

    def log_density(self, eta: Array, y: Array) -> Array:
        """f."""
        a = _terms(eta, y)
        rises = y * softplus_rise(-a.odds0, -a.excess) + a.shape * softplus_rise(a.odds0, a.excess)
        return _at_best(a.log_shape, y) - rises

    def short_gain(self, eta: Array, step: Array, y: Array) -> Array:
        """Term by term."""
        a = _terms(eta, y)
        dz, ds = step[0], _SPAN.step(eta[1], step[1])
        more = growth_rise(a.log_shape, ds)
        by_successes = softplus_rise(-a.odds, ds - dz) - softplus_rise(-a.odds0, ds)
        by_shape = softplus_rise(a.odds, dz - ds) - softplus_rise(a.odds0, -ds)
        linear = -y * by_successes - a.shape * by_shape - more * softplus_rise(a.odds0 - ds, a.excess + dz)
        total = a.scale + a.shape
        rest = gamma_rest_rise(jnp.log(total), jnp.log1p(more / total)) - gamma_rest_rise(a.log_shape, ds)
        none = -a.shape * softplus_rise(a.odds0, -ds) - more * jax.nn.softplus(a.odds0 - ds)
        return linear + jnp.where(y > 0, rest, none)

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        """With p = 1/(1 + exp(-t)), w = p (1 - p): y (1 - p) - c p, -n w, -n w (1 - 2p), -n w (1 - 6w) by z."""
        a = _terms(eta, y)
        slope = _SPAN.slope(eta[1])
        p, rest, p0 = jax.nn.sigmoid(a.odds), jax.nn.sigmoid(-a.odds), jax.nn.sigmoid(a.odds0)
        w, w0, n = p * rest, p0 * jax.nn.sigmoid(-a.odds0), y + a.shape
        risen = a.shape * softplus_rise(a.odds0, a.excess)
        best = lambda log_shape: _at_best(log_shape, y)  # noqa: E731
        first, second = jax.grad(best)(a.log_shape), jax.grad(jax.grad(best))(a.log_shape)
        by_s = first + n * (p - p0) - risen
        by_ss = second + 2 * a.shape * (p - p0) - n * (w - w0) - risen
        by_zs = n * w - a.shape * p
        by_zzs = n * w * (1 - 2 * p) - a.shape * w
        return of_two(
            (y * rest - a.shape * p, slope * by_s),
            (-n * w, slope * by_zs, slope * by_ss),
            (-n * w * (1 - 2 * p), slope * by_zzs),
            -n * w * (1 - 6 * w),
        )

    def higher(self, eta: Array, y: Array) -> Array:
        """Those of `Bernoulli` at t, n times."""
        a = _terms(eta, y)
        return -(y + a.shape) * softplus_higher(a.odds)

    def mean(self, eta: Array) -> Array:
        """exp(z)."""
        return jnp.exp(eta[0])

    def draw(self, key: Array, eta: Array, size: Array | float = 1.0) -> Array:
        """Draw a count: of Poisson's distribution, with a mean that has a gamma distribution."""
        of_mean, of_count = jr.split(key)
        log_shape = _SPAN.clip(eta[1])
        mean = jnp.exp(eta[0] - log_shape + jr.loggamma(of_mean, jnp.exp(log_shape)))
        return jr.poisson(of_count, mean).astype(eta.dtype)

    def outcomes(self, call: str, y: Any) -> np.ndarray:
        """Return counts."""
        return counts(call, y)

    def start(self, y: np.ndarray) -> np.ndarray:
        """By mean and variance."""
        mean = (y.sum(dtype=np.float64) + 0.5) / len(y)
        surplus = max(float(y.var(dtype=np.float64)) - mean, 1e-4 * mean)
        return np.log([mean, np.clip(mean**2 / surplus, 1e-3, 1e6)])


class _Terms(NamedTuple):
    """What f is made of."""

    log_shape: Array
    shape: Array
    scale: Array
    """max(y, 1)."""
    excess: Array
    """z less its log."""
    odds: Array
    """t."""
    odds0: Array
    """t0."""


def _terms(eta: Array, y: Array) -> _Terms:
    log_shape = _SPAN.clip(eta[1])
    scale = jnp.maximum(y, 1)
    log_scale = jnp.log(scale)
    odds, odds0 = eta[0] - log_shape, log_scale - log_shape
    return _Terms(log_shape, jnp.exp(log_shape), scale, eta[0] - log_scale, odds, odds0)


def _at_best(log_shape: Array, y: Array) -> Array:
    """f at m = max(y, 1)."""
    shape, scale = jnp.exp(log_shape), jnp.maximum(y, 1)
    rest = gamma_rest(jnp.log(scale + shape)) - gamma_rest(log_shape)
    return jnp.where(y > 0, rest, -shape * jax.nn.softplus(jnp.log(scale) - log_shape))
