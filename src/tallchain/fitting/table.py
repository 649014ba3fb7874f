"""The summary of a fit: a frame of pandas that prints as a person would want it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tallchain.report.facts import Facts, ParameterFact

_SHOWN = {
    "mean": "mean",
    "sd": "sd",
    "q5": "5 %",
    "median": "50 %",
    "q95": "95 %",
    "mcse": "mcse",
    "ess_bulk": "ess_bulk",
}
_COLUMNS = (*_SHOWN, "ess_tail", "r_hat", "kind")
_WIDTH, _LONGEST = 11, 40


class SummaryTable(pd.DataFrame):
    """One line for each parameter, by name; `print` it for the whole summary, with what it says of the draws."""

    _metadata = ["_text"]  # noqa: RUF012 - as pandas has it

    @classmethod
    def of(cls, facts: Facts, parameters: Sequence[ParameterFact]) -> SummaryTable:
        """Make the table of some parameters."""
        rows = [[getattr(each, name) for name in _COLUMNS] for each in parameters]
        found = cls(rows, index=[each.name for each in parameters], columns=list(_COLUMNS))
        object.__setattr__(found, "_text", _text(facts, parameters))
        return found

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame  # what is made of the table is a plain frame

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text


def _text(facts: Facts, parameters: Sequence[ParameterFact]) -> str:
    of = facts.convergence
    lines = [
        facts.formula or facts.title,
        f"{facts.family}; {facts.num_rows:,} rows"
        + (f" ({facts.num_dropped:,} dropped for missing values)" if facts.num_dropped else "")
        + f"; {of.num_chains} chains x {of.num_draws:,} draws",
        *facts.coding,
        "",
        *_table(parameters),
        "",
        *(
            f"{count} of {term} are not listed: `summary(effects=True)` has them"
            for term, count in _hidden(facts, parameters)
        ),
        f"chains     r_hat at most {of.worst_r_hat:.3f} ({of.worst_r_hat_of}); effective draws at least "
        f"{of.worst_ess:,.0f} ({of.worst_ess_of}); acceptance {of.acceptance:.2f}",
        f"rows       {facts.reading.per_decision:,.1f} of {facts.num_rows:,} a decision",
        f"time       {sum(each.seconds for each in facts.stages):.1f} s: "
        + ", ".join(f"{each.name} {each.seconds:.1f}" for each in facts.stages if each.seconds >= 0.05),
        *(f"{'' if at else 'trust':<11}{line}" for at, line in enumerate(_trust(facts))),
    ]
    return "\n".join([*lines, *(f"{'WARNING' if each.is_grave else 'note':<11}{each}" for each in facts.advice)])


def _trust(facts: Facts) -> list[str]:
    """Say in a line or a few how far the draws can be trusted."""
    trust = facts.trust
    if trust.temperature != 1:
        return [f"temperature {trust.temperature:g}: NOT the posterior"]
    if trust.is_exact:
        return [f"exact: {trust.test} leaves the posterior unchanged, whatever the rows"]
    said = [f"approximate: {trust.test}"]
    if trust.audited_error is not None:
        said.append(f"an audit found the log-odds of decisions off by at most {trust.audited_error:.2g} on average")
    if trust.skewness is not None:
        said.append(f"a scan of all rows: the mean of a batch has skewness {trust.skewness:.2g} at worst")
    if trust.part_error is not None:
        said.append(f"rows in parts, in turn: variances are off by a share of about {trust.part_error**2:.1g}")
    return said


def _hidden(facts: Facts, parameters: Sequence[ParameterFact]) -> list[tuple[str, str]]:
    shown = {each.term for each in parameters if each.kind == "group effect"}
    counts = {term: sum(each.term == term for each in facts.of_kind("group effect")) for term in facts.terms}
    return [(term, f"{count:,} effects") for term, count in counts.items() if term not in shown]


def _table(parameters: Sequence[ParameterFact]) -> list[str]:
    width = min(max([9, *(len(each.name) for each in parameters)]), _LONGEST)
    lines = [" " * width + "".join(f"{name:>{_WIDTH}}" for name in (*_SHOWN.values(), "r_hat"))]
    for each in parameters:
        numbers = [
            f"{getattr(each, name):,.0f}" if name == "ess_bulk" else f"{getattr(each, name):.4g}" for name in _SHOWN
        ]
        name = each.name if len(each.name) <= width else f"{each.name[: width - 1]}…"
        lines.append(f"{name:<{width}}" + "".join(f"{number:>{_WIDTH}}" for number in (*numbers, f"{each.r_hat:.3f}")))
    return lines
