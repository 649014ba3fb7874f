"""A number by the normal quantiles of its distribution: x(w) = F^-1(Phi(w)), so that w is standard normal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tallchain.arrays import as_floats
from tallchain.parts import part, set_fields
from tallchain.types import Array

_FURTHEST, _NODES = 5.0, 161  # w beyond which x goes on as a line; and nodes up to there
_APART = 1e-6  # least distance of two nodes from which the function is made
_WIDE, _ZOOMS, _ROUGHLY = 14.0, 12, 33  # a search of the mode: half its width at first, times it is narrowed, points
_FLAT = 4.0  # difference of log densities within about two standard deviations of the mode
_FAR, _POINTS = 14.0, 161  # from the mode
_LEAST_POINTS = 9
_NEGLIGIBLE, _NOTHING = 40.0, -1e30  # logarithms of densities
_SAME = 1e-6  # difference of logarithms, beside 1
_HALVINGS = 30


@part
class Quantiles:
    """A smooth increasing function x(w), cubic between nodes."""

    values: Array
    slopes: Array
    """dx/dw at the nodes."""

    @classmethod
    def of(cls, log_density: Callable[[np.ndarray], np.ndarray], near: float) -> Quantiles:
        """Make it of a density, given up to a constant, of a number of unit size or less, with its mode near `near`."""
        from scipy.interpolate import PchipInterpolator
        from scipy.special import ndtri

        points, log_values = _points(log_density, near)
        log_values = log_values - log_values.max()
        # The logarithm between two points is a line: nearly so in the tails.
        fall = np.maximum(np.abs(np.diff(log_values)), _SAME)
        parts = np.exp(np.maximum(log_values[1:], log_values[:-1])) * -np.expm1(-fall) / fall * np.diff(points)
        first, last = _beyond(points, log_values), _beyond(points[::-1], log_values[::-1])
        below, above = first + np.cumsum(parts[:-1]), last + np.cumsum(parts[::-1])[-2::-1]
        whole = first + np.sum(parts) + last
        w = np.where(below < above, ndtri(below / whole), -ndtri(above / whole))
        keep = np.concatenate([[True], np.diff(w) > _APART])
        curve = PchipInterpolator(w[keep], points[1:-1][keep])
        nodes = np.linspace(-_FURTHEST, _FURTHEST, _NODES)
        inside = np.clip(nodes, w[0], w[-1])
        slopes = curve(inside, 1)
        values = curve(inside) + (nodes - inside) * slopes
        return set_fields(object.__new__(cls), values=as_floats(values), slopes=as_floats(slopes))

    def back(self, w: Array) -> tuple[Array, Array]:
        """x(w), and the logarithm of its slope."""
        step = 2 * _FURTHEST / (_NODES - 1)
        place = (w + _FURTHEST) / step
        at = jnp.clip(jnp.floor(jnp.nan_to_num(place)).astype(jnp.int32), 0, _NODES - 2)
        t = place - at
        inside = jnp.clip(t, 0.0, 1.0)
        y0, y1, m0, m1 = self.values[at], self.values[at + 1], step * self.slopes[at], step * self.slopes[at + 1]
        rise = y1 - y0
        a, b = m0 - rise, rise - m1
        # y0 + t rise + t (1 - t) ((1 - t) a + t b), and its derivative by t
        value = y0 + inside * rise + inside * (1 - inside) * ((1 - inside) * a + inside * b)
        slope = rise + (1 - 2 * inside) * ((1 - inside) * a + inside * b) + inside * (1 - inside) * (b - a)
        return value + (t - inside) * slope, jnp.log(slope / step)

    def to(self, x: Array) -> Array:
        """w(x)."""
        step = 2 * _FURTHEST / (_NODES - 1)
        low = (x - self.values[0]) / self.slopes[0] - _FURTHEST
        high = (x - self.values[-1]) / self.slopes[-1] + _FURTHEST
        at = jnp.clip(jnp.searchsorted(self.values, x, side="right") - 1, 0, _NODES - 2)

        def halved(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            middle = 0.5 * (ends[0] + ends[1])
            is_above = self.back(middle)[0] > x
            return jnp.where(is_above, ends[0], middle), jnp.where(is_above, middle, ends[1])

        left = at * step - _FURTHEST
        # A loop: written out, XLA would compute each half again and again.
        left, right = lax.fori_loop(0, _HALVINGS, halved, (left, left + step))
        inside = 0.5 * (left + right)
        return jnp.where(x < self.values[0], low, jnp.where(x > self.values[-1], high, inside))


def _beyond(points: np.ndarray, log_values: np.ndarray) -> float:
    """Return what is beyond the first point, if the logarithm goes on as a line."""
    slope = (log_values[1] - log_values[0]) / abs(points[1] - points[0])
    return float(np.exp(log_values[0]) / slope) if slope > 0 else 0.0


def _points(log_density: Callable[[np.ndarray], np.ndarray], near: float) -> tuple[np.ndarray, np.ndarray]:
    """Return points that are close to each other around the mode, as far as it is not negligible, and its logarithm.

    Something like a standard normal density, if this is none: coordinates need not be good to be right.
    """
    mode, width = near, _WIDE
    for _ in range(_ZOOMS):
        points = mode + width * np.linspace(-1, 1, _ROUGHLY)
        values = np.nan_to_num(log_density(points), nan=_NOTHING, neginf=_NOTHING)
        mode = float(points[np.argmax(values)])
        if np.ptp(values) < _FLAT:
            break
        width *= 3 / (_ROUGHLY - 1)
    points = mode + width * np.sinh(np.linspace(-1, 1, _POINTS) * np.arcsinh(_FAR / width))
    values = np.nan_to_num(log_density(points), nan=_NOTHING, neginf=_NOTHING)
    is_low = values < values.max() - _NEGLIGIBLE
    highest = int(np.argmax(values))
    first = highest - int(np.argmax(is_low[highest::-1])) if is_low[: highest + 1].any() else 0
    last = highest + int(np.argmax(is_low[highest:])) if is_low[highest:].any() else len(points) - 1
    if last - first < _LEAST_POINTS:
        points = near + np.linspace(-_FURTHEST, _FURTHEST, _POINTS)
        return points, -0.5 * (points - near) ** 2
    return points[first : last + 1], values[first : last + 1]
