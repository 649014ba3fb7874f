"""Rows without replacement, from a copy of the data that is shuffled once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

from tallchain.parts import part, replace, set_fields, static
from tallchain.sources.copying import seed_of, shuffle, shuffle_rows, words_of
from tallchain.sources.permutation import mix, permute
from tallchain.sources.reweighting import check_batch_of, check_weights
from tallchain.sources.rows import row_bytes, slice_rows, take_data, take_rows, widest_window, window_width
from tallchain.sources.stored import Stored
from tallchain.types import (
    Array,
    Ask,
    Population,
    PyTree,
    RowFunction,
    Seen,
)
from tallchain.validation import brief, is_truth, is_whole

ROWS_PER_BATCH_ROW = 1250
"""With at least this many rows per row of a batch, `windows="auto"` reads contiguous windows."""
_WIDE = 256  # bytes of a row


class _Cursor(NamedTuple):
    words: Array
    """Two random words that name the order of this decision."""
    position: Array
    """Rows read so far, modulo N."""
    exact_left: Any
    """Rows still to come of those that every decision reads; () if there are none."""


@part
class Shuffled(Stored):
    """A source that never gives a row twice in one decision, and gives all rows when asked for N.

    The rows are permuted once, when the source is made: rows in file order (grouped by class or by day) would make the
    variance of a window meaningless. A decision then reads the copy in one of two ways:

    - contiguous windows (`windows=True`): the copy, rotated by a random amount, is cut into windows as wide as one
      look, and the windows are visited in a random order, both new for every decision. Fast: memory is read in runs.
      Delta* is unbiased and its variance right on average over shuffles, but with the ONE shuffle at hand the variance
      of the mean of a window of m rows is permanently off by a relative sqrt(4 m / (3 N)): so for large N only.
    - row by row (`windows=False`): a permutation of all rows, new for every decision. Simple random sampling for every
      N, but it needs a gather.

    Args:
        data: an array, a pytree of arrays with the rows along the first axis, or a frame of pandas or polars, of which
            a row is a dict by column name. Copied; 64-bit floats become 32-bit unless 64-bit JAX is on. Missing
            values (NaN) are refused.
        batch_size: m, the rows a test reads between judgements unless it sets its own number.
        seed: of the one shuffle.
        windows: True, False, or "auto": windows if N >= 1250 m, m the rows of one look. At N = 1250 m the variance is
            off by 3.3 per cent (one standard deviation over shuffles) and the log-odds of a decision by at most half of
            that. The kernel decides, since it knows the test and so m.
        exact: indices of rows that EVERY decision reads; only the others are sampled. For the few rows on which most
            depends (`surrogates.influence`).
        copies: how often each row is in the shuffled copy, at least once; None: once. A row with c copies counts as 1/c
            of a row each time, so that Delta* stays unbiased, and rows that matter more are read more often: row i with
            probability proportional to c_i.
    """

    windows: bool | str = static()
    """For windows, the first rows are repeated at the end of `data`, so that no window wraps around."""
    is_auto: bool = static()
    """Whether every kernel chooses `windows` anew, for its own test."""
    words: np.ndarray
    """The seed, in words of 32 bits: not static, so that all shuffles share programs."""

    def __init__(
        self,
        data: PyTree,
        batch_size: int,
        seed: int = 0,
        windows: bool | str = "auto",
        exact: Any = (),
        copies: Any = None,
    ) -> None:
        data, num_rows = take_data("Shuffled", data)
        if not (is_truth(windows) or (isinstance(windows, str) and windows == "auto")):
            raise ValueError(f'`Shuffled(windows=...)` must be True, False or "auto"; got {brief(windows)}.')
        windows = bool(windows) if is_truth(windows) else windows
        if not is_whole(seed, least=0):
            raise ValueError(f"`Shuffled(seed=...)` must be a whole number, at least 0; got {seed!r}.")
        exact, copies = check_weights("Shuffled", exact, copies, num_rows)
        batch_size = check_batch_of("Shuffled", batch_size, num_rows, exact, copies)
        self._begin(batch_size, int(seed), windows, num_rows)
        if len(exact) or copies is not None:
            set_fields(self, **self._weighed(data, exact, copies))
        else:
            self._shuffle(data)

    @classmethod
    def of_checked(cls, data: PyTree, num_rows: int, batch_size: int) -> Shuffled:
        """Make a source of data and a batch size that are already checked."""
        return object.__new__(cls)._begin(batch_size, 0, "auto", num_rows)._shuffle(data)

    @classmethod
    def of_shuffled(cls, data: PyTree, num_rows: int, batch_size: int) -> Shuffled:
        """Make a source of rows in random order; after them the first ones again, as many as a window may have."""
        made = object.__new__(cls)._begin(batch_size, 0, "auto", num_rows)
        return set_fields(made, num_rows=num_rows, num_exact=0, data=data, share=None)

    def _begin(self, batch_size: int, seed: int, windows: bool | str, num_rows: int) -> Shuffled:
        how = {"windows": windows, "is_auto": windows == "auto"}
        return set_fields(self, batch_size=batch_size, words=words_of(seed), num_data=num_rows, **how)

    def _shuffle(self, data: PyTree) -> Shuffled:
        rows = shuffle_rows(data, seed_of(self.words), self._num_repeated(data, self.num_data))
        return set_fields(self, num_rows=self.num_data, num_exact=0, data=rows, share=None)

    @property
    def population(self) -> Population:
        """N rows that do not repeat (except copies, each of them a part of a row)."""
        return Population(
            self.num_rows,
            self.batch_size,
            repeats=False,
            num_exact=self.num_exact,
            num_data=self.num_data,
            is_simple=not (self.windows or self.is_auto),
        )

    def suited(self, appetite: int) -> Shuffled:
        """Resolve `windows="auto"` for a test that wants `appetite` rows; if it reads all, any order works.

        A source that was resolved for another test is resolved again.
        """
        if not self.is_auto:
            return self
        is_large = self.num_rows >= ROWS_PER_BATCH_ROW * self.width(appetite)
        return replace(self, windows=is_large or appetite >= self.num_rows)

    def width(self, appetite: int) -> int:
        """All the rows wanted, or equal bounded parts of them."""
        return window_width(min(appetite, self.num_rows), self.data)

    def some_rows(self, count: int) -> PyTree:
        """Return the first rows of the shuffled copy."""
        return slice_rows(self.data, slice(self.num_exact, self.num_exact + min(count, self.num_rows)))

    def draw(self, key: Array) -> Array:
        """Two random words: those of the key, which nothing else uses."""
        return jr.key_data(key)[:2]

    def start(self, noise: Array) -> _Cursor:
        """Begin with the rows that every decision reads, then at the first row of a new order."""
        return _Cursor(noise, jnp.zeros((), jnp.int32), self._exact_to_come())

    def look(
        self,
        cursor: _Cursor,
        ask: Ask,
        width: int,
        row_function: RowFunction,
        summarise: Callable[[Array, Array], Any],
    ) -> tuple[_Cursor, Seen]:
        """Read the next window of at most `width` rows, and never past the last row."""
        is_windowed = self.windows is True or (self.windows == "auto" and self.num_rows >= ROWS_PER_BATCH_ROW * width)
        read = self._window if is_windowed else self._gather
        return self._seen(cursor, ask, read(cursor, ask, width), row_function, summarise)

    def look_widely(
        self, cursor: _Cursor, ask: Ask, row_function: RowFunction, summarise: Callable[[Array, Array], Any]
    ) -> tuple[_Cursor, Seen]:
        """Read the next rows of a census, as many as a look may."""
        width = self.width(self.num_rows)
        return self._seen(cursor, ask, self._gather(cursor, ask._replace(census=True), width), row_function, summarise)

    def _seen(
        self,
        cursor: _Cursor,
        ask: Ask,
        found: tuple[PyTree, Array],
        row_function: RowFunction,
        summarise: Callable[[Array, Array], Any],
    ) -> tuple[_Cursor, Seen]:
        (rows, share), available = found
        taken = jnp.minimum(jnp.maximum(ask.rows, 0), available)
        seen, exact_left = self._see(rows, share, cursor.exact_left, taken, row_function, summarise)
        position = cursor.position + seen.taken
        return _Cursor(cursor.words, jnp.where(position == self.num_rows, 0, position), exact_left), seen

    def _gather(self, cursor: _Cursor, ask: Ask, width: int) -> tuple[PyTree, Array]:
        index = jnp.minimum(cursor.position + jnp.arange(width), self.num_rows - 1)
        index = jnp.where(ask.census, index, permute(cursor.words, index, self.num_rows))
        if self.num_exact:
            exact = jnp.minimum(self.num_exact - cursor.exact_left + jnp.arange(width), self.num_exact - 1)
            index = jnp.where(cursor.exact_left > 0, exact, self.num_exact + index)
        return take_rows((self.data, self.share), index), jnp.minimum(width, self.num_rows - cursor.position)

    def _window(self, cursor: _Cursor, ask: Ask, width: int) -> tuple[PyTree, Array]:
        whole = self.num_rows // width
        window, within = cursor.position // width, cursor.position % width
        # The remainder after the whole windows comes last; the rotation makes it any rows.
        place = jnp.where(window < whole, permute(cursor.words, jnp.minimum(window, whole - 1), whole), window)
        ahead = place * width + within
        rotation = (mix(cursor.words[0], cursor.words[1], cursor.words[0]) % self.num_rows).astype(jnp.int32)
        room = self.num_rows - ahead  # rotation + ahead modulo N, without exceeding 2^31
        start = jnp.where(rotation >= room, rotation - room, rotation + ahead)
        start = jnp.where(ask.census, cursor.position, start)
        if self.num_exact:
            exact = self.num_exact - cursor.exact_left
            start = jnp.where(cursor.exact_left > 0, exact, self.num_exact + start)
        if jax.default_backend() != "cpu" and row_bytes(self.data) >= _WIDE:
            start = lax.optimization_barrier(start)  # or it would be computed again for every number of the rows
        rows = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, width), (self.data, self.share))
        return rows, jnp.minimum(width - within, self.num_rows - cursor.position)

    def _arranged(self, slots: np.ndarray) -> np.ndarray:
        return shuffle(slots, seed_of(self.words))

    def _num_repeated(self, data: PyTree, num_rows: int) -> int:
        return min(widest_window(data), num_rows) if self.windows or self.is_auto else 0
