"""What a fit keeps of its table: enough to make the design of new rows, as plain JSON."""

from __future__ import annotations

import dataclasses
import json
from functools import cached_property
from typing import Any

import numpy as np

from tallchain.formulas.arrangement import Arrangement, arrange
from tallchain.formulas.coding import Factor
from tallchain.formulas.expressions import States
from tallchain.formulas.filling import Filler, check_finite
from tallchain.formulas.grammar import WORDS
from tallchain.formulas.labels import UNKNOWN, Label, Labels, array_of, distinct, refuse_unknown
from tallchain.formulas.missing import refuse
from tallchain.formulas.outcomes import Takes
from tallchain.formulas.plan import Plan, plan_of
from tallchain.formulas.reading import FormulaError
from tallchain.formulas.states import from_plain, to_plain
from tallchain.models import Group
from tallchain.tables import Table, nearest
from tallchain.tables.table import Kind

_VERSION = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Spec:
    """A formula, and what was learned from the rows: levels, states of functions, and kinds of columns."""

    formula: str
    kinds: dict[str, Kind]
    """Of the columns that are used, in the order of the table."""
    takes: Takes
    levels: dict[str, tuple[Label, ...]]
    """Of factors, of columns that groups are made of, and of the outcome, in order."""
    states: States
    """What functions have learned, by expression and by call."""
    fields: dict[str, tuple[str, ...]]
    """Names of the columns of each expression."""
    takes_intercept: bool = True
    """Whether the family has an intercept: the levels of factors are coded as if there were one in any case."""
    weights: str | None = None
    offset: str | None = None

    @cached_property
    def plan(self) -> Plan:
        """The formula, read."""
        given: dict[str, Any] = {name: vars(self)[name] for name in ("weights", "offset", "takes_intercept")}
        return plan_of(self.formula, self.kinds, self.takes, **given)

    @cached_property
    def labels(self) -> dict[str, Labels]:
        """Levels, to be matched with."""
        return {name: Labels(values) for name, values in self.levels.items()}

    @cached_property
    def arrangement(self) -> Arrangement:
        """Columns of the design."""
        return arrange(self.plan, self.labels, self.fields)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients."""
        return self.arrangement.names

    # ---- new rows -------------------------------------------------------------------------------

    def new_rows(self, table: Table) -> dict[str, Any]:
        """Return the arguments of `model.predict(trace, ...)` for the rows of a table.

        Labels of groups may be new: `predict(new_levels=...)` says what becomes of them. Labels of fixed factors, and
        missing values, may not. For counts of successes "size" is there if the table has its column.
        """
        plan = self.plan
        kinds = self._check(table)
        sizes = self._size_columns(table)
        numbers = tuple(dict.fromkeys([*plan.feature_numbers, *sizes]))
        names = tuple(dict.fromkeys([*plan.feature_labels, *numbers]))
        refuse(plan.call, table, names)
        blocks = [self._block(block, start, kinds) for block, start in _numbered(table, names)]
        found: dict[str, Any] = {name: np.concatenate([each[name] for each in blocks]) for name in blocks[0]}
        has_ones = int(plan.has_intercept)
        arguments: dict[str, Any] = {"x": found["x"][:, has_ones:]} if found["x"].shape[1] > has_ones else {}
        if plan.groups:
            arguments["groups"] = self._groups(found)
        if "offset" in found or not arguments:
            arguments["offset"] = found.get("offset", np.zeros(len(found["x"]), np.float32))
        if "size" in found:
            arguments["size"] = found["size"]
        return arguments

    def _block(self, block: Any, start: int, kinds: dict[str, Kind]) -> dict[str, np.ndarray]:
        plan, arrays = self.plan, {}
        codes = {name: self.labels[name].codes(block[name], kinds[name]) for name in plan.feature_labels}
        for part in plan.parts:
            if isinstance(part, Factor):
                column = part.column
                refuse_unknown(plan.call, column, block[column], codes[column], kinds[column], self.labels[column])
        filler = Filler(plan, self.arrangement, self.states)
        arrays = filler.empty(len(block))
        filler.fill(arrays, slice(None), block, codes, lambda row: start + row)
        for group in plan.groups:
            arrays[f"group {group.name}"] = self._group_labels(group.columns, block, codes, kinds)
        size = self._size_columns_in(block)
        if size is not None:
            values = size.values(block, self.states)[0]
            check_finite(plan.call, size, values, block, lambda row: start + row)
            arrays["size"] = values[:, 0].astype(np.float32)
        return arrays

    def _group_labels(self, columns: tuple[str, ...], block: Any, codes: Any, kinds: dict[str, Kind]) -> np.ndarray:
        """Return the label of each row; those of several columns are put together as they were for the fit."""
        pieces = []
        for name in columns:
            known, of = self.labels[name], codes[name]
            if not (of == UNKNOWN).any():
                pieces.append((known.values, of))
                continue
            local, values = distinct(block[name], kinds[name])
            pieces.append((_like(known.values, values), local))
        if len(columns) == 1:
            return array_of(pieces[0][0])[pieces[0][1]]
        texts = [array_of(map(str, values))[at] for values, at in pieces]
        return array_of(map(":".join, zip(*texts, strict=True)))

    def _groups(self, found: dict[str, np.ndarray]) -> dict[str, Group]:
        groups, at = {}, 0
        for group in self.plan.groups:
            slopes = {slope.name: found["slopes"][:, at + k] for k, slope in enumerate(group.slopes)}
            groups[group.name] = Group(found[f"group {group.name}"], slopes or None)
            at += len(slopes)
        return groups

    def _size_columns(self, table: Table) -> tuple[str, ...]:
        size = self.plan.outcome.parts[1] if self.takes == "trials" else None
        return size.columns if size is not None and set(size.columns) <= set(table.columns) else ()

    def _size_columns_in(self, block: Any) -> Any:
        size = self.plan.outcome.parts[1] if self.takes == "trials" else None
        return size if size is not None and set(size.columns) <= set(block.columns) else None

    def _check(self, table: Table) -> dict[str, Kind]:
        """Refuse a table that lacks columns, or whose columns hold something else than those of the fit."""
        plan, found = self.plan, dict(table.columns)
        for name in (*plan.feature_labels, *plan.feature_numbers):
            if name not in found:
                raise FormulaError(f"{plan.call}: {table.name} has no column {name!r}; {nearest(name, found)}.")
            given, wanted = found[name], self.kinds[name]
            if _sort(given) != _sort(wanted) and "category" not in (given, wanted):
                raise FormulaError(
                    f"{plan.call}: column {name!r} of {table.name} holds {WORDS[given]}, and held {WORDS[wanted]} in "
                    "the rows of the fit."
                )
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    # ---- JSON -----------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return plain JSON, with all digits."""
        held = dataclasses.asdict(self) | {"version": _VERSION, "states": to_plain(self.states)}
        return json.dumps(held, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """Return what `to_json` has written. A formula from a stranger is safe: it is checked like any other."""
        held = json.loads(text)
        if not isinstance(held, dict) or held.pop("version", None) != _VERSION:
            raise FormulaError(f"`Spec.from_json(...)` needs what `to_json()` has written, version {_VERSION}.")
        held["states"] = from_plain(held["states"])
        for name in ("levels", "fields"):
            held[name] = {key: tuple(values) for key, values in held[name].items()}
        spec = cls(**held)
        _ = spec.arrangement
        return spec


def _sort(kind: Kind) -> str:
    """Numbers and truth values can stand for each other, other kinds cannot."""
    return {"truth": "number", "category": "text"}.get(kind, kind)


def _like(known: tuple[Label, ...], values: list[Label]) -> list[Label]:
    """Return labels of the type of those that are known: floats as whole numbers where these are."""
    if all(type(label) is int for label in known):
        return [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    return [str(v) for v in values] if all(isinstance(label, str) for label in known) else values


def _numbered(table: Table, names: tuple[str, ...]) -> Any:
    start = 0
    for block in table.blocks(names):
        yield block, start
        start += len(block)
