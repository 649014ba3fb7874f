"""Columns of the design: what they are called, and how a block of rows is filled in."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tallchain.formulas.coding import Factor
from tallchain.formulas.labels import Labels
from tallchain.formulas.plan import Plan
from tallchain.formulas.reading import FormulaError
from tallchain.formulas.terms import Product
from tallchain.models.design import INTERCEPT

_ROWS = 2**14  # filled in at a time: their part of the design stays in the processor's cache


@dataclasses.dataclass(frozen=True, eq=False)
class Arrangement:
    """Products of parts, side by side."""

    names: tuple[str, ...]
    products: tuple[Product, ...]
    codings: dict[tuple[int, bool], np.ndarray]
    """Numbers of each level (levels, columns), by factor and whether its reference level is left out."""

    def fill(self, x: np.ndarray, parts: Sequence[Any]) -> None:
        """Write the rows of a block into their place in the design.

        Args:
            x: rows of the design.
            parts: of the plan: numbers (rows, columns) of an expression, codes of a factor.
        """
        for start in range(0, len(x), _ROWS):
            rows = slice(start, start + _ROWS)
            at = 0
            for product in self.products:
                found = self._product(product, parts, rows)
                width = 1 if found is None else found.shape[1]
                x[rows, at : at + width] = 1.0 if found is None else found
                at += width

    def _product(self, product: Product, parts: Sequence[Any], rows: slice) -> np.ndarray | None:
        """Return the columns of a product, those of the first part changing fastest; None for ones."""
        factors = [
            self.codings[each].take(parts[each[0]][rows], axis=0) if each in self.codings else parts[each[0]][rows]
            for each in product
        ]
        return functools.reduce(_times, factors) if factors else None


def _times(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return (right[:, :, None] * left[:, None, :]).reshape(len(left), -1)


def arrange(plan: Plan, labels: Mapping[str, Labels], fields: Mapping[str, Sequence[str]]) -> Arrangement:
    """Return the columns of the design; `fields` are the names of the columns of each expression."""
    codings: dict[tuple[int, bool], np.ndarray] = {}
    names: list[str] = []
    for product in plan.products:
        of_parts = []
        for each in product:
            part = plan.parts[each[0]]
            if isinstance(part, Factor):
                codings[each], found = _coding(plan.call, part, labels[part.column], reduced=each[1])
            else:
                found = [f"{part.text}[{field}]" if field else part.text for field in fields[part.text]]
            of_parts.append(found)
        made = functools.reduce(
            lambda left, right: [f"{a}:{b}" for b in right for a in left], of_parts or [[INTERCEPT]]
        )
        names += made
    repeated = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if repeated:
        raise FormulaError(f"{plan.call}: two columns would be called {min(repeated)!r}; leave one of them out.")
    return Arrangement(tuple(names), plan.products, codings)


def _coding(call: str, part: Factor, labels: Labels, *, reduced: bool) -> tuple[np.ndarray, list[str]]:
    ordered = part.ordered(call, labels)
    matrix, names = part.matrix(call, ordered, reduced=reduced)
    places = {value: at for at, value in enumerate(ordered.values)}
    return matrix[[places[value] for value in labels.values]].astype(np.float32), names
