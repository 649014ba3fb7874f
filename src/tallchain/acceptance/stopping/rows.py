"""How many rows: what the stopping rules share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tallchain.acceptance.evidence import add_rows, choose_ask, row_variance, variance_of_mean, whole_rows
from tallchain.acceptance.stopping.rule import Advice, Aim, PilotBatch
from tallchain.acceptance.tables import Reading
from tallchain.types import Array, Ask, Population
from tallchain.validation import brief, is_whole

LEAST_ROWS = 20
"""Least rows of a pilot, and of the fresh rows after it: with fewer the central limit theorem does not help."""
MARGIN = 1.1
"""A few more rows are added than the last look says are needed, so that one addition is enough."""


def check_least(call: str, least: Any) -> int:
    """Refuse a least number of rows that gives no variance."""
    if not is_whole(least, least=2):
        raise ValueError(f"`{call}(least_rows=...)` must be a whole number of rows, at least 2; got {brief(least)}.")
    return int(least)


# ---- how many ----------------------------------------------------------------------------------


def pilot_rows(batch: int, population: Population, least: int = LEAST_ROWS) -> int:
    """n0, the rows of the pilot: a batch, but enough to estimate a variance."""
    return min(max(batch, least), population.num_rows)


def rows_for(variance: Array, z: float, population: Population, least: int = LEAST_ROWS) -> Array:
    """n1, the rows at which the mean of rows of this variance has variance z; without repeats n1 = v/(z + v/N).

    All of them for a variance that is not finite.
    """
    rows = variance / z if population.repeats else variance / (z + variance / population.num_rows)
    return whole_rows(jnp.maximum(rows, least), population)


def rows_for_skew(pilot: PilotBatch, kappa3: float, population: Population, *, of_same_rows: bool) -> Array:
    """b, the rows at which |kappa3| of noise and padding (`third_cumulant`) has fallen to this."""
    factor = 2.0 if of_same_rows else 1.0
    return whole_rows(jnp.sqrt(factor * jnp.abs(pilot.skewness) * pilot.variance**1.5 / kappa3), population)


def rows_for_aim(pilot: PilotBatch, aim: Aim, population: Population, least: int, *, of_same_rows: bool) -> Array:
    """n1, the fresh rows that a pilot says are needed.

    The skewness of a few rows is estimated too poorly to correct much of it: where it matters, take more rows.
    """
    rows = rows_for(pilot.variance, aim.variance, population, least)
    if aim.skew is None:
        return rows
    return jnp.maximum(rows, rows_for_skew(pilot, aim.skew, population, of_same_rows=of_same_rows))


def missing_rows(reading: Reading, aim: Aim, evidence: Any, population: Population) -> Array:
    """Rows to add if the fresh rows were far too few: s2 is proportional to 1/b."""
    factor = reading.s2 / aim.variance
    grown = jnp.clip(MARGIN * factor - 1, 0.1, 4.0) * evidence.count
    return jnp.maximum(whole_rows(grown, population), aim.rows - evidence.count)


# ---- what to ask for ---------------------------------------------------------------------------


def ask_fresh(rows: Array, pilot: PilotBatch, population: Population) -> Ask:
    """Ask for fresh rows. If there are not enough, ask for all that are left and keep the pilot's.

    Where rows repeat, N of them or more are a census.
    """
    if population.repeats:
        return Ask(rows, census=rows >= population.num_rows, fresh=True)
    left = population.num_rows - pilot.count
    return Ask(jnp.minimum(rows, left), fresh=rows < left)


def advise_by_pilot(
    rows: Array,
    is_enough: Array,
    aim: Aim,
    pilot: PilotBatch,
    reading: Reading,
    evidence: Any,
    population: Population,
) -> Advice:
    """Ask for this many fresh rows after the pilot, and for more if they are not enough."""
    first = PilotBatch.of(evidence)
    known = jax.tree.map(lambda old, new: jnp.where(pilot.is_over, old, new), pilot, first)
    fresh = ask_fresh(jnp.maximum(rows, aim.rows), first, population)
    more = add_rows(missing_rows(reading, aim, evidence, population), evidence, population)
    return Advice(known, is_enough, choose_ask(pilot.is_over, more, fresh))


# ---- what the rows say -------------------------------------------------------------------------


def read_same_rows(aim: Aim, evidence: Any, population: Population) -> Reading:
    """Delta*, s2 and kappa3, all from the same rows."""
    s2 = variance_of_mean(evidence, population)
    if aim.skew is None:
        return Reading(evidence.mean, s2)
    gamma, variance = evidence.skewness, row_variance(evidence)
    skew = third_cumulant(gamma, variance, evidence.count, population, of_same_rows=True)
    return Reading(evidence.mean, s2, skew)


def third_cumulant(gamma: Array, variance: Array, b: Array, population: Population, *, of_same_rows: bool) -> Array:
    """kappa3 of noise and padding: -2 gamma v^(3/2)/b^2 if s2 is from the same b rows, +gamma v^(3/2)/b^2 if not.

    Without repeats, f = b/N: -gamma v^(3/2) (1-f)(2-f)/b^2 and +gamma v^(3/2) (1-f)(1-2f)/b^2.
    """
    b = jnp.maximum(b, 1).astype(variance.dtype)
    f = 0.0 if population.repeats else b / population.num_rows
    factor = -(2 - f) if of_same_rows else 1 - 2 * f
    return gamma * variance**1.5 * (1 - f) * factor / b**2
