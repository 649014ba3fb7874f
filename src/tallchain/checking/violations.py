"""Rows that violate the bound of an exact test: found while sampling and by a sweep at the end, and named."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tallchain.acceptance.exact.counting import BEYOND
from tallchain.bounds import Fitted
from tallchain.bounds.bound import ROUNDING
from tallchain.checking.recorder import Recorder
from tallchain.checking.scan import Pairs, make_pairs
from tallchain.chunks import Keeper, Report
from tallchain.kernel import MetropolisHastings
from tallchain.keys import make_key
from tallchain.parts import part
from tallchain.progress import shown
from tallchain.schedule import Kernel
from tallchain.sources.stored import Stored
from tallchain.types import Array, Block, BoundedTest, PyTree

_PAIRS = 64  # proposals at which to look for the row that is worst


class BoundError(ValueError):
    """A row's part of a log ratio exceeds the bound that was given for it."""


def show_and_check(show: Report, kernel: Kernel, starts: PyTree, recorder: Keeper) -> None:
    """Show the progress; then raise an error that names a row, if the part of one was beyond its bound.

    Args:
        show: shows the progress.
        kernel: whose test may need a bound.
        starts: of the chains, to find the row from while there is no draw.
        recorder: has the decisions so far.
    """
    show(recorder)
    assert isinstance(recorder, Recorder)
    num_beyond = recorder.total.num_infinite
    if not (num_beyond and isinstance(kernel, MetropolisHastings) and isinstance(kernel.acceptance, BoundedTest)):
        return
    one_each = jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], starts)  # by chain and draw
    worst = worst_row(kernel, recorder.draws().position if recorder.has_draws else one_each)
    test = type(kernel.acceptance).__name__
    raise BoundError(
        f"`{test}` is exact only if every row keeps its bound, and {num_beyond:,} decisions met a row that does not. "
        f"{worst.words} Give larger constants to `Bound(constants, order)`, or `sizes` if log likelihoods are large."
    )


def needs_check(kernel: Kernel) -> bool:
    """Whether the test relies on constants that somebody gave: a row that is hardly ever drawn goes unnoticed."""
    if not (isinstance(kernel, MetropolisHastings) and isinstance(kernel.acceptance, BoundedTest)):
        return False
    return isinstance(kernel.bound, Fitted) and not kernel.bound.is_derived


def check_all_rows(
    kernel: MetropolisHastings, positions: PyTree, count: int, interrupt: threading.Event, *, progress: bool
) -> str:
    """Read every row at some of a run's own proposals, and say how near to its bound the worst one comes.

    Raises:
        BoundError: it is beyond.
    """
    num_rows = kernel.source.population.total
    with shown(progress, "checking the bound", num_rows, is_step=True) as show:

        def report(rows: int) -> None:
            if interrupt.is_set():
                raise KeyboardInterrupt
            show(rows)

        try:
            worst = worst_row(kernel, positions, count, report)
        except KeyboardInterrupt:
            return "the check of the bound on all rows was interrupted"
    if worst.ratio > BEYOND:
        raise BoundError(
            f"`{type(kernel.acceptance).__name__}` is exact only if every row keeps its bound. {worst.words} The draws "
            "are not those of the posterior: give larger constants to `Bound(constants, order)`, or `sizes` if log "
            "likelihoods are large."
        )
    return (
        f"the bound was given, so all rows were read at {count} proposals ({count * num_rows:,} rows): the worst, row "
        f"{worst.row}, has {worst.ratio:.2g} of its bound"
    )


class Worst(NamedTuple):
    """The row whose part of a log ratio is largest, in units of its bound."""

    ratio: float
    row: int
    """Of the user's data."""
    count: int
    """Proposals at which it was looked for."""

    @property
    def words(self) -> str:
        """Name it."""
        if self.ratio <= 1:
            return f"At {self.count} other proposals no row exceeds its bound; row {self.row} comes nearest."
        return (
            f"At {self.count} proposals, row {self.row} exceeds its bound the most: it has {self.ratio:.4g} times as "
            "much."
        )


def worst_row(
    kernel: MetropolisHastings,
    positions: PyTree,
    count: int = _PAIRS,
    report: Callable[[int], None] | None = None,
) -> Worst:
    """Read every row at some proposals from these positions, and find the one that is worst."""
    source = kernel.source
    assert isinstance(source, Stored)
    assert isinstance(kernel.bound, Fitted)
    pairs = make_pairs(kernel, positions, count, make_key(0))
    share = np.ones(source.num_rows, np.float32) if source.share is None else source.share

    def keep(found: Any, blocks: tuple[np.ndarray, np.ndarray]) -> tuple[float, int]:
        ratio, index = blocks
        at = int(np.argmax(ratio))
        return (float(ratio[at]), int(index[at])) if found is None or ratio[at] > found[0] else found

    ratio, index = source.sweep(_Ratios(kernel, pairs, jnp.asarray(share)), keep, lanes=count, report=report)
    order = source.order()
    return Worst(ratio, index if order is None else int(order[index]), count)


@part
class _Ratios:
    """For a block: the largest part of a log ratio in units of its bound, and which row has it."""

    kernel: MetropolisHastings
    pairs: Pairs
    share: Array

    @property
    def log_likelihood(self) -> Any:
        """Whose programs these are."""
        return self.kernel.log_likelihood

    def __call__(self, block: Block) -> tuple[Array, Array]:
        share = lax.dynamic_slice_in_dim(self.share, block.index[0], len(block.index))

        def of_pair(pair: Pairs) -> Array:
            assert isinstance(self.kernel.bound, Fitted)
            scale = self.kernel.source.population.num_rows / self.kernel.posterior.temperature
            most = 0.5 * scale * self.kernel.bound(pair.here, pair.there)
            values = jnp.abs(jax.vmap(self.kernel.row_log_ratio(pair.here, pair.there))(block.rows))
            by_rounding = ROUNDING * scale * self.kernel.bound.size  # a number may be so large by rounding alone
            return jnp.where(values > by_rounding, share * (values - by_rounding) / most, 0)

        largest = jnp.where(block.is_valid, jnp.max(jax.vmap(of_pair)(self.pairs), 0), -1)
        at = jnp.argmax(largest)
        return largest[at], block.index[at]
