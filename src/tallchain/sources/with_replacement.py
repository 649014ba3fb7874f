"""Rows with replacement: the case the paper analyses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import random as jr

from tallchain.parts import part, set_fields
from tallchain.sources.copying import copy_rows
from tallchain.sources.rows import check_batch_size, slice_rows, take_data, window_width
from tallchain.sources.stored import Stored
from tallchain.types import (
    Array,
    Ask,
    Population,
    PyTree,
    RowFunction,
    Seen,
)


class _Cursor(NamedTuple):
    key: Array
    looks: Array
    position: Array
    """Rows read so far, modulo N; a census continues there."""
    exact_left: Any
    """Rows still to come of those that every decision reads; () if there are none."""


@part
class WithReplacement(Stored):
    """A source of independent rows, each drawn uniformly from all N.

    No finite-population factor applies, and reading N rows is not reading all rows; a census reads them in order.

    Args:
        data: as for `Shuffled`. Copied.
        batch_size: m, the rows a test reads between judgements unless it sets its own number.
    """

    def __init__(self, data: PyTree, batch_size: int) -> None:
        data, num_rows = take_data("WithReplacement", data)
        self._hold(data, num_rows, check_batch_size("WithReplacement", batch_size, num_rows))

    @classmethod
    def of_checked(cls, data: PyTree, num_rows: int, batch_size: int) -> WithReplacement:
        """Make a source of data and a batch size that are already checked."""
        return object.__new__(cls)._hold(data, num_rows, batch_size)

    def _hold(self, data: PyTree, num_rows: int, batch_size: int) -> WithReplacement:
        return set_fields(
            self,
            num_rows=num_rows,
            batch_size=batch_size,
            num_exact=0,
            num_data=num_rows,
            data=jax.tree.map(copy_rows, data),
            share=None,
        )

    @property
    def population(self) -> Population:
        """N rows that may repeat."""
        return Population(
            self.num_rows, self.batch_size, repeats=True, num_exact=self.num_exact, num_data=self.num_data
        )

    def width(self, appetite: int) -> int:
        """All the rows wanted, or equal bounded parts of them."""
        return window_width(appetite, self.data)

    def some_rows(self, count: int) -> PyTree:
        """Return rows that are spread evenly over all."""
        every = max(1, self.num_rows // count)
        return slice_rows(self.data, slice(self.num_exact, self.num_exact + min(every * count, self.num_rows), every))

    def draw(self, key: Array) -> Array:
        """Return the key itself: each look folds its number in."""
        return key

    def start(self, noise: Array) -> _Cursor:
        """Begin with the rows that every decision reads, then with look 0."""
        zero = jnp.zeros((), jnp.int32)
        return _Cursor(noise, zero, zero, self._exact_to_come())

    def look(
        self,
        cursor: _Cursor,
        ask: Ask,
        width: int,
        row_function: RowFunction,
        summarise: Callable[[Array, Array], Any],
    ) -> tuple[_Cursor, Seen]:
        """Read `width` rows drawn at random, or the next rows of a census."""
        left = jnp.where(ask.census, self.num_rows - cursor.position, width)
        taken = jnp.clip(ask.rows, 0, jnp.minimum(width, left))
        in_order = jnp.minimum(cursor.position + jnp.arange(width), self.num_rows - 1)
        at_random = jr.randint(jr.fold_in(cursor.key, cursor.looks), (width,), 0, self.num_rows)
        index = jnp.where(ask.census, in_order, at_random)
        rows, share = self._take(index, cursor.exact_left)
        seen, exact_left = self._see(rows, share, cursor.exact_left, taken, row_function, summarise)
        position = jnp.where(ask.census, (cursor.position + seen.taken) % self.num_rows, cursor.position)
        return _Cursor(cursor.key, cursor.looks + 1, position, exact_left), seen
