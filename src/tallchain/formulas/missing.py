"""Missing values, counted by column."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tallchain.formulas.reading import FormulaError
from tallchain.tables import Table

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass
class Missing:
    """How many values are missing in each column, and in which row the first is."""

    found: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    def note(self, name: str, is_missing: np.ndarray, start: int) -> None:
        """Count those of a block that begins at this row."""
        count = int(np.count_nonzero(is_missing))
        if count:
            before, first = self.found.get(name, (0, start + int(np.argmax(is_missing))))
            self.found[name] = (before + count, first)


def missing_numbers(block: pd.DataFrame, names: Iterable[str]) -> Mapping[str, np.ndarray]:
    """Return which rows have no number, by column, for the columns that lack some."""
    found = {}
    for name in names:
        column = block[name]
        if column.dtype.kind in "biu":
            continue
        is_missing = column.isna().to_numpy()
        if is_missing.any():
            found[name] = is_missing
    return found


def refuse(call: str, table: Table, names: Iterable[str], how: str = ' with `missing="drop"`') -> None:
    """Count what is missing in all of these columns, in one pass, and refuse it if there is any."""
    names, missing, start = list(names), Missing(), 0
    for block in table.blocks(names):
        for name, is_missing in missing_numbers(block, names).items():
            missing.note(name, is_missing, start)
        start += len(block)
    if not missing.found:
        return
    said = ", ".join(f"{name!r} {count:,} (the first in row {row:,})" for name, (count, row) in missing.found.items())
    raise FormulaError(
        f"{call}: of {start:,} rows, some have missing values in {len(missing.found)} of the {len(names)} columns that "
        f"it uses: {said}. Fill them in, or leave such rows out{how}."
    )
