"""What a formula asks of a table: checked against the kinds of its columns, before a row is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from tallchain.formulas.coding import Factor, factor
from tallchain.formulas.expressions import Expression, expression
from tallchain.formulas.grammar import check_column
from tallchain.formulas.grouping import Grouping, groupings
from tallchain.formulas.outcomes import Outcome, Takes, outcome_of
from tallchain.formulas.reading import FormulaError, Parts, expand_dot, quote, read
from tallchain.formulas.terms import Product, products, terms_of
from tallchain.tables.table import Kind
from tallchain.validation import brief


@dataclasses.dataclass(frozen=True)
class Plan:
    """A formula, read."""

    call: str
    kinds: dict[str, Kind]
    """Of the columns that are used, in the order of the table."""
    outcome: Outcome
    parts: tuple[Factor | Expression, ...]
    """Of the terms of the fixed part."""
    products: tuple[Product, ...]
    """What columns of the design are products of."""
    groups: tuple[Grouping, ...]
    offsets: tuple[Expression, ...]
    weights: str | None

    @property
    def has_intercept(self) -> bool:
        """Whether the design begins with a column of ones."""
        return () in self.products

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All expressions of features: what new rows need too."""
        of_slopes = (part for group in self.groups for slope in group.slopes for part in slope.parts)
        numbers = (part for part in self.parts if isinstance(part, Expression))
        return tuple(dict.fromkeys([*numbers, *of_slopes, *self.offsets]))

    @property
    def feature_labels(self) -> tuple[str, ...]:
        """Columns of labels that new rows need too."""
        of_factors = (part.column for part in self.parts if isinstance(part, Factor))
        return _unique([*of_factors, *(name for group in self.groups for name in group.columns)])

    @property
    def labels(self) -> tuple[str, ...]:
        """Columns whose labels are learned."""
        return _unique([*self.feature_labels, *([self.outcome.factor.column] if self.outcome.factor else [])])

    @property
    def feature_numbers(self) -> tuple[str, ...]:
        """Columns that are computed with, for features."""
        return _unique(name for each in self.expressions for name in each.columns)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that are computed with."""
        return _unique([*self.feature_numbers, *self.outcome.columns, *([self.weights] if self.weights else [])])


def plan_of(
    formula: str,
    kinds: Mapping[str, Kind],
    takes: Takes,
    *,
    weights: str | None = None,
    offset: str | None = None,
    takes_intercept: bool = True,
) -> Plan:
    """Read a formula for a table with these columns, or say what is wrong with it."""
    call, written = quote(formula), read(formula)
    outcome = outcome_of(call, written.outcome, kinds, takes)
    groups = groupings(call, written.groups, kinds)
    given = _arguments(call, kinds, weights, offset)
    offsets = tuple(expression(call, text, kinds) for text in [*written.offsets, *([offset] if offset else [])])
    for each in offsets:
        if each.text.startswith(("poly(", "bs(", "cs(", "cr(", "cc(")):
            raise FormulaError(f"{call}: an offset is one number for each row; got `{each.text}`.")
    taken = {*given, *outcome.columns, *([outcome.factor.column] if outcome.factor else [])}
    taken |= {name for each in offsets for name in each.columns} | {name for group in groups for name in group.columns}
    has_one, parts, terms = _fixed(call, written, kinds, taken)
    if any(part.text == outcome.text for part in parts):
        raise FormulaError(f"{call}: the outcome `{outcome.text}` is among the features too; leave it out there.")
    is_factor = [isinstance(part, Factor) for part in parts]
    made = products(has_one or not takes_intercept, terms, is_factor)
    made = [product for product in made if product or takes_intercept]
    if not made:
        raise FormulaError(f"{call}: without an intercept there must be a feature in the fixed part.")
    plan = Plan(call, dict(kinds), outcome, parts, tuple(made), groups, offsets, weights)
    used = {*plan.labels, *plan.numbers}
    return dataclasses.replace(plan, kinds={name: kind for name, kind in kinds.items() if name in used})


def _fixed(
    call: str, written: Parts, kinds: Mapping[str, Kind], taken: set[str]
) -> tuple[bool, tuple[Factor | Expression, ...], list[list[int]]]:
    """Return whether there is an intercept, the parts of the fixed terms, and the parts of each."""
    others = [name for name, kind in kinds.items() if name not in taken and kind not in ("time", "other")]
    has_one, terms = terms_of(call, expand_dot(call, written.fixed, others))
    places: dict[str, int] = {}
    parts: list[Factor | Expression] = []
    for text in (text for term in terms for text in term):
        if text not in places:
            places[text] = len(parts)
            parts.append(factor(call, text, kinds) or expression(call, text, kinds))
    return has_one, tuple(parts), [[places[text] for text in term] for term in terms]


def _arguments(call: str, kinds: Mapping[str, Kind], weights: object, offset: object) -> list[str]:
    found = []
    for argument, name in (("weights", weights), ("offset", offset)):
        if name is None:
            continue
        if not isinstance(name, str):
            raise TypeError(f"{call}: `{argument}` must be the name of a column; got {brief(name)}.")
        check_column(call, name, kinds, f"{argument}={name!r}")
        if kinds[name] not in ("number", "truth"):
            raise FormulaError(f"{call}: `{argument}={name!r}` must be a column of numbers; it holds {kinds[name]}.")
        found.append(name)
    return found


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
