"""The tests compared in the worst case."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import ndtr

from tallchain.acceptance import Austere, Confidence, MinibatchBarker, Penalty
from tallchain.acceptance.austere_design import Design, conservative
from tallchain.types import AcceptanceTest

LEMMA = float(2 * (ndtr(1.0) - ndtr(0.5)) ** 2 * (math.exp(-1.125) - math.exp(-2.0)))
"""c, the lemma's lower bound on the share of decisions that consume all N rows."""
BATCH = 50
"""m, the rows between judgements (of MHSubLhd: of the first look) in the paper's first experiment."""
EPSILON = 0.005
"""Of AustereMH in the paper's first experiment."""
DESIGN_ERROR = 0.1
"""The error that AustereMH(c) is designed for: the paper's choice for its logistic regression on MNIST."""
SIGMA = 1.0
"""Standard deviation of Delta* at which the minibatch and the penalty test decide."""


@dataclass(frozen=True)
class Contender:
    """An acceptance test in the worst case."""

    label: str
    description: str
    make: Callable[[Design], AcceptanceTest]
    design: Callable[[int], Design] = lambda num_rows: Design(BATCH, EPSILON)
    """(m, epsilon) for N rows; only AustereMH uses epsilon."""
    is_rival: bool = False
    """Whether the lemma covers it."""
    repeats: bool = False
    """Whether its rows are drawn with replacement."""
    is_bounded: bool = False
    """Whether it gets a range bound, which this model knows."""
    effort: float = 1 / 12
    """Part of the budget it gets: a share near the lemma's needs many decisions to measure, a larger one does not."""


def minibatch(design: Design) -> AcceptanceTest:
    """The paper's rule, for which there is a formula."""
    return MinibatchBarker(SIGMA, batch=design.batch, stopping="growth")


def default(design: Design) -> AcceptanceTest:
    """The library's default."""
    return MinibatchBarker(SIGMA, batch=design.batch)


def penalty(design: Design) -> AcceptanceTest:
    """The penalty test, stopped by the paper's rule."""
    return Penalty(SIGMA, batch=design.batch, stopping="growth")


def austere(design: Design) -> AcceptanceTest:
    """AustereMH."""
    return Austere(design.epsilon, design.batch)


def confidence(design: Design) -> AcceptanceTest:
    """MHSubLhd."""
    return Confidence(batch=design.batch)


CONTENDERS = {
    "minibatch": Contender("MinibatchBarker", "MinibatchBarker, the paper's rule", minibatch, effort=1 / 6),
    "minibatch-default": Contender("MinibatchBarker()", "MinibatchBarker, the default", default, effort=1 / 6),
    "penalty": Contender("Penalty", "Penalty", penalty, effort=1 / 6),
    "austere": Contender("AustereMH", f"AustereMH, epsilon = {EPSILON}", austere, is_rival=True, effort=1),
    "austere-designed": Contender(
        "AustereMH(c)",
        f"AustereMH(c), designed for an error of {DESIGN_ERROR}",
        austere,
        design=lambda num_rows: conservative(num_rows, DESIGN_ERROR),
        is_rival=True,
        effort=1,
    ),
    "austere-repeats": Contender(
        "AustereMH (repeats)",
        f"AustereMH, epsilon = {EPSILON}, rows with replacement",
        austere,
        is_rival=True,
        repeats=True,
        effort=1 / 24,  # a row drawn at random costs several times as much as one read in order
    ),
    "confidence": Contender("MHSubLhd (bound)", "MHSubLhd", confidence, is_rival=True, is_bounded=True),
    "confidence-scan": Contender("MHSubLhd (scan)", "MHSubLhd, range from a scan", confidence, is_rival=True),
}
"""By the name that `Config.tests` uses."""
