"""What sources with rows in memory share: sweeps, rows that are always read, and copies of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.parts import part, replace, static
from tallchain.sources.copying import copy_rows, order_rows
from tallchain.sources.reweighting import check_batch_of, check_weights, shares_of, slots_of
from tallchain.sources.rows import check_batch_size, take_rows
from tallchain.sources.sweeping import Piece, add, sweep
from tallchain.types import Array, Block, PyTree, RowFunction, Seen


@part
class Stored:
    """A source that has its rows in memory."""

    num_rows: int = static()
    """N, the rows to sample from."""
    batch_size: int = static()
    num_exact: int = static()
    """Rows that every decision reads."""
    num_data: int = static()
    """Rows of the user's data."""
    data: PyTree
    """The rows that every decision reads, then those to sample from."""
    share: Array | None
    """1/c_i by row of `data`; None if every row has one copy."""

    def order(self) -> np.ndarray | None:
        """Return which row of the user's data each row is; None if rows are reweighted."""
        return None if self._is_reweighted else self._arranged(np.arange(self.num_data, dtype=np.int32))

    def reweighted(self, exact: Any = (), copies: Any = None, batch_size: int | None = None) -> Self:
        """Return a source of the same rows, some of them read always or more often; see `Source.reweighted`."""
        size = self.batch_size if batch_size is None else batch_size
        exact, copies = check_weights("reweighted", exact, copies, self.num_data)
        if not len(exact) and copies is None:
            return replace(self, batch_size=check_batch_size("reweighted", size, self.num_rows))
        size = check_batch_of("reweighted", size, self.num_data, exact, copies)
        held = self.order()
        if held is None:
            raise ValueError("`reweighted(...)`: this source is already reweighted. Reweight the one it was made from.")
        places = np.empty_like(held)
        places[held] = np.arange(len(held), dtype=held.dtype)
        return replace(self, batch_size=size, **self._weighed(self.data, exact, copies, places))

    def sweep(
        self,
        summarise: Callable[[Block], PyTree],
        merge: Callable[[Any, Any], Any] = add,
        *,
        lanes: int = 1,
        results: int = 1,
        report: Callable[[int], None] | None = None,
    ) -> Any:
        """Summarise every row once; see `Source.sweep`."""
        return sweep(
            summarise,
            merge,
            (Piece(self.data, self.share),),
            num_rows=self.num_exact + self.num_rows,
            num_exact=self.num_exact,
            lanes=lanes,
            results=results,
            report=report,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a summary should say about it."""
        found = []
        if self.num_exact:
            found.append(f"{self.num_exact:,} rows are read at every decision, and counted in its rows")
        if self.share is not None:
            most = round(1 / float(jnp.min(self.share)))
            found.append(
                f"rows that matter are sampled up to {most:,} times as often as others ({self.num_rows:,} copies of "
                f"{self.num_data - self.num_exact:,} rows, each a part of a row)"
            )
        return tuple(found)

    # ---- for subclasses ---------------------------------------------------------------

    def _weighed(
        self, data: PyTree, exact: np.ndarray, copies: np.ndarray | None, places: np.ndarray | None = None
    ) -> dict[str, Any]:
        """Return the fields that hold the rows, each with its number of copies.

        Args:
            data: has every row once.
            exact: rows to read always.
            copies: how often to have each row.
            places: where in `data` each row of the user's is; None if in order.
        """
        slots = self._arranged(slots_of(self.num_data, exact, copies))
        order = np.concatenate([exact, slots, slots[: self._num_repeated(data, len(slots))]])
        share = shares_of(order, len(exact), copies)
        return {
            "num_rows": len(slots),
            "num_exact": len(exact),
            "data": order_rows(data, order if places is None else places[order]),
            "share": None if share is None else copy_rows(share),
        }

    def _arranged(self, slots: np.ndarray) -> np.ndarray:
        """Return rows of the user's data in the order to keep them in; may work in place."""
        return slots

    def _num_repeated(self, data: PyTree, num_rows: int) -> int:
        """How many of the first rows to repeat after the last, of this many to sample from."""
        return 0

    @property
    def _is_reweighted(self) -> bool:
        return self.share is not None or self.num_exact > 0

    def _exact_to_come(self) -> Any:
        """For a new cursor: rows that the decision must read first; () if there are none."""
        return jnp.full((), self.num_exact, jnp.int32) if self.num_exact else ()

    def _take(self, index: Array, exact_left: Any) -> tuple[PyTree, Array | None]:
        """Return rows by their number among those to sample from, and the share of a row that each is.

        While rows that every decision reads are left, they come instead.
        """
        if self.num_exact:
            exact = jnp.minimum(self.num_exact - exact_left + jnp.arange(len(index)), self.num_exact - 1)
            index = jnp.where(exact_left > 0, exact, self.num_exact + index)
        return take_rows((self.data, self.share), index)

    def _see(
        self,
        rows: PyTree,
        share: Array | None,
        exact_left: Any,
        taken: Array,
        row_function: RowFunction,
        summarise: Callable[[Array, Array], Any],
    ) -> tuple[Seen, Any]:
        """Return what a window shows: of rows that every decision reads, while some are left, then of rows asked for.

        Args:
            rows: the window.
            share: of a row, each of them.
            exact_left: rows that every decision reads and that are still to come.
            taken: rows of the window that were asked for, if none of those are left.
            row_function: makes a number of a row.
            summarise: makes evidence of numbers per row.
        """
        values = jax.vmap(row_function)(rows)
        values = values if share is None else values * share
        at = jnp.arange(len(values))
        if isinstance(exact_left, tuple):
            return Seen(summarise(values, at < taken), taken, taken, jnp.zeros(())), ()
        read = jnp.minimum(exact_left, len(values))
        taken = jnp.where(exact_left > 0, 0, taken)
        # The numbers per row are (N/K) (...), N without these rows; their part of the log ratio is (1/K) (...).
        known = jnp.sum(jnp.where(at < read, values, 0)) / jnp.maximum(read, 1) * (read / self.num_rows)
        return Seen(summarise(values, at < taken), taken, read + taken, known), exact_left - read
