"""Rows of a packed table, a random part of them in memory at a time.

A packed table (`pack`) has its rows in random order, so any consecutive rows of it are a random part of all. Chains
make some draws from one part, then go on with the next, which is read meanwhile. In a decision, b rows of one part have
the mean and the variance of b of all rows. Over many decisions in the same part a chain samples pi_p, the posterior
with the mean of that part in place of that of all rows. With N rows in P parts of M, over pairs of draws,

    e^2 = var(log pi_p - log pi) = S^2 (1/M) (1 - M/N),    S^2 = var over rows of N (l_i(t') - l_i(t) - residuals')

The tilts of all parts add up to zero, so over a whole tour of them the first order cancels, and moments are off by
O(e^2): the variance of a linear tilt by a factor 1 + e^2. Sums over all rows (`sweep`) read every row.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tallchain.parts import part, replace, set_fields, static
from tallchain.sources.columns import Columns
from tallchain.sources.rows import check_batch_size, widest_of
from tallchain.sources.shuffled import Shuffled
from tallchain.sources.sweeping import Piece, add, sweep
from tallchain.types import Array, Ask, Block, Population, PyTree, RowFunction, Seen
from tallchain.validation import brief, is_positive, is_whole

_IN_MEMORY = 4  # parts at a time: the first, the one that chains are in, the next, and one on its way out
_UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_BATCH = 50  # rows
_LEAST_ROUND = 100  # draws: to go on to another part takes some milliseconds
_BYTES_PER_DECISION = 2000  # what is read in the time of a decision, about


@part
class Packed:
    """A source of the rows of a packed table, which may be much larger than memory.

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

    columns: Columns = static()
    num_parts: int = static()
    """P."""
    most_error: float = static()
    rows: Shuffled
    """Those of one part."""
    number: Array
    """Of that part."""

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
        num_bytes = bytes_of("Packed(memory=...)", memory)
        if parts is None:
            parts = math.ceil(held.num_rows * held.row_bytes * _IN_MEMORY / num_bytes)
            parts = 1 if held.num_rows * held.row_bytes * 2 <= num_bytes else parts
            parts = min(parts, held.num_rows)
        if not is_whole(parts, 1) or parts > held.num_rows:
            raise ValueError(
                f"`Packed(parts=...)` must be a whole number from 1 to {held.num_rows:,}, the rows of the table; got "
                f"{brief(parts)}."
            )
        if not is_positive(most_error):
            raise ValueError(f"`Packed(most_error=...)` must be a positive number; got {brief(most_error)}.")
        set_fields(self, columns=held, num_parts=int(parts), number=np.int32(0), most_error=float(most_error))
        size = min(_BATCH, self._length) if batch_size is None else batch_size
        size = check_batch_size("Packed", size, self._length, "rows of a part")
        set_fields(self, rows=self._shuffled(self._read(0), size))

    # ---- parts -----------------------------------------------------------------------------------

    @property
    def _length(self) -> int:
        """M, the rows of a part. Up to P - 1 rows are left over: only sweeps read them."""
        return self.columns.num_rows // self.num_parts

    @property
    def part_bytes(self) -> int:
        """Of a part."""
        return self._length * self.columns.row_bytes

    def _place(self, number: int) -> tuple[int, int, int]:
        """Return first row, rows, and rows to repeat after the last, of a part."""
        return number * self._length, self._length, self._repeated

    @property
    def _repeated(self) -> int:
        return min(widest_of(self.columns.row_bytes), self._length)

    def _read(self, number: int) -> PyTree:
        return self.columns.take(*self._place(number))

    def _shuffled(self, data: PyTree, batch_size: int) -> Shuffled:
        return Shuffled.of_shuffled(data, self._length, batch_size)

    def at_part(self, number: int) -> Packed:
        """Return the source in another part, counted on beyond the last; the next one is read ahead."""
        number %= self.num_parts
        if number == int(self.number):
            return self
        data = self._read(number)
        self.read_ahead(number + 1)
        return replace(self, rows=replace(self.rows, data=data), number=np.int32(number))

    def read_ahead(self, number: int) -> None:
        """Begin to read a part."""
        if self.num_parts > 1:
            self.columns.read_ahead(*self._place(number % self.num_parts))

    def round_length(self, num_chains: int) -> int:
        """Draws of a chain in a part, of a long run: in about the time that it takes to read the next one."""
        return max(_LEAST_ROUND, math.ceil(self.part_bytes / _BYTES_PER_DECISION / num_chains))

    # ---- what a source does -----------------------------------------------------------------------

    @property
    def population(self) -> Population:
        """N rows, of which decisions see those of one part at a time."""
        is_part = self.num_parts > 1
        return self.rows.population._replace(num_data=self.columns.num_rows, is_part=is_part)

    def suited(self, appetite: int) -> Packed:
        """Resolve how rows are read, as `Shuffled` does."""
        return replace(self, rows=self.rows.suited(appetite))

    def width(self, appetite: int) -> int:
        """As for `Shuffled`, of a part."""
        return self.rows.width(appetite)

    def some_rows(self, count: int) -> PyTree:
        """Return the first rows of the part."""
        return self.rows.some_rows(count)

    def draw(self, key: Array) -> PyTree:
        """Draw the order of the rows of the part."""
        return self.rows.draw(key)

    def start(self, noise: PyTree) -> PyTree:
        """Begin a decision."""
        return self.rows.start(noise)

    def look(
        self,
        cursor: PyTree,
        ask: Ask,
        width: int,
        row_function: RowFunction,
        summarise: Callable[[Array, Array], Any],
    ) -> tuple[PyTree, Seen]:
        """Read the next rows of the part."""
        return self.rows.look(cursor, ask, width, row_function, summarise)

    def look_widely(
        self, cursor: PyTree, ask: Ask, row_function: RowFunction, summarise: Callable[[Array, Array], Any]
    ) -> tuple[PyTree, Seen]:
        """Read the next rows of a census of the part."""
        return self.rows.look_widely(cursor, ask, row_function, summarise)

    def sweep(
        self,
        summarise: Callable[[Block], PyTree],
        merge: Callable[[Any, Any], Any] = add,
        *,
        lanes: int = 1,
        results: int = 1,
        report: Callable[[int], None] | None = None,
    ) -> Any:
        """Summarise every row of the table once, part by part; see `Source.sweep`."""
        options: dict[str, Any] = {"lanes": lanes, "results": results, "report": report}
        return sweep(summarise, merge, self._pieces(), num_rows=self._length, **options)

    def _pieces(self) -> Iterator[Piece]:
        """Yield the parts, the next one being read meanwhile, and then the rows that are left over."""
        length, num_rows = self._length, self.columns.num_rows
        for number in range(self.num_parts):
            is_here = number == int(self.number)
            data = self.rows.data if is_here else self._read(number)
            if number + 1 < self.num_parts and number + 1 != int(self.number):
                self.read_ahead(number + 1)
            yield Piece(data, begin=number * length)
            del data
        num_left = num_rows - self.num_parts * length
        if num_left:
            data = self.columns.read(num_rows - length, length, self._repeated)
            yield Piece(data, begin=num_rows - length, num_before=length - num_left)

    def order(self) -> np.ndarray | None:
        """Rows are counted as they lie in the packed table."""
        return np.arange(self.columns.num_rows, dtype=np.int32)

    def reweighted(self, exact: Any = (), copies: Any = None, batch_size: int | None = None) -> Packed:
        """Return the same rows with another batch size; no row can be read always or more often."""
        if np.size(exact) or copies is not None:
            raise ValueError(
                "`reweighted(...)`: the rows of a packed table cannot be reweighted: a row that every decision should "
                "read would have to be in every part."
            )
        size = check_batch_size("reweighted", batch_size or self.rows.batch_size, self._length, "rows of a part")
        return replace(self, rows=replace(self.rows, batch_size=size))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a summary should say about it."""
        if self.num_parts == 1:
            return ()
        return (f"rows come from {self.num_parts:,} parts of {self._length:,} in turn, read from a packed table",)


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
