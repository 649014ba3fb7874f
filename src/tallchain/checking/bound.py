"""The paper's error bound at a chain's own proposals, with bootstrap limits: the values that `delta` would need."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tallchain.acceptance.bound import bound_of
from tallchain.checking.records import Estimate
from tallchain.checking.scan import Pairs, begin, make_pairs
from tallchain.checking.trace import Trace, in_coordinates_of
from tallchain.functions import program
from tallchain.kernel import MetropolisHastings
from tallchain.keys import fold_in, make_key, split
from tallchain.residuals import digits
from tallchain.threefry import same_key
from tallchain.types import Array, Ask, PyTree
from tallchain.validation import brief, is_whole


@dataclasses.dataclass(frozen=True)
class ProposalBound:
    """The bound at one proposal, with bootstrap limits."""

    first: Estimate
    """E|X|, X the log ratios per row, standardised."""
    third: Estimate
    """E|X|^3."""
    epsilon: Estimate
    """(6.4 E|X|^3 + 2 E|X|)/sqrt(b)."""

    def __str__(self) -> str:
        named = (("E|X|", self.first), ("E|X|^3", self.third), ("epsilon", self.epsilon))
        return "  ".join(f"{name} {e.value:.3f} ({e.low:.3f} to {e.high:.3f})" for name, e in named)


@dataclasses.dataclass(frozen=True)
class BoundLimits:
    """The paper's error bound at some proposals of a run (`print` it)."""

    batch: float
    """b, the median number of rows read at a decision."""
    rows_stored: int
    """Rows stored for each proposal."""
    proposals: tuple[ProposalBound, ...]

    def __str__(self) -> str:
        head = (
            f"(6.4 E|X|^3 + 2 E|X|)/sqrt(b) at b = {self.batch:,.0f}, from {self.rows_stored:,} rows a proposal, with "
            "95 % bootstrap limits; above 1 it says nothing"
        )
        return "\n".join([head, *(str(proposal) for proposal in self.proposals)])


def bound_limits(
    kernel: MetropolisHastings,
    trace: Trace,
    *,
    num_proposals: int = 8,
    rows_stored: int = 1000,
    num_resamples: int = 1000,
    seed: int = 0,
) -> BoundLimits:
    """Estimate the moments in the paper's error bound from stored rows, with 95 % bootstrap limits.

    `MinibatchBarker(delta=...)` uses E|X| and E|X|^3 of the rows of its batch as the true ones. The limits show how far
    these can be off: with heavy tails E|X|^3 depends on a few rows.

    Args:
        kernel: the sampler that made the trace.
        trace: its draws.
        num_proposals: proposals to make from draws chosen at random.
        rows_stored: rows to store of each, chosen at random.
        num_resamples: of the bootstrap.
        seed: of everything random.
    """
    for name, value, least in (
        ("num_proposals", num_proposals, 1),
        ("rows_stored", rows_stored, 10),
        ("num_resamples", num_resamples, 10),
    ):
        if not is_whole(value, least):
            raise ValueError(
                f"`bound_limits({name}=...)` must be a whole number, at least {least}; got {brief(value)}."
            )
    rows_stored = min(rows_stored, kernel.source.population.num_rows)
    trace, key = in_coordinates_of("bound_limits(trace=...)", kernel, trace), make_key(seed)
    pair_key, row_key = fold_in(key, 0), fold_in(key, 1)
    width = kernel.source.width(rows_stored)
    looks = -(-rows_stored // width)
    with digits(kernel.in_float64):
        pairs = make_pairs(kernel, trace.unconstrained, num_proposals, pair_key)
        rows = np.asarray(_rows(kernel, pairs, split(row_key, num_proposals), width=width, looks=looks), np.float64)
    b = float(np.median(trace.rows_read))
    random = np.random.default_rng(seed)
    found = tuple(_limits(each[:rows_stored], b, num_resamples, random) for each in rows)
    return BoundLimits(b, rows_stored, found)


@program(static_argnames=("width", "looks"))
def _rows(kernel: MetropolisHastings, pairs: Pairs, keys: Array, *, width: int, looks: int) -> Array:
    """Return log ratios of the first rows that the source gives, by proposal."""
    source = kernel.source

    def one(pair: Pairs, key: Array) -> Array:
        def look(cursor: PyTree, _: None) -> tuple[PyTree, Array]:
            row_function = kernel.row_log_ratio(pair.here, pair.there)
            cursor, seen = source.look(cursor, Ask(jnp.int32(width)), width, row_function, lambda v, ok: v)
            return cursor, seen.evidence

        return lax.scan(look, begin(source, same_key(key), width), length=looks)[1].reshape(-1)

    return jax.vmap(one)(pairs, keys)


def _limits(rows: np.ndarray, b: float, num_resamples: int, random: Any) -> ProposalBound:
    from scipy import stats  # heavy

    def statistics(rows: np.ndarray, axis: int = -1) -> np.ndarray:
        deviations = rows - rows.mean(axis, keepdims=True)
        sd = np.sqrt((deviations**2).mean(axis, keepdims=True))
        x = np.abs(deviations) / np.where(sd > 0, sd, 1)
        first, third = x.mean(axis), (x**3).mean(axis)
        return np.stack([first, third, bound_of(first, third, b)])

    found = statistics(rows)
    limits = stats.bootstrap(
        (rows,),
        statistics,
        n_resamples=num_resamples,
        confidence_level=0.95,
        method="percentile",
        rng=random,
    ).confidence_interval
    return ProposalBound(*(Estimate(float(v), float(lo), float(hi)) for v, lo, hi in zip(found, *limits, strict=True)))
