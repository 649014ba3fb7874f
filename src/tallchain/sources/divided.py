"""Rows in random parts, of which a decision sees one: what sources on disk and on several devices share.

Consecutive rows of a table in random order are a random part of all. Chains make some draws in one part, then go on to
the next. In a decision, b rows of one part have the mean and the variance of b of all rows. Over many decisions in the
same part a chain samples pi_p, the posterior with the mean of that part in place of that of all rows. With N rows in P
parts of M, over pairs of draws,

    e^2 = var(log pi_p - log pi) = S^2 (1/M) (1 - M/N),    S^2 = var over rows of N (l_i(t') - l_i(t) - residuals')

The tilts of all parts add up to zero, so over a whole tour of them the first order cancels, and moments are off by
O(e^2): the variance of a linear tilt by a factor 1 + e^2. Sums over all rows (`sweep`) read every row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import numpy as np

from tallchain.crew import current
from tallchain.parts import part, replace, set_fields, static
from tallchain.sources.rows import check_batch_size, slice_rows, widest_of
from tallchain.sources.shuffled import Shuffled
from tallchain.sources.sweeping import Piece, add, merged, sweep_pieces
from tallchain.types import Array, Ask, Block, Population, PyTree, RowFunction, Seen
from tallchain.validation import brief, is_positive

_BATCH, _SOME = 50, 8192  # rows
LEAST_ROUND = 1000
"""Draws of a chain in a part of a long run, at least: to go on to another part takes some milliseconds."""


class Parts(Protocol):
    """Where the rows of a divided source are."""

    @property
    def num_rows(self) -> int:
        """N."""
        ...

    @property
    def num_parts(self) -> int:
        """P."""
        ...

    @property
    def num_slots(self) -> int:
        """Parts that chains are in at the same time, a group of them in each."""
        ...

    @property
    def row_bytes(self) -> int:
        """Of a row, in JAX's types."""
        ...

    def take(self, number: int) -> PyTree:
        """Return the rows of a part, and after them the first ones again, as many as a window may have."""
        ...

    def ahead(self, number: int) -> None:
        """Begin to read a part."""
        ...

    def device(self, number: int) -> Any:
        """Where it is; None for JAX's default device."""
        ...

    def left_over(self, count: int) -> PyTree:
        """Return as many rows as a part has, the last `count` of which are in no part."""
        ...

    def owner(self, number: int) -> int:
        """Return the process that has a part; number P is what is left over."""
        ...

    def first(self, count: int) -> PyTree:
        """Return the first rows of all, which every process has."""
        ...


def length_of(parts: Parts) -> int:
    """M, the rows of a part. Up to P - 1 rows are left over: only sweeps read them."""
    return parts.num_rows // parts.num_parts


def repeated(parts: Parts) -> int:
    """Rows to repeat after the last one of a part."""
    return min(widest_of(parts.row_bytes), length_of(parts))


@part
class Divided:
    """A source of rows in parts."""

    held: Parts = static()
    most_error: float = static()
    """The largest e to go on with."""
    rows: Shuffled
    """Those of one part."""
    number: Array
    """Of that part."""
    some: PyTree
    """The first rows of all: the same on every process, and in every part."""

    def _begin(self, call: str, held: Parts, batch_size: int | None, most_error: Any) -> None:
        if not is_positive(most_error):
            raise ValueError(f"`{call}(most_error=...)` must be a positive number; got {brief(most_error)}.")
        length = length_of(held)
        size = min(_BATCH, length) if batch_size is None else batch_size
        size = check_batch_size(call, size, length, "rows of a part")
        number = next(number for number in range(held.num_parts) if self._is_here(held, number))
        rows = Shuffled.of_shuffled(held.take(number), length, size)
        set_fields(self, held=held, most_error=float(most_error), rows=rows, number=np.int32(number))
        set_fields(self, some=held.first(min(_SOME, length)))

    @staticmethod
    def _is_here(held: Parts, number: int) -> bool:
        crew = current()
        return crew is None or held.owner(number) == crew.rank

    # ---- parts -----------------------------------------------------------------------------------

    @property
    def num_parts(self) -> int:
        """P."""
        return self.held.num_parts

    @property
    def num_slots(self) -> int:
        """Parts that chains are in at the same time."""
        return self.held.num_slots

    @property
    def device(self) -> Any:
        """Where the part is."""
        return self.held.device(int(self.number))

    def at_part(self, number: int) -> Self | None:
        """Return the source in another part, counted on beyond the last; the one after it is read ahead.

        None if another process has it.
        """
        number %= self.num_parts
        if not self._is_here(self.held, number):
            return None
        if number == int(self.number):
            return self
        data = self.held.take(number)
        if self.num_parts > 1:
            self.held.ahead((number + 1) % self.num_parts)
        return replace(self, rows=replace(self.rows, data=data), number=np.int32(number))

    def round_length(self, num_chains: int) -> int:
        """Draws of a chain in a part, of a long run."""
        return LEAST_ROUND

    # ---- what a source does -----------------------------------------------------------------------

    @property
    def population(self) -> Population:
        """N rows, of which decisions see those of one part at a time."""
        return self.rows.population._replace(num_data=self.held.num_rows, is_part=self.num_parts > 1)

    def suited(self, appetite: int) -> Self:
        """Resolve how rows are read, as `Shuffled` does."""
        return replace(self, rows=self.rows.suited(appetite))

    def width(self, appetite: int) -> int:
        """As for `Shuffled`, of a part."""
        return self.rows.width(appetite)

    def some_rows(self, count: int) -> PyTree:
        """Return the first rows of all."""
        return slice_rows(self.some, slice(0, count))

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
        """Summarise every row once, part by part, the next one being read meanwhile; see `Source.sweep`."""
        length, num_left = length_of(self.held), self.held.num_rows - self.num_parts * length_of(self.held)

        def piece(number: int) -> Piece:
            if number == self.num_parts:
                first = self.held.num_rows - length
                return Piece(self.held.left_over(num_left), begin=first, num_before=length - num_left)
            is_here = number == int(self.number)
            data = self.rows.data if is_here else self.held.take(number)
            if number + 1 < self.num_parts and number + 1 != int(self.number):
                self.held.ahead(number + 1)
            return Piece(data, begin=number * length, device=self.held.device(number))

        numbers = [number for number in range(self.num_parts + (num_left > 0)) if self._is_here(self.held, number)]
        options: dict[str, Any] = {"lanes": lanes, "results": results, "report": report, "num_rows": length}
        pieces = (piece(number) for number in numbers)
        return merged(zip(numbers, sweep_pieces(summarise, pieces, **options), strict=True), merge)

    def order(self) -> np.ndarray | None:
        """Rows are counted as they lie in the parts."""
        return np.arange(self.held.num_rows, dtype=np.int32)

    def reweighted(self, exact: Any = (), copies: Any = None, batch_size: int | None = None) -> Self:
        """Return the same rows with another batch size; no row can be read always or more often."""
        if np.size(exact) or copies is not None:
            raise ValueError(
                "`reweighted(...)`: rows in parts cannot be reweighted: a row that every decision should read would "
                "have to be in every part."
            )
        size = batch_size or self.rows.batch_size
        size = check_batch_size("reweighted", size, length_of(self.held), "rows of a part")
        return replace(self, rows=replace(self.rows, batch_size=size))
