"""Mergeable moments of the log ratios per row.

Means and central moments are merged pairwise (Chan, Golub, LeVeque 1983), never as a sum of squares minus the square
of a sum: in float32 that difference keeps no digits.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from tallchain.types import Array, Population


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


def variance_of_mean(moments: Moments, population: Population) -> Array:
    """s2 = sample variance / b, times (1 - b/N) where rows do not repeat; infinite while b < 2."""
    b = moments.count.astype(moments.mean.dtype)
    s2 = moments.squares / jnp.maximum(b - 1, 1) / jnp.maximum(b, 1)
    if not population.repeats:
        # (N - b)/N in integers first: 1 - b/N in float32 would round to 0 too early for large N.
        s2 = s2 * ((population.num_rows - moments.count) / population.num_rows)
    return jnp.where(moments.count > 1, s2, jnp.inf)


def has_read_all(moments: Moments, population: Population) -> Array | bool:
    """Whether the mean is exact: every row was read."""
    return False if population.repeats else moments.count >= population.num_rows
