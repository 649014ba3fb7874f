"""Rows with replacement: the case the paper analyses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import random as jr

from tallchain.sources.copying import copy_rows
from tallchain.sources.rows import check_batch_size, take_data, take_rows, window_width
from tallchain.types import Array, Ask, Population, PyTree, RowFunction, part, set_fields, static


class _Cursor(NamedTuple):
    key: Array
    looks: Array
    position: Array
    """Rows handed out so far, modulo N; what a census reads next."""


@part
class WithReplacement:
    """A source of independent rows, each drawn uniformly from all N.

    No finite-population factor applies, and reading N rows is not reading all rows; a census reads them in order.

    Args:
        data: as for `Shuffled`. Copied.
        batch_size: m, the rows a test reads between judgements unless it has a wish of its own.
    """

    num_rows: int = static()
    batch_size: int = static()
    data: PyTree

    def __init__(self, data: PyTree, batch_size: int) -> None:
        data, num_rows = take_data("WithReplacement", data)
        batch_size = check_batch_size("WithReplacement", batch_size, num_rows)
        set_fields(self, num_rows=num_rows, batch_size=batch_size, data=jax.tree.map(copy_rows, data))

    @property
    def population(self) -> Population:
        """N rows that may repeat."""
        return Population(self.num_rows, self.batch_size, repeats=True)

    def width(self, appetite: int) -> int:
        """All the rows wanted, or equal bounded parts of them."""
        return window_width(appetite, self.data)

    def first_rows(self, count: int) -> PyTree:
        """Return the first rows."""
        return jax.tree.map(lambda leaf: leaf[:count], self.data)

    def draw(self, key: Array) -> Array:
        """Return the key itself: each look folds its number in."""
        return key

    def start(self, noise: Array) -> _Cursor:
        """Begin with look 0."""
        zero = jnp.zeros((), jnp.int32)
        return _Cursor(noise, zero, zero)

    def look(
        self,
        cursor: _Cursor,
        ask: Ask,
        width: int,
        row_function: RowFunction,
        summarise: Callable[[Array, Array], Any],
    ) -> tuple[_Cursor, Any, Array]:
        """Read `width` rows drawn at random, or the next ones of a census."""
        left = jnp.where(ask.census, self.num_rows - cursor.position, width)
        taken = jnp.clip(ask.rows, 0, jnp.minimum(width, left))
        in_order = jnp.minimum(cursor.position + jnp.arange(width), self.num_rows - 1)
        at_random = jr.randint(jr.fold_in(cursor.key, cursor.looks), (width,), 0, self.num_rows)
        rows = take_rows(self.data, jnp.where(ask.census, in_order, at_random))
        evidence = summarise(jax.vmap(row_function)(rows), jnp.arange(width) < taken)
        position = jnp.where(ask.census, (cursor.position + taken) % self.num_rows, cursor.position)
        return _Cursor(cursor.key, cursor.looks + 1, position), evidence, taken
