"""The variance from a pilot, the mean from fresh rows, so that the noise is Student's."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from tallchain.acceptance.evidence import has_read_all, share_left
from tallchain.acceptance.stopping.rows import (
    LEAST_ROWS,
    advise_by_pilot,
    check_least,
    pilot_rows,
    rows_for_aim,
    third_cumulant,
)
from tallchain.acceptance.stopping.rule import Advice, Aim, PilotBatch, Terms
from tallchain.acceptance.tables import Reading
from tallchain.parts import part, set_fields, static
from tallchain.types import Population


@part
class Pilot:
    """Read a pilot of n0 = nu + 1 rows for the variance v, then n1 fresh rows for Delta* only.

    With z the variance that the test aims at,

        n1 = v/z    (without replacement v/(z + v/N)),    s2 = v/n1    (times 1 - n1/N),

    or more, if |kappa3| = |gamma| v^(3/2)/n1^2 needs more rows to fall to what the test wants. The error of Delta* over
    sqrt(s2) is Student's with nu degrees of freedom if the rows are normal, for any variance; padded with normal noise
    to variance z, it is nearly Student's with nu (z/s2)^2.

    Sizing by a pilot is due to Stein, "A two-sample test for a linear hypothesis whose power is independent of the
    variance" (1945), without his weights.

    Args:
        least_rows: of the pilot, and of the fresh rows.
    """

    least_rows: int = static(LEAST_ROWS)
    terms: ClassVar[Terms] = Terms(skew=True, is_student=True)

    def __post_init__(self) -> None:
        set_fields(self, least_rows=check_least("Pilot", self.least_rows))

    def first(self, aim: Aim, population: Population) -> int:
        """n0, the rows of the pilot."""
        return pilot_rows(aim.batch, population, self.least_rows)

    def read(self, aim: Aim, pilot: PilotBatch, evidence: Any, population: Population) -> Reading:
        """Take the mean from the fresh rows, its noise from the pilot."""
        b = evidence.count
        s2 = pilot.variance / jnp.maximum(b, 1) * share_left(b, population)
        s2 = jnp.where(has_read_all(evidence, population), 0, s2)
        skew = third_cumulant(pilot.skewness, pilot.variance, b, population, of_same_rows=False)
        # Only the share s2 of the noise has an estimated scale; its fourth cumulant is proportional to the square.
        inverse_nu = (s2 / aim.variance) ** 2 / jnp.maximum(pilot.count - 1, 1)
        return Reading(evidence.mean, s2, skew, inverse_nu)

    def advise(self, aim: Aim, pilot: PilotBatch, reading: Reading, evidence: Any, population: Population) -> Advice:
        """Ask for n1 fresh rows after the pilot, and decide on them."""
        rows = rows_for_aim(PilotBatch.of(evidence), aim, population, self.least_rows, of_same_rows=False)
        return advise_by_pilot(rows, pilot.is_over, aim, pilot, reading, evidence, population)
