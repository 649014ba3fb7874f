"""The first pass over a table: labels of factors and groups as codes, and what functions learn from all rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tallchain.formulas.coding import MOST_LEVELS, too_many
from tallchain.formulas.expressions import Expression, States
from tallchain.formulas.labels import Coder, Labels
from tallchain.formulas.missing import missing_numbers, refuse
from tallchain.formulas.plan import Plan
from tallchain.formulas.reading import FormulaError
from tallchain.tables import Table
from tallchain.tables.table import Report
from tallchain.validation import RowError

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class Learned:
    """What has to be known before the design can be filled in."""

    labels: dict[str, Labels]
    codes: dict[str, np.ndarray]
    """Of the rows that are kept, by column."""
    keep: np.ndarray | None
    """Which rows are kept; None for all."""
    num_rows: int
    """Of the table."""
    states: States
    fields: dict[str, tuple[str, ...]]
    """Names of the columns of each expression, by its text."""
    missing: dict[str, int] = dataclasses.field(default_factory=dict)
    """Values that are missing, by column."""

    @property
    def num_kept(self) -> int:
        """Rows that are kept."""
        return self.num_rows if self.keep is None else int(np.count_nonzero(self.keep))


def by_row_of_table(error: Exception, keep: np.ndarray | None) -> Exception:
    """Return an error about a row that was kept with the number that the row has in the table."""
    return error.of(int(np.flatnonzero(keep)[error.row])) if keep is not None and isinstance(error, RowError) else error


class _Pass(NamedTuple):
    coders: dict[str, Coder]
    lacks: list[np.ndarray]
    """Rows of each block that lack a value."""
    num_rows: int
    missing: dict[str, int]


def learn(plan: Plan, table: Table, report: Report | None = None, *, drop: bool = False) -> Learned:
    """Read the columns of labels, and those from which functions learn; every other column too if rows may go."""
    first = _first_pass(plan, table, report, drop=drop)
    lacks = np.concatenate(first.lacks) if first.lacks else np.zeros(first.num_rows, bool)
    if lacks.any() and not drop:
        refuse(plan.call, table, plan.kinds)
    keep = ~lacks if lacks.any() else None
    if keep is not None and not keep.any():
        raise FormulaError(f"{plan.call}: every row lacks a value in one of the columns {', '.join(plan.kinds)}.")
    labels, codes = {}, {}
    for name in plan.labels:
        try:
            labels[name], codes[name] = first.coders.pop(name).finish(keep)
        except ValueError as error:
            raise FormulaError(f"{plan.call}: column {name!r}: {error}.") from None
    states, fields = _learn_states(plan, table, keep)
    return Learned(labels, codes, keep, first.num_rows, states, fields, first.missing)


def _first_pass(plan: Plan, table: Table, report: Report | None, *, drop: bool) -> _Pass:
    coders = {name: Coder(plan.kinds[name]) for name in plan.labels}
    numbers = [name for name in plan.numbers if drop]
    names = list(dict.fromkeys([*plan.labels, *numbers]))
    if not names and table.num_rows is not None:
        return _Pass(coders, [], table.num_rows, {})
    of_groups = {name for group in plan.groups for name in group.columns}
    lacks, missing, count = [], dict.fromkeys(names, 0), 0
    for block in table.blocks(names, report):
        lacks_some = np.zeros(len(block), bool)
        found = {name: coder.add(block[name]) for name, coder in coders.items()}
        for name, coder in coders.items():
            if coder.count > MOST_LEVELS and name not in of_groups:
                raise too_many(plan.call, name, coder.values)
        for name, is_missing in (found | dict(missing_numbers(block, numbers))).items():
            lacks_some |= is_missing
            missing[name] += int(np.count_nonzero(is_missing))
        count += len(block)
        lacks.append(lacks_some)
    return _Pass(coders, lacks, count, {name: number for name, number in missing.items() if number})


def _learn_states(plan: Plan, table: Table, keep: np.ndarray | None) -> tuple[States, dict[str, tuple[str, ...]]]:
    """Learn one expression at a time, from all rows; and see what columns each one has."""
    states: States = {}
    fields: dict[str, tuple[str, ...]] = {}
    for each in (*plan.expressions, *plan.outcome.parts):
        if not each.learns:
            fields[each.text] = ("",)
            continue
        rows = _whole(plan, table, each, keep)
        fields[each.text] = each.values(rows, states)[1]
    return states, fields


def _whole(plan: Plan, table: Table, of: Expression, keep: np.ndarray | None) -> pd.DataFrame:
    """Return the columns of an expression, whole."""
    import pandas as pd

    pieces: dict[str, list[np.ndarray]] = {name: [] for name in of.columns}
    start = 0
    for block in table.blocks(of.columns):
        if missing_numbers(block, of.columns) and keep is None:
            refuse(plan.call, table, plan.kinds)
        rows = slice(None) if keep is None else keep[start : start + len(block)]
        for name, held in pieces.items():
            held.append(block[name].to_numpy()[rows])
        start += len(block)
    return pd.DataFrame({name: np.concatenate(held) for name, held in pieces.items()}, copy=False)


def check_fields(call: str, expressions: Sequence[Expression], fields: dict[str, tuple[str, ...]]) -> None:
    """Refuse several columns where one number for each row is needed."""
    for each in expressions:
        if len(fields[each.text]) > 1:
            raise FormulaError(f"{call}: `{each.text}` is {len(fields[each.text])} columns, and one is needed here.")
