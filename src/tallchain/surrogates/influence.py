"""Which rows matter: score every row once, and let those that matter be read more often, or always.

Residuals of a surrogate are small for most rows and large for a few. Rows are scored by r_i, the root mean square over
some proposals of the Laplace approximation of what the surrogate leaves of a row's log ratio. Then either

- row i is in the shuffled copy c_i times, c_i = 1 + about r_i / mean r, and counts for 1/c_i each time (`copies`): that
  is sampling with probability proportional to c_i and inverse weights, in windows, at the price of a second copy; or
- the rows of largest score are read at every decision, and only the others sampled (`exact`).

The scores are fixed before the chain starts, and do not depend on the rows drawn, so Delta* is unbiased either way.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.functions import program
from tallchain.keys import make_key
from tallchain.sources.rows import check_batch_size, take_data
from tallchain.surrogates.laplace import Laplace
from tallchain.surrogates.passes import map_blocks
from tallchain.surrogates.residual import digits, needs_float64, residual
from tallchain.types import Array, Posterior, PyTree, Surrogate, brief, dot, is_whole

METHODS = ("none", "copies", "exact")
_WIDTH = 2048  # rows of a block
_BLOCKS = 64  # in one dispatch
_EXACT = (100, 300, 1000, 3000, 10_000)  # numbers of rows to read always, to choose from
_SMALL_KURTOSIS = 0.5  # of the mean of a batch: half of what `sample` warns of
_MOST = 0.75  # of the proposals at which it must be as small; the longest are mostly rejected
_GAIN = 1.2  # fewer rows by this factor are worth a second copy of the data


class Plan(NamedTuple):
    """What a way to sample rows would come to, by proposals that had no part in the scores."""

    method: str
    num_exact: int
    """Rows to read at every decision."""
    copies: float
    """Rows of the shuffled copy, over those of the data."""
    rows: float
    """Rows to sample at which the variance of Delta* is 1: mean over proposals."""
    most_rows: float
    """The same at the worst of them."""
    batch: float
    """Rows at which their mean is nearly normal, at most of the proposals (see `Scan`)."""

    def cost(self, batch_size: int) -> float:
        """Rows a decision reads, about."""
        return self.num_exact + max(self.rows, self.batch, batch_size)

    def __str__(self) -> str:
        words = {
            "none": "every row alike",
            "copies": f"rows that matter more often ({self.copies:.2g} copies of the data)",
            "exact": f"{self.num_exact:,} rows at every decision",
        }
        need, most = (int(np.ceil(max(rows, self.batch, 1))) for rows in (self.rows, self.most_rows))
        return f"{words[self.method]}: {need:,} sampled at a decision, {most:,} at the longest step"


@dataclasses.dataclass(frozen=True)
class Influence:
    """Scores of all rows, the ways to sample that follow, and the one chosen (`print` it).

    `Shuffled(data, batch_size, exact=found.exact, copies=found.copies)` is the source that was chosen.
    """

    scores: np.ndarray
    """r_i, in units of the log ratio of one row."""
    plans: tuple[Plan, ...]
    chosen: Plan
    batch_size: int
    """Rows between two judgements: as many as asked for, or more where the mean of these is far from normal."""
    copies: np.ndarray | None
    """c_i, for method "copies"."""
    exact: np.ndarray
    """Indices of the rows to read always, for method "exact"."""
    log_ratios: np.ndarray
    """Exact Delta of the proposals of the plans, for PCN with beta = 1."""
    rows_read: int
    seconds: float

    @property
    def acceptance(self) -> float:
        """Of Metropolis' test, at independent proposals from the Laplace approximation."""
        return float(np.mean(np.exp(np.minimum(self.log_ratios, 0))))

    def __str__(self) -> str:
        lines = [
            f"Influence of {len(self.scores):,} rows ({self.rows_read:,} evaluated, {self.seconds:.2g} s). Rows that "
            "an estimate of the log ratio takes, for a standard deviation of 1 and nearly normal noise (a test has a "
            "least number of its own); * is chosen:"
        ]
        lines += [("* " if plan is self.chosen else "  ") + str(plan) for plan in self.plans]
        return "\n".join(lines)


def influence(
    posterior: Posterior,
    data: PyTree,
    surrogate: Surrogate | None,
    laplace: Laplace,
    *,
    batch_size: int = 50,
    method: str | None = None,
    num_draws: int = 8,
    seed: int = 0,
) -> Influence:
    """Score every row, and choose how to sample them.

    Args:
        posterior: as for the kernel.
        data: all rows.
        surrogate: the control variate whose residuals count; None for the log ratios themselves.
        laplace: where chains will be; proposals are pairs of its draws, the longest that PCN makes.
        batch_size: m, the rows between two judgements.
        method: "none", "copies" or "exact"; None chooses the one that reads the fewest rows, those included that it
            takes for the mean of a batch to be nearly normal.
        num_draws: proposals to score with, and as many others to judge the scores by; each reads every row.
        seed: of these.
    """
    if not (method is None or method in METHODS):
        raise ValueError(f"`influence(method=...)` must be one of {', '.join(METHODS)} or None; got {brief(method)}.")
    if not is_whole(num_draws, least=2):
        raise ValueError(f"`influence(num_draws=...)` must be a whole number, at least 2; got {brief(num_draws)}.")
    begun = time.perf_counter()
    data, num_rows = take_data("influence", data)
    batch_size = check_batch_size("influence", batch_size, num_rows)
    data = jax.tree.map(jnp.asarray, data)
    scoring, judging = (_pairs(laplace, key, num_draws) for key in jr.split(make_key(seed)))
    scores = _scores(posterior, surrogate, scoring, data, num_rows)
    copies = 1 + np.round(scores / max(float(scores.mean()), 1e-30)).astype(np.int64)
    ranked = np.argsort(-scores, kind="stable")
    counts = [count for count in _EXACT if count <= num_rows // 4]
    sums = _judge(posterior, surrogate, judging, data, ranked, copies, counts)
    plans = _plans(sums / float(posterior.temperature) ** np.array([1, 2, 4]), counts, num_rows, copies)
    chosen = _choose(plans, method, batch_size)
    return Influence(
        scores=scores,
        plans=plans,
        chosen=chosen,
        batch_size=int(min(max(batch_size, np.ceil(chosen.batch)), num_rows - chosen.num_exact)),
        copies=copies if chosen.method == "copies" else None,
        exact=np.sort(ranked[: chosen.num_exact]),
        log_ratios=_log_ratios(posterior, surrogate, laplace, judging, sums[:, 0, 0]),
        rows_read=2 * num_draws * num_rows,
        seconds=time.perf_counter() - begun,
    )


def _plans(sums: np.ndarray, counts: list[int], num_rows: int, copies: np.ndarray) -> tuple[Plan, ...]:
    """Make plans from sums over rows by (proposal, way to sample, power 1, 2, 4), in units of Delta.

    The numbers per row of a way to sample from M rows are W = M r_i/c_i, row i with probability c_i/M: then the mean of
    W^k is M^(k-1) times the sum of r_i^k/c_i^(k-1). The fourth moment is not centred: means are small beside it.
    """
    slots = int(copies.sum())
    kinds = [("none", 0, num_rows), ("copies", 0, slots), *(("exact", count, num_rows - count) for count in counts)]
    plans = []
    for at, (method, num_exact, size) in enumerate(kinds):
        first, second, fourth = sums[:, at].T
        variance = np.maximum(size * second - first**2, 1e-30)
        excess = np.maximum(size**3 * fourth - 3 * variance**2, 0)
        # Of the mean of b rows: excess/variance^2/b, times s2^2 where s2 = variance/b is below 1.
        batch = np.minimum(np.cbrt(excess / _SMALL_KURTOSIS), excess / variance**2 / _SMALL_KURTOSIS)
        most = float(np.quantile(batch, _MOST))
        multiple = slots / num_rows if method == "copies" else 1.0
        rows = variance / (1 + variance / size)  # without repeats: all of them leave no variance
        plans.append(Plan(method, num_exact, multiple, float(rows.mean()), float(rows.max()), min(most, size)))
    return tuple(plans)


def _choose(plans: tuple[Plan, ...], method: str | None, batch_size: int) -> Plan:
    """Choose the plan that reads the fewest rows; every row alike, unless that is clearly worse."""
    allowed = [plan for plan in plans if method in (None, plan.method)]
    if not allowed:
        raise ValueError(f"`influence(method={brief(method)})`: there are too few rows to read some of them always.")
    best = min(allowed, key=lambda plan: plan.cost(batch_size))
    return allowed[0] if allowed[0].cost(batch_size) <= _GAIN * best.cost(batch_size) else best


# ---- passes over all rows ----------------------------------------------------------------------


class _Pairs(NamedTuple):
    here: PyTree
    there: PyTree


def _pairs(laplace: Laplace, key: Array, count: int) -> _Pairs:
    """Independent draws, two and two: the proposals of PCN with beta = 1."""
    return _Pairs(*(jax.vmap(laplace.draw)(jr.split(each, count)) for each in jr.split(key)))


def _scores(posterior: Posterior, surrogate: Any, pairs: _Pairs, data: PyTree, num_rows: int) -> np.ndarray:
    scores = np.zeros(num_rows, np.float64)
    width, in_float64 = min(_WIDTH, num_rows), needs_float64(num_rows, posterior.temperature)
    for first in range(0, -(-num_rows // width), _BLOCKS):
        with digits(in_float64):
            index, found = _score_blocks(posterior, surrogate, pairs, data, first, width, in_float64)
        scores[np.asarray(index).ravel()] = np.asarray(found, np.float64).ravel()
    if not np.all(np.isfinite(scores)):
        row = int(np.nonzero(~np.isfinite(scores))[0][0])
        raise ValueError(
            f"`influence(...)`: the log ratio of row {row} is not finite at some draws of the Laplace approximation: "
            f"{brief(jax.tree.map(lambda leaf: np.asarray(leaf[row]), data))}."
        )
    return scores


@program(static_argnames=("width", "in_float64"))
def _score_blocks(
    posterior: Posterior, surrogate: Any, pairs: _Pairs, data: PyTree, first: int, width: int, in_float64: bool
) -> tuple[Array, Array]:
    def one(rows: PyTree, index: Array, is_new: Array) -> tuple[Array, Array]:
        residuals = jax.vmap(lambda pair: jax.vmap(residual(posterior, surrogate, *pair, in_float64=in_float64))(rows))(
            pairs
        )
        return index, jnp.sqrt(jnp.mean(residuals**2, 0))

    return map_blocks(one, data, first, width, _BLOCKS)


def _judge(
    posterior: Posterior,
    surrogate: Any,
    pairs: _Pairs,
    data: PyTree,
    ranked: np.ndarray,
    copies: np.ndarray,
    counts: list[int],
) -> np.ndarray:
    """Sum powers 1, 2, 4 of residuals over all rows, by (proposal, way to sample, power), in float64."""
    num_rows = len(ranked)
    width, in_float64 = min(_WIDTH, num_rows), needs_float64(num_rows, posterior.temperature)
    ranks = np.empty(num_rows, np.int32)  # not scores: many rows may have the same
    ranks[ranked] = np.arange(num_rows, dtype=np.int32)
    rows = (data, jnp.asarray(ranks), jnp.asarray(copies, jnp.result_type(float)))
    firsts = jnp.asarray(counts, jnp.int32)
    total = 0.0
    for first in range(0, -(-num_rows // width), _BLOCKS):
        with digits(in_float64):
            sums = _judge_blocks(posterior, surrogate, pairs, rows, firsts, first, width, in_float64)
        total = total + np.asarray(sums, np.float64).sum(0)
    return np.asarray(total)


@program(static_argnames=("width", "in_float64"))
def _judge_blocks(
    posterior: Posterior,
    surrogate: Any,
    pairs: _Pairs,
    rows: PyTree,
    firsts: Array,
    first: int,
    width: int,
    in_float64: bool,
) -> Array:
    def one(rows: PyTree, index: Array, is_new: Array) -> Array:
        data, ranks, copies = rows
        # By way to sample and row: what to divide by, and whether the row is sampled at all.
        parts = jnp.stack([jnp.ones_like(copies), copies, *(jnp.ones_like(copies),) * len(firsts)])
        is_sampled = jnp.concatenate([jnp.ones((2, width), bool), ranks >= firsts[:, None]]) & is_new

        def sums(pair: _Pairs) -> Array:
            r = jax.vmap(residual(posterior, surrogate, *pair, in_float64=in_float64))(data)
            powers = jnp.stack([r * jnp.ones_like(parts), r**2 / parts, r**4 / parts**3], -1)
            return jnp.sum(jnp.where(is_sampled[..., None], powers, 0), 1)

        return jax.vmap(sums)(pairs)

    return map_blocks(one, rows, first, width, _BLOCKS)


def _log_ratios(
    posterior: Posterior, surrogate: Any, laplace: Laplace, pairs: _Pairs, residuals: np.ndarray
) -> np.ndarray:
    """Delta of PCN's proposals with beta = 1, from the sums of their residuals over all rows."""

    def offset(pair: _Pairs) -> Array:
        known = 0.0 if surrogate is None else surrogate.total(pair.here, pair.there) / posterior.temperature
        there, here = laplace.whiten(pair.there), laplace.whiten(pair.here)
        correction = 0.5 * dot(there - here, there + here)
        return posterior.log_prior(pair.there) - posterior.log_prior(pair.here) + correction + known

    return np.asarray(jax.vmap(offset)(pairs), np.float64) + residuals / float(posterior.temperature)
