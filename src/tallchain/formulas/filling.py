"""The second pass: rows of the design and what goes with it, block by block into arrays that are allocated once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.formulas.arrangement import Arrangement
from tallchain.formulas.coding import Factor
from tallchain.formulas.expressions import Expression, States
from tallchain.formulas.learning import Learned
from tallchain.formulas.missing import missing_numbers, refuse
from tallchain.formulas.outcomes import levels_of
from tallchain.formulas.plan import Plan
from tallchain.formulas.reading import FormulaError
from tallchain.tables import Table, table
from tallchain.tables.table import Report

if TYPE_CHECKING:
    import pandas as pd

Allocate = Callable[..., np.ndarray]
"""Makes an empty array of a shape and a type: in memory, as `numpy.empty`, or on a disk."""


@dataclasses.dataclass(frozen=True, eq=False)
class Filler:
    """Computes the arrays of a regression for blocks of rows."""

    plan: Plan
    arrangement: Arrangement
    states: States

    def empty(self, count: int, allocate: Allocate = np.empty) -> dict[str, np.ndarray]:
        """Allocate features, and offset and slopes if there are any."""
        plan = self.plan
        slopes = sum(len(group.slopes) for group in plan.groups)
        arrays = {"x": allocate((count, len(self.arrangement.names)), np.float32)}
        if plan.offsets:
            arrays["offset"] = allocate(count, np.float32)
        if slopes:
            arrays["slopes"] = allocate((count, slopes), np.float32)
        return arrays

    def fill(
        self,
        arrays: Mapping[str, np.ndarray],
        rows: slice,
        block: pd.DataFrame,
        codes: Mapping[str, Any],
        places: Callable[[int], int],
    ) -> None:
        """Write features, offset and slopes of a block; `places` says which row of the table each of its rows is."""
        made: dict[str, np.ndarray] = {}
        for each in self.plan.expressions:
            made[each.text] = each.values(block, self.states)[0]
            check_finite(self.plan.call, each, made[each.text], block, places)
        parts = [codes[part.column] if isinstance(part, Factor) else made[part.text] for part in self.plan.parts]
        slopes = [slope for group in self.plan.groups for slope in group.slopes]
        with np.errstate(over="ignore"):  # products that are too large are refused below
            self.arrangement.fill(arrays["x"][rows], parts)
            if self.plan.offsets:
                arrays["offset"][rows] = sum(made[each.text][:, 0] for each in self.plan.offsets)
            for at, slope in enumerate(slopes):
                arrays["slopes"][rows, at] = np.prod([made[part.text][:, 0] for part in slope.parts], axis=0)
        if any(len(product) > 1 for product in self.arrangement.products):
            self._check_products(arrays["x"][rows], self.arrangement.names, places)
        if any(len(slope.parts) > 1 for slope in slopes):
            self._check_products(arrays["slopes"][rows], [slope.name for slope in slopes], places)

    def _check_products(self, found: np.ndarray, names: Sequence[str], places: Callable[[int], int]) -> None:
        """Refuse products of finite numbers that are too large for float32."""
        if np.isfinite(found.sum(dtype=np.float64)):
            return
        row, column = (int(index[0]) for index in np.nonzero(~np.isfinite(found)))
        raise FormulaError(
            f"{self.plan.call}: `{names[column]}` is too large for float32 in row {places(row):,}; rescale its parts."
        )


def check_finite(
    call: str, of: Expression, values: np.ndarray, block: pd.DataFrame, places: Callable[[int], int]
) -> None:
    """Refuse what float32 cannot hold, and say which row it comes from."""
    with np.errstate(all="ignore"):
        if np.isfinite(values.sum()) and max(values.max(), -values.min()) < np.finfo(np.float32).max:
            return
        wrong = ~np.isfinite(values.astype(np.float32))
    if not wrong.any():
        return
    row = int(np.argmax(wrong.any(axis=1)))
    value = values[row][wrong[row]][0]
    inputs = ", ".join(f"{name!r} is {block[name].iloc[row]}" for name in of.columns)
    raise FormulaError(
        f"{call}: `{of.text}` is {value:g} in row {places(row):,}, where {inputs}. It must be finite, in float32 as "
        "well: change such rows, or leave them out."
    )


def fill(
    plan: Plan,
    held: Table,
    learned: Learned,
    arrangement: Arrangement,
    report: Report | None,
    allocate: Allocate = np.empty,
) -> dict[str, Any]:
    """Return x, y, and offset, weight and slopes if there are any, of the rows that are kept."""
    filler = Filler(plan, arrangement, learned.states)
    count = learned.num_kept
    arrays = filler.empty(count, allocate) | _empty_outcome(plan, count, allocate)
    if plan.outcome.factor is not None:
        arrays["y"][:] = _levels(plan, learned)
    done = 0
    for block, places in _kept_blocks(plan, held, learned, report):
        rows = slice(done, done + len(block))
        codes = {name: of[rows] for name, of in learned.codes.items()}
        filler.fill(arrays, rows, block, codes, places)
        for at, part in enumerate(plan.outcome.parts):
            values = part.values(block, learned.states)[0]
            check_finite(plan.call, part, values, block, places)
            arrays["y"].reshape(count, -1)[rows, at] = values[:, 0]
        if plan.weights:
            arrays["weight"][rows] = block[plan.weights].to_numpy()
        done += len(block)
    if done != count:
        raise FormulaError(f"{plan.call}: {held.name} has changed while it was read.")
    return arrays


def _empty_outcome(plan: Plan, count: int, allocate: Allocate) -> dict[str, np.ndarray]:
    shape = (count, 2) if len(plan.outcome.parts) == 2 else (count,)
    return {"y": allocate(shape, np.float32)} | ({"weight": allocate(count, np.float32)} if plan.weights else {})


def _levels(plan: Plan, learned: Learned) -> np.ndarray:
    """Return the outcomes' levels as numbers from 0, in the order that the formula gives them."""
    assert plan.outcome.factor is not None
    labels = learned.labels[plan.outcome.factor.column]
    ordered = levels_of(plan.call, plan.outcome, labels)
    places = np.array([ordered.values.index(value) for value in labels.values], np.float32)
    return places[learned.codes[plan.outcome.factor.column]]


def _kept_blocks(
    plan: Plan, held: Table, learned: Learned, report: Report | None
) -> Iterator[tuple[pd.DataFrame, Callable[[int], int]]]:
    """Yield the columns of numbers of the rows that are kept; nothing is read if there are no such columns."""
    start = 0
    for block in held.blocks(plan.numbers, report) if plan.numbers else _no_columns(learned.num_rows):
        first, size = start, len(block)
        start += size
        if learned.keep is None:
            if missing_numbers(block, plan.numbers):
                refuse(plan.call, held, plan.kinds)
            yield block, lambda row, first=first: first + row
        else:
            kept = np.flatnonzero(learned.keep[first:start])
            yield block.iloc[kept], lambda row, first=first, kept=kept: first + int(kept[row])


def _no_columns(count: int) -> Iterator[pd.DataFrame]:
    import pandas as pd

    for start in range(0, count, table.BLOCK):
        yield pd.DataFrame(index=pd.RangeIndex(min(table.BLOCK, count - start)))
