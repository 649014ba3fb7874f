"""The scan: read all rows at a few proposals, for exact log ratios and how far the mean of a batch is from normal.

A minibatch test knows only the rows it has read. Where a few rows in a million carry the log ratio, a batch nearly
always misses them, and nothing it has seen shows this: only reading every row does.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

from tallchain.checking.verdict import Scan
from tallchain.functions import QUICKLY, program
from tallchain.kernel import MetropolisHastings
from tallchain.keys import fold_in, make_key, split, split_words
from tallchain.lockstep import Drawn
from tallchain.parts import part
from tallchain.progress import shown
from tallchain.sources import Shuffled, WithReplacement
from tallchain.sources.divided import Divided
from tallchain.threefry import same_key, wrap
from tallchain.types import (
    Array,
    Ask,
    Block,
    Population,
    PyTree,
    Source,
)

_PAIRS = 128  # scanned side by side; each holds a window of rows
_FIRST_ROWS = 1024  # to centre and scale by
_ORDERS = 32  # of the rows, to see whether they come in random order
_DISORDER, _SIGMAS = 2.0, 6.0  # of the variance of a window's mean: tolerated, and allowed for chance


class Pairs(NamedTuple):
    """Proposals, by decision."""

    here: PyTree
    there: PyTree
    log_correction: Array
    """log q(here | there) - log q(there | here)."""


def make_pairs(kernel: MetropolisHastings, positions: PyTree, count: int, key: Array) -> Pairs:
    """Choose draws, by (chain, draw), at random (none twice while there are enough), and propose from each."""
    choice, proposals = fold_in(key, 0), fold_in(key, 1)
    shape = jax.tree.leaves(positions)[0].shape[:2]
    size = shape[0] * shape[1]
    random = np.random.default_rng(np.asarray(jr.key_data(choice)))
    chain, draw = np.unravel_index(random.choice(size, count, replace=count > size), shape)
    here = jax.tree.map(lambda leaf: np.asarray(leaf)[chain, draw], positions)
    return _propose(kernel, here, split(proposals, count))


@program(compiler_options=QUICKLY)
def _propose(kernel: MetropolisHastings, here: PyTree, keys: Array) -> Pairs:
    def propose(key: Array, position: PyTree) -> Pairs:
        proposed = kernel.proposal.propose(kernel.proposal.draw(same_key(key), position), position, kernel.target)
        return Pairs(position, proposed.position, jnp.asarray(proposed.log_correction, jnp.result_type(float)))

    return jax.vmap(propose)(keys, here)


# ---- the scan ----------------------------------------------------------------------------------


class RowMoments(NamedTuple):
    """Moments of the numbers per row Lambda_i over ALL rows, by pair, in float64."""

    mean: np.ndarray
    """NaN or +inf if a row is impossible at the position itself; -inf if one is impossible at the candidate."""
    variance: np.ndarray
    skewness: np.ndarray
    kurtosis: np.ndarray
    """Excess over that of a normal distribution."""
    num_impossible: np.ndarray
    """Rows of likelihood 0 at the candidate."""
    num_invalid: np.ndarray
    """Rows whose log ratio is NaN or +inf."""
    disorder: np.ndarray
    """Variance of the mean of the first rows that the source gives, over its value for rows in random order."""
    exact: np.ndarray
    """What the rows that every decision reads add to the log ratio; the other fields are about the other rows."""


class _Sums(NamedTuple):
    """Sums over the rows to sample from, by pair; only `exact` is about the rows that every decision reads."""

    count: Array
    """Of finite numbers."""
    sums: Array
    """Of the first four powers of (Lambda_i - centre) / scale."""
    num_impossible: Array
    num_invalid: Array
    exact: Array
    """What the rows that every decision reads add to the log ratio."""


@part
class _Powers:
    """Sums over a block, by pair."""

    kernel: MetropolisHastings
    pairs: Pairs
    centre: Array
    scale: Array

    @property
    def log_likelihood(self) -> Any:
        """Whose programs these are."""
        return self.kernel.log_likelihood

    def __call__(self, block: Block) -> _Sums:
        return jax.vmap(self._of_pair, (None, 0, 0, 0))(block, self.pairs, self.centre, self.scale)

    def _of_pair(self, block: Block, pair: Pairs, centre: Array, scale: Array) -> _Sums:
        values = block.share * jax.vmap(self.kernel.row_log_ratio(pair.here, pair.there))(block.rows)
        is_sampled = block.is_valid & block.is_sampled
        is_finite = is_sampled & jnp.isfinite(values)
        deviations = jnp.where(is_finite, (values - centre) / scale, 0)
        squares = deviations**2
        powers = (deviations, squares, squares * deviations, squares**2)
        is_impossible = is_sampled & jnp.isneginf(values)
        exact = jnp.sum(jnp.where(block.is_valid & ~block.is_sampled, values, 0))
        return _Sums(
            jnp.sum(is_finite, dtype=jnp.int32),
            jnp.stack([jnp.sum(power) for power in powers]),
            jnp.sum(is_impossible, dtype=jnp.int32),
            jnp.sum(is_sampled & ~is_finite & ~is_impossible, dtype=jnp.int32),
            exact / self.kernel.source.population.num_rows,
        )


def row_moments(
    kernel: MetropolisHastings, pairs: Pairs, interrupt: threading.Event, *, progress: bool = False
) -> RowMoments:
    """Read every row at every pair.

    The numbers per row, and their sums over one block, are in JAX's precision (float32 by default), like the chain's
    own; the blocks are added up in float64.
    """
    num_pairs = len(pairs.log_correction)
    num_parts = -(-num_pairs // _PAIRS)
    # All parts have one size, the last one padded, so that they share a program.
    parts = np.arange(num_parts * -(-num_pairs // num_parts)).reshape(num_parts, -1)
    found, held = [], jax.tree.map(np.asarray, pairs)
    orders = split_words(np.asarray(jr.key_data(make_key(0))), parts.shape[1], _ORDERS)
    population = kernel.source.population
    num_rows = population.swept
    with shown(progress, "reading all rows", num_parts * num_rows, is_step=True) as show:
        for number, part_ in enumerate(np.minimum(parts, num_pairs - 1)):
            some = jax.tree.map(lambda leaf, at=part_: leaf[at], held)
            begun = _begin(kernel, some, orders)

            def report(rows: int, number: int = number) -> None:
                if interrupt.is_set():
                    raise KeyboardInterrupt("interrupted before all rows were read")
                show(number * num_rows + rows)

            report(0)
            powers = _Powers(kernel, some, begun.centre, begun.scale)
            total = kernel.source.sweep(powers, lanes=len(part_), report=report)
            found.append(_central(kernel, total, jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), begun)))
    return RowMoments(*(np.concatenate(values)[:num_pairs] for values in zip(*found, strict=True)))


def _central(kernel: MetropolisHastings, total: _Sums, begun: _Begun) -> RowMoments:
    """Central moments from the moments about the centre."""
    centre, scale = begun.centre, begun.scale
    with np.errstate(all="ignore"):  # heavy tails may overflow, and then count as infinitely heavy
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
        np.asarray(total.exact),
    )


def _variance_factor(population: Population, rows: float) -> float:
    """Variance of the mean of some rows, divided by that of one row."""
    return 1 / rows if population.repeats else max(1 / rows - 1 / population.num_rows, 0.0)


class _Begun(NamedTuple):
    """What is known of every pair before the scan."""

    centre: Array
    scale: Array
    """Mean and standard deviation over a few rows: powers of the standardised numbers are of order 1."""
    window_means: Array
    """Of (Lambda_i - centre) / scale over the first window, in several orders of the source."""


@program(compiler_options=QUICKLY)
def _begin(kernel: MetropolisHastings, pairs: Pairs, keys: Array) -> _Begun:
    source, width = kernel.source, kernel.width
    rows = source.some_rows(_FIRST_ROWS)

    def one(pair: Pairs, keys: Array) -> _Begun:
        log_ratio = kernel.row_log_ratio(pair.here, pair.there)
        values = jax.vmap(log_ratio)(rows)
        is_finite = jnp.isfinite(values)
        count = jnp.maximum(jnp.sum(is_finite), 1)
        centre = jnp.sum(jnp.where(is_finite, values, 0)) / count
        scale = jnp.sqrt(jnp.sum(jnp.where(is_finite, (values - centre) ** 2, 0)) / count)
        scale = jnp.where((scale > 0) & jnp.isfinite(scale), scale, 1)

        def window_mean(key: Array) -> Array:
            _, seen = source.look(begin(source, key, width), Ask(jnp.int32(width)), width, log_ratio, add_up)
            return seen.evidence / seen.taken

        def add_up(values: Array, is_valid: Array) -> Array:
            deviations = (values - centre) / scale
            return jnp.sum(jnp.where(is_valid & jnp.isfinite(deviations), deviations, 0))

        return _Begun(centre, scale, jax.vmap(window_mean)(wrap(keys)))

    # One pair after another, and its orders side by side: JAX would trace twice as much to have all side by side.
    return lax.map(lambda of: one(*of), (pairs, keys))


def begin(source: Source, key: Array, width: int) -> PyTree:
    """Return the cursor of a fresh decision, after the rows that every decision reads."""

    def look(_: Array, cursor: PyTree) -> PyTree:
        return source.look(cursor, Ask(jnp.int32(width)), width, lambda row: jnp.zeros(()), lambda *_: ())[0]

    cursor, looks = source.start(source.draw(key)), -(-source.population.num_exact // width)
    return lax.fori_loop(0, looks, look, cursor) if looks else cursor


def scan(
    kernel: MetropolisHastings,
    draws: Drawn,
    count: int,
    key: Array,
    interrupt: threading.Event,
    *,
    progress: bool = False,
) -> Scan | None:
    """Read every row at some of a run's own proposals; None if every decision has already read every row."""
    population = kernel.source.population
    num_all, rows_read = population.swept, np.asarray(draws.verdict.rows_read)
    if rows_read.min() >= num_all and not population.repeats:
        return None
    moments = row_moments(kernel, make_pairs(kernel, draws.position, count, key), interrupt, progress=progress)
    b = max(float(np.median(rows_read)) - population.num_exact, 1.0)
    s2 = np.minimum(moments.variance * _variance_factor(population, b), 1)
    missed = np.where(moments.num_impossible > 0, np.exp(-b * moments.num_impossible / population.num_rows), 0)
    with np.errstate(invalid="ignore"):
        # The variance of a squared mean of m rows is 2 + kappa/m, in units of the square of its expectation.
        chance = np.sqrt(np.mean(2 + moments.kurtosis / kernel.width) / (count * _ORDERS))
        skewness, kurtosis = s2**1.5 * np.abs(moments.skewness) / np.sqrt(b), s2**2 * moments.kurtosis / b
    return Scan(
        count,
        count * num_all,
        b,
        tuple(skewness.tolist()),
        tuple(kurtosis.tolist()),
        tuple(missed.tolist()),
        int(np.sum(moments.num_invalid > 0)),
        float(np.mean(moments.disorder)),
        max(_DISORDER, 1 + _SIGMAS * float(chance)),
        isinstance(kernel.source, Shuffled | WithReplacement | Divided),
        population.part_error(float(np.mean(moments.variance))),
    )
