"""The sections of the page about what was estimated: tables of parameters, and their pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tallchain.checking.convergence import MOST_R_HAT
from tallchain.report.facts import Facts, ParameterFact
from tallchain.report.html import cell, decimals, folded, number, paragraph, picture, table, tag, text
from tallchain.report.pictures import Pictures

_HEADER = ("", "mean", "sd", "5 %", "50 %", "95 %", "MC error", "ESS bulk", "ESS tail", "R-hat")
_OPEN = 15
"""Lines of a table that is not folded."""
_MOST = 300
"""Lines of a table of group effects."""


def coefficients(facts: Facts, pictures: Pictures) -> str:
    """Coefficients, and what all rows share."""
    found = facts.of_kind("coefficient", "shared")
    drawn = pictures.coefficients and picture(
        pictures.coefficients,
        "Point and interval of each coefficient; the table has the numbers.",
        "Posterior mean and 90 % interval. The line is at 0.",
    )
    others = facts.of_kind("group sd", "prior scale")
    more = f"<h3>Spread of the groups, and scales of the prior</h3>{_table(others)}" if others else ""
    return _section("Coefficients", (drawn or "") + _long("coefficients", found) + more + _legend())


def group_effects(facts: Facts, pictures: Pictures) -> str:
    """Effects of the levels of each factor; nothing if there are none."""
    parts = []
    for term in facts.terms:
        found = [each for each in facts.of_kind("group effect") if each.term == term]
        parts.append(f"<h3>{text(term)}</h3>")
        if term in pictures.groups:
            words = f"Effects of {term} with their intervals, in order; the table has the numbers."
            caption = (
                "Effects in order. Rings, where there are any: what the rows of the level alone would give. The line "
                "between the two is the shrinkage, which is long for levels of few rows."
            )
            parts.append(picture(pictures.groups[term], words, caption))
        order = sorted(range(len(found)), key=lambda at: -abs(found[at].mean))
        kept = [found[at] for at in sorted(order[:_MOST])]
        many = f"the {_MOST} largest of {len(found):,}" if len(found) > _MOST else f"all {len(found):,}"
        parts.append(folded(f"Table: {many} levels of {term}", _table(kept)))
    return _section("Group effects", "".join(parts)) if parts else ""


def _section(title: str, inner: str) -> str:
    return tag("section", f"<h2>{text(title)}</h2>{inner}")


def _long(word: str, found: Sequence[ParameterFact]) -> str:
    made = _table(found)
    return folded(f"Table: all {len(found):,} {word}", made) if len(found) > _OPEN else made


def _table(found: Sequence[ParameterFact]) -> str:
    return table(_HEADER, [_line(each) for each in found])


def _line(of: ParameterFact) -> list[str]:
    digits = decimals(of.sd)
    values = [cell(number(value, digits)) for value in (of.mean, of.sd, of.q5, of.median, of.q95)]
    is_off = math.isfinite(of.r_hat) and of.r_hat > MOST_R_HAT
    return [
        text(of.level or of.name),
        *values,
        cell(f"{of.mcse:.1g}" if math.isfinite(of.mcse) else number(of.mcse, 0)),
        *(cell(number(value, 0)) for value in (of.ess_bulk, of.ess_tail)),
        cell(number(of.r_hat, 3) + ("!" if is_off else ""), "off" if is_off else ""),
    ]


def _legend() -> str:
    words = (
        "5 %, 50 % and 95 %: quantiles of the draws. MC error: Monte Carlo error of the mean. ESS: how many "
        "independent draws the mean (bulk) and the quantiles (tail) are worth. R-hat: 1 if the chains agree; an "
        "exclamation mark stands beyond 1.01. Names that begin with log: the natural logarithm."
    )
    return paragraph(words, "soft")
