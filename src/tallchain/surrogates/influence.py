"""Which rows matter: score every row once, and read those that matter more often, or always.

Residuals of a surrogate are small for most rows and large for a few. Rows are scored by r_i, the root mean square over
some proposals of the Laplace approximation of the row's residual. Then either

- row i is in the shuffled copy c_i times, c_i = 1 + about r_i / mean r, and counts 1/c_i each time (`copies`): this is
  sampling with probability proportional to c_i and inverse weights, in windows, and costs a second copy; or
- the rows of largest score are read at every decision, and only the others sampled (`exact`).

The scores are fixed before the chain starts, and do not depend on the rows drawn, so Delta* is unbiased either way.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import random as jr

from tallchain.arrays import dot
from tallchain.checks import check_likelihood, check_posterior
from tallchain.functions import QUICKLY, program
from tallchain.keys import make_key, split_words
from tallchain.progress import shown
from tallchain.proposals.laplace import Laplace, check_laplace
from tallchain.residuals import digits, needs_float64
from tallchain.sources import as_source, check_plain
from tallchain.sources.copying import allocate
from tallchain.sources.rows import check_batch_size
from tallchain.sources.sweeping import row_at
from tallchain.surrogates.plans import Plan, choose_plan, make_plans
from tallchain.surrogates.scoring import Pairs, Powers, PowersAlike, Score, paired
from tallchain.threefry import wrap
from tallchain.types import (
    Array,
    Posterior,
    PyTree,
    Source,
    Surrogate,
)
from tallchain.validation import RowError, brief, check_switch, is_whole

METHODS = ("none", "copies", "exact")
_BLOCK = 2**20  # scores handled at a time
_EXACT = (100, 300, 1000, 3000, 10_000)  # numbers of rows to read always, to choose from


@dataclasses.dataclass(frozen=True)
class Influence:
    """Scores of all rows, the resulting ways to sample, and the one chosen (`print` it).

    `Shuffled(data, found.batch_size).reweighted(exact=found.exact, copies=found.copies)` is the source that was chosen.
    """

    source: Source
    score: Score
    """Makes r_i of rows."""
    stored_scores: np.ndarray | None
    """r_i by row of the source, in units of the log ratio of one row; None for rows in parts, which are all alike."""
    plans: tuple[Plan, ...]
    chosen: Plan
    batch_size: int
    """Rows between two judgements: as many as asked for, or more if their mean is far from normal."""
    copies: np.ndarray | None
    """c_i, for method "copies"."""
    exact: np.ndarray
    """Indices of the rows to read always, for method "exact"."""
    log_ratios: np.ndarray
    """Exact Delta of the proposals of the plans, for PCN with beta = 1, or for a `Transition`."""
    residuals: np.ndarray
    """The part of it that rows make: Delta of a `Transition`."""
    rows_swept: int
    seconds: float

    @property
    def scores(self) -> np.ndarray:
        """r_i by row of the data."""
        if self.stored_scores is None:
            raise ValueError(
                "`influence(...).scores`: rows in parts have none, since none of them can come more often."
            )
        return _by_row(self.source, self.stored_scores)

    @property
    def part_error(self) -> float:
        """e, by which the posteriors of parts of the rows differ; 0 where decisions see all rows."""
        return self.source.population.part_error(self.plans[0].rows)

    @property
    def acceptance(self) -> float:
        """Of Metropolis' test, at independent proposals from the Laplace approximation or the surrogate posterior."""
        return float(np.mean(np.exp(np.minimum(self.log_ratios, 0))))

    @property
    def acceptance_of_transitions(self) -> float:
        """About the same, if these were independent draws from the surrogate posterior."""
        return float(np.mean(np.exp(np.minimum(self.residuals, 0))))

    def __str__(self) -> str:
        lines = [
            f"Influence of {self.source.population.total:,} rows ({self.rows_swept:,} swept, {self.seconds:.2g} s). "
            "Rows needed to estimate the log ratio, with a standard deviation of 1 and nearly normal noise (a test "
            "has a least number of its own); * is chosen:"
        ]
        lines += [("* " if plan is self.chosen else "  ") + str(plan) for plan in self.plans]
        return "\n".join(lines)


def influence(
    posterior: Posterior,
    data: PyTree | Source,
    surrogate: Surrogate | None,
    laplace: Laplace | None,
    *,
    draws: PyTree = None,
    batch_size: int = 50,
    method: str | None = None,
    num_draws: int = 8,
    seed: int = 0,
    progress: bool = False,
) -> Influence:
    """Score every row, and choose how to sample them.

    Args:
        posterior: as for the kernel.
        data: a source, or all rows as a source takes them.
        surrogate: the control variate whose residuals count; None for the log ratios themselves.
        laplace: where chains will be; proposals are pairs of its draws, the longest that PCN makes. None with `draws`.
        draws: in place of it, positions along a first axis, at least 4 `num_draws`: draws from the surrogate posterior,
            as `sample_surrogate` makes them. Proposals are pairs of them, and log ratios those of a `Transition`.
        batch_size: m, the rows between two judgements.
        method: "none", "copies" or "exact"; None chooses the one that reads the fewest rows, including those needed to
            make the mean of a batch nearly normal.
        num_draws: proposals to score with, and as many others to judge the scores; each reads every row.
        seed: of these.
        progress: show a progress bar (needs `rich`); without a terminal, a line every ten seconds or more.
    """
    if not (method is None or method in METHODS):
        raise ValueError(f"`influence(method=...)` must be one of {', '.join(METHODS)} or None; got {brief(method)}.")
    for name, value, least in (("num_draws", num_draws, 2), ("seed", seed, 0)):
        if not is_whole(value, least):
            raise ValueError(f"`influence({name}=...)` must be a whole number, at least {least}; got {brief(value)}.")
    progress = check_switch("influence", "progress", progress)
    _check_parts(posterior, surrogate, laplace, draws)
    begun, num_draws = time.perf_counter(), int(num_draws)
    source = as_source("influence", data)
    num_rows = source.population.total
    batch_size = check_batch_size("influence", batch_size, num_rows)
    check_plain("influence", source)
    try:
        check_likelihood(posterior.log_likelihood, _some_position(laplace, draws), source)
    except ValueError as error:
        raise ValueError(f"`influence(posterior=..., laplace=...)`, at the mean of the latter: {error}") from error
    if laplace is None:
        scoring, judging = paired(jax.tree.map(lambda leaf: np.asarray(leaf)[: 4 * num_draws], draws))
    else:
        scoring, judging = _pairs(laplace, split_words(np.asarray(jr.key_data(make_key(int(seed)))), 2, 2, num_draws))
    score = Score(posterior, surrogate, scoring, needs_float64(num_rows, posterior.temperature, surrogate))
    with digits(score.in_float64):
        judged = (_judged_alike if source.population.is_part else _judged)(source, score, judging, progress=progress)
    stored, most, counts, sums, totals, slots = judged
    residuals = totals / float(posterior.temperature)
    offsets = 0.0 if laplace is None else np.asarray(_offsets(posterior, surrogate, laplace, judging), np.float64)
    method = "none" if stored is None else method
    plans = make_plans(sums / float(posterior.temperature) ** np.array([1, 2, 4]), counts, num_rows, int(slots))
    chosen = choose_plan(plans, method, batch_size)
    exact = most[: chosen.num_exact]
    return Influence(
        source=source,
        score=score,
        stored_scores=stored,
        plans=plans,
        chosen=chosen,
        batch_size=int(min(max(batch_size, np.ceil(chosen.batch)), num_rows - chosen.num_exact)),
        copies=_copies(_by_row(source, stored)) if stored is not None and chosen.method == "copies" else None,
        exact=np.sort(_order(source)[exact]) if len(exact) else exact,
        log_ratios=offsets + residuals,
        residuals=residuals,
        rows_swept=(1 if stored is None else 2) * num_draws * num_rows,
        seconds=time.perf_counter() - begun,
    )


def residual_scores(posterior: Posterior, source: Source, surrogate: Surrogate | None, draws: PyTree) -> np.ndarray:
    """Return r_i by row of the source, over steps between pairs of draws: positions along a first axis, at least 4."""
    in_float64 = needs_float64(source.population.total, posterior.temperature, surrogate)
    with digits(in_float64):
        return _scores(source, Score(posterior, surrogate, paired(draws)[0], in_float64), progress=False)


class _Judged(NamedTuple):
    """What sweeps over all rows have found."""

    scores: np.ndarray | None
    """By row of the source."""
    most: np.ndarray
    """Rows with the largest scores."""
    counts: list[int]
    """Numbers of these to read always, to choose from."""
    sums: np.ndarray
    totals: np.ndarray
    slots: int
    """Copies of all rows."""


def _judged(source: Source, score: Score, judging: Pairs, *, progress: bool) -> _Judged:
    """Score the rows at some proposals, and judge ways to sample them at others."""
    num_rows = source.population.total
    counts = [count for count in _EXACT if count <= num_rows // 4]
    stored = _scores(source, score, progress=progress)
    most, levels = _largest(stored, counts[-1] if counts else 0), np.zeros(num_rows, np.uint8)
    for count in counts:
        levels[most[:count]] += 1
    powers = Powers(
        score.posterior,
        score.surrogate,
        judging,
        score.in_float64,
        scores=jax.device_put(stored),  # no copy on a CPU, and nothing to compile
        mean=jax.device_put(_mean(stored)),
        levels=jax.device_put(levels),
        num_sets=len(counts),
    )
    with shown(progress, "judging the choices of rows", num_rows, is_step=True) as show:
        sums, totals, slots = source.sweep(powers, lanes=len(jax.tree.leaves(judging)[0]), report=show)
    return _Judged(stored, most, counts, sums, totals, int(slots))


def _judged_alike(source: Source, score: Score, judging: Pairs, *, progress: bool) -> _Judged:
    """Judge the only way to sample rows in parts: a row cannot be in every part, so nothing is kept of single rows."""
    num_rows = source.population.total
    powers = PowersAlike(score.posterior, score.surrogate, judging, score.in_float64)
    with shown(progress, "judging the rows", num_rows, is_step=True) as show:
        sums, totals = source.sweep(powers, lanes=len(jax.tree.leaves(judging)[0]), report=show)
    if not np.all(np.isfinite(totals)):
        _scores(source, dataclasses.replace(score, pairs=judging), progress=progress)  # names the row
    return _Judged(None, np.zeros(0, np.int64), [], sums, totals, num_rows)


def _some_position(laplace: Laplace | None, draws: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[0], draws) if laplace is None else laplace.mean


def _check_parts(posterior: Any, surrogate: Any, laplace: Any, draws: PyTree) -> None:
    check_posterior("influence", posterior)
    if (laplace is None) == (draws is None):
        raise ValueError("`influence(laplace=..., draws=...)`: give one of them.")
    if draws is None:
        check_laplace("influence", laplace)
    if surrogate is None:
        return
    if isinstance(surrogate, type) or not hasattr(surrogate, "row_difference"):
        raise TypeError(f"`influence(surrogate=...)` must be a Taylor(...) or None; got {brief(surrogate)}.")
    surrogate.check(_some_position(laplace, draws))


# ---- sweeps over all rows ----------------------------------------------------------------------


@partial(jax.jit, compiler_options=QUICKLY)
def _pairs(laplace: Laplace, words: Array) -> tuple[Pairs, Pairs]:
    """Pairs of independent draws, the proposals of PCN with beta = 1: some to score with, as many to judge."""
    return paired(jax.vmap(laplace.draw)(wrap(words.reshape(-1, 2))))


def _order(source: Source) -> np.ndarray:
    order = source.order()
    if order is None:
        raise ValueError("`influence(data=...)`: the source does not say which row is which: its `order()` is None.")
    return order


def _by_row(source: Source, stored: np.ndarray) -> np.ndarray:
    """Return values by row of the data, given values by row of the source."""
    values = np.empty_like(stored)
    values[_order(source)] = stored
    return values


def _mean(scores: np.ndarray) -> np.float32:
    return np.float32(max(float(scores.mean(dtype=np.float64)), 1e-30))


def _copies(scores: np.ndarray) -> np.ndarray:
    """c_i = 1 + about r_i / mean r."""
    return 1 + np.round(scores / _mean(scores)).astype(np.int32)


def _blocks(values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield some values at a time, so that no temporary array is as large as all."""
    return (values[start : start + _BLOCK] for start in range(0, len(values), _BLOCK))


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the largest scores, the largest first; among equal scores, rank decides."""
    found = np.zeros(0, np.int64)
    least = -np.inf
    for number, block in enumerate(_blocks(scores) if count else ()):
        here = np.flatnonzero(block > least)
        if len(here) > count:
            here = here[np.argpartition(block[here], len(here) - count)[-count:]]
        found = np.concatenate([found, number * _BLOCK + here])
        found = found[np.lexsort((found, -scores[found]))][:count]
        least = scores[found[-1]] if len(found) == count else -np.inf
    return found


def _scores(source: Source, score: Score, *, progress: bool) -> np.ndarray:
    """Score the rows in the order of the source."""
    scores = allocate((source.population.total,), np.dtype(np.float32))

    def keep(_: Any, found: tuple[np.ndarray, np.ndarray]) -> None:
        for start, values in zip(*found, strict=True):
            scores[start : start + len(values)] = values

    with shown(progress, "scoring the rows", len(scores), is_step=True) as show:
        source.sweep(score, keep, lanes=len(jax.tree.leaves(score.pairs)[0]), report=show)
    if not np.all(np.isfinite(scores)):
        at = int(np.nonzero(~np.isfinite(scores))[0][0])
        raise RowError(
            "`influence(...)`: the log ratio of row ",
            int(_order(source)[at]),
            f" is not finite at some draws of the approximation to the posterior: {brief(row_at(source, at))}. If a "
            "parameter has bounds, some draws are beyond them: sample one without bounds in its place, the log-odds of "
            "a probability or the log of a scale (and add the log of the derivative to the log prior). Else look for "
            "extreme values in the row.",
        )
    return scores


@program(compiler_options=QUICKLY)
def _offsets(posterior: Posterior, surrogate: Any, laplace: Laplace, pairs: Pairs) -> Array:
    """The part of Delta that no row makes, for PCN with beta = 1."""

    def offset(pair: Pairs) -> Array:
        known = 0.0 if surrogate is None else surrogate.total(pair.here, pair.there) / posterior.temperature
        there, here = laplace.whiten(pair.there), laplace.whiten(pair.here)
        correction = 0.5 * dot(there - here, there + here)
        return posterior.log_prior(pair.there) - posterior.log_prior(pair.here) + correction + known

    return jax.vmap(offset)(pairs)
