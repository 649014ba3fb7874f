"""What a family of outcomes is: the log density f(eta; y) of one outcome, given a few predictors.

A regression has eta_i = A_i t in R^q, linear in the parameters t: first the linear predictors (one for most families,
C - 1 for a softmax), then numbers that all rows share (the log of a scale, cutpoints). Everything that needs
derivatives takes them in R^q, and never through the parameters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.types import Array


class Derivatives(NamedTuple):
    """Derivatives of f(eta; y) for one outcome; z is the first predictor."""

    first: Array
    """By each predictor, (q,)."""
    second: Array
    """By each pair of predictors, (q, q)."""
    third: Array
    """Twice by z and once by each predictor, (q,)."""
    fourth: Array
    """Four times by z."""


class Bounds(NamedTuple):
    """Upper bounds on the norms of derivatives of f, over some values of its linear predictors."""

    first: Array
    second: Array
    third: Array


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of outcomes. Its fields are plain numbers and names, so that equal families share their programs."""

    @property
    def shared(self) -> tuple[str, ...]:
        """Names of the predictors that all rows share, after the linear ones."""
        return ()

    @property
    def num_linear(self) -> int:
        """Number of linear predictors."""
        return 1

    @property
    def is_concave(self) -> bool:
        """Whether f is concave in its predictors."""
        return False

    @property
    def takes_intercept(self) -> bool:
        """Whether a regression may have an intercept: not where numbers that all rows share take its place."""
        return True

    @property
    def has_trials(self) -> bool:
        """Whether an outcome is of a number of trials, the `size` of `draw`; it is then the second number of y."""
        return False

    @property
    def num_predictors(self) -> int:
        """q."""
        return self.num_linear + len(self.shared)

    # ---- on the device, for ONE row -------------------------------------------------------------

    def log_density(self, eta: Array, y: Array) -> Array:
        """f(eta; y), up to a constant in eta; eta is (q,), y a number, or a vector of what makes up the outcome."""
        raise NotImplementedError

    def gain(self, eta: Array, step: Array, y: Array) -> Array:
        """f(eta + step; y) - f(eta; y). Families that can do so compute it without cancellation for short steps."""
        return self.log_density(eta + step, y) - self.log_density(eta, y)

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        """Return the derivatives up to order 4; by automatic differentiation unless a family has closed forms."""
        f = lambda at: self.log_density(at, y)  # noqa: E731
        curve = _along_first(_along_first(f))
        second = jax.jacfwd(jax.jacfwd(f))(eta)
        return Derivatives(jax.jacfwd(f)(eta), second, jax.jacfwd(curve)(eta), _along_first(_along_first(curve))(eta))

    def higher(self, eta: Array, y: Array) -> Array:
        """Return the derivatives by z of orders 3 to 6; by differentiating the fourth unless it has closed forms."""

        def fourth(z: Array) -> Array:
            return self.derivatives(z[None] if len(eta) == 1 else eta.at[0].set(z), y).fourth

        z, one = eta[0], jnp.ones_like(eta[0])
        slope = lambda z: jax.jvp(fourth, (z,), (one,))  # noqa: E731
        (f4, f5), (_, f6) = jax.jvp(slope, (z,), (one,))
        return jnp.stack([self.derivatives(eta, y).third[0], f4, f5, f6])

    def derivative_bounds(self, low: Array, high: Array, y: Array) -> Bounds:
        """Bound the derivatives of orders 1 to 3 where every linear predictor is between `low` and `high`.

        These may be infinite, and so may the bounds: they are, unless a family says otherwise.
        """
        infinite = jnp.full((), jnp.inf, low.dtype)
        return Bounds(infinite, infinite, infinite)

    def mean(self, eta: Array) -> Array:
        """E[y], a number; for a distribution over levels, their probabilities."""
        raise NotImplementedError

    def draw(self, key: Array, eta: Array, size: Array | float = 1.0) -> Array:
        """Draw an outcome, in the form of `outcomes`; `size` is the number of trials, for a family that has trials."""
        raise NotImplementedError

    # ---- on the host ----------------------------------------------------------------------------

    def outcomes(self, call: str, y: Any) -> np.ndarray:
        """Return the outcomes in float32, (N,) or (N, k), or raise an error that says what is wrong with them."""
        raise NotImplementedError

    def more_outcomes(self, call: str, y: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Return outcomes that come later than those known: together they must differ, alone they may be the same."""
        return self.outcomes(call, np.concatenate([y, known]))[: len(y)]

    def start(self, y: np.ndarray) -> np.ndarray:
        """Return predictors (q,) to start from: about the best if they were the same for all rows."""
        raise NotImplementedError

    def unit(self, y: np.ndarray) -> float:
        """Return the unit of a linear predictor, by which default priors are scaled: sd(y) if it is in units of y."""
        return 1.0


@dataclasses.dataclass(frozen=True)
class ScaleFamily(Family):
    """A family with a scale, a shape or cutpoints that all rows share."""

    def gain(self, eta: Array, step: Array, y: Array) -> Array:
        """Term by term for steps of at most 1 in what all rows share, the difference for longer ones."""
        is_short = jnp.array(True)
        for k in range(self.num_linear, self.num_predictors):  # number by number: XLA makes one loop of it
            is_short &= jnp.abs(step[k]) <= 1
        short = self.short_gain(eta, jnp.where(is_short, step, 0.0), y)
        return jnp.where(is_short, short, super().gain(eta, step, y))

    def short_gain(self, eta: Array, step: Array, y: Array) -> Array:
        """`gain`, for steps of at most 1 in what all rows share; those of the linear predictors may be long."""
        raise NotImplementedError


def _along_first(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Differentiate by the first predictor."""

    def slope(eta: Array) -> Array:
        return jax.jvp(function, (eta,), (jnp.zeros_like(eta).at[0].set(1),))[1]

    return slope


def largest(low: Array, high: Array, at_ends: tuple[Array, Array], peaks: Iterable[tuple[Any, float]] = ()) -> Array:
    """Return the largest absolute value of a function between two numbers: at an end, or at a peak in between.

    Args:
        low: the lower end.
        high: the upper end.
        at_ends: the function there.
        peaks: where its absolute value has a maximum, and that value.
    """
    found = jnp.maximum(jnp.abs(at_ends[0]), jnp.abs(at_ends[1]))
    for place, value in peaks:
        found = jnp.where((low <= place) & (place <= high), jnp.maximum(found, value), found)
    return found


def of_one(first: Array, second: Array, third: Array, fourth: Array) -> Derivatives:
    """Return the derivatives of a family with a single predictor."""
    return Derivatives(first[None], second[None, None], third[None], fourth)


def of_two(
    first: tuple[Array, Array], second: tuple[Array, Array, Array], third: tuple[Array, Array], fourth: Array
) -> Derivatives:
    """Return the derivatives of a family with predictors z and s, from (z, s), (zz, zs, ss), (zzz, zzs) and zzzz."""
    zz, zs, ss = second
    square = jnp.stack([jnp.stack([zz, zs]), jnp.stack([zs, ss])])
    return Derivatives(jnp.stack(first), square, jnp.stack(third), fourth)
