"""Stein's two stages: a pilot, fresh rows, and a weighted mean of both."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from tallchain.acceptance.evidence import has_read_all, variance_of_mean
from tallchain.acceptance.stopping.rows import LEAST_ROWS, advise_by_pilot, check_least, pilot_rows, rows_for
from tallchain.acceptance.stopping.rule import Advice, Aim, PilotBatch, Terms
from tallchain.acceptance.tables import Reading
from tallchain.parts import part, set_fields, static
from tallchain.types import Population


@part
class Stein:
    """Read a pilot of n0 rows, then n1 fresh rows, and weight both means so that the noise is exactly Student's.

    With M1, S0^2 the mean and variance of the pilot's rows, M2 the mean of the fresh rows, z the variance that the
    test aims at and n = n0 + n1 > S0^2/z,

        Delta* = w M1 + (1-w) M2,    S0^2 (w^2/n0 + (1-w)^2/n1) = z,
        w = n0/n - sqrt((n0 n1/n)(z/S0^2 - 1/n)).

    The error of Delta* over sqrt(z) is Student's with n0 - 1 degrees of freedom if the rows are normal. For comparison
    only: with skewed rows it is shifted like `Growth`. A pilot that is enough by itself is padded as usual.

    Stein, "A two-sample test for a linear hypothesis whose power is independent of the variance" (1945).

    Args:
        least_rows: of the pilot, and of both stages together.
    """

    least_rows: int = static(LEAST_ROWS)
    terms: ClassVar[Terms] = Terms(skew=False, is_student=True, weighs=True)

    def __post_init__(self) -> None:
        set_fields(self, least_rows=check_least("Stein", self.least_rows))

    def first(self, aim: Aim, population: Population) -> int:
        """n0, the rows of the pilot."""
        return pilot_rows(aim.batch, population, self.least_rows)

    def read(self, aim: Aim, pilot: PilotBatch, evidence: Any, population: Population) -> Reading:
        """Weight both means."""
        n0, n1 = pilot.count.astype(evidence.mean.dtype), jnp.maximum(evidence.count, 1)
        n, z = n0 + n1, aim.variance
        missing = z / jnp.maximum(pilot.variance, 1e-30) - 1 / n
        w = n0 / n - jnp.sqrt(jnp.maximum(n0 * n1 / n * missing, 0))
        weighted = w * pilot.mean + (1 - w) * evidence.mean
        is_weighted = pilot.is_over & ~has_read_all(evidence, population)
        return Reading(
            jnp.where(is_weighted, weighted, evidence.mean),
            jnp.where(is_weighted, z, variance_of_mean(evidence, population)),
            inverse_nu=jnp.where(is_weighted, 1 / jnp.maximum(n0 - 1, 1), 0.0),
        )

    def advise(self, aim: Aim, pilot: PilotBatch, reading: Reading, evidence: Any, population: Population) -> Advice:
        """Ask for n1 fresh rows after the pilot, if it is not enough by itself."""
        n0 = evidence.count
        rows = rows_for(PilotBatch.of(evidence).variance, aim.variance, population, self.least_rows)
        # At least half as many rows as the pilot, or most of the weight could fall on one row.
        fresh = jnp.maximum(rows + 1 - n0, (n0 + 1) // 2)
        fresh = jnp.where(rows >= population.num_rows, population.num_rows, fresh)
        is_enough = pilot.is_over | (reading.s2 < aim.variance)
        return advise_by_pilot(fresh, is_enough, aim, pilot, reading, evidence, population)
