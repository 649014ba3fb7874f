"""Rows without replacement, from a copy of the data that is shuffled once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

from tallchain.sources.permutation import mix, permute
from tallchain.sources.rows import check_data, take_rows, widest_window, window_width
from tallchain.types import Array, Ask, Population, PyTree, RowFunction, is_whole, part, set_fields, static

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
        data: a pytree of arrays with the rows along the first axis. Copied; 64-bit floats become 32-bit unless JAX is
            told otherwise.
        batch_size: m, the rows a test reads between judgements unless it has a wish of its own.
        seed: of the one shuffle.
        windows: True, False, or "auto": windows from N = 1250 m on, where the variance is off by 3.3 per cent (one
            standard deviation over shuffles) and the log-odds of a decision by at most half of that.
    """

    num_rows: int = static()
    batch_size: int = static()
    windows: bool = static()
    data: PyTree
    """The shuffled rows; for windows, the first ones are repeated at the end so that no window wraps around."""

    def __init__(self, data: PyTree, batch_size: int, seed: int = 0, windows: bool | str = "auto") -> None:
        num_rows, batch_size = check_data("Shuffled", data, batch_size)
        if not (windows == "auto" or isinstance(windows, bool)):
            raise ValueError(f'`Shuffled(windows=...)` must be True, False or "auto"; got {windows!r}.')
        use_windows = num_rows >= ROWS_PER_BATCH_ROW * batch_size if windows == "auto" else bool(windows)
        data = jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else np.asarray(leaf), data)
        if not is_whole(seed, least=0):
            raise ValueError(f"`Shuffled(seed=...)` must be a whole number, at least 0; got {seed!r}.")
        order = np.random.default_rng(seed).permutation(num_rows)
        if use_windows:
            order = np.concatenate([order, order[: widest_window(data)]])
        set_fields(
            self,
            num_rows=num_rows,
            batch_size=batch_size,
            windows=use_windows,
            data=jax.tree.map(lambda leaf: jnp.asarray(leaf[order]), data),
        )

    @property
    def population(self) -> Population:
        """N rows that do not repeat."""
        return Population(self.num_rows, self.batch_size, repeats=False)

    def width(self, appetite: int) -> int:
        """All the rows wanted, or equal bounded parts of them."""
        return window_width(min(appetite, self.num_rows), self.data)

    def first_rows(self, count: int) -> PyTree:
        """Return the first rows of the shuffled copy."""
        return jax.tree.map(lambda leaf: leaf[: min(count, self.num_rows)], self.data)

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
        read = self._window if self.windows else self._gather
        rows, available = read(cursor, ask, width)
        taken = jnp.minimum(jnp.maximum(ask.rows, 0), available)
        evidence = summarise(jax.vmap(row_function)(rows), jnp.arange(width) < taken)
        position = cursor.position + taken
        return cursor._replace(position=jnp.where(position == self.num_rows, 0, position)), evidence, taken

    def _gather(self, cursor: _Cursor, ask: Ask, width: int) -> tuple[PyTree, Array]:
        index = jnp.minimum(cursor.position + jnp.arange(width), self.num_rows - 1)
        index = jnp.where(ask.census, index, permute(cursor.words, index, self.num_rows))
        return take_rows(self.data, index), jnp.minimum(width, self.num_rows - cursor.position)

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
        rows = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, width), self.data)
        return rows, jnp.minimum(width - within, self.num_rows - cursor.position)
