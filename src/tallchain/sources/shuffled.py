"""Rows without replacement, from a copy of the data that is shuffled once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

from tallchain.sources.copying import order_rows, shuffle, shuffle_rows
from tallchain.sources.permutation import mix, permute
from tallchain.sources.rows import (
    MOST_ROWS,
    check_batch_size,
    take_data,
    take_rows,
    widest_window,
    window_width,
)
from tallchain.types import Array, Ask, Population, PyTree, RowFunction, is_whole, part, replace, set_fields, static

ROWS_PER_BATCH_ROW = 1250
"""From this many rows per row of a batch on, `windows="auto"` reads contiguous windows."""


class _Cursor(NamedTuple):
    words: Array
    """Two random words that name the order of this decision."""
    position: Array
    """Rows handed out so far, modulo N."""


@part
class Shuffled:
    """A source that never gives a row twice in one decision, and gives all rows when asked for N.

    The rows are permuted once, here: rows in file order (one class, one day together) would make the variance of a
    window meaningless. A decision then reads the copy in one of two ways:

    - contiguous windows (`windows=True`): the copy, rotated by a random amount, is cut into windows as wide as one
      look, and the windows are visited in a random order, both new for every decision. Fast: memory is read in runs.
      Delta* is unbiased and its variance right on average over shuffles, but under the ONE shuffle at hand the variance
      of the mean of a window of m rows is off by a relative sqrt(4 m / (3 N)), for good: so for large N only.
    - row by row (`windows=False`): a permutation of all rows, new for every decision. Simple random sampling for every
      N, at the price of a gather.

    Args:
        data: an array, a pytree of arrays with the rows along the first axis, or a frame of pandas or polars, of which
            a row is a dict by column name. Copied; 64-bit floats become 32-bit unless JAX is told otherwise. Missing
            values (NaN) are refused.
        batch_size: m, the rows a test reads between judgements unless it has a wish of its own.
        seed: of the one shuffle.
        exact: indices of rows that EVERY decision reads; only the others are sampled. For the few rows on which most
            depends (`surrogates.influence`).
        copies: how often each row is in the shuffled copy, at least once; None: once. A row that is there c times
            counts for 1/c of a row each time, so that Delta* stays unbiased, and rows that matter more are met more
            often: row i with probability proportional to c_i.
        windows: True, False, or "auto": windows from N = 1250 m on, m the rows of one look, where the variance is off
            by 3.3 per cent (one standard deviation over shuffles) and the log-odds of a decision by at most half of
            that. The kernel decides, which knows the test and so m.
    """

    num_rows: int = static()
    batch_size: int = static()
    windows: bool | str = static()
    num_exact: int = static()
    num_data: int = static()
    data: PyTree
    """The rows that every decision reads, then the others shuffled; for windows, the first of these are repeated at the
    end so that no window wraps around."""
    share: Array | None
    """1/c_i by row of `data`; None where every row is there once."""

    def __init__(
        self,
        data: PyTree,
        batch_size: int,
        seed: int = 0,
        windows: bool | str = "auto",
        exact: Any = (),
        copies: Any = None,
    ) -> None:
        data, num_data = take_data("Shuffled", data)
        batch_size = check_batch_size("Shuffled", batch_size, num_data)
        exact = _check_exact(exact, num_data, batch_size)
        copies = _check_copies(copies, num_data)
        num_rows = num_data - len(exact) if copies is None else int(copies.sum() - copies[exact].sum())
        if not (windows == "auto" or isinstance(windows, bool)):
            raise ValueError(f'`Shuffled(windows=...)` must be True, False or "auto"; got {windows!r}.')
        if not is_whole(seed, least=0):
            raise ValueError(f"`Shuffled(seed=...)` must be a whole number, at least 0; got {seed!r}.")
        repeated = min(widest_window(data), num_rows) if windows else 0
        share = None
        if copies is None and not len(exact):
            data = shuffle_rows(data, seed, repeated)
        else:
            order = _order(num_data, seed, repeated, exact, copies)
            data, share = order_rows((data, _shares(exact, copies)), order)
        set_fields(
            self,
            num_rows=num_rows,
            batch_size=batch_size,
            windows=windows,
            num_exact=len(exact),
            num_data=num_data,
            data=data,
            share=share,
        )

    @property
    def population(self) -> Population:
        """N rows that do not repeat (but for copies, each of them a part of a row)."""
        return Population(
            self.num_rows, self.batch_size, repeats=False, num_exact=self.num_exact, num_data=self.num_data
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a summary should say of it."""
        found = []
        if self.num_exact:
            found.append(f"{self.num_exact:,} rows are read at every decision, and counted in its rows")
        if self.share is not None:
            most = round(1 / float(jnp.min(self.share)))
            found.append(
                f"rows that matter are sampled up to {most:,} times as often as others ({self.num_rows:,} copies of "
                f"{self.num_data - self.num_exact:,} rows, each for a part of one)"
            )
        return tuple(found)

    def suited(self, appetite: int) -> Shuffled:
        """Settle `windows="auto"` for a test that wants so many rows; in all rows the order has no part."""
        if self.windows != "auto":
            return self
        is_large = self.num_rows >= ROWS_PER_BATCH_ROW * self.width(appetite)
        return replace(self, windows=is_large or appetite >= self.num_rows)

    def width(self, appetite: int) -> int:
        """All the rows wanted, or equal bounded parts of them."""
        return window_width(min(appetite, self.num_rows), self.data)

    def first_rows(self, count: int) -> PyTree:
        """Return the first rows of the shuffled copy."""
        first = self.num_exact
        return jax.tree.map(lambda leaf: leaf[first : first + min(count, self.num_rows)], self.data)

    def exact_rows(self) -> PyTree:
        """Return the rows that every decision reads."""
        return jax.tree.map(lambda leaf: leaf[: self.num_exact], self.data)

    def draw(self, key: Array) -> Array:
        """Two random words: those of the key, which nothing else uses."""
        return jr.key_data(key)[:2]

    def start(self, noise: Array) -> _Cursor:
        """Begin at the first row of a new order."""
        return _Cursor(noise, jnp.zeros((), jnp.int32))

    def look(
        self,
        cursor: _Cursor,
        ask: Ask,
        width: int,
        row_function: RowFunction,
        summarise: Callable[[Array, Array], Any],
    ) -> tuple[_Cursor, Any, Array]:
        """Read the next window of at most `width` rows, and never past the last row."""
        is_windowed = self.windows is True or (self.windows == "auto" and self.num_rows >= ROWS_PER_BATCH_ROW * width)
        read = self._window if is_windowed else self._gather
        (rows, share), available = read(cursor, ask, width)
        if self.num_exact:
            available = jnp.where(ask.exact, width, available)
        taken = jnp.minimum(jnp.maximum(ask.rows, 0), available)
        values = jax.vmap(row_function)(rows)
        evidence = summarise(values if share is None else values * share, jnp.arange(width) < taken)
        position = cursor.position + jnp.where(ask.exact, 0, taken)
        return cursor._replace(position=jnp.where(position == self.num_rows, 0, position)), evidence, taken

    def _gather(self, cursor: _Cursor, ask: Ask, width: int) -> tuple[PyTree, Array]:
        index = jnp.minimum(cursor.position + jnp.arange(width), self.num_rows - 1)
        index = jnp.where(ask.census, index, permute(cursor.words, index, self.num_rows))
        if self.num_exact:
            exact = jnp.minimum(self.num_exact - ask.rows + jnp.arange(width), self.num_exact - 1)
            index = jnp.where(ask.exact, exact, self.num_exact + index)
        return take_rows((self.data, self.share), index), jnp.minimum(width, self.num_rows - cursor.position)

    def _window(self, cursor: _Cursor, ask: Ask, width: int) -> tuple[PyTree, Array]:
        whole = self.num_rows // width
        window, within = cursor.position // width, cursor.position % width
        # What is left over after the whole windows comes last; the rotation makes that any rows.
        place = jnp.where(window < whole, permute(cursor.words, jnp.minimum(window, whole - 1), whole), window)
        ahead = place * width + within
        rotation = (mix(cursor.words[0], cursor.words[1], cursor.words[0]) % self.num_rows).astype(jnp.int32)
        room = self.num_rows - ahead  # rotation + ahead modulo N, without passing 2^31
        start = jnp.where(rotation >= room, rotation - room, rotation + ahead)
        start = jnp.where(ask.census, cursor.position, start)
        if self.num_exact:
            start = jnp.where(ask.exact, self.num_exact - ask.rows, self.num_exact + start)
        rows = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, width), (self.data, self.share))
        return rows, jnp.minimum(width - within, self.num_rows - cursor.position)


def _order(num_data: int, seed: int, repeated: int, exact: np.ndarray, copies: np.ndarray | None) -> np.ndarray:
    """Return the rows that every decision reads, then the others shuffled, each as often as it is there."""
    slots = np.delete(np.arange(num_data, dtype=np.int32), exact)
    if copies is not None:
        slots = np.repeat(slots, np.delete(copies, exact))
    slots = shuffle(slots, seed)
    return np.concatenate([exact, slots, slots[:repeated]], dtype=np.int32)


def _shares(exact: np.ndarray, copies: np.ndarray | None) -> np.ndarray | None:
    """Return 1/c_i by row of the user's data."""
    if copies is None:
        return None
    shares = np.divide(1, copies, out=np.empty(len(copies), jnp.result_type(float)), casting="same_kind")
    shares[exact] = 1
    return shares


def _check_copies(copies: Any, num_rows: int) -> np.ndarray | None:
    """Return how often each row is to be there, or say what is wrong with it."""
    if copies is None:
        return None
    counts = np.asarray(copies)
    if counts.shape != (num_rows,) or counts.dtype.kind not in "iu" or counts.min() < 1:
        raise ValueError(
            f"`Shuffled(copies=...)` must be whole numbers, at least 1, one for each of the {num_rows} rows; got "
            f"{copies!r}."
        )
    total = counts.sum(dtype=np.float64)  # integers could wrap
    if total > MOST_ROWS:
        raise ValueError(
            f"`Shuffled(copies=...)` must add up to fewer than 2^31 rows, the reach of a 32-bit index; got "
            f"{total:,.0f}. Divide them all by the same number, and round up."
        )
    return counts.astype(np.int64, copy=False)


def _check_exact(exact: Any, num_rows: int, batch_size: int) -> np.ndarray:
    """Return the indices of the rows to read always, or say what is wrong with them."""
    indices = np.asarray(exact)
    if indices.size == 0:
        return np.zeros(0, np.int64)
    is_index = indices.ndim == 1 and indices.dtype.kind in "iu" and indices.min() >= 0 and indices.max() < num_rows
    if not is_index or len(np.unique(indices)) < len(indices):
        raise ValueError(
            f"`Shuffled(exact=...)` must be indices of rows, each once, between 0 and {num_rows - 1}; got {exact!r}."
        )
    if num_rows - len(indices) < batch_size:
        raise ValueError(
            f"`Shuffled(batch_size={batch_size}, exact=...)` leaves {num_rows - len(indices)} of {num_rows} rows to "
            "sample from, fewer than a batch. Name fewer rows."
        )
    return indices.astype(np.int64)
