"""A pass over all rows at a few proposals: exact log ratios, and how far the mean of a batch is from normal.

A minibatch test knows the rows it has read. Where a few rows in a million carry the log ratio, a batch nearly always
misses them, and nothing it has seen says so: only reading every row does.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

from tallchain.functions import program
from tallchain.keys import make_key
from tallchain.progress import shown
from tallchain.sources import Shuffled, WithReplacement
from tallchain.types import Array, Ask, Population, PyTree

if TYPE_CHECKING:
    from tallchain.kernel import MetropolisHastings
    from tallchain.trace import Trace

_PAIRS = 128  # scanned side by side; each holds a window of rows
_LOOKS = 16  # windows scanned between two looks at Ctrl-C
_FIRST_ROWS = 1024  # to centre and scale by
_ORDERS = 32  # of the rows, to see whether they come at random
_FAR_SKEWNESS, _FAR_KURTOSIS = 0.35, 1.0  # of the mean of a batch: where audits find errors (benchmarks/tails.py)
_SHARE = 0.1  # of the proposals that may be so
_DISORDER, _SIGMAS = 2.0, 6.0  # of the variance of a window's mean: put up with that, and with chance
_MISSED = 0.01  # chance to miss the rows that make a candidate impossible


class Pairs(NamedTuple):
    """Proposals, by decision."""

    here: PyTree
    there: PyTree
    log_correction: Array
    """log q(here | there) - log q(there | here)."""


def make_pairs(kernel: MetropolisHastings, trace: Trace, count: int, key: Array) -> Pairs:
    """Choose draws of the trace at random (none twice while there are enough), and propose from each."""
    choice, proposals = jr.split(key)
    size = trace.is_accepted.size
    random = np.random.default_rng(np.asarray(jr.key_data(choice)))
    chain, draw = np.unravel_index(random.choice(size, count, replace=count > size), trace.is_accepted.shape)
    here = jax.tree.map(lambda leaf: jnp.asarray(leaf[chain, draw]), trace.position)
    return _propose(kernel, here, jr.split(proposals, count))


@program()
def _propose(kernel: MetropolisHastings, here: PyTree, keys: Array) -> Pairs:
    def propose(key: Array, position: PyTree) -> Pairs:
        candidate, correction = kernel.proposal.propose(kernel.proposal.draw(key, position), position)
        return Pairs(position, candidate, jnp.asarray(correction, jnp.result_type(float)))

    return jax.vmap(propose)(keys, here)


# ---- the pass ----------------------------------------------------------------------------------


class RowMoments(NamedTuple):
    """Of the numbers per row Lambda_i over ALL rows, by pair, in float64."""

    mean: np.ndarray
    """NaN or +inf where a row is impossible at the position itself; -inf where one is at the candidate."""
    variance: np.ndarray
    skewness: np.ndarray
    kurtosis: np.ndarray
    """Excess over a normal's."""
    num_impossible: np.ndarray
    """Rows of likelihood 0 at the candidate."""
    num_invalid: np.ndarray
    """Rows of which the log ratio is NaN or +inf."""
    disorder: np.ndarray
    """Variance of the mean of the first rows that the source gives, over what it is for rows in random order."""


class _Window(NamedTuple):
    count: Array
    """Of finite numbers."""
    sums: Array
    """Of the first four powers of (Lambda_i - centre) / scale."""
    num_impossible: Array
    num_invalid: Array


def row_moments(
    kernel: MetropolisHastings, pairs: Pairs, interrupt: threading.Event, *, progress: bool = False
) -> RowMoments:
    """Read every row at every pair.

    The numbers per row, and their sums over one window, are as JAX has them (in float32, unless told otherwise), as the
    chain's own are; the windows are added up in float64.
    """
    num_pairs = len(pairs.log_correction)
    num_blocks = -(-num_pairs // _PAIRS)
    # Blocks of one size, the last one filled up: they share a program.
    blocks = np.arange(num_blocks * -(-num_pairs // num_blocks)).reshape(num_blocks, -1)
    found = []
    num_rows = kernel.source.population.num_rows
    with shown(progress, "reading all rows", num_blocks * num_rows) as show:
        for number, block in enumerate(np.minimum(blocks, num_pairs - 1)):
            some = jax.tree.map(lambda leaf, block=block: leaf[block], pairs)
            found.append(_moments_of_block(kernel, some, interrupt, lambda rows, n=number: show(n * num_rows + rows)))
    return RowMoments(*(np.concatenate(values)[:num_pairs] for values in zip(*found, strict=True)))


def _moments_of_block(
    kernel: MetropolisHastings, pairs: Pairs, interrupt: threading.Event, report: Callable[[int], None]
) -> RowMoments:
    population = kernel.source.population.num_rows
    width = kernel.source.width(population)
    begun = _begin(kernel, pairs)
    cursors, total = begun.cursors, None
    for begin in range(0, population, width * _LOOKS):
        if interrupt.is_set():
            raise KeyboardInterrupt("interrupted before all rows were read")
        cursors, windows = _scan(kernel, pairs, begun, cursors, jnp.int32(population - begin), width=width)
        sums = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).sum(0), windows)
        total = sums if total is None else jax.tree.map(np.add, total, sums)
        report(min(begin + width * _LOOKS, population))
    assert total is not None
    return _central(kernel, total, jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), begun._replace(cursors=())))


def _central(kernel: MetropolisHastings, total: _Window, begun: _Begun) -> RowMoments:
    """Central moments from those about the centre."""
    centre, scale = begun.centre, begun.scale
    with np.errstate(all="ignore"):  # heavy tails may overflow, and are then as heavy as can be
        m1, m2, m3, m4 = (total.sums / np.maximum(total.count, 1)[:, None]).T
        second = np.maximum(m2 - m1**2, 0)
        third = m3 - 3 * m1 * m2 + 2 * m1**3
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        is_spread = second > 0
        skewness = np.where(is_spread, third / np.where(is_spread, second, 1) ** 1.5, 0)
        kurtosis = np.where(is_spread, fourth / np.where(is_spread, second, 1) ** 2 - 3, 0)
        apart = np.mean((begun.window_means - m1[:, None]) ** 2, 1)
        expected = second * _variance_factor(kernel.source.population, kernel.width)
        disorder = np.where(expected > 0, apart / np.where(expected > 0, expected, 1), 1)
    mean = np.where(total.num_impossible > 0, -np.inf, centre + scale * m1)
    return RowMoments(
        np.where(total.num_invalid > 0, np.nan, mean),
        scale**2 * second,
        np.nan_to_num(skewness, nan=np.inf),
        np.nan_to_num(kurtosis, nan=np.inf),
        np.asarray(total.num_impossible),
        np.asarray(total.num_invalid),
        disorder,
    )


def _variance_factor(population: Population, rows: float) -> float:
    """Variance of the mean of some rows over that of one."""
    return 1 / rows if population.repeats else max(1 / rows - 1 / population.num_rows, 0.0)


class _Begun(NamedTuple):
    """Of every pair, before the pass."""

    cursors: PyTree
    centre: Array
    scale: Array
    """Mean and standard deviation over a few rows: powers of what is left are of order 1."""
    window_means: Array
    """Of (Lambda_i - centre) / scale over the first window, in several orders of the source."""


@program()
def _begin(kernel: MetropolisHastings, pairs: Pairs) -> _Begun:
    source = kernel.source
    rows = source.first_rows(_FIRST_ROWS)

    def one(pair: Pairs, key: Array) -> _Begun:
        log_ratio = kernel.row_log_ratio(pair.here, pair.there)
        values = jax.vmap(log_ratio)(rows)
        is_finite = jnp.isfinite(values)
        count = jnp.maximum(jnp.sum(is_finite), 1)
        centre = jnp.sum(jnp.where(is_finite, values, 0)) / count
        scale = jnp.sqrt(jnp.sum(jnp.where(is_finite, (values - centre) ** 2, 0)) / count)
        scale = jnp.where((scale > 0) & jnp.isfinite(scale), scale, 1)

        def window_mean(key: Array) -> Array:
            cursor = source.start(source.draw(key))
            _, total, taken = source.look(cursor, Ask(jnp.int32(kernel.width)), kernel.width, log_ratio, add_up)
            return total / taken

        def add_up(values: Array, is_valid: Array) -> Array:
            deviations = (values - centre) / scale
            return jnp.sum(jnp.where(is_valid & jnp.isfinite(deviations), deviations, 0))

        means = lax.map(window_mean, jr.split(key, _ORDERS))
        return _Begun(source.start(source.draw(key)), centre, scale, means)

    return jax.vmap(one)(pairs, jr.split(make_key(0), len(pairs.log_correction)))


@program(static_argnames="width")
def _scan(
    kernel: MetropolisHastings, pairs: Pairs, begun: _Begun, cursors: PyTree, left: Array, *, width: int
) -> tuple[PyTree, _Window]:
    """Read the next windows; return their sums by window and pair. A window beyond the last row counts nothing."""

    def look(pair: Pairs, centre: Array, scale: Array, cursor: PyTree, left: Array) -> tuple[PyTree, _Window, Array]:
        def summarise(values: Array, is_valid: Array) -> _Window:
            is_finite = is_valid & jnp.isfinite(values)
            deviations = jnp.where(is_finite, (values - centre) / scale, 0)
            squares = deviations**2
            powers = (deviations, squares, squares * deviations, squares**2)
            is_impossible = is_valid & jnp.isneginf(values)
            return _Window(
                jnp.sum(is_finite, dtype=jnp.int32),
                jnp.stack([jnp.sum(power) for power in powers]),
                jnp.sum(is_impossible, dtype=jnp.int32),
                jnp.sum(is_valid & ~is_finite & ~is_impossible, dtype=jnp.int32),
            )

        row_function = kernel.row_log_ratio(pair.here, pair.there)
        return kernel.source.look(cursor, Ask(left, census=True), width, row_function, summarise)

    def one_window(carry: tuple[PyTree, Array], _: None) -> tuple[tuple[PyTree, Array], _Window]:
        cursors, left = carry
        cursors, window, taken = jax.vmap(look, (0, 0, 0, 0, None))(pairs, begun.centre, begun.scale, cursors, left)
        return (cursors, left - taken[0]), window

    (cursors, _), windows = lax.scan(one_window, (cursors, left), length=_LOOKS)
    return cursors, windows


# ---- what it says of a run ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Scan:
    """What a pass over all rows says of a batch's mean, at some of a run's own proposals.

    Skewness gamma/sqrt(b) and excess kurtosis kappa/b of the mean of b rows, b the median of the rows read at a
    decision: a normal mean has 0 and 0. Noise that is small beside the test's own (of standard deviation about 1) does
    little harm whatever its law: where its standard deviation s is below 1 they are times s^3 and s^4.
    """

    num_proposals: int
    num_rows: int
    """Rows read for it, all proposals together."""
    batch: float
    """b."""
    skewness: tuple[float, ...]
    kurtosis: tuple[float, ...]
    chance_to_miss: tuple[float, ...]
    """By proposal: if some rows make the candidate impossible, the chance that a batch has none of them; else 0."""
    num_invalid: int
    """Proposals at which the log ratio of some row is NaN or +inf."""
    disorder: float
    """Variance of the mean of the first rows that the source gives, over what it is for rows in random order."""
    most_disorder: float
    """What to expect of it at most."""
    is_shuffled: bool
    """Whether the source is one of ours, which give rows in random order."""

    @property
    def is_far(self) -> np.ndarray:
        """By proposal: whether the mean of a batch is far from normal."""
        return (np.asarray(self.skewness) > _FAR_SKEWNESS) | (np.asarray(self.kurtosis) > _FAR_KURTOSIS)

    def complaints(self) -> list[str]:
        """What is wrong, in words; nothing if nothing is."""
        found = []
        is_far = self.is_far
        if np.mean(is_far) > _SHARE:
            found.append(
                f"a few rows carry the log ratio: at {is_far.sum()} of {self.num_proposals} proposals of this run the "
                f"mean of {self.batch:,.0f} rows is far from normal (skewness up to {np.max(self.skewness):.2g}, "
                f"excess kurtosis up to {np.max(self.kurtosis):.2g}; all rows were read to see it). A minibatch test "
                "mostly misses these rows, and the draws can be wrong. Look at the rows of largest log ratio; let "
                "`surrogates.influence` have them read more often, take a likelihood with lighter tails or an exact "
                "test, and let `audit(kernel, trace)` "
                "measure the error"
            )
        if self.disorder > self.most_disorder:
            found.append(self._out_of_order())
        missed = np.asarray(self.chance_to_miss) > _MISSED
        if missed.any():
            found.append(
                f"{missed.sum()} of {self.num_proposals} candidates are impossible for a few rows, which "
                f"a batch misses with probability up to {np.max(self.chance_to_miss):.2g}: the chain can go where the "
                "posterior is 0. Put the support into the log prior, or use an exact test"
            )
        if self.num_invalid:
            found.append(
                f"at {self.num_invalid} of {self.num_proposals} proposals the log ratio of some rows is NaN or +inf: "
                "the chain is where these rows have likelihood 0, or the likelihood is not a number. Put the support "
                "into the log prior, look for missing values, or use an exact test"
            )
        return found

    def _out_of_order(self) -> str:
        vary = (
            f"the means of the first rows that the source gives vary {self.disorder:.3g} times as much as they should"
        )
        if self.is_shuffled:
            return (
                f"{vary}, although the source permutes the rows: a few heavy rows lie in few of its windows. "
                "`Shuffled(windows=False)` reads row by row, and `surrogates.influence` has such rows read more often"
            )
        return (
            f"the source does not give the rows in random order: {vary}. Use `Shuffled`, which permutes the rows, or "
            "shuffle them where they are stored"
        )


def scan(
    kernel: MetropolisHastings,
    trace: Trace,
    count: int,
    key: Array,
    interrupt: threading.Event,
    *,
    progress: bool = False,
) -> Scan | None:
    """Read every row at some of a run's own proposals; None where every decision has read every row already."""
    population = kernel.source.population
    if trace.num_rows.min() >= population.num_rows + population.num_exact and not population.repeats:
        return None
    moments = row_moments(kernel, make_pairs(kernel, trace, count, key), interrupt, progress=progress)
    b = max(float(np.median(trace.num_rows)) - population.num_exact, 1.0)
    s2 = np.minimum(moments.variance * _variance_factor(population, b), 1)
    missed = np.where(moments.num_impossible > 0, np.exp(-b * moments.num_impossible / population.num_rows), 0)
    with np.errstate(invalid="ignore"):
        # The variance of a squared mean of m rows is 2 + kappa/m, in units of its own square.
        chance = np.sqrt(np.mean(2 + moments.kurtosis / kernel.width) / (count * _ORDERS))
        skewness, kurtosis = s2**1.5 * np.abs(moments.skewness) / np.sqrt(b), s2**2 * moments.kurtosis / b
    return Scan(
        count,
        count * population.num_rows,
        b,
        tuple(skewness.tolist()),
        tuple(kurtosis.tolist()),
        tuple(missed.tolist()),
        int(np.sum(moments.num_invalid > 0)),
        float(np.mean(moments.disorder)),
        max(_DISORDER, 1 + _SIGMAS * float(chance)),
        isinstance(kernel.source, Shuffled | WithReplacement),
    )
