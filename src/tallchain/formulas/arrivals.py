"""More rows for a regression that was made of a formula: the design of another table, coded as the first one was."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tallchain.formulas.filling import fill
from tallchain.formulas.grammar import WORDS
from tallchain.formulas.grouping import combined
from tallchain.formulas.labels import UNKNOWN, distinct
from tallchain.formulas.learning import Learned
from tallchain.formulas.missing import missing_numbers, refuse
from tallchain.formulas.new_rows import sort_of
from tallchain.formulas.plan import Plan
from tallchain.formulas.reading import FormulaError
from tallchain.formulas.spec import Spec
from tallchain.models import Regression
from tallchain.models.design import row_offset, row_weights
from tallchain.tables import Table, nearest
from tallchain.tables.table import Kind
from tallchain.validation import brief

if TYPE_CHECKING:
    import pandas as pd

_NAMED = 5


class Arrivals(NamedTuple):
    """Rows that a table adds."""

    rows: dict[str, np.ndarray]
    """As `model.data` has them."""
    missing: dict[str, int]
    """Values that were missing, by column, of the rows left out."""
    num_dropped: int


def arrivals(
    call: str, spec: Spec, model: Regression, table: Table, missing: Literal["refuse", "drop"] = "refuse"
) -> Arrivals:
    """Return the rows of a table for a regression; nothing is learned from them, so labels must be known.

    Args:
        call: to quote.
        spec: of the formula, and of the rows it was fitted to.
        model: the regression.
        table: has the columns of the formula: outcome, offset and weights too.
        missing: "refuse" missing values, or "drop" the rows that have some.
    """
    if missing not in ("refuse", "drop"):
        raise FormulaError(f'{call}: `missing` must be "refuse" or "drop"; got {brief(missing)}.')
    plan = dataclasses.replace(spec.plan, call=call)
    learned = _coded(plan, spec, table, _kinds(plan, table), drop=missing == "drop")
    held: Any = fill(plan, table, learned, spec.arrangement, None)
    inner = call.strip("`").removesuffix("(new_rows)")
    held["y"] = model.family.more_outcomes(inner, held["y"], model.data["y"])
    for name, check in (("offset", row_offset), ("weight", row_weights)):
        if name in held:
            held[name] = check(inner, held[name], len(held["x"]))
    if plan.groups:
        held["groups"] = _groups(plan, model, learned)
    return Arrivals(held, learned.missing, learned.num_rows - learned.num_kept)


def _kinds(plan: Plan, table: Table) -> dict[str, Kind]:
    """Refuse a table that lacks columns, or whose columns hold something else than those of the fit."""
    found = table.columns
    for name, wanted in plan.kinds.items():
        if name not in found:
            raise FormulaError(f"{plan.call}: {table.name} has no column {name!r}; {nearest(name, found)}.")
        given = found[name]
        if sort_of(given) != sort_of(wanted) and "category" not in (given, wanted):
            raise FormulaError(
                f"{plan.call}: column {name!r} of {table.name} holds {WORDS[given]}, and held {WORDS[wanted]} in the "
                "rows of the fit."
            )
    return found


def _coded(plan: Plan, spec: Spec, table: Table, kinds: dict[str, Kind], *, drop: bool) -> Learned:
    """Return labels as codes of the fit, and which rows are complete."""
    names = list(dict.fromkeys([*plan.labels, *(plan.numbers if drop else ())]))
    codes: dict[str, list[np.ndarray]] = {name: [] for name in plan.labels}
    lacks, missing, count = [], dict.fromkeys(names, 0), 0
    for block in table.blocks(names or list(plan.numbers)[:1]):
        lacks_some = np.zeros(len(block), bool)
        for name, held in codes.items():
            found = spec.labels[name].codes(block[name], kinds[name])
            _refuse_unknown(plan.call, name, block[name], found, kinds[name], spec)
            held.append(found)
        absent = {name: held[-1] < 0 for name, held in codes.items()}
        for name, is_missing in (absent | dict(missing_numbers(block, plan.numbers if drop else ()))).items():
            lacks_some |= is_missing
            missing[name] += int(np.count_nonzero(is_missing))
        count += len(block)
        lacks.append(lacks_some)
    keep = ~np.concatenate(lacks) if lacks else np.ones(0, bool)
    if not keep.all() and not drop:
        refuse(plan.call, table, plan.kinds)
    if not keep.any():
        what = "every row lacks a value" if count else "it has no rows"
        raise FormulaError(f"{plan.call}: {table.name} adds nothing: {what}.")
    kept = {name: np.concatenate(held)[keep] for name, held in codes.items()}
    counted = {name: number for name, number in missing.items() if number}
    labels = {name: spec.labels[name] for name in plan.labels}
    return Learned(labels, kept, None if keep.all() else keep, count, spec.states, spec.fields, counted)


def _refuse_unknown(call: str, name: str, column: pd.Series, codes: np.ndarray, kind: Kind, spec: Spec) -> None:
    """Refuse labels that the fit has no parameter for."""
    if not (codes == UNKNOWN).any():
        return
    local, values = distinct(column, kind)
    unknown = sorted({str(values[at]) for at in np.unique(local[codes == UNKNOWN])})
    more = ", ..." if len(unknown) > _NAMED else ""
    raise FormulaError(
        f"{call}: column {name!r} has labels that the fit has no parameter for: "
        f"{', '.join(map(repr, unknown[:_NAMED]))}{more}; {nearest(unknown[0], map(str, spec.labels[name].values))}. "
        "Fit all rows anew, or leave such rows out."
    )


def _groups(plan: Plan, model: Regression, learned: Learned) -> np.ndarray:
    """Return the number of each row's group, by factor."""
    found = np.empty((learned.num_kept, len(plan.groups)), np.int32)
    for at, group in enumerate(plan.groups):
        levels, codes = combined(group, learned.labels, learned.codes)
        if len(group.columns) > 1:  # of several columns only some combinations occur
            places = {label: place for place, label in enumerate(model.levels[group.name].tolist())}
            unknown = [label for label in levels.tolist() if label not in places]
            if unknown:
                raise FormulaError(
                    f"{plan.call}: `{group.name}` has combinations that the fit has no effect for: "
                    f"{', '.join(map(repr, unknown[:_NAMED]))}. Fit all rows anew, or leave such rows out."
                )
            codes = np.array([places[label] for label in levels.tolist()], np.int32)[codes]
        found[:, at] = codes
    return found
