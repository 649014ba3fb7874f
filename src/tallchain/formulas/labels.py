"""Labels as small codes: learned in one pass over a column, without a Python object for each row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.formulas.reading import FormulaError
from tallchain.tables import nearest
from tallchain.tables.table import Kind

if TYPE_CHECKING:
    import pandas as pd

Label = str | int | float | bool
MISSING, UNKNOWN = -1, -2
_LARGEST = 2**53  # whole numbers up to here are floats


@dataclasses.dataclass(frozen=True)
class Labels:
    """The labels of a column, in order: the code of a label is its place."""

    values: tuple[Label, ...]

    def codes(self, column: pd.Series, kind: Kind) -> np.ndarray:
        """Return the code of each row; MISSING and UNKNOWN for others."""
        local, values = distinct(column, kind)
        places = {value: at for at, value in enumerate(self.values)}
        known = np.array([*(places.get(value, UNKNOWN) for value in values), MISSING], np.int32)
        return known[local]

    def array(self) -> np.ndarray:
        """Return the labels as an array; of objects if they are text."""
        return array_of(self.values)

    def take(self, codes: np.ndarray) -> np.ndarray:
        """Return the labels of codes."""
        return self.array()[codes]


def array_of(values: Iterable[Label]) -> np.ndarray:
    """Return labels as an array; of objects if they are text."""
    held = list(values)
    return np.array(held, dtype=object) if any(isinstance(value, str) for value in held) else np.array(held)


class Coder:
    """Learns the labels of a column, block by block."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._codes: dict[Label, int] = {}
        self._blocks: list[np.ndarray] = []
        self._order: list[Label] | None = [] if kind == "category" else None

    @property
    def count(self) -> int:
        """Labels so far."""
        return len(self._codes)

    @property
    def values(self) -> list[Label]:
        """Labels so far."""
        return list(self._codes)

    def add(self, column: pd.Series) -> np.ndarray:
        """Code the next rows by when their labels first came; return which rows have none."""
        local, values = distinct(column, self.kind)
        self._note_order(column)
        found = [self._codes.setdefault(value, len(self._codes)) for value in values]
        codes = np.array([*found, MISSING], _small(len(self._codes)))[local]
        self._blocks.append(codes)
        return codes < 0

    def finish(self, keep: np.ndarray | None) -> tuple[Labels, np.ndarray]:
        """Return the labels that occur among the rows that are kept, and the codes of these rows."""
        codes = np.empty(sum(map(len, self._blocks)), _small(len(self._codes)))
        start = 0
        while self._blocks:  # the blocks go as they are copied
            block = self._blocks.pop(0)
            codes[start : start + len(block)] = block
            start += len(block)
        if keep is None:
            return in_order(codes, list(self._codes), range(len(self._codes)), self._order)
        codes = codes[keep]
        used = np.flatnonzero(np.bincount(codes, minlength=len(self._codes)))
        return in_order(codes, list(self._codes), used.tolist(), self._order)

    def _note_order(self, column: pd.Series) -> None:
        """Keep the order of the categories, if it is meant, and the same in all blocks."""
        if self._order is None:
            return
        order = _of_kind(column.cat.categories, self.kind) if column.cat.ordered else None
        self._order = order if order == self._order or not self._order else None


def in_order(
    codes: np.ndarray, values: list[Label], used: Sequence[int], order: list[Label] | None = None
) -> tuple[Labels, np.ndarray]:
    """Return the labels that are used, sorted or in this order, and the codes of the rows among them."""
    plain = _plain([values[at] for at in used])
    rank = {label: at for at, label in enumerate(order or ())}
    places = sorted(range(len(used)), key=(lambda at: rank[values[used[at]]]) if rank else (lambda at: plain[at]))
    new = np.full(len(values) + 1, MISSING, _small(len(used)))
    new[[used[at] for at in places]] = np.arange(len(used))
    return Labels(tuple(plain[at] for at in places)), new[codes]


def distinct(column: pd.Series, kind: Kind) -> tuple[np.ndarray, list[Label]]:
    """Return the different labels of some rows, and the place of each row's label among them; -1 if it is missing."""
    import pandas as pd

    if kind == "category":
        codes = column.cat.codes.to_numpy()
        used = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(column.cat.categories)))
        places = np.full(len(column.cat.categories) + 1, -1, np.int32)
        places[used] = np.arange(len(used))
        return places[codes], _of_kind(column.cat.categories[used], kind)
    local, values = pd.factorize(column)
    return local, _of_kind(values, kind)


def _of_kind(values: Any, kind: Kind) -> list[Label]:
    if kind == "time" or str(values.dtype).startswith(("datetime", "timestamp")):
        return [str(value).removesuffix(" 00:00:00") for value in values]
    if kind == "truth":
        return [bool(value) for value in values]
    held = values.tolist()
    return held if kind in ("number", "category") else [str(value) for value in held]


def _plain(values: list[Any]) -> list[Label]:
    """Numbers that are all whole as integers; other objects as text."""
    if all(isinstance(value, bool) for value in values):
        return values
    if not all(isinstance(value, int | float) for value in values):
        return [str(value) for value in values]
    is_whole = all(float(value).is_integer() for value in values)
    if any(isinstance(value, float) and abs(value) >= _LARGEST for value in values):
        raise ValueError("labels above 2^53 cannot be told apart as floats; store them as text")
    return [int(value) for value in values] if is_whole else [float(value) for value in values]


def _small(count: int) -> type[np.signedinteger]:
    """Return the smallest integer type for so many codes."""
    return np.int8 if count < 2**7 else np.int16 if count < 2**15 else np.int32


def refuse_unknown(call: str, name: str, column: pd.Series, codes: np.ndarray, kind: Kind, labels: Labels) -> None:
    """Refuse labels of a fixed factor that the regression has no coefficient for."""
    if not (codes == UNKNOWN).any():
        return
    local, values = distinct(column, kind)
    unknown = sorted({str(values[at]) for at in np.unique(local[codes == UNKNOWN])})
    near = nearest(unknown[0], map(str, labels.values))
    more = ", ..." if len(unknown) > 5 else ""
    raise FormulaError(
        f"{call}: column {name!r} has levels that the regression does not have: "
        f"{', '.join(map(repr, unknown[:5]))}{more}; {near}. A fixed factor has no coefficient for a new level, and "
        f"`(1 | {name})` draws an effect for it."
    )
