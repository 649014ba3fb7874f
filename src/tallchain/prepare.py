"""Everything that temperature 1 needs, in one call: mode, surrogate, influential rows and proposal, if they pay."""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from tallchain.abilities import DividedSource
from tallchain.acceptance.stopping import LEAST_ROWS
from tallchain.bounds.regression import is_bounded
from tallchain.checks import check_posterior, position_of
from tallchain.keys import make_key
from tallchain.models import Regression
from tallchain.models.likelihood import regression_of
from tallchain.prepared import Prepared
from tallchain.progress import shown
from tallchain.proposals import PCN, RandomWalk
from tallchain.proposals.coordinates import Whitened
from tallchain.proposals.transition import blackjax_of
from tallchain.sources import as_shuffled, check_plain
from tallchain.surrogates import Influence, Laplace, Predictors, Reference, Taylor, find_reference, influence
from tallchain.surrogates.bulk import has_no_mode
from tallchain.surrogates.grounds import CHAINS, RegressionGround, acceptance_of_normal, adapted, without_rows
from tallchain.surrogates.heavy_tails import HeavyTailedGround, has_heavy_tails, is_swayed, with_normal_priors
from tallchain.surrogates.own_ground import OwnGround, rows_depend_on
from tallchain.surrogates.passes import is_dense_regression
from tallchain.surrogates.poor_groups import poor_groups
from tallchain.surrogates.settling import Ground, Settled, settle
from tallchain.surrogates.start import check_start
from tallchain.types import FAR_PARTS, ModelWithRows, Posterior, Proposal, PyTree, Source
from tallchain.validation import brief, check_switch, is_whole
from tallchain.weighing import Exact, weigh_exact

_BATCH = 50  # rows between two judgements, if more than the least are needed
_MOST_SHARE = 0.25  # of all rows that a decision may take, for a surrogate to be useful
_SMALL_SHARE = 0.01  # of all rows: a surrogate that needs fewer is better than none
_FEW = 1.2  # times the least batch: no other order would need many fewer
_LEAST_ACCEPTANCE = 0.3  # of independent proposals, for them to be useful
_GOOD_ACCEPTANCE = 0.8  # of independent proposals, for nothing better to be sought
_FAR_FROM_NORMAL = 0.75  # share of them that the surrogate posterior accepts, below which its transitions pay
# Share of random-walk steps among independent proposals, which get stuck in tails that are heavier than theirs. On
# flights, rare events and Covertype larger shares cost effective draws, and hardly made the longest stays shorter.
_WALK = 0.02


def prepare(
    posterior: Posterior | Regression | ModelWithRows,
    data: PyTree | Source = None,
    initial: PyTree = None,
    *,
    orders: tuple[int, ...] = (2, 1),
    batch_size: int | None = None,
    num_draws: int = 8,
    seed: int = 0,
    progress: bool = True,
) -> Prepared:
    """Find the mode, expand there, score the rows, and choose what reads the fewest of them.

    A regression with groups or a shrinkage prior has no mode: it is expanded in the bulk of its posterior, and
    proposals are steps of Hamiltonian Monte Carlo on the surrogate posterior, which read no row.

    If no surrogate pays, it says so and what to do, and leaves the surrogate out.

    Args:
        posterior: log prior, log likelihood of one row, temperature; or a `Regression`, which has its rows and a start,
            and so has what a bridge makes of another library's model.
        data: all rows, as for a source: an array, a pytree of arrays with the rows along the first axis, or a frame.
            One shuffled copy is made. Or a source, e.g. `Shuffled(data, 50, seed=3)`, which is not copied.
        initial: a position to start the search for the mode from; of a posterior with constraints, parameters that
            keep them.
        orders: of the expansions to try, until one needs only about the least batch.
        batch_size: m, the rows between two judgements, at least; None for 20 if these are enough for a variance of 1,
            and 50 otherwise.
        num_draws: proposals to score rows with, and as many to judge by; each reads every row.
        seed: of these.
        progress: show what is going on (needs `rich`); without a terminal, a line every ten seconds or more.
    """
    begun = time.perf_counter()
    _check_numbers(orders, num_draws, seed)
    progress = check_switch("prepare", "progress", progress)
    posterior, data, initial = _model(posterior, data, initial)
    with shown(progress, "copying the rows in random order", is_step=True):
        source = as_shuffled("prepare", data, batch_size)
    check_plain("prepare", source)
    num_rows = source.population.total
    least = min(LEAST_ROWS, num_rows) if batch_size is None else batch_size
    options: dict[str, Any] = {"batch_size": least, "num_draws": num_draws, "seed": seed, "progress": progress}
    ground, swept = _ground(posterior, source, initial)
    if ground is None:
        chosen = _at_mode_or_bulk(posterior, source, initial, orders, least, options)
    else:
        chosen = _settled(posterior, source, ground, initial, least, options)
    if isinstance(source, DividedSource) and chosen.influence is not None:
        chosen.findings.append(_of_parts(source, chosen.influence.part_error))
    sized = partial(_with_batch, batch_size=batch_size, least=least)
    if chosen.influence is None:
        parts = posterior, source, chosen.surrogate, chosen.laplace
        rows = partial(_scored_later, sized, *parts, **options | {"progress": False})
    else:
        rows = sized(chosen.influence)
    return Prepared(
        posterior,
        source,
        chosen.reference,
        chosen.laplace,
        chosen.surrogate,
        rows,
        chosen.exact,
        chosen.proposal,
        tuple(chosen.findings),
        chosen.rows_swept + swept,
        time.perf_counter() - begun,
    )


def _scored_later(sized: partial[Influence], *parts: Any, **options: Any) -> Influence:
    """Score the rows, once somebody asks for it."""
    return sized(influence(*parts, **options))


def _with_batch(rows: Influence, *, batch_size: int | None, least: int) -> Influence:
    """Let a batch be larger than the least, if more rows than that are needed."""
    if batch_size is not None or rows.chosen.rows <= least:
        return rows
    most = rows.source.population.total - rows.chosen.num_exact
    return dataclasses.replace(rows, batch_size=min(max(rows.batch_size, _BATCH), most))


class _Chosen(NamedTuple):
    """What was found and chosen."""

    reference: Reference | Settled
    laplace: Laplace | None
    surrogate: Taylor | Predictors | None
    influence: Influence | None
    """None if nothing needs it: an exact test reads fewer rows than any other could."""
    exact: Exact | None
    proposal: Proposal
    findings: list[str]
    rows_swept: int


def _model(posterior: Any, data: Any, initial: Any) -> tuple[Posterior, Any, Any]:
    """Take rows and start from a `Regression`, unless they are given."""
    if isinstance(posterior, Regression):
        rows = posterior.data if data is None else data
        if isinstance(rows, dict) and set(rows) != set(posterior.data):
            raise ValueError(
                f"`prepare(model, data=...)` must have the arrays of `model.data`, {', '.join(posterior.data)}; got "
                f"{', '.join(map(str, rows)) or 'none'}."
            )
        if initial is None:
            return posterior.posterior, rows, posterior.start
        try:
            posterior.layout.check(initial)
        except (TypeError, ValueError) as error:
            raise ValueError(f"`prepare(model, initial=...)`: {error}") from error
        return posterior.posterior, rows, initial
    if isinstance(posterior, ModelWithRows):
        data = posterior.data if data is None else data
        posterior, initial = posterior.posterior, posterior.start if initial is None else initial
    check_posterior("prepare", posterior)
    if data is None or initial is None:
        what = "data" if data is None else "initial"
        raise TypeError(f"`prepare(posterior, data, initial)` needs `{what}`, unless the first is a Regression.")
    return posterior, data, position_of("prepare(initial=...)", posterior, initial)


def _at_mode_or_bulk(
    posterior: Posterior,
    source: Source,
    initial: PyTree,
    orders: tuple[int, ...],
    least: int,
    options: dict[str, Any],
) -> _Chosen:
    """Find the mode; where a Student t prior may make other modes, a place in the bulk instead."""
    find = partial(find_reference, data=source, progress=options["progress"])
    if not has_heavy_tails(posterior) or find_spec("blackjax") is None:
        return _at_mode(posterior, source, find(posterior, initial=initial), orders, least, options)
    first = find(with_normal_priors(posterior), initial=initial)
    if is_swayed(posterior, first):
        return _settled(posterior, source, HeavyTailedGround(posterior, source, first), initial, least, options)
    chosen = _at_mode(posterior, source, find(posterior, initial=first.position), orders, least, options)
    return chosen._replace(rows_swept=chosen.rows_swept + first.rows_swept)


def _at_mode(
    posterior: Posterior,
    source: Source,
    reference: Reference,
    orders: tuple[int, ...],
    least: int,
    options: dict[str, Any],
) -> _Chosen:
    """Expand at the mode, and choose the order and the proposal."""
    laplace, num_rows = reference.laplace, reference.num_rows
    exact = None
    if 2 in orders and is_bounded(posterior):
        surrogate = _surrogate(posterior, source, reference, 2)
        progress, seed = options["progress"], options["seed"]
        exact = weigh_exact(posterior, source, surrogate, laplace, seed=seed, progress=progress)
        if exact is not None and exact.rows <= 2 * least:
            findings = [_exact_words(exact)]
            proposal = _proposal(posterior, laplace, exact, surrogate, findings, seed)
            rows_swept = reference.rows_swept + exact.rows_swept
            return _Chosen(reference, laplace, surrogate, None, exact, proposal, findings, rows_swept)
    tried: dict[int, tuple[Taylor | Predictors | None, Influence]] = {}
    costs: dict[int, float] = {}
    for order in (*orders, 0):
        # If a decision needs this few rows, reading every row again to find a better order is not worth it.
        if costs and min(costs.values()) <= (_FEW * least if order else _SMALL_SHARE * num_rows):
            continue
        surrogate = _surrogate(posterior, source, reference, order) if order else None
        tried[order] = (surrogate, influence(posterior, source, surrogate, laplace, **options))
        costs[order] = tried[order][1].chosen.cost(least)
    best = min(costs, key=lambda order: costs[order])
    findings = [_words(costs, best)]
    if best and costs[best] > _MOST_SHARE * num_rows:
        findings.append(_does_not_pay(costs, num_rows))
        best = 0
    surrogate, found = tried[best]
    proposal = _proposal(posterior, laplace, found, surrogate, findings, options["seed"])
    rows_swept = reference.rows_swept + sum(each.rows_swept for _, each in tried.values())
    if exact is not None:
        rows_swept += exact.rows_swept
        exact = exact if best == 2 else None
    return _Chosen(reference, laplace, surrogate, found, exact, proposal, findings, rows_swept)


def _ground(posterior: Posterior, source: Source, initial: PyTree) -> tuple[Ground | None, int]:
    """Return what to move a reference on, None for a posterior that has a mode; and the rows swept to see it."""
    if has_no_mode(posterior):
        blackjax_of("prepare")
        return RegressionGround(posterior, source), 0
    if regression_of(posterior) is not None:
        return None, 0
    check_start(posterior, source, initial, 1)
    found = rows_depend_on(posterior, source, initial)
    # Without BlackJAX the search for a joint mode is left, which some of these posteriors have.
    if np.all(found.is_free) or not np.any(found.is_free) or find_spec("blackjax") is None:
        return None, found.rows_swept
    return OwnGround(posterior, source, initial, found.is_free), found.rows_swept


def _settled(
    posterior: Posterior, source: Source, ground: Ground, initial: PyTree, least: int, options: dict[str, Any]
) -> _Chosen:
    """Find a place in the bulk, expand there, and propose by transitions of the surrogate posterior."""
    with shown(options["progress"], "finding the bulk of the posterior", is_step=True) as show:
        place = ground.place(initial, lambda sweeps, far: show(sweeps, f"sweep {sweeps}, {far:.2g} sd away"))
    settled = settle(ground, place, seed=options["seed"], progress=options["progress"])
    found = influence(posterior, source, settled.surrogate, None, draws=settled.draws, **options)
    findings = [
        f"surrogate            chosen: order {settled.surrogate.order}; rows needed to estimate a "
        f"log ratio: {found.chosen.cost(least):,.0f}",
        f"steps                {settled.transition.algorithm.upper()} on the surrogate posterior, which reads no row; "
        f"an exact test would accept {found.acceptance:.0%} of independent draws from it",
        *settled.complaints,
        *_poor_surrogate(found, least, source.population.total, settled.complaints),
        *(poor_groups(posterior, source, found.stored_scores, found.score) if regression_of(posterior) else ()),
    ]
    swept = settled.rows_swept + found.rows_swept
    return _Chosen(settled, None, settled.surrogate, found, None, settled.transition, findings, swept)


def _poor_surrogate(found: Influence, least: int, num_rows: int, complaints: tuple[str, ...]) -> tuple[str, ...]:
    """Say so if chains may not get where the surrogate is wrong: then no number of draws will do."""
    rows = found.chosen.cost(least)
    if rows <= max(_MOST_SHARE * num_rows, _FEW * least) and not complaints:
        return ()
    return (
        f"POOR SURROGATE       decisions would read about {min(rows, num_rows):,.0f} of {num_rows:,} rows, and the "
        "expansion may be wrong where its own draws do not go: scales of groups with one or two rows each are mostly "
        "so. Trust the draws only if r_hat is near 1 and `audit(trace.kernel, trace)` finds no error; else merge small "
        "groups, or give their scale a tighter prior",
    )


def _surrogate(posterior: Posterior, source: Source, reference: Reference, order: int) -> Taylor | Predictors:
    """Expand at the mode: for a regression in the predictors of a row, if the order is theirs."""
    if order == 2 and is_dense_regression(posterior):
        return Predictors.of_reference(posterior, reference)
    return Taylor(posterior, source, reference, order)


def _of_parts(source: DividedSource, error: float) -> str:
    """Say how far the posteriors of single parts are from that of all rows, or refuse them."""
    if error > source.most_error:
        raise ValueError(
            "`prepare(data=...)`: the rows of a part are too few for this posterior: log densities of single parts "
            f"differ from that of all rows by {error:.2g}, and moments would be off by about {error**2:.1g}. "
            "Take fewer parts (more memory), reparametrise, or allow it: `Packed(most_error=...)`."
        )
    return (
        f"parts                {source.num_parts:,} in turn; log densities of single parts differ from that of all "
        f"rows by {error:.2g}, and variances over whole tours by a share of about {error**2:.1g}"
        + ("   FAR: take fewer, larger parts" if error > FAR_PARTS else "")
    )


def _check_numbers(orders: Any, num_draws: Any, seed: Any) -> None:
    if not isinstance(orders, tuple | list) or any(order not in (1, 2) for order in orders):
        raise ValueError(f"`prepare(orders=...)` must be a tuple of 1 and 2; got {brief(orders)}.")
    for name, value, least in (("num_draws", num_draws, 2), ("seed", seed, 0)):
        if not is_whole(value, least):
            raise ValueError(f"`prepare({name}=...)` must be a whole number, at least {least}; got {brief(value)}.")


def _name(order: int) -> str:
    return f"order {order}" if order else "no surrogate"


def _words(costs: dict[int, float], best: int) -> str:
    each = ", ".join(f"{cost:,.0f} with {_name(order)}" for order, cost in sorted(costs.items()))
    return f"surrogate            chosen: {_name(best)}; rows needed to estimate a log ratio: {each}"


def _exact_words(exact: Exact) -> str:
    return (
        f"surrogate            chosen: order 2; what it leaves of every row has a bound, so that {exact.rows:.2g} rows "
        "a decision are enough"
    )


def _does_not_pay(costs: dict[int, float], num_rows: int) -> str:
    least = min(cost for order, cost in costs.items() if order)
    return (
        f"NO SURROGATE PAYS    the best would read {least:,.0f} of {num_rows:,} rows a decision, so there is "
        "none, and decisions read as many rows as they need. The posterior is far from normal around its mode: "
        "reparametrise, give rare dummies a proper prior instead of standardising them, or accept a higher "
        "temperature or shorter steps"
    )


def _proposal(
    posterior: Posterior,
    laplace: Laplace,
    found: Influence | Exact,
    surrogate: Taylor | Predictors | None,
    findings: list[str],
    seed: int,
) -> Proposal:
    """Choose by what an exact test would accept."""
    if surrogate is None:
        findings.append("steps                a random walk with the covariance of the Laplace approximation")
        return RandomWalk.preconditioned(laplace)
    acceptance = f"an exact test would accept {found.acceptance:.0%} of independent proposals"
    if found.acceptance < _GOOD_ACCEPTANCE and surrogate.order == 2 and find_spec("blackjax") is not None:
        key, target = make_key(seed), without_rows(posterior, surrogate)
        share = acceptance_of_normal(key, target, laplace)
        if share < _FAR_FROM_NORMAL:
            findings.append(
                "steps                NUTS on the surrogate posterior, which reads no row: with this prior it is far "
                f"from normal, and would accept {share:.0%} of independent proposals from the Laplace approximation. "
                f"An exact test would accept {found.acceptance_of_transitions:.0%} of independent draws from it"
            )
            return adapted(key, target, laplace.draw_many(key, CHAINS), Whitened(laplace)).transition
    if found.acceptance >= _LEAST_ACCEPTANCE:
        findings.append(
            "steps                PCN with beta = 1: independent proposals from the Laplace approximation, and "
            f"{_WALK:.0%} steps of a random walk; {acceptance}"
        )
        return PCN(laplace, walk=_WALK)
    findings.append(
        f"steps                a random walk with the covariance of the Laplace approximation; {acceptance}"
    )
    return RandomWalk.preconditioned(laplace)
