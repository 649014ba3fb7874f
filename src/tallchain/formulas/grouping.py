"""Group terms: `(1 | clinic)`, `(1 + x | airport)`, `(1 | a:b)`, `(1 | a/b)`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tallchain.formulas.coding import factor
from tallchain.formulas.expressions import Expression, expression
from tallchain.formulas.foreign import bare_column
from tallchain.formulas.grammar import WORDS, check_column
from tallchain.formulas.labels import Labels, array_of
from tallchain.formulas.reading import FormulaError, GroupTerm, plain_name, split
from tallchain.formulas.terms import terms_of
from tallchain.tables.table import Kind


@dataclasses.dataclass(frozen=True)
class Slope:
    """A feature whose slopes differ between groups: a product of numbers."""

    name: str
    parts: tuple[Expression, ...]


@dataclasses.dataclass(frozen=True)
class Grouping:
    """A factor whose levels have effects: a column, or several together."""

    name: str
    columns: tuple[str, ...]
    slopes: tuple[Slope, ...] = ()


def groupings(call: str, terms: Sequence[GroupTerm], kinds: Mapping[str, Kind]) -> tuple[Grouping, ...]:
    """Return the factors, each once, with all of their slopes."""
    found: dict[str, Grouping] = {}
    for term in terms:
        slopes = _slopes(call, term, kinds)
        for columns in _factors(call, term, kinds):
            name = ":".join(columns)
            before = found.get(name, Grouping(name, columns)).slopes
            new = tuple(slope for slope in slopes if slope.name not in {each.name for each in before})
            found[name] = Grouping(name, columns, before + new)
    return tuple(found.values())


def _factors(call: str, term: GroupTerm, kinds: Mapping[str, Kind]) -> list[tuple[str, ...]]:
    """`a:b` is one factor, `a/b` the two factors `a` and `a:b`."""
    nested: list[tuple[str, ...]] = []
    for piece in split(call, term.factor, "/"):
        written = split(call, piece, ":")
        names = [plain_name(each) for each in written]
        if bare := next((found for each in written if (found := bare_column(call, each))), None):
            raise FormulaError(
                f"{call}: the factor of `{term.text}` must be a column, of labels or numbers; write `{bare}` alone."
            )
        if None in names:
            raise FormulaError(
                f"{call}: the factor of `{term.text}` must be a column, `a:b` or `a/b`; write a term of its own for "
                "each of several factors, `(1 | a) + (1 | b)`."
            )
        before = nested[-1] if nested else ()
        nested.append((*before, *(str(name) for name in names)))
    for name in nested[-1]:
        check_column(call, name, kinds, term.text)
        if kinds[name] == "other":
            raise FormulaError(f"{call}: `{term.text}`: column {name!r} holds {WORDS['other']}.")
    return nested


def _slopes(call: str, term: GroupTerm, kinds: Mapping[str, Kind]) -> tuple[Slope, ...]:
    has_one, terms = terms_of(call, term.features)
    if not has_one:
        features = " + ".join(":".join(parts) for parts in terms) or "1"
        raise FormulaError(
            f"{call}: `{term.text}` has no intercept, and groups with slopes have one here; write "
            f"`({features} | {term.factor})`."
        )
    slopes = []
    for parts in terms:
        for part in parts:
            if (found := factor(call, part, kinds)) is not None:
                raise FormulaError(
                    f"{call}: `{term.text}`: slopes are of numbers, and `{part}` is a factor; write "
                    f"`(1 | {term.factor}:{found.column})` for effects of every combination."
                )
        made = tuple(expression(call, part, kinds) for part in parts)
        for each in made:
            if each.text.startswith(("poly(", "bs(", "cs(", "cr(", "cc(")):
                raise FormulaError(f"{call}: `{term.text}`: `{each.text}` is several columns; give slopes one by one.")
        slopes.append(Slope(":".join(parts), made))
    return tuple(slopes)


# ---- codes -------------------------------------------------------------------------------------


def combined(
    grouping: Grouping, labels: Mapping[str, Labels], codes: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the levels of a factor that occur, and the code of each row, int32."""
    first, *others = grouping.columns
    if not others:
        return labels[first].array(), codes[first].astype(np.int32, copy=False)
    import pandas as pd

    whole = codes[first].astype(np.int64)
    for name in others:
        whole *= len(labels[name].values)
        whole += codes[name]
    places, occurring = pd.factorize(whole, sort=True)
    return combination(grouping, labels, np.asarray(occurring)), places.astype(np.int32)


def combination(grouping: Grouping, labels: Mapping[str, Labels], whole: np.ndarray) -> np.ndarray:
    """Return the labels of combined codes, such as "UA:JFK"."""
    texts: list[np.ndarray] = []
    for name in reversed(grouping.columns):
        whole, at = np.divmod(whole, len(labels[name].values))
        texts.append(array_of(map(str, labels[name].values))[at])
    return array_of(":".join(each) for each in zip(*reversed(texts), strict=True))
