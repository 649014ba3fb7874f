"""What a fit keeps of its table: enough to make the design of new rows, as plain JSON."""

from __future__ import annotations

import dataclasses
import json
from functools import cached_property
from typing import Any

from tallchain.formulas.arrangement import Arrangement, arrange
from tallchain.formulas.expressions import States
from tallchain.formulas.filling import Filler
from tallchain.formulas.labels import Label, Labels
from tallchain.formulas.new_rows import NewRows
from tallchain.formulas.outcomes import Takes, levels_of
from tallchain.formulas.plan import Plan, plan_of
from tallchain.formulas.reading import FormulaError
from tallchain.formulas.states import from_plain, to_plain
from tallchain.tables import Table
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

    @property
    def outcome_levels(self) -> tuple[str, ...]:
        """Labels of the outcome, in order, if it is one."""
        factor = self.plan.outcome.factor
        if factor is None:
            return ()
        return tuple(map(str, levels_of(self.plan.call, self.plan.outcome, self.labels[factor.column]).values))

    def new_rows(self, table: Table) -> dict[str, Any]:
        """Return the arguments of `model.predict(trace, ...)` for the rows of a table.

        Labels of groups may be new: `predict(new_levels=...)` says what becomes of them. Labels of fixed factors, and
        missing values, may not. For counts of successes "size" is there if the table has its column.
        """
        return NewRows(self.plan, self.labels, Filler(self.plan, self.arrangement, self.states)).arguments(table)

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
