"""Rows of a packed table, a random part of them in memory at a time."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from tallchain.crew import current
from tallchain.functions import Handled
from tallchain.parts import part
from tallchain.sources.columns import Columns
from tallchain.sources.divided import LEAST_ROUND, Divided, length_of, repeated
from tallchain.types import PyTree
from tallchain.validation import brief, is_positive, is_whole

_IN_MEMORY = 4  # parts at a time: the first, the one that chains are in, the next, and one on its way out
_UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_BYTES_PER_DECISION = 2000  # what is read in the time of a decision, about


class _OnDisk(Handled):
    """The parts of a packed table."""

    num_slots = 1

    def __init__(self, columns: Columns, num_parts: int) -> None:
        super().__init__()
        self.columns, self.num_parts = columns, num_parts
        self.num_rows, self.row_bytes = columns.num_rows, columns.row_bytes

    @property
    def identity(self) -> str:
        """What tells it from others."""
        return f"{self.columns.identity}, {self.num_parts} parts"

    def _place(self, number: int) -> tuple[int, int, int]:
        """Return first row, rows, and rows to repeat after the last, of a part."""
        return number * length_of(self), length_of(self), repeated(self)

    def take(self, number: int) -> PyTree:
        """Read a part, unless it is there already."""
        return self.columns.take(*self._place(number))

    def ahead(self, number: int) -> None:
        """Begin to read a part."""
        self.columns.read_ahead(*self._place(number))

    def device(self, number: int) -> Any:
        """JAX's default device."""
        return

    def owner(self, number: int) -> int:
        """Every process reads all parts, for its own chains."""
        found = current()
        return 0 if found is None else found.rank

    def first(self, count: int) -> PyTree:
        """Read them."""
        return self.columns.read(0, count)

    def left_over(self, count: int) -> PyTree:
        """Read the last rows."""
        return self.columns.read(self.num_rows - length_of(self), length_of(self), repeated(self))


@part
class Packed(Divided):
    """A source of the rows of a packed table, which may be much larger than memory; see `sources.divided`.

    The draws depend on the number of parts. So that each is visited equally often, a run makes a few draws more than
    were asked for: whole tours.

    Args:
        path: the folder that `pack` or `tallchain pack` has made.
        batch_size: m, the rows that a test reads between judgements unless it sets its own number; None for 50.
        memory: how much to use, about: "4GB", or a number of bytes.
        columns: names of columns, in the structure in which the likelihood takes a row: a name, or a dict or tuple of
            them; None for a dict of all.
        parts: how many parts to divide the rows into; None for as few as the memory allows.
        most_error: the largest e at which `prepare` goes on; it warns from 0.05 on.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        batch_size: int | None = None,
        *,
        memory: str | float = "4GB",
        columns: Any = None,
        parts: int | None = None,
        most_error: float = 0.3,
    ) -> None:
        held = Columns(Path(path), columns)
        num_bytes, size = bytes_of("Packed(memory=...)", memory), held.num_rows * held.row_bytes
        if parts is None:
            parts = 1 if 2 * size <= num_bytes else min(math.ceil(_IN_MEMORY * size / num_bytes), held.num_rows)
        if not is_whole(parts, 1) or parts > held.num_rows:
            raise ValueError(
                f"`Packed(parts=...)` must be a whole number from 1 to {held.num_rows:,}, the rows of the table; got "
                f"{brief(parts)}."
            )
        self._begin("Packed", _OnDisk(held, int(parts)), batch_size, most_error)

    def round_length(self, num_chains: int) -> int:
        """Draws of a chain in a part, of a long run: in about the time that it takes to read the next one."""
        size = length_of(self.held) * self.held.row_bytes
        return max(LEAST_ROUND, math.ceil(size / _BYTES_PER_DECISION / num_chains))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a summary should say about it."""
        if self.num_parts == 1:
            return ()
        return (f"rows come from {self.num_parts:,} parts of {length_of(self.held):,} in turn, from a packed table",)


def bytes_of(call: str, memory: Any) -> float:
    """Return an amount of memory in bytes."""
    if isinstance(memory, str):
        text = memory.strip().lower()
        unit = next((each for each in _UNITS if text.endswith(each) and not text.endswith("i" + each)), "")
        try:
            found = float(text.removesuffix(unit).strip()) * _UNITS.get(unit, 1)
        except ValueError:
            found = math.nan
        if found > 0:
            return found
    elif is_positive(memory):
        return float(memory)
    raise ValueError(f'`{call}` must be an amount such as "4GB" or a number of bytes; got {brief(memory)}.')
