"""The left side of a formula, and the family that its outcomes have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from tallchain.formulas.coding import Factor, factor
from tallchain.formulas.expressions import Expression, expression
from tallchain.formulas.foreign import check_functions, check_outcome
from tallchain.formulas.grammar import WORDS, check_column
from tallchain.formulas.labels import Labels
from tallchain.formulas.reading import FormulaError, split
from tallchain.models.families import Bernoulli, Categorical, Family, Ordinal, Weibull
from tallchain.models.families.by_name import family_named
from tallchain.tables.table import Kind
from tallchain.validation import brief

Takes = Literal["numbers", "labels", "levels", "ranks", "trials", "times"]
"""What a family takes: numbers; numbers or two labels; labels; labels in order; successes and trials; times."""

LevelFamily = type[Categorical] | type[Ordinal]
_PAIRS = {"trials": ("p", "p(successes, trials)"), "times": ("censored", "censored(time, is_event)")}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What is to be explained: one number or two for each row, or a label."""

    text: str
    takes: Takes
    parts: tuple[Expression, ...] = ()
    factor: Factor | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of numbers that it needs."""
        return tuple(name for part in self.parts for name in part.columns)


def family_of(call: str, given: Any) -> Family | LevelFamily:
    """Return a family: given as one, as its class, or by name. Those of several levels may wait for their number."""
    if isinstance(given, str):
        try:
            given = family_named(given)
        except ValueError as error:
            raise FormulaError(f"{call}: {error}") from None
    if given is Categorical or given is Ordinal:
        return given
    if isinstance(given, type) and issubclass(given, Family) and given is not Family:
        kind: Any = given
        return kind()
    if not isinstance(given, Family):
        raise TypeError(
            f'{call}: `family` must be a family such as families.Bernoulli(), or its name, "bernoulli"; got '
            f"{brief(given)}."
        )
    return given


def takes_of(family: Family | LevelFamily) -> Takes:
    """Return what a family takes."""
    if isinstance(family, type):
        return "levels" if family is Categorical else "ranks"
    if family.has_trials:
        return "trials"
    kinds: list[tuple[type[Family], Takes]] = [
        (Bernoulli, "labels"),
        (Categorical, "levels"),
        (Ordinal, "ranks"),
        (Weibull, "times"),
    ]
    return next((takes for of, takes in kinds if isinstance(family, of)), "numbers")


def outcome_of(call: str, text: str, kinds: Mapping[str, Kind], takes: Takes) -> Outcome:
    """Read the left side."""
    check_outcome(call, text)
    check_functions(call, text)
    for of, (name, form) in _PAIRS.items():
        if text.startswith(f"{name}("):
            pieces = split(call, text[len(name) + 1 : -1], ",") if text.endswith(")") else []
            if takes != of or len(pieces) != 2:
                raise FormulaError(f"{call}: `{form}` is the outcome of a family with {of}; got `{text}`.")
            return Outcome(text, takes, tuple(expression(call, piece.strip(), kinds) for piece in pieces))
    if takes in _PAIRS:
        raise FormulaError(f"{call}: the outcome of this family is written `{_PAIRS[takes][1]}`; got `{text}`.")
    found = factor(call, text, kinds)
    if takes in ("levels", "ranks"):
        found = found or _of_column(call, text, kinds)
        if takes == "ranks" and kinds[found.column] == "text" and found.levels is None:
            raise FormulaError(
                f"{call}: the order of the levels of `{text}` is not known, for it holds text; write "
                f'`C({found.column}, levels=["low", "high"])` with all levels in order, or use numbers.'
            )
    elif found is not None and takes == "numbers":
        raise FormulaError(f"{call}: `{text}` holds {WORDS[kinds[found.column]]}, and this family needs numbers.")
    if found is not None:
        return Outcome(text, takes, factor=found)
    return Outcome(text, takes, (expression(call, text, kinds),))


def _of_column(call: str, text: str, kinds: Mapping[str, Kind]) -> Factor:
    name = text.strip("`")
    check_column(call, name, kinds)
    return Factor(text, name)


def levels_of(call: str, outcome: Outcome, labels: Labels) -> Labels:
    """Return the levels of an outcome that is a label, in order: their codes are what the family takes."""
    assert outcome.factor is not None
    found = outcome.factor.ordered(call, labels)
    if outcome.takes == "labels" and len(found.values) != 2:
        hint = " Use the family Categorical for more than two." if len(found.values) > 2 else ""
        raise FormulaError(
            f"{call}: the outcome `{outcome.text}` must have two levels; got {len(found.values)}: "
            f"{', '.join(map(repr, found.values[:5]))}.{hint}"
        )
    if outcome.takes != "labels" and not 2 <= len(found.values) <= 1000:
        count = len(found.values)
        raise FormulaError(
            f"{call}: the outcome `{outcome.text}` has {count:,} level{'' if count == 1 else 's'}, and needs 2 to 1000."
        )
    return found


def with_levels(call: str, family: Family | LevelFamily, levels: Labels | None) -> Family:
    """Return the family, with as many levels as there are."""
    if isinstance(family, type):
        assert levels is not None
        return family(len(levels.values))
    if isinstance(family, Categorical | Ordinal) and levels is not None and family.levels != len(levels.values):
        raise FormulaError(
            f"{call}: the outcome has {len(levels.values)} levels, and the family is {family!r}; give the class "
            f"alone, `families.{type(family).__name__}`, to have them counted."
        )
    return family
