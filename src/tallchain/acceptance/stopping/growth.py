"""Growth, the paper's rule: add rows while the estimated variance is too large."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from tallchain.acceptance.evidence import add_rows
from tallchain.acceptance.stopping.rows import read_same_rows
from tallchain.acceptance.stopping.rule import Advice, Aim, PilotBatch, Terms
from tallchain.acceptance.tables import Reading
from tallchain.parts import part
from tallchain.types import Population


@part
class Growth:
    """Add m rows at a time while s2 >= z, z the variance that the test aims at.

    All rows read give Delta* and s2. This feeds the skewness of the rows back into the decision: a batch is selected
    for a small variance, and Delta* is shifted by about

        -gamma sqrt(s2/b),    gamma the skewness of the rows.

    Seita, Pan, Chen, Canny: "An Efficient Minibatch Acceptance Test for Metropolis-Hastings" (UAI 2017), Algorithm 1.
    """

    terms: ClassVar[Terms] = Terms(skew=False, grows=True)

    def first(self, aim: Aim, population: Population) -> int:
        """m."""
        return aim.batch

    def read(self, aim: Aim, pilot: PilotBatch, evidence: Any, population: Population) -> Reading:
        """Take everything from the rows read."""
        return read_same_rows(aim, evidence, population)

    def advise(self, aim: Aim, pilot: PilotBatch, reading: Reading, evidence: Any, population: Population) -> Advice:
        """Add m rows until s2 < z and the skewness can be corrected."""
        is_enough = (reading.s2 < aim.variance) & (jnp.abs(reading.skew) <= aim.most_skew)
        return Advice(pilot, is_enough, add_rows(aim.batch, evidence, population))
