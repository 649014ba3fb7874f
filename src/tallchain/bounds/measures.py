"""How far two positions are apart, for a bound: |l_i(t') - l_i(t) - q_i(t') + q_i(t)| <= c_i M(t, t').

q_i is the expansion of l_i at r, of order k (none for k = 0). With v = T^-1 (t - r), v' = T^-1 (t' - r), u = v' - v,
w = v + v', for any fixed T:

- "predictor", for l_i = f(x_i.t) and c_i = sup |f^(k+1)| |T'x_i|^(k+1):

      M0 = |u|
      M1 = 1/2 max((|u||w| + |u.w|)/2, min(|u|^2, max(|v|^2, |v'|^2)))     |u|^2 for the minimum if f is not concave
      M2 = |u| max_p h(p) / 24,   h(p) = |cos p| (|u|^2 cos^2 p + 3 |w|^2 cos^2(p - angle(u, w)))

  A row's predictor moves by a = x.u, and its deviation by b = x.w: at order 2 its part is at most F3 |a| (a^2 + 3 b^2)
  /24, which depends on the part of T'x in the plane of u and w alone. The maximum is over 32 directions; h is a
  trigonometric polynomial of degree 3, so that it is at most 1/cos(3 pi/64) times as large in between.

- "norm", for any model, c_i being sup of the operator norm of the (k+1)-th derivative of l_i in these coordinates:
  M0 = |u|, M1 = |u| (|v| + |v'|)/2, M2 = |u| (|u|^2 + 3 |w|^2)/24.
- "scalable", as in Cornish et al. (2019), T = 1, c_i = F |x_i|_inf^j, j = k + 1: M = (|v|_1^j + |v'|_1^j)/j!, and
  |u|_1 for k = 0.
- "pymhss", as in the package PyMHSS 0.0.5 of Prado et al. (2024), T = 1: M1 = |u| max(|v| D, |v'| D'), D = (1 + |o|)/2,
  o = cos(v, u); M2 = |u| (|u|^2/6 + |v|^2 E + |v'|^2 E')/2, E = (2 + |o| k)^1.5/(3^1.5 k), k = sqrt(2 + o^2/4) - |o|/2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from tallchain.types import Array

_CIRCLE = np.cos(np.arange(32) * np.pi / 32), np.sin(np.arange(32) * np.pi / 32)
_GAPS = 1 / math.cos(3 * np.pi / 64)


def _length(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(x**2))


def _predictor(order: int, v: Array, v2: Array, *, is_concave: bool) -> Array:
    u, w = v2 - v, v + v2
    size, both, inner = _length(u), _length(w), jnp.sum(u * w)
    if order == 0:
        return size
    if order == 1:
        apart = jnp.minimum(size**2, jnp.maximum(jnp.sum(v**2), jnp.sum(v2**2))) if is_concave else size**2
        return 0.5 * jnp.maximum(0.5 * (size * both + jnp.abs(inner)), apart)
    # With cos(p - angle) written out there is no other cosine to compute.
    scale = size * both
    along = jnp.clip(inner / jnp.where(scale > 0, scale, 1), -1, 1)
    across = jnp.sqrt((1 - along) * (1 + along))
    cosine, sine = (jnp.asarray(values, size.dtype) for values in _CIRCLE)
    height = jnp.abs(cosine) * (size**2 * cosine**2 + 3 * both**2 * (cosine * along + sine * across) ** 2)
    return size * _largest(height) * (_GAPS / 24)


def _largest(values: Array) -> Array:
    """Return the maximum of 2^k numbers, by halves: `jnp.max` over so few of them is much slower on a CPU."""
    while len(values) > 1:
        half = len(values) // 2
        values = jnp.maximum(values[:half], values[half:])
    return values[0]


def _norm(order: int, v: Array, v2: Array, *, is_concave: bool) -> Array:
    size, both = _length(v2 - v), _length(v + v2)
    return (size, size * (_length(v) + _length(v2)) / 2, size * (size**2 + 3 * both**2) / 24)[order]


def _scalable(order: int, v: Array, v2: Array, *, is_concave: bool) -> Array:
    if order == 0:
        return jnp.sum(jnp.abs(v2 - v))
    power = order + 1
    return (jnp.sum(jnp.abs(v)) ** power + jnp.sum(jnp.abs(v2)) ** power) / math.factorial(power)


def _pymhss(order: int, v: Array, v2: Array, *, is_concave: bool) -> Array:
    u = v2 - v
    size = _length(u)
    sizes, cosines = [], []
    for each in (v, v2):
        length = _length(each)
        scale = length * size
        sizes.append(length)
        cosines.append(jnp.abs(jnp.sum(each * u)) / jnp.where(scale > 0, scale, 1))
    if order == 0:
        return size
    if order == 1:
        return size * jnp.maximum(*(length * (1 + o) / 2 for length, o in zip(sizes, cosines, strict=True)))
    total = size**2 / 6
    for length, o in zip(sizes, cosines, strict=True):
        k = jnp.sqrt(2 + o**2 / 4) - o / 2
        total += length**2 * (2 + o * k) ** 1.5 / (3**1.5 * k)
    return size * total / 2


MEASURES: dict[str, Callable[..., Array]] = {
    "predictor": _predictor,
    "norm": _norm,
    "scalable": _scalable,
    "pymhss": _pymhss,
}
