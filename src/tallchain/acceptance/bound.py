"""The paper's error bound: (6.4 E|X|^3 + 2 E|X|)/sqrt(b), X the standardised log ratio of a row.

Seita et al. (2017), Corollary 1, after Novak (2005): how far the distribution function of the studentised mean of b
rows is from the normal one. It holds for X of unit variance only; `docs/how-wrong.md` shows how large it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from tallchain.acceptance.evidence import SkewMoments, has_read_all, whole_rows
from tallchain.types import Array, Population


class BoundMoments(NamedTuple):
    """Moments, and absolute ones about the mean of the first window."""

    count: Array
    mean: Array
    squares: Array
    cubes: Array
    centre: Array
    """The mean of the first window: absolute deviations from a moving mean cannot be added up."""
    absolute: Array
    absolute_cubes: Array

    @classmethod
    def empty(cls) -> BoundMoments:
        """Return the moments of no rows."""
        moments = SkewMoments.empty()
        return cls(*moments, *(moments.mean,) * 3)

    def of(self, values: Array, is_valid: Array) -> BoundMoments:
        """Return the moments of one window, centred like the rows before it."""
        moments = SkewMoments.of(values, is_valid)
        centre = jnp.where(self.count > 0, self.centre, moments.mean)
        deviations = jnp.where(is_valid, jnp.abs(values - centre), 0)
        return BoundMoments(*moments, centre, jnp.sum(deviations), jnp.sum(deviations**3))

    def merge(self, other: BoundMoments) -> BoundMoments:
        """Return the moments of both samples together."""
        moments = SkewMoments(*self[:4]).merge(SkewMoments(*other[:4]))
        centre = jnp.where(self.count > 0, self.centre, other.centre)
        return BoundMoments(
            *moments, centre, self.absolute + other.absolute, self.absolute_cubes + other.absolute_cubes
        )

    @property
    def skewness(self) -> Array:
        """gamma."""
        return SkewMoments(*self[:4]).skewness


def bound_of(first: Any, third: Any, b: Any) -> Any:
    """(6.4 E|X|^3 + 2 E|X|)/sqrt(b)."""
    return (6.4 * third + 2 * first) / b**0.5


def error_bound(evidence: BoundMoments, population: Population) -> Array:
    """Return epsilon; 0 if all rows have been read, or if all rows read are equal."""
    b = jnp.maximum(evidence.count, 1).astype(evidence.mean.dtype)
    sd = jnp.sqrt(evidence.squares / b)
    is_spread = sd > 0
    scale = jnp.where(is_spread, sd, 1)
    epsilon = bound_of(evidence.absolute / b / scale, evidence.absolute_cubes / b / scale**3, b)
    return jnp.where(is_spread & ~has_read_all(SkewMoments(*evidence[:4]), population), epsilon, 0)


def rows_for_bound(evidence: BoundMoments, delta: float, population: Population) -> Array:
    """Rows at which the bound falls to delta, if the others are like those read."""
    rows = evidence.count * (error_bound(evidence, population) / delta) ** 2
    return whole_rows(rows, population)
