"""Rows that a regression has not seen: what `predict` takes, from a table."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.formulas.coding import Factor
from tallchain.formulas.expressions import Expression
from tallchain.formulas.filling import Filler, check_finite
from tallchain.formulas.grammar import WORDS
from tallchain.formulas.grouping import Grouping, combined
from tallchain.formulas.labels import UNKNOWN, Label, Labels, distinct, refuse_unknown
from tallchain.formulas.missing import missing_numbers, refuse
from tallchain.formulas.plan import Plan
from tallchain.formulas.reading import FormulaError
from tallchain.models import Group
from tallchain.tables import Table, nearest
from tallchain.tables.table import Kind

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True, eq=False)
class NewRows:
    """Makes arguments of `predict` from tables."""

    plan: Plan
    labels: dict[str, Labels]
    filler: Filler

    def arguments(self, table: Table) -> dict[str, Any]:
        """Return "x", "groups", "offset" and "size", as far as there are any."""
        kinds, size = self._kinds(table), self._size(table)
        names = [*self.plan.feature_labels, *self.plan.feature_numbers, *(size.columns if size else ())]
        blocks, start = [], 0
        for block in table.blocks(names):
            if missing_numbers(block, names):
                refuse(self.plan.call, table, names, how="")
            blocks.append(self._block(block, start, kinds, size))
            start += len(block)
        found: dict[str, Any] = {name: np.concatenate([each[name] for each in blocks]) for name in blocks[0]}
        x = found["x"][:, int(self.plan.has_intercept) :]
        arguments = {"x": x} if x.shape[1] else {}
        if self.plan.groups:
            arguments["groups"] = self._groups(found)
        if "offset" in found or not arguments:  # which says how many rows there are, if nothing else does
            arguments["offset"] = found.get("offset", np.zeros(len(x), np.float32))
        return arguments | ({"size": found["size"]} if size else {})

    def _block(
        self, block: pd.DataFrame, start: int, kinds: dict[str, Kind], size: Expression | None
    ) -> dict[str, Any]:
        plan = self.plan
        codes = {name: self.labels[name].codes(block[name], kinds[name]) for name in plan.feature_labels}
        for part in plan.parts:
            if isinstance(part, Factor):
                column = part.column
                refuse_unknown(plan.call, column, block[column], codes[column], kinds[column], self.labels[column])
        arrays: dict[str, Any] = self.filler.empty(len(block))
        self.filler.fill(arrays, slice(None), block, codes, lambda row: start + row)
        for group in plan.groups:
            arrays[f"group {group.name}"] = self._labels(group, block, codes, kinds)
        if size is not None:
            values = size.values(block, self.filler.states)[0]
            check_finite(plan.call, size, values, block, lambda row: start + row)
            arrays["size"] = values[:, 0].astype(np.float32)
        return arrays

    def _labels(
        self, group: Grouping, block: pd.DataFrame, codes: dict[str, np.ndarray], kinds: dict[str, Kind]
    ) -> np.ndarray:
        """Return the label of each row; those of several columns are put together as they were for the fit."""
        labels, places = {}, {}
        for name in group.columns:
            labels[name], places[name] = self.labels[name], codes[name]
            if (codes[name] == UNKNOWN).any():
                places[name], values = distinct(block[name], kinds[name])
                labels[name] = Labels(tuple(_like(self.labels[name].values, values)))
        levels, at = combined(group, labels, places)
        return levels[at]

    def _groups(self, found: dict[str, np.ndarray]) -> dict[str, Group]:
        groups, at = {}, 0
        for group in self.plan.groups:
            slopes = {slope.name: found["slopes"][:, at + k] for k, slope in enumerate(group.slopes)}
            groups[group.name] = Group(found[f"group {group.name}"], slopes or None)
            at += len(slopes)
        return groups

    def _size(self, table: Table) -> Expression | None:
        """Return the numbers of trials, if the table has them."""
        outcome = self.plan.outcome
        if outcome.takes != "trials" or not set(outcome.parts[1].columns) <= set(table.columns):
            return None
        return outcome.parts[1]

    def _kinds(self, table: Table) -> dict[str, Kind]:
        """Refuse a table that lacks columns, or whose columns hold something else than those of the fit."""
        plan, found = self.plan, table.columns
        for name in (*plan.feature_labels, *plan.feature_numbers):
            if name not in found:
                raise FormulaError(f"{plan.call}: {table.name} has no column {name!r}; {nearest(name, found)}.")
            given, wanted = found[name], plan.kinds[name]
            if sort_of(given) != sort_of(wanted) and "category" not in (given, wanted):
                raise FormulaError(
                    f"{plan.call}: column {name!r} of {table.name} holds {WORDS[given]}, and held {WORDS[wanted]} in "
                    "the rows of the fit."
                )
        return found


def sort_of(kind: Kind) -> str:
    """Numbers and truth values can stand for each other, other kinds cannot."""
    return {"truth": "number", "category": "text"}.get(kind, kind)


def _like(known: tuple[Label, ...], values: list[Label]) -> list[Label]:
    """Return labels of the type of those that are known: floats as whole numbers where these are."""
    if all(type(label) is int for label in known):
        return [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]
    return [str(value) for value in values] if all(isinstance(label, str) for label in known) else values
