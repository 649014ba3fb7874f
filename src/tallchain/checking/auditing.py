"""How wrong is my chain: repeat decisions of a chain many times, and compare them with those that all rows give.

A decision moves a chain from t to t' with probability a(t, t'). The chain has the right posterior if

    a(t, t') / a(t', t) = exp(Delta),     Delta = log p(t') q(t', t) - log p(t) q(t, t'),

p the posterior, q the proposal. The audit takes decisions of the chain itself, computes Delta from all rows, repeats
the kernel's own test many times both ways, and reports the error in log-odds

    eta(t, t') = log a(t, t') - log a(t', t) - Delta,

and what it does to the posterior.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.checking.drift import Basis, Regression, bound_of, drift_of, error_p_value, flow_of, regress
from tallchain.checking.errors import Z, decisions_of, mean_of, outcomes_of, reach_of, size_of, worst_of
from tallchain.checking.findings import Audit
from tallchain.checking.records import Cost, Decisions, Drift, Size
from tallchain.checking.scan import Pairs, make_pairs, row_moments
from tallchain.checking.trace import Trace, in_coordinates_of
from tallchain.checking.trials import choose_trials, repeat
from tallchain.checks import are_scalars
from tallchain.firefly import FireflyMC
from tallchain.interrupts import catch_interrupt
from tallchain.kernel import MetropolisHastings
from tallchain.keys import fold_in, make_key
from tallchain.names import all_coordinates
from tallchain.residuals import digits
from tallchain.settings import describe, settings_of
from tallchain.stochastic import StochasticGradient
from tallchain.types import IntegratedTest
from tallchain.validation import brief, check_switch, is_positive, is_whole


def audit(
    kernel: MetropolisHastings,
    trace: Trace,
    *,
    num_decisions: int = 100,
    num_trials: int | None = None,
    max_log_ratio: float = 4.0,
    tolerance: float = 0.01,
    drift_tolerance: float = 0.05,
    seed: int = 0,
    progress: bool = True,
) -> Audit:
    """Measure how wrong the decisions of a chain are, and how far this moves its draws from the posterior.

    Draws of the trace chosen at random, with a fresh proposal each, are decisions of the chain. For each, all rows are
    read once for the exact Delta, and the kernel's own test is repeated with fresh rows and noise, from t to t' and
    back. A test that knows its probability to accept given what it has seen (an `IntegratedTest`) is asked for it,
    which takes fewer repeats than counting its decisions.

    An error is FOUND if errors in log-odds are beyond chance and larger than `tolerance` on average, or if the drift of
    the draws is beyond chance and larger than `drift_tolerance`. Beyond chance: by a chi-square test of all decisions,
    and by one of the drift, each at half of 0.1 per cent; so an error is wrongly found in at most about one audit of a
    thousand. An error is missed if the audit is too small to see it: `log_odds.upper` limits what it may have missed.
    The audit trusts the model's posterior, as computed in JAX's precision, and the proposal's log correction: it does
    not see errors in these.

    The drift is estimated to first order in the errors, among linear and quadratic functions of the position (see
    `tallchain.checking.drift`); where there are fewer than five decisions for each coefficient, products are left out,
    then squares, then the whole estimate.

    Ctrl-C or SIGTERM ends the repeats, and the audit is made of those that are finished, with `is_interrupted` set.
    After the repeats it changes nothing; while all rows are read it ends the audit. A second one always ends it.

    Args:
        kernel: the sampler that made the trace, as it was at the end of the run: `trace.kernel`. A kernel with a
            different surrogate is refused.
        trace: its draws, in equilibrium.
        num_decisions: decisions to audit; each costs a sweep over all rows.
        num_trials: repeats of each, each way; None for 2000, or fewer where the test reads many rows (2 where it always
            reads all rows and knows its chance to accept, so that all repeats are equal).
        max_log_ratio: average over decisions with |Delta| up to this; the others are nearly certain, and matter little.
            If decisions are counted, at most log(num_trials/10).
        tolerance: largest acceptable mean |error in log-odds|.
        drift_tolerance: largest acceptable drift, of means in standard deviations, of variances as a share.
        seed: of everything random.
        progress: show a progress bar (needs `rich`); without a terminal, a line every ten seconds or more.
    """
    _check_numbers(num_decisions, num_trials, seed, max_log_ratio, tolerance, drift_tolerance)
    progress = check_switch("audit", "progress", progress)
    num_decisions, num_trials = int(num_decisions), None if num_trials is None else int(num_trials)
    trace = _checked(kernel, trace)
    began = time.perf_counter()
    key = make_key(seed)
    pair_key, trial_key = fold_in(key, 0), fold_in(key, 1)
    with catch_interrupt() as interrupt:  # to the end: what follows the repeats takes seconds, and would lose them
        with digits(kernel.in_float64):
            pairs = make_pairs(kernel, trace.unconstrained, num_decisions, pair_key)
            log_ratio = exact_log_ratios(kernel, pairs, interrupt, progress=progress)
            count = choose_trials(kernel, trace, num_decisions) if num_trials is None else num_trials
            trials = repeat(kernel, pairs, count, key=trial_key, interrupt=interrupt, progress=progress)
        is_integrated = isinstance(kernel.acceptance, IntegratedTest)
        outcomes = outcomes_of(trials.chances, 2 * num_decisions, is_integrated=is_integrated)
        reach = reach_of(max_log_ratio, outcomes.num_trials, is_integrated=is_integrated)
        decisions = decisions_of(kernel, log_ratio, outcomes, reach)
        flow = flow_of(decisions, outcomes.num_trials, reach, is_integrated=is_integrated)
        basis = Basis.of(trace, num_decisions)
        regression = regress(flow, basis.steps(pairs.here, pairs.there))
        return Audit(
            test=describe(kernel.acceptance, static_only=True),
            settings=settings_of(kernel),
            num_rows=trace.num_rows,
            num_decisions=num_decisions,
            num_trials=outcomes.num_trials,
            is_integrated=is_integrated,
            max_log_ratio=reach,
            tolerance=float(tolerance),
            drift_tolerance=float(drift_tolerance),
            decisions=decisions,
            **_left_out(decisions, reach),
            **_averages(decisions),
            drift=_drifts(trace, basis, regression),
            features=basis.name,
            bound=bound_of(decisions, trace),
            error_p_value=error_p_value(flow),
            drift_p_value=regression.p_value,
            cost=_cost(trials.rows_read, num_decisions * trace.num_rows, trace.num_rows, time.perf_counter() - began),
            is_interrupted=trials.is_interrupted,
        )


def _check_numbers(
    num_decisions: Any, num_trials: Any, seed: Any, max_log_ratio: Any, tolerance: Any, drift_tolerance: Any
) -> None:
    for name, value, least in (
        ("num_decisions", num_decisions, 2),
        ("num_trials", 2 if num_trials is None else num_trials, 2),
        ("seed", seed, 0),
    ):
        if not is_whole(value, least):
            raise ValueError(f"`audit({name}=...)` must be a whole number, at least {least}; got {brief(value)}.")
    for name, value in (
        ("max_log_ratio", max_log_ratio),
        ("tolerance", tolerance),
        ("drift_tolerance", drift_tolerance),
    ):
        if not is_positive(value):
            raise ValueError(f"`audit({name}=...)` must be a positive number; got {brief(value)}.")


def _checked(kernel: Any, trace: Any) -> Trace:
    if not isinstance(kernel, MetropolisHastings):
        hint = " A trace loses its kernel when it is pickled: give the one that made it." if kernel is None else ""
        if isinstance(kernel, FireflyMC):
            hint = " FireflyMC is exact: there is no error to measure. `trace.summary()` shows how its chains agree."
        if isinstance(kernel, StochasticGradient):
            hint = (
                " A StochasticGradient has no test, so there are no decisions to repeat: it keeps every update. "
                "Compare its draws with those of a kernel that has a test."
            )
        raise TypeError(f"`audit(kernel=...)` must be a MetropolisHastings(...); got {brief(kernel)}.{hint}")
    if not isinstance(trace, Trace):
        raise TypeError(f"`audit(trace=...)` must be a Trace, as from `sample(...)`; got {brief(trace)}.")
    if trace.is_accepted.size == 0:
        raise ValueError("`audit(trace=...)` needs at least one draw; the trace is empty. Sample some.")
    num_rows = kernel.source.population.total
    if trace.num_rows != num_rows:
        raise ValueError(
            f"`audit(kernel, trace)`: the trace was made from {trace.num_rows:,} rows, and the kernel's source has "
            f"{num_rows:,}. Give the kernel that made the trace."
        )
    trace = in_coordinates_of("audit(trace=...)", kernel, trace)
    position = jax.tree.map(lambda leaf: jnp.asarray(leaf[0, 0]), trace.unconstrained)
    if not are_scalars(kernel.target, position):
        raise ValueError(
            "`audit(kernel, trace)`: the kernel's log prior and log likelihood do not take the positions of the trace, "
            f"of shapes {jax.tree.map(jnp.shape, position)}. Give the trace as `sample` returned it, and the kernel "
            "that made it."
        )
    kernel.proposal.check(position)
    if trace.kernel is not None and not _is_same(kernel.surrogate, trace.kernel.surrogate):
        raise ValueError(
            "`audit(kernel, trace)`: the draws were made with a different surrogate than the kernel's, as after "
            "`sample(recentre=...)`. Audit the kernel that made them: `audit(trace.kernel, trace)`."
        )
    return trace


def _is_same(surrogate: Any, other: Any) -> bool:
    """Whether two surrogates are of the same kind and made at the same reference."""
    leaves, others = jax.tree.leaves(surrogate), jax.tree.leaves(other)
    is_alike = type(surrogate) is type(other) and len(leaves) == len(others)
    return is_alike and all(np.array_equal(a, b) for a, b in zip(leaves, others, strict=True))


def exact_log_ratios(
    kernel: MetropolisHastings, pairs: Pairs, interrupt: threading.Event, *, progress: bool = False
) -> np.ndarray:
    """Delta of every pair from all rows."""
    offset = np.asarray(jax.vmap(kernel.offset)(*pairs), np.float64)
    rows = row_moments(kernel, pairs, interrupt, progress=progress)
    return offset + rows.exact + rows.mean


def _left_out(decisions: Decisions, reach: float) -> dict[str, Any]:
    is_finite, is_far = np.isfinite(decisions.log_ratio), np.abs(decisions.log_ratio) > reach
    is_zero = np.minimum(decisions.forward, decisions.backward) == 0
    return {
        "num_far": int(np.sum(is_finite & is_far)),
        "num_zero": int(np.sum(is_finite & ~is_far & is_zero)),
        "num_invalid": int(np.sum(~is_finite)),
    }


def _averages(decisions: Decisions) -> dict[str, Any]:
    near = decisions.is_near
    errors, noise = decisions.log_odds_error[near], decisions.log_odds_se[near]
    return {
        "log_odds": size_of(errors, noise),
        "log_odds_mean": mean_of(errors),
        "log_odds_worst": worst_of(errors, noise),
        "share_beyond_noise": float(np.mean(np.abs(errors) > Z * noise)) if near.any() else math.nan,
        "probability": _probability_size(decisions),
    }


def _probability_size(decisions: Decisions) -> Size | None:
    is_known = decisions.is_near & np.isfinite(decisions.probability_error)
    if not is_known.any():
        return None
    return size_of(decisions.probability_error[is_known], decisions.probability_se[is_known])


def _drifts(trace: Trace, basis: Basis, regression: Regression) -> tuple[Drift, ...]:
    """By parameter, with the names and the order of a summary."""
    flat, own = all_coordinates(trace.position, trace.names)
    found = {drift.name: drift for drift in drift_of(flat, basis, regression)}
    return tuple(found[name] for name in own if name in found)


def _cost(rows: int, exact: int, num_rows: int, seconds: float) -> Cost:
    return Cost(exact, rows, (exact + rows) / num_rows, seconds)
