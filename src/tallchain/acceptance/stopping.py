"""How many rows to read: rules that do not let the rows of a decision choose themselves.

The paper grows the batch until its estimated variance is small. A batch chosen for a small variance is, where the rows
are skewed, a batch chosen for its mean: Delta* is shifted by about -gamma sqrt(s2/b), gamma the skewness. A pilot batch
that only says how many rows are needed, with FRESH rows for the estimate, leaves Delta* unbiased whatever the rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from tallchain.acceptance.evidence import Moments, SkewMoments, row_variance, whole_rows
from tallchain.types import Array, Ask, Population

LEAST_ROWS = 20
"""Of a pilot, and of the fresh rows after it: with fewer there is no central limit to speak of."""
SMALL_SKEW = 0.2
"""|kappa3| at which to size a batch whose skewness is corrected for, with an estimate of it."""


class Pilot(NamedTuple):
    """What a pilot batch has said."""

    is_over: Array
    """Whether there has been one: the rows read since are fresh."""
    count: Array
    mean: Array
    variance: Array
    """Of the rows."""
    skewness: Array
    """Of the rows; 0 where nobody asked for it."""

    @classmethod
    def to_come(cls, dtype: Any) -> Pilot:
        """Return the pilot before its rows are read."""
        zero = jnp.zeros((), dtype)
        return cls(jnp.zeros((), bool), jnp.zeros((), jnp.int32), zero, zero, zero)

    @classmethod
    def of(cls, evidence: Moments | SkewMoments) -> Pilot:
        """Return what the rows read so far say as a pilot."""
        gamma = getattr(evidence, "skewness", jnp.zeros_like(evidence.mean))
        return cls(jnp.ones((), bool), evidence.count, evidence.mean, row_variance(evidence), gamma)


def pilot_rows(batch: int, population: Population) -> int:
    """n0, the rows of the pilot: a batch, but enough to tell a variance from."""
    return min(max(batch, LEAST_ROWS), population.num_rows)


def rows_for(variance: Array, z: float, population: Population) -> Array:
    """n1, the rows at which the mean of rows of this variance has variance z; without repeats n1 = v/(z + v/N).

    All of them for a variance that is not finite.
    """
    rows = variance / z if population.repeats else variance / (z + variance / population.num_rows)
    return whole_rows(jnp.maximum(rows, LEAST_ROWS), population)


def rows_for_skew(pilot: Pilot, kappa3: float, population: Population, *, of_same_rows: bool) -> Array:
    """b, the rows at which |kappa3| of noise and padding (`third_cumulant`) has come down to this."""
    factor = 2.0 if of_same_rows else 1.0
    return whole_rows(jnp.sqrt(factor * jnp.abs(pilot.skewness) * pilot.variance**1.5 / kappa3), population)


def ask_fresh(rows: Array, pilot: Pilot, population: Population) -> Ask:
    """Ask for fresh rows; where there are not enough, for all that are left beside the pilot's, which are kept.

    Where rows repeat, N of them or more are a census.
    """
    if population.repeats:
        return Ask(rows, census=rows >= population.num_rows, fresh=True)
    left = population.num_rows - pilot.count
    return Ask(jnp.minimum(rows, left), fresh=rows < left)


def third_cumulant(gamma: Array, variance: Array, b: Array, population: Population, *, of_same_rows: bool) -> Array:
    """kappa3 of noise and padding: -2 gamma v^(3/2)/b^2 if s2 is of the same b rows, +gamma v^(3/2)/b^2 if of others.

    Without repeats, f = b/N: -gamma v^(3/2) (1-f)(2-f)/b^2 and +gamma v^(3/2) (1-f)(1-2f)/b^2.
    """
    b = jnp.maximum(b, 1).astype(variance.dtype)
    f = 0.0 if population.repeats else b / population.num_rows
    factor = -(2 - f) if of_same_rows else 1 - 2 * f
    return gamma * variance**1.5 * (1 - f) * factor / b**2
