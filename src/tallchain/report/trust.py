"""How far to trust a fit, in words: the box at the top of the page, and the last lines of the printed summary."""

from __future__ import annotations

import dataclasses
from typing import Literal

from tallchain.checking.convergence import MOST_R_HAT
from tallchain.report.facts import Facts
from tallchain.types import FAR_PARTS

Level = Literal["good", "care", "bad"]
MARKS: dict[Level, str] = {"good": "✓", "care": "!", "bad": "✗"}
_HEADS: dict[Level, str] = {
    "good": "As far as the model goes: no check found a fault",
    "care": "With care: read the advice first",
    "bad": "Not yet: remedy what is wrong first",
}
# Advice that does not bear on the numbers.
_HARMLESS = ("dropped-rows", "poor-expansion", "saturated", "unseen-levels")


@dataclasses.dataclass(frozen=True)
class Line:
    """One reason."""

    level: Level
    words: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How far to trust a fit, and why."""

    level: Level
    head: str
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        return "\n".join(
            [f"{MARKS[self.level]} {self.head}", *(f"  {MARKS[of.level]} {of.words}" for of in self.lines)]
        )


def verdict(facts: Facts) -> Verdict:
    """Judge a fit by what was checked: the worst of the reasons and of the advice counts."""
    lines = [*_of_decisions(facts), *_of_chains(facts), *_of_outcomes(facts)]
    levels = {line.level for line in lines}
    levels |= {"bad" if each.is_grave else "care" for each in facts.advice if each.code not in _HARMLESS}
    level: Level = "bad" if "bad" in levels else "care" if "care" in levels else "good"
    return Verdict(level, _HEADS[level], tuple(lines))


def _of_decisions(facts: Facts) -> list[Line]:
    trust = facts.trust
    found = []
    if trust.temperature != 1:
        found.append(Line("bad", f"The temperature is {trust.temperature:,.6g}: the draws are not from the posterior."))
    if trust.is_exact:
        words = "The test is exact: whatever the rows, its decisions leave the posterior unchanged."
        return [*found, Line("good", words)]
    if trust.audited_error is not None:
        size = f"the log-odds of a decision are off by at most {trust.audited_error:.2g} on average (95 %)"
        found.append(Line("bad" if trust.is_sound is False else "good", f"The decisions were audited: {size}."))
    if trust.skewness is not None:
        found.append(_of_scan(facts, trust.skewness, trust.kurtosis or 0.0))
    if trust.part_error is not None:
        found.append(_of_parts(trust.part_error))
    if trust.audited_error is None:
        end = "Nothing has checked how well." if trust.skewness is None else "An audit would measure its error."
        words = f"The test is approximate: it decides by some of the rows. {end}"
        found.append(Line("care" if trust.skewness is None else "good", words))
    return found


def _of_scan(facts: Facts, skewness: float, kurtosis: float) -> Line:
    is_far = any(each.code == "skewed-batches" for each in facts.advice)
    says = "far from normal" if is_far else "close enough to normal for this test"
    numbers = f"skewness up to {skewness:.2g}, excess kurtosis up to {kurtosis:.2g}; normal has 0 and 0"
    return Line("bad" if is_far else "good", f"All rows were scanned: means of batches are {says} ({numbers}).")


def _of_parts(error: float) -> Line:
    words = (
        "Decisions see a random part of the rows at a time, and the chains visited all parts equally often: variances "
        f"are off by a share of about {error**2:.1g}."
    )
    return Line("good" if error <= FAR_PARTS else "bad", words)


def _of_chains(facts: Facts) -> list[Line]:
    of = facts.convergence
    if any(each.code == "r-hat" for each in facts.advice):
        return [
            Line("bad", f"The {of.num_chains} chains disagree: R-hat {of.worst_r_hat:.3f} for {of.worst_r_hat_of}.")
        ]
    agree = f"The {of.num_chains} chains agree: R-hat is at most {of.worst_r_hat:.3f}"
    if of.worst_r_hat > MOST_R_HAT:
        agree += ", which chance explains with so few draws"
    is_short = of.asked_ess is not None and of.worst_ess < of.asked_ess
    asked = f", fewer than the {of.asked_ess:,.0f} asked for" if is_short else ""
    words = f"{agree}, and every parameter has at least {of.worst_ess:,.0f} effective draws{asked}."
    return [Line("care" if is_short or of.worst_r_hat > MOST_R_HAT else "good", words)]


def _of_outcomes(facts: Facts) -> list[Line]:
    check = facts.predictive
    if check is None:
        return []
    if check.is_suspect:
        return [
            Line("care", "Outcomes drawn from the model do not look like those observed: see the predictive check.")
        ]
    return [Line("good", "Outcomes drawn from the model look like those observed.")]
