"""Times until something happens, some of them cut off before it happens."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import random as jr
from jax.scipy.special import gammaln

from tallchain.models.families.checks import is_label, pairs, refuse
from tallchain.models.families.family import Derivatives, ScaleFamily, of_two
from tallchain.models.families.growth import Span, growth, growth_derivatives, growth_rise
from tallchain.types import Array

_SPAN = Span(high=10.0)  # of the log of the shape: times that differ by a part in 10^4
_HALVINGS = 30


@dataclasses.dataclass(frozen=True)
class Weibull(ScaleFamily):
    """y = (time, observed): P(T > t) = exp(-(t / exp(z))^k), k = exp(log_shape); observed is 0 for T > time.

    With u = k (log t - z), f = observed (log k + u) - exp(u).
    """

    @property
    def shared(self) -> tuple[str, ...]:
        """The log of the shape."""
        return ("log_shape",)

    def log_density(self, eta: Array, y: Array) -> Array:
        """f; beyond u = 40, exp(u) continues as a parabola."""
        a = _terms(eta, y)
        return y[1] * (a.log_shape + a.u) - growth(a.u)

    def short_gain(self, eta: Array, step: Array, y: Array) -> Array:
        """observed (rise of log k + rise of u) - rise of exp(u); u rises by (k' - k) (log t - z - d) - k d."""
        a = _terms(eta, y)
        by = _SPAN.step(eta[1], step[1])
        rise = growth_rise(a.log_shape, by) * (a.excess - step[0]) - a.shape * step[0]
        return y[1] * (by + rise) - growth_rise(a.u, rise)

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        """By z: k (exp(u) - observed), then -k^2 exp(u), k^3 exp(u), -k^4 exp(u)."""
        a = _terms(eta, y)
        slope = _SPAN.slope(eta[1])
        e, k, u = growth_derivatives(a.u), a.shape, a.u
        pull = k * (e.first - y[1])
        return of_two(
            (pull, slope * (y[1] * (1 + u) - u * e.first)),
            (-(k**2) * e.second, slope * (pull + k * u * e.second), slope * (u * (y[1] - e.first) - u**2 * e.second)),
            (k**3 * e.third, -slope * k**2 * (2 * e.second + u * e.third)),
            -(k**4) * e.third,
        )

    def higher(self, eta: Array, y: Array) -> Array:
        """k^3 exp(u), -k^4 exp(u) and so on."""
        a = _terms(eta, y)
        e, k = growth_derivatives(a.u).third, a.shape
        return jnp.stack([k**3 * e, -(k**4) * e, k**5 * e, -(k**6) * e])

    def mean(self, eta: Array) -> Array:
        """exp(z) Gamma(1 + 1/k), of times that are not cut off."""
        return jnp.exp(eta[0] + gammaln(1 + jnp.exp(-_SPAN.clip(eta[1]))))

    def draw(self, key: Array, eta: Array, size: Array | float = 1.0) -> Array:
        """Draw a time that is not cut off; (time, 1)."""
        time = jnp.exp(eta[0] - jr.gumbel(key, dtype=eta.dtype) * jnp.exp(-_SPAN.clip(eta[1])))
        return jnp.stack([time, jnp.ones_like(time)])

    def outcomes(self, call: str, y: Any) -> np.ndarray:
        """Return times above 0, and whether each was observed."""
        y = pairs(call, y, "time", "observed")
        time, observed = y.T
        refuse(call, time, ~(time > 0), "times and whether they were observed; times are above 0")
        hint = "The order is (time, observed), and observed is 0 for a time that was cut off."
        refuse(call, observed, ~is_label(observed), "times and whether they were observed, 0 or 1", hint)
        if not observed.any():
            raise ValueError(f"`{call}(y=...)` must have times that were observed; got 0 for every row.")
        return y

    def start(self, y: np.ndarray) -> np.ndarray:
        """The best z and shape, the latter by halving: mean of log t weighted by t^k = 1/k + mean of log t observed."""
        log_time, observed = np.log(y[:, 0]), y[:, 1] > 0
        largest = log_time.max()
        log_time = log_time - largest
        mean = float(log_time[observed].mean(dtype=np.float64))
        low, high = -7.0, _SPAN.high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            weights = np.exp(np.exp(middle) * log_time)
            total, moment = weights.sum(dtype=np.float64), (weights * log_time).sum(dtype=np.float64)
            low, high = (low, middle) if moment / total > np.exp(-middle) + mean else (middle, high)
        return np.array([np.log(total / observed.sum()) * np.exp(-middle) + largest, middle])


class _Terms(NamedTuple):
    """What f is made of."""

    log_shape: Array
    shape: Array
    excess: Array
    """log t - z."""
    u: Array


def _terms(eta: Array, y: Array) -> _Terms:
    log_shape = _SPAN.clip(eta[1])
    shape, excess = jnp.exp(log_shape), jnp.log(y[0]) - eta[0]
    return _Terms(log_shape, shape, excess, shape * excess)
