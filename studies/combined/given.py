"""A source of given rows, for decisions on rows that a study has drawn itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tallchain.parts import part, set_fields
from tallchain.sources.stored import Stored
from tallchain.types import (
    Array,
    Ask,
    Population,
    PyTree,
    RowFunction,
    Seen,
)

MANY = 10**9
"""N, as far as a test knows."""


@part
class Given(Stored):
    """A source that returns its rows in order, as the first of very many.

    A decision that asks for more rows than there are has a log ratio of NaN: its verdict is invalid.

    Args:
        data: the rows.
        batch_size: m, the rows a test reads between judgements unless it sets its own number.
    """

    def __init__(self, data: Array, batch_size: int) -> None:
        size = len(data)
        set_fields(self, num_rows=size, batch_size=batch_size, num_exact=0, num_data=size, data=data, share=None)

    @property
    def population(self) -> Population:
        """So many rows that no test reads a noticeable share of them."""
        return Population(MANY, self.batch_size, repeats=True)

    def width(self, appetite: int) -> int:
        """All the rows wanted."""
        return appetite

    def some_rows(self, count: int) -> PyTree:
        """Return the first rows."""
        return self.data[:count]

    def draw(self, key: Array) -> tuple[()]:
        """Nothing is random."""
        return ()

    def start(self, noise: tuple[()]) -> Array:
        """Begin with the first row."""
        return jnp.zeros((), jnp.int32)

    def look(
        self,
        cursor: Array,
        ask: Ask,
        width: int,
        row_function: RowFunction,
        summarise: Callable[[Array, Array], Any],
    ) -> tuple[Array, Seen]:
        """Read the next rows."""
        taken = jnp.clip(ask.rows, 0, width)
        rows = self.data[jnp.minimum(cursor + jnp.arange(width), self.num_rows - 1)]
        values = jax.vmap(row_function)(rows)
        known = jnp.where(cursor + taken <= self.num_rows, 0.0, jnp.nan)
        return cursor + taken, Seen(summarise(values, jnp.arange(width) < taken), taken, taken, known)
