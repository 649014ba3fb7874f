"""Links of outcomes of 0 and 1: what P(y = 1) is as a function of the predictor z."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax.scipy.special import ndtr

from tallchain.models.families.family import Bounds, largest
from tallchain.models.families.growth import (
    growth,
    growth_derivatives,
    growth_rise,
    log_hit,
    log_hit_derivatives,
    log_hit_rise,
    softplus_rise,
)
from tallchain.models.likelihoods import log_normal_cdf
from tallchain.types import Array

_TAIL = 4.0  # below minus this, Mills' ratio is a continued fraction
_TERMS = 14
_BEND, _STEEPEST_BEND = 1.3169579, 1 / (6 * math.sqrt(3))  # where the third derivative of the logit model is largest
_FAR = 60.0  # derivatives there are as good as at infinity
_NODES, _WEIGHTS = (half.tolist() for half in np.polynomial.legendre.leggauss(6))


class Link(Protocol):
    """A link; z, d and y are numbers."""

    def log_density(self, z: Array, y: Array) -> Array:
        """f(z; y)."""
        ...

    def gain(self, z: Array, d: Array, y: Array) -> Array:
        """f(z + d; y) - f(z; y)."""
        ...

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        """Derivatives of f by z, up to order 4."""
        ...

    def bounds(self, low: Array, high: Array, y: Array) -> Bounds:
        """Bound the derivatives between two values of z."""
        ...

    def mean(self, z: Array) -> Array:
        """P(y = 1)."""
        ...

    def predictor(self, share: float) -> float:
        """z, given P(y = 1)."""
        ...


class Logit:
    """P(y = 1) = 1/(1 + exp(-z))."""

    def log_density(self, z: Array, y: Array) -> Array:
        """-log(1 + exp(-s)), s = z for y = 1 and -z for y = 0."""
        return jax.nn.log_sigmoid((2 * y - 1) * z)

    def gain(self, z: Array, d: Array, y: Array) -> Array:
        """-log(1 + P(the other outcome) (exp(-d) - 1)), d the step in the direction of the outcome."""
        other = 1 - 2 * y
        return -softplus_rise(other * z, other * d)

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        """With p = P(y = 1), w = p (1 - p): y - p, -w, -w (1 - 2p), -w (1 - 6w)."""
        p = jax.nn.sigmoid(z)
        w = p * jax.nn.sigmoid(-z)
        sign = 2 * y - 1
        return sign * jax.nn.sigmoid(-sign * z), -w, -w * (1 - 2 * p), -w * (1 - 6 * w)

    def bounds(self, low: Array, high: Array, y: Array) -> Bounds:
        """At most 1, 1/4 (at 0) and 1/(6 sqrt 3) (at +-1.317)."""
        ends = zip(self.derivatives(low, y), self.derivatives(high, y), strict=True)
        peaks = (), [(0.0, 1 / 4)], [(-_BEND, _STEEPEST_BEND), (_BEND, _STEEPEST_BEND)], ()
        return Bounds(*[largest(low, high, *each) for each in zip(ends, peaks, strict=True)][:3])

    def mean(self, z: Array) -> Array:
        """P(y = 1)."""
        return jax.nn.sigmoid(z)

    def predictor(self, share: float) -> float:
        """log(p / (1 - p))."""
        return math.log(share) - math.log1p(-share)


class Probit:
    """P(y = 1) = Phi(z)."""

    def log_density(self, z: Array, y: Array) -> Array:
        """log Phi(s), s = z for y = 1 and -z for y = 0."""
        return log_normal_cdf((2 * y - 1) * z)

    def gain(self, z: Array, d: Array, y: Array) -> Array:
        """log(1 + m I), m = phi(s)/Phi(s), I the integral of exp(-s v - v^2/2) from 0 to d, by quadrature.

        That is for short steps, |d| (1 + |s|) < 1/2. For long ones in the tail, -d (s + d/2) - log(m'/m); elsewhere the
        difference.
        """
        sign = 2 * y - 1
        s, d = sign * z, sign * d
        is_short, is_tail = jnp.abs(d) * (1 + jnp.abs(s)) < 0.5, jnp.maximum(s, s + d) < -_TAIL
        step = jnp.where(is_short, d, 0.0)
        at = [0.5 * step * (1 + node) for node in _NODES]
        integral = 0.5 * step * sum(w * jnp.exp(-v * (s + 0.5 * v)) for w, v in zip(_WEIGHTS, at, strict=True))
        before, after = (mills(jnp.where(is_tail, x, -_TAIL)).ratio for x in (s, s + d))
        in_tail = -d * (s + 0.5 * d) - jnp.log(after / before)
        long = jnp.where(is_tail, in_tail, log_normal_cdf(s + d) - log_normal_cdf(s))
        return jnp.where(is_short, jnp.log1p(mills(s).ratio * integral), long)

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        """With m' = -m g, g' = k, k = 1 - m g: m, -m g, m (g^2 - k), m (3 g k - g^3 - m (g^2 - k)); by s."""
        sign = 2 * y - 1
        m, g, k = mills(sign * z)
        third = m * (g**2 - k)
        return sign * m, -m * g, sign * third, m * (3 * g * k - g**3 - third)

    def bounds(self, low: Array, high: Array, y: Array) -> Bounds:
        """The first is largest where s is least, and infinite for -inf; so is the second, at most 1; then 0.295719."""
        is_one = y > 0
        low, high = jnp.where(is_one, low, -high), jnp.where(is_one, high, -low)  # of s
        is_open = jnp.isneginf(low)
        one, ends = jnp.ones_like(y), (jnp.maximum(low, -_FAR), jnp.clip(high, -_FAR, _FAR))
        first, second, third, _ = zip(*(self.derivatives(end, one) for end in ends), strict=True)
        return Bounds(
            jnp.where(is_open, jnp.inf, largest(low, high, first)),
            jnp.where(is_open, 1.0, largest(low, high, second)),
            largest(low, high, third, [(1.0023694, 0.2957189)]),
        )

    def mean(self, z: Array) -> Array:
        """P(y = 1)."""
        return ndtr(z)

    def predictor(self, share: float) -> float:
        """The quantile of the normal distribution."""
        return float(scipy.special.ndtri(share))


class ComplementaryLogLog:
    """P(y = 1) = 1 - exp(-exp(z)): whether anything happens, if it happens at the rate exp(z)."""

    def log_density(self, z: Array, y: Array) -> Array:
        """log(1 - exp(-exp(z))) for y = 1, -exp(z) for y = 0."""
        return jnp.where(y > 0, log_hit(z), -growth(z))

    def gain(self, z: Array, d: Array, y: Array) -> Array:
        """The rise of either."""
        return jnp.where(y > 0, log_hit_rise(z, d), -growth_rise(z, d))

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        """Those of either."""
        none = growth_derivatives(z)
        first, second, third, fourth = (
            jnp.where(y > 0, hit, -miss) for hit, miss in zip(log_hit_derivatives(z), (*none, none.third), strict=True)
        )
        return first, second, third, fourth

    def bounds(self, low: Array, high: Array, y: Array) -> Bounds:
        """exp(z) for y = 0; for y = 1 at most 1, 0.412532 and 0.426055."""
        miss = jnp.exp(high)
        hits = zip(*(log_hit_derivatives(jnp.clip(end, -_FAR, _FAR)) for end in (low, high)), strict=True)
        peaks = (), [(0.6208297, 0.4125317)], [(-0.1989416, 0.1955625), (1.4266907, 0.4260548)], ()
        found = (largest(low, high, *each) for each in zip(hits, peaks, strict=True))
        return Bounds(*[jnp.where(y > 0, hit, miss) for hit in found][:3])

    def mean(self, z: Array) -> Array:
        """P(y = 1)."""
        return -jnp.expm1(-jnp.exp(z))

    def predictor(self, share: float) -> float:
        """log(-log(1 - p))."""
        return math.log(-math.log1p(-share))


LINKS: dict[str, Link] = {"logit": Logit(), "probit": Probit(), "cloglog": ComplementaryLogLog()}


class Mills(NamedTuple):
    """Mills' ratio and what its derivatives are made of."""

    ratio: Array
    """m = phi(s)/Phi(s)."""
    gap: Array
    """g = m + s."""
    slope: Array
    """k = 1 - m g, the derivative of g."""


def mills(s: Array) -> Mills:
    """Return Mills' ratio. Below -4, with t = -s and the continued fraction c_j = t + (j + 1)/c_(j+1): m = t + 1/c_1.

    g = 1/c_1 and k = g (t + 4/c_2 - 3/c_3) / (c_1 c_2) need no difference of numbers of the size of t there.
    """
    is_tail = s < -_TAIL
    t = jnp.where(is_tail, -s, _TAIL)
    fraction = 0.5 * (t + jnp.sqrt(t**2 + 4 * (_TERMS + 1)))  # of the rest: where it is nearly constant
    for j in range(_TERMS, 3, -1):
        fraction = t + j / fraction
    c3 = fraction
    c2 = t + 3 / c3
    c1 = t + 2 / c2
    gap = 1 / c1
    tail = Mills(t + gap, gap, gap * (t + 4 / c2 - 3 / c3) / (c1 * c2))
    inner = jnp.where(is_tail, 0.0, s)
    ratio = jnp.exp(-0.5 * inner**2) / (math.sqrt(2 * math.pi) * ndtr(inner))
    middle = Mills(ratio, ratio + inner, 1 - ratio * (ratio + inner))
    return Mills(*(jnp.where(is_tail, *both) for both in zip(tail, middle, strict=True)))
