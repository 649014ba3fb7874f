"""Mergeable moments of the log ratios per row.

Means and central moments are merged pairwise (Chan, Golub, LeVeque 1983), never as a sum of squares minus the square
of a sum: in float32 that difference keeps no digits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from tallchain.types import Array, Population, is_whole


class Moments(NamedTuple):
    """Count, mean and sum of squared deviations. The count is an integer: float32 stops counting at 2^24."""

    count: Array
    mean: Array
    squares: Array

    @classmethod
    def empty(cls) -> Moments:
        """Return the moments of no rows."""
        zero = jnp.zeros((), jnp.result_type(float))
        return cls(jnp.zeros((), jnp.int32), zero, zero)

    @classmethod
    def of(cls, values: Array, is_valid: Array) -> Moments:
        """Return the moments of one window, in two passes: the mean first, then deviations from it."""
        count = jnp.sum(is_valid, dtype=jnp.int32)
        mean = jnp.sum(jnp.where(is_valid, values, 0)) / jnp.maximum(count, 1)
        deviations = jnp.where(is_valid, values - mean, 0)
        return cls(count, mean, jnp.sum(deviations * deviations))

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both samples together."""
        count = self.count + other.count
        share = other.count / jnp.maximum(count, 1)
        shift = other.mean - self.mean
        return Moments(
            count,
            self.mean + shift * share,
            self.squares + other.squares + shift * shift * share * self.count,
        )


class SkewMoments(NamedTuple):
    """Moments, and the sum of cubed deviations."""

    count: Array
    mean: Array
    squares: Array
    cubes: Array

    @classmethod
    def empty(cls) -> SkewMoments:
        """Return the moments of no rows."""
        moments = Moments.empty()
        return cls(*moments, moments.mean)

    @classmethod
    def of(cls, values: Array, is_valid: Array) -> SkewMoments:
        """Return the moments of one window, in two passes."""
        moments = Moments.of(values, is_valid)
        return cls(*moments, jnp.sum(jnp.where(is_valid, values - moments.mean, 0) ** 3))

    def merge(self, other: SkewMoments) -> SkewMoments:
        """Return the moments of both samples together."""
        moments = Moments(*self[:3]).merge(Moments(*other[:3]))
        n = jnp.maximum(moments.count, 1)
        mine, its = self.count / n, other.count / n
        shift = other.mean - self.mean
        cubes = self.cubes + other.cubes + 3 * shift * (mine * other.squares - its * self.squares)
        return SkewMoments(*moments, cubes + shift**3 * mine * its * (self.count - other.count))

    @property
    def skewness(self) -> Array:
        """gamma, the sample skewness with its usual small-sample factor sqrt(n(n-1))/(n-2)."""
        n = jnp.maximum(self.count, 3).astype(self.mean.dtype)
        spread = (self.squares / n) ** 1.5
        is_spread = spread > 0  # rows that are all the same have none
        skewness = self.cubes / n / jnp.where(is_spread, spread, 1)
        return jnp.where(is_spread, jnp.sqrt(n * (n - 1)) / (n - 2) * skewness, 0)


class Extremes(NamedTuple):
    """Moments, and the largest and smallest number seen."""

    moments: Moments
    low: Array
    high: Array

    @property
    def mean(self) -> Array:
        """Mean of the numbers seen."""
        return self.moments.mean

    @property
    def range(self) -> Array:
        """Largest minus smallest."""
        return self.high - self.low

    @classmethod
    def empty(cls) -> Extremes:
        """Return the extremes of no rows."""
        infinite = jnp.full((), jnp.inf, jnp.result_type(float))
        return cls(Moments.empty(), infinite, -infinite)

    @classmethod
    def of(cls, values: Array, is_valid: Array) -> Extremes:
        """Return moments and extremes of one window."""
        low = jnp.min(jnp.where(is_valid, values, jnp.inf))
        return cls(Moments.of(values, is_valid), low, jnp.max(jnp.where(is_valid, values, -jnp.inf)))

    def merge(self, other: Extremes) -> Extremes:
        """Return moments and extremes of both samples together."""
        low, high = jnp.minimum(self.low, other.low), jnp.maximum(self.high, other.high)
        return Extremes(self.moments.merge(other.moments), low, high)


def row_variance(moments: Moments | SkewMoments) -> Array:
    """Sample variance of the rows."""
    return moments.squares / jnp.maximum(moments.count - 1.0, 1.0)


def variance_of_mean(moments: Moments | SkewMoments, population: Population) -> Array:
    """s2 = sample variance / b, times (1 - b/N) where rows do not repeat; infinite while b < 2."""
    b = moments.count.astype(moments.mean.dtype)
    s2 = moments.squares / jnp.maximum(b - 1, 1) / jnp.maximum(b, 1)
    if not population.repeats:
        # (N - b)/N in integers first: 1 - b/N in float32 would round to 0 too early for large N.
        s2 = s2 * ((population.num_rows - moments.count) / population.num_rows)
    return jnp.where(moments.count > 1, s2, jnp.inf)


def has_read_all(moments: Moments | SkewMoments, population: Population) -> Array | bool:
    """Whether the mean is exact: every row was read."""
    return False if population.repeats else moments.count >= population.num_rows


# ---- how many rows to ask for ------------------------------------------------------------------


def check_batch(call: str, batch: Any) -> None:
    """Refuse a number of rows between judgements that is none."""
    if batch is not None and not is_whole(batch, least=1):
        raise ValueError(
            f"`{call}(batch=...)` must be a whole number of rows, at least 1, or None for the source's batch_size; "
            f"got {batch!r}."
        )


def batch_rows(batch: int | None, population: Population) -> int:
    """Rows between judgements: the test's wish, else the source's batch size; at most all."""
    return min(batch or population.batch_size, population.num_rows)


def rows_to_add(rows: Array | int, moments: Moments | SkewMoments, population: Population) -> Array | int:
    """As many rows as wanted, or as are left."""
    return rows if population.repeats else jnp.minimum(rows, population.num_rows - moments.count)
