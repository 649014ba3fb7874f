"""Mergeable moments of the log ratios per row.

Means and central moments are merged pairwise (Chan, Golub, LeVeque 1983), never as a sum of squares minus the square
of a sum: in float32 that difference keeps no digits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from tallchain.types import Array, Ask, Population
from tallchain.validation import is_whole


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
        is_spread = spread > 0  # zero if all rows are equal
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
    """s2 = sample variance / b, times (1 - b/N) where rows do not repeat; infinite while b < 2, 0 after all rows."""
    b = moments.count.astype(moments.mean.dtype)
    s2 = moments.squares / jnp.maximum(b - 1, 1) / jnp.maximum(b, 1) * share_left(moments.count, population)
    # The mean of all rows has no variance, even where squares overflow.
    return jnp.where(has_read_all(moments, population), 0, jnp.where(moments.count > 1, s2, jnp.inf))


def share_left(count: Array, population: Population) -> Array | float:
    """1 - b/N, the finite-population factor; 1 where rows repeat."""
    # (N - b)/N in integers first: 1 - b/N in float32 would round to 0 too early for large N.
    return 1.0 if population.repeats else (population.num_rows - count) / population.num_rows


def has_read_all(moments: Moments | SkewMoments, population: Population) -> Array:
    """Whether the mean is exact: every row was read.

    Where rows repeat, only a census has N of them: `add_rows` ensures this.
    """
    return moments.count >= population.num_rows


# ---- how many rows to ask for ------------------------------------------------------------------


def check_batch(call: str, batch: Any) -> None:
    """Refuse an invalid number of rows between judgements."""
    if batch is not None and not is_whole(batch, least=1):
        raise ValueError(
            f"`{call}(batch=...)` must be a whole number of rows, at least 1, or None for the source's batch_size; "
            f"got {batch!r}."
        )


def batch_rows(batch: int | None, population: Population) -> int:
    """Rows between judgements: what the test asks for, else the source's batch size; at most all."""
    return min(batch or population.batch_size, population.num_rows)


def first_rows(rows: int, population: Population) -> Ask:
    """Ask for the first rows of a decision, at most all."""
    return Ask(min(rows, population.num_rows), census=population.repeats and rows >= population.num_rows)


def add_rows(rows: Array | int, moments: Moments | SkewMoments, population: Population) -> Ask:
    """Ask for more rows, at most all that are left; for a census if rows repeat and there would be N of them.

    If squares are not finite, nothing shows how many rows are enough: ask for all.
    """
    left = population.num_rows - moments.count
    is_all = ~jnp.isfinite(moments.squares) | (rows >= left)
    if not population.repeats:
        return Ask(jnp.where(is_all, left, rows))
    return Ask(jnp.where(is_all, population.num_rows, rows), census=is_all, fresh=is_all)


def choose_ask(condition: Array, yes: Ask, no: Ask) -> Ask:
    """Choose between two asks; what both have in common stays static."""
    chosen = (a if a is b else jnp.where(condition, a, b) for a, b in zip(yes, no, strict=True))
    return Ask._make(chosen)


def whole_rows(rows: Array, population: Population) -> Array:
    """Round a number of rows up, at most to N; NaN becomes N."""
    is_all = ~(rows < population.num_rows)
    # N as a float may be a little more than N.
    return jnp.where(is_all, population.num_rows, jnp.ceil(jnp.where(is_all, 0, rows)).astype(jnp.int32))
