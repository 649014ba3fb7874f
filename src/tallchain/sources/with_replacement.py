"""Rows with replacement: the case the paper analyses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.arrays import once
from tallchain.parts import part, replace, set_fields
from tallchain.sources.alias import Alias, make_alias
from tallchain.sources.copying import copy_rows, seed_of, shuffle
from tallchain.sources.rows import check_batch_size, slice_rows, take_data, window_width
from tallchain.sources.stored import Stored
from tallchain.types import (
    Array,
    Ask,
    Block,
    Population,
    PyTree,
    RowFunction,
    Seen,
)
from tallchain.validation import brief


class _Cursor(NamedTuple):
    key: Array
    drawn: Array
    """Rows drawn at random so far: they name the next ones, however wide the windows of a census are."""
    position: Array
    """Rows read so far, modulo N; a census continues there."""
    exact_left: Any
    """Rows still to come of those that every decision reads; () if there are none."""


@part
class WithReplacement(Stored):
    """A source of independent rows, each drawn from all N, uniformly or by weight.

    No finite-population factor applies, and reading N rows is not reading all rows; a census reads them in order. A row
    that is drawn with probability p_i counts as 1/(N p_i) of a row, so that Delta* stays unbiased.

    Args:
        data: as for `Shuffled`. Copied.
        batch_size: m, the rows a test reads between judgements unless it sets its own number.
        weights: of the rows, positive; None for all alike. They are drawn from an alias table (12 bytes a row), and
            p_i is the probability that this table gives them, to the last bit.
    """

    alias: Alias | None
    words: np.ndarray | None
    """The seed of the shuffle that the rows are in, if they are those of a `Shuffled`."""

    def __init__(self, data: PyTree, batch_size: int, weights: Any = None) -> None:
        data, num_rows = take_data("WithReplacement", data)
        self._hold(data, num_rows, check_batch_size("WithReplacement", batch_size, num_rows))
        if weights is not None:
            set_fields(self, **_drawn_by(check_positive("WithReplacement", weights, num_rows)))

    @classmethod
    def of_checked(cls, data: PyTree, num_rows: int, batch_size: int) -> WithReplacement:
        """Make a source of data and a batch size that are already checked."""
        return object.__new__(cls)._hold(data, num_rows, batch_size)

    @classmethod
    def of_stored(cls, source: Stored, batch_size: int, weights: np.ndarray) -> WithReplacement:
        """Make a source of the rows that another one has, without a copy; weights by its own order of the rows."""
        assert source.share is None
        made = object.__new__(cls)._hold(source.data, source.num_rows, min(batch_size, source.num_rows))
        weights = check_positive("WithReplacement.of_stored", weights, source.num_rows)
        return set_fields(made, words=getattr(source, "words", None), **_drawn_by(weights))

    def _hold(self, data: PyTree, num_rows: int, batch_size: int) -> WithReplacement:
        return set_fields(
            self,
            num_rows=num_rows,
            batch_size=batch_size,
            num_exact=0,
            num_data=num_rows,
            data=jax.tree.map(copy_rows, data),
            share=None,
            alias=None,
            words=None,
        )

    def order(self) -> np.ndarray | None:
        """Return which row of the user's data each row is; None if rows are reweighted."""
        if self.words is None or self.num_exact:
            return super().order() if self.alias is None else np.arange(self.num_data, dtype=np.int32)
        return shuffle(np.arange(self.num_data, dtype=np.int32), seed_of(self.words))

    def reweighted(self, exact: Any = (), copies: Any = None, batch_size: int | None = None) -> WithReplacement:
        """Return a source of the same rows, some of them read always or more often; see `Source.reweighted`."""
        if self.alias is not None and (np.size(exact) or copies is not None):
            raise ValueError("`reweighted(...)`: the rows of this source have weights. Reweight one without.")
        return super().reweighted(exact, copies, batch_size)

    def sweep(self, summarise: Callable[[Block], PyTree], *arguments: Any, **options: Any) -> Any:
        """Summarise every row once; see `Source.sweep`."""
        whole = self if self.alias is None else replace(self, share=None, alias=None)
        return super(WithReplacement, whole).sweep(summarise, *arguments, **options)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a summary should say about it."""
        if self.alias is None:
            return super().notes
        assert self.share is not None
        is_near = jax.default_backend() == "cpu"  # NumPy needs no program
        least = float(np.min(np.asarray(self.share)) if is_near else jnp.min(self.share))
        return (f"rows are drawn by weight, up to {1 / least:,.3g} times as often as on average",)

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
        """Return the key itself: each look folds the number of rows before it in."""
        return key

    def start(self, noise: Array) -> _Cursor:
        """Begin with the rows that every decision reads, then at random."""
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
        is_asked = jnp.arange(width) < taken
        index = jnp.where(ask.census, in_order, self._at_random(jr.fold_in(cursor.key, cursor.drawn), is_asked))
        index = index if self.alias is None else once(index, self.num_rows)
        rows, share = self._take(index, cursor.exact_left)
        if self.alias is not None:
            assert share is not None
            share = jnp.where(ask.census, 1, share)
        seen, exact_left = self._see(rows, share, cursor.exact_left, taken, row_function, summarise)
        position = jnp.where(ask.census, (cursor.position + seen.taken) % self.num_rows, cursor.position)
        drawn = cursor.drawn + jnp.where(ask.census, 0, seen.taken)
        return _Cursor(cursor.key, drawn, position, exact_left), seen

    def look_widely(
        self, cursor: _Cursor, ask: Ask, row_function: RowFunction, summarise: Callable[[Array, Array], Any]
    ) -> tuple[_Cursor, Seen]:
        """Read the next rows of a census, as many as a look may."""
        width = self.width(self.num_rows)
        return self.look(cursor, ask._replace(census=jnp.ones((), bool)), width, row_function, summarise)

    def _at_random(self, key: Array, is_asked: Array) -> Array:
        """Return the numbers of some rows; both words of a block of random bits are used.

        Rows that nobody has asked for are all the first one, which is in the cache.
        """
        if self.alias is None:
            return jr.randint(key, is_asked.shape, 0, self.num_rows)
        return self.alias.rows(jnp.where(is_asked[:, None], jr.key_data(jr.split(key, len(is_asked))), 0))


def check_positive(call: str, weights: Any, num_rows: int) -> np.ndarray:
    """Return weights, or raise an error that says what is wrong with them."""
    values = np.asarray(weights)
    if values.shape != (num_rows,) or values.dtype.kind not in "iuf":
        raise ValueError(
            f"`{call}(weights=...)` must be numbers, one for each of the {num_rows} rows; got {brief(weights)}."
        )
    is_fine = np.isfinite(values) & (values > 0)
    if not is_fine.all():
        at = int(np.argmin(is_fine))
        raise ValueError(f"`{call}(weights=...)` must be positive and finite; got {values[at]} for row {at}.")
    return values


def _drawn_by(weights: np.ndarray) -> dict[str, Any]:
    """Return the fields for rows that come by weight."""
    table, law = make_alias(weights)
    share = (1 / (len(law) * law)).astype(jnp.result_type(float))
    return {"alias": Alias(copy_rows(table)), "share": copy_rows(share)}
