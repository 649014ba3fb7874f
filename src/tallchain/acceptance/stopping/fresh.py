"""Fresh rows: a pilot determines how many, and is not used otherwise."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tallchain.acceptance.stopping.rows import (
    LEAST_ROWS,
    advise_by_pilot,
    check_least,
    pilot_rows,
    read_same_rows,
    rows_for_aim,
)
from tallchain.acceptance.stopping.rule import Advice, Aim, PilotBatch, Terms
from tallchain.acceptance.tables import Reading
from tallchain.parts import part, set_fields, static
from tallchain.types import Population
from tallchain.validation import brief, is_positive


@part
class Fresh:
    """Read a pilot of m rows, then n1 fresh rows, which alone give Delta* and s2.

    With v the variance of the pilot's rows, gamma their skewness and z the variance that the test aims at,

        n1 = v/z    (without replacement v/(z + v/N)),

    or more, if |kappa3| = 2 |gamma| v^(3/2)/n1^2 needs more rows to fall to what the test wants. The choice of n1 is
    independent of the fresh rows, so Delta* is unbiased. Fresh rows whose s2 is a little too large still decide: adding
    rows would select them by s2 again, as `Growth` does. Rows are added only where the pilot was far off,

        s2 >= far_off * (the largest s2 that the test can correct for).

    Sizing by a pilot is due to Stein (1945). His weights for the pilot's rows are left out, which avoids their bias for
    skewed rows. docs/how-wrong.md measures both.

    Args:
        least_rows: of the pilot, and of the fresh rows.
        far_off: at least 1; with `math.inf`, no rows are ever added.
    """

    least_rows: int = static(LEAST_ROWS)
    far_off: float = static(2.0)
    terms: ClassVar[Terms] = Terms(skew=True)

    def __post_init__(self) -> None:
        far_off = self.far_off
        if not ((is_positive(far_off) and far_off >= 1) or far_off == math.inf):
            raise ValueError(
                f"`Fresh(far_off=...)` must be a number, at least 1, or math.inf never to add rows; got "
                f"{brief(far_off)}."
            )
        set_fields(self, least_rows=check_least("Fresh", self.least_rows), far_off=float(far_off))

    def first(self, aim: Aim, population: Population) -> int:
        """n0, the rows of the pilot."""
        return pilot_rows(aim.batch, population, self.least_rows)

    def read(self, aim: Aim, pilot: PilotBatch, evidence: Any, population: Population) -> Reading:
        """Take everything from the fresh rows."""
        return read_same_rows(aim, evidence, population)

    def advise(self, aim: Aim, pilot: PilotBatch, reading: Reading, evidence: Any, population: Population) -> Advice:
        """Ask for n1 fresh rows after the pilot, and decide on them unless the pilot was far off."""
        rows = rows_for_aim(PilotBatch.of(evidence), aim, population, self.least_rows, of_same_rows=True)
        is_enough = pilot.is_over & (reading.s2 < self.far_off * aim.most_variance)
        return advise_by_pilot(rows, is_enough, aim, pilot, reading, evidence, population)
