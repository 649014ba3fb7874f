"""Stopping rules: how many rows a test reads before it decides. Each is a part, for `MinibatchBarker` and `Penalty`.

The paper grows the batch until its estimated variance is small. If the rows are skewed, selecting a batch for a small
variance also selects it for its mean: Delta* is shifted by about -gamma sqrt(s2/b), gamma the skewness. A pilot batch
that only determines how many rows are needed, with FRESH rows for the estimate, leaves Delta* unbiased for any rows.

A rule of your own is a `tallchain.parts.part` that keeps the promises of `StoppingRule`.
"""

from tallchain.acceptance.stopping.fresh import Fresh
from tallchain.acceptance.stopping.growth import Growth
from tallchain.acceptance.stopping.pilot import Pilot
from tallchain.acceptance.stopping.rows import LEAST_ROWS
from tallchain.acceptance.stopping.rule import Advice, Aim, PilotBatch, StoppingRule, Terms
from tallchain.acceptance.stopping.stein import Stein
from tallchain.acceptance.stopping.words import RULES, as_rule, quoted

__all__ = [
    "LEAST_ROWS",
    "RULES",
    "Advice",
    "Aim",
    "Fresh",
    "Growth",
    "Pilot",
    "PilotBatch",
    "Stein",
    "StoppingRule",
    "Terms",
    "as_rule",
    "quoted",
]
