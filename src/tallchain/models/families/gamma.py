"""Positive outcomes, with a standard deviation in proportion to the mean."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.models.families.checks import differing, positive
from tallchain.models.families.family import Derivatives, ScaleFamily, of_two
from tallchain.models.families.gamma_function import gamma_rest, gamma_rest_rise
from tallchain.models.families.growth import Span, growth_derivatives, growth_rise
from tallchain.types import Array

_STEEPEST = 30.0  # exponents of outcome over mean, and of the shape: their product is still a float32
_SPAN = Span(high=_STEEPEST)


@dataclasses.dataclass(frozen=True)
class Gamma(ScaleFamily):
    """Outcomes above 0 with mean exp(z) and variance exp(2z)/c, c = exp(log_shape).

    With u = log y - z, f = -R(c) - c (exp(u) - 1 - u), R the log of the gamma function less its main part.
    """

    @property
    def shared(self) -> tuple[str, ...]:
        """The log of the shape."""
        return ("log_shape",)

    def log_density(self, eta: Array, y: Array) -> Array:
        """f; beyond u = 30, exp(u) continues as a parabola."""
        a = _terms(eta, y)
        return -gamma_rest(a.log_shape) - a.shape * _misfit(a.excess)

    def short_gain(self, eta: Array, step: Array, y: Array) -> Array:
        """Term by term."""
        a = _terms(eta, y)
        by = _SPAN.step(eta[1], step[1])
        rise = growth_rise(a.excess, -step[0], _STEEPEST) + step[0]
        more = growth_rise(a.log_shape, by, _STEEPEST)
        return -gamma_rest_rise(a.log_shape, by) - a.shape * rise - more * _misfit(a.excess - step[0])

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        """c (exp(u) - 1), then -c exp(u) and c exp(u) in turn, by z."""
        a = _terms(eta, y)
        slope = _SPAN.slope(eta[1])
        e = growth_derivatives(a.excess, _STEEPEST)
        pull, curve, misfit = a.shape * (e.first - 1), a.shape * e.second, a.shape * _misfit(a.excess)
        rate, rise = jax.grad(gamma_rest)(a.log_shape), jax.grad(jax.grad(gamma_rest))(a.log_shape)
        return of_two(
            (pull, -slope * (rate + misfit)),
            (-curve, slope * pull, -slope * (rise + misfit)),
            (a.shape * e.third, -slope * curve),
            -a.shape * e.third,
        )

    def higher(self, eta: Array, y: Array) -> Array:
        """c exp(u), with either sign in turn."""
        a = _terms(eta, y)
        e = a.shape * growth_derivatives(a.excess, _STEEPEST).third
        return jnp.stack([e, -e, e, -e])

    def mean(self, eta: Array) -> Array:
        """exp(z)."""
        return jnp.exp(eta[0])

    def draw(self, key: Array, eta: Array, size: Array | float = 1.0) -> Array:
        """Draw a positive number."""
        log_shape = _SPAN.clip(eta[1])
        return jnp.exp(eta[0] - log_shape + jr.loggamma(key, jnp.exp(log_shape), dtype=eta.dtype))

    def outcomes(self, call: str, y: Any) -> np.ndarray:
        """Return numbers above 0, not all the same."""
        return differing(call, positive(call, y), "the shape")

    def start(self, y: np.ndarray) -> np.ndarray:
        """The log of the mean; the shape by a formula in log(mean) - mean(log) that is right to 1.5 % (Minka)."""
        log_mean = np.log(y.mean(dtype=np.float64))
        s = max(float(log_mean - np.log(y).mean(dtype=np.float64)), 1e-12)
        return np.array([log_mean, np.log((3 - s + np.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s))])


class _Terms(NamedTuple):
    """What f is made of."""

    log_shape: Array
    shape: Array
    excess: Array
    """u."""


def _terms(eta: Array, y: Array) -> _Terms:
    log_shape = _SPAN.clip(eta[1])
    return _Terms(log_shape, jnp.exp(log_shape), jnp.log(y) - eta[0])


def _misfit(excess: Array) -> Array:
    """exp(u) - 1 - u."""
    return growth_rise(jnp.zeros_like(excess), excess, _STEEPEST) - excess
