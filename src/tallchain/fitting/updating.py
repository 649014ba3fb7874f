"""A fit goes on with rows that come later: a stream.

The new rows take the places of empty ones (`fit(room=...)`); the sums at the reference grow by theirs, and the chains
go on from where they are: the cost is that of the new rows, and of the draws. If the posterior has moved away from the
reference, or no room is left, all rows are prepared again, with room for some more; no program is compiled anew if
there is room. Rows come in any order and any number at a time; a stream that drifts is noticed (`drifting`).
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from tallchain.checking.joining import last_positions
from tallchain.checking.replicas import LEAST_DRAWS, predictive_check
from tallchain.checking.trace import Trace
from tallchain.fitting.advising import advice_of
from tallchain.fitting.arriving import CALL, Arrived, arrived, with_weights
from tallchain.fitting.drifting import FEWEST, Drift, score_p_value
from tallchain.fitting.gathering import Asked, facts_of
from tallchain.fitting.held import Held, Pending
from tallchain.fitting.roomy import SCORED, of_present, prepared_with_room, sample_of
from tallchain.fitting.running import Limits, run
from tallchain.growth import Grown, grown, terms_of
from tallchain.kernel import MetropolisHastings
from tallchain.keys import fold_in, make_key
from tallchain.models.regression import with_rows
from tallchain.prepared import Prepared
from tallchain.report import Advice
from tallchain.room import num_empty
from tallchain.sources.stored import Stored
from tallchain.surrogates import Influence
from tallchain.surrogates.influence import residual_scores
from tallchain.surrogates.settling import flat_of
from tallchain.types import Array, PyTree
from tallchain.validation import brief, check_switch, is_positive, is_whole

_FAR = 0.5  # from the reference to the posterior mean, in standard deviations, root mean square: then it moves
_SHARE, _TIMES = 0.5, 20.0  # of the noise of all rows, from the new ones; and over their share of the rows
_SCAN = 8  # proposals, as `fit` has it, where all rows are read anyway
_UPDATES = 2**30  # number of the key of the first update: not that of anything else of a fit


class DriftError(ValueError):
    """New rows are not like those before, and were refused."""


class _Ready(NamedTuple):
    """What to run."""

    prepared: Prepared
    kernel: MetropolisHastings
    rows_swept: int
    is_anew: bool
    """Whether all rows were prepared again."""
    scored: tuple[Advice, ...] | None
    """What there is to say of the noise that the new rows make; None if they were not scored."""


def updated(
    fit: Held,
    new: Any,
    *,
    missing: Literal["refuse", "drop"],
    num_draws: int | None,
    max_draws: int | None,
    max_seconds: float,
    drift: Literal["warn", "refuse"],
    room: float,
    scan: int,
    progress: bool,
) -> Held:
    """Return the fit with more rows; the arguments are those of `Fit.update`."""
    _check(fit, num_draws, max_draws, max_seconds, drift, room, scan, progress)
    began = time.perf_counter()
    rows = arrived(fit, new, missing)
    reading = time.perf_counter() - began
    key = fold_in(make_key(fit.facts.seed or 0), _UPDATES + fit.num_updates)
    found, pending = _compared(fit, rows, fold_in(fold_in(key, 0), 1))
    if drift == "refuse" and found.is_found:
        raise DriftError(f'`{CALL[:-1]}, drift="refuse")`: the rows were not added: {found.words}.')
    ready = _ready(fit, rows, fold_in(key, 0), room, progress=progress)
    scan = scan or (_SCAN if ready.is_anew else 0)
    preparing = time.perf_counter() - began - reading
    wanted = num_draws or int(fit.facts.convergence.asked_ess or 1)
    limits = Limits(int(wanted), int(max_draws or 100 * wanted), float(max_seconds))
    trace = fit.trace
    starts = last_positions(trace)
    ran = run(fold_in(key, 1), ready.kernel, starts, trace.num_chains, limits, scan=scan, progress=progress)
    num_rows = fit.facts.num_rows + rows.num_rows
    ran = ran._replace(trace=dataclasses.replace(ran.trace, num_rows=num_rows))
    prepared = dataclasses.replace(ready.prepared, seconds=preparing, rows_swept=ready.rows_swept)
    prepared = of_present(prepared, num_rows)
    model = fit.model
    if model is not None:
        assert isinstance(prepared.source, Stored)
        model = with_rows(model, sample_of(model, prepared.source))
    facts = facts_of(model, prepared, ran.trace, _asked(fit, rows, limits, reading))
    advice = [*advice_of(facts, ran, limits, model, prepared), *(ready.scored or ())]
    advice = [each for each in advice if each.code != "not-checked" or ready.scored is None]
    advice += [found.advice] if found.advice else []
    facts = dataclasses.replace(
        facts,
        advice=tuple(sorted(advice, key=lambda each: not each.is_grave)),
        findings=(*facts.findings, f"update {fit.num_updates + 1:<14}{found.words}"),
        predictive=found.predictive,
    )
    return Held(model, ran.trace, facts, fit.spec, prepared, fit.given, fit.num_updates + 1, pending)


def _check(
    fit: Held,
    num_draws: Any,
    max_draws: Any,
    max_seconds: Any,
    drift: Any,
    room: Any,
    scan: Any,
    progress: Any,
) -> None:
    call = CALL[:-1]
    if fit.prepared is None or not isinstance(fit.trace.kernel, MetropolisHastings):
        raise ValueError(f"`{CALL}`: a fit that was loaded has no rows. Update the fit before it is saved.")
    if not isinstance(fit.prepared.source, Stored):
        raise ValueError(
            f"`{CALL}` adds rows to rows in memory; those of this fit are in parts, in a packed table or on several "
            "devices. Pack all rows together, and fit them."
        )
    for name, value, least in (
        ("num_draws", 1 if num_draws is None else num_draws, 1),
        ("max_draws", 1 if max_draws is None else max_draws, 1),
        ("scan", scan, 0),
    ):
        if not is_whole(value, least):
            raise ValueError(f"`{call}, {name}=...)` must be a whole number, at least {least}; got {brief(value)}.")
    if not (is_positive(max_seconds) or max_seconds == math.inf):
        raise ValueError(f"`{call}, max_seconds=...)` must be a positive number; got {brief(max_seconds)}.")
    if drift not in ("warn", "refuse"):
        raise ValueError(f'`{call}, drift=...)` must be "warn" or "refuse"; got {brief(drift)}.')
    if not is_positive(room):
        raise ValueError(f"`{call}, room=...)` must be a positive share of the rows, such as 0.25; got {brief(room)}.")
    check_switch(CALL.removesuffix("(new_rows)"), "progress", progress)


# ---- with the new rows ---------------------------------------------------------------------------


def _ready(fit: Held, rows: Arrived, key: Array, room: float, *, progress: bool) -> _Ready:
    """Add the rows: in empty places, or by preparing all rows again."""
    prepared, kernel = fit.prepared, fit.trace.kernel
    assert prepared is not None
    assert isinstance(kernel, MetropolisHastings)
    assert isinstance(prepared.source, Stored)
    seed = int(np.asarray(jax.random.key_data(key)).ravel()[-1])
    found: Grown | None = None
    empty = num_empty(prepared.posterior, prepared.source)
    if rows.num_rows <= empty and _distance(prepared, _flat_draws(fit.trace)) <= _FAR:
        new = with_weights(prepared.posterior, rows.rows, prepared.source.data)
        found = grown(prepared, kernel, new, seed)
    if found is not None and found.distance <= _FAR:
        return _Ready(found.prepared, found.kernel, found.rows_swept, False, _of_scores(fit, found, rows))
    again, made = prepared_with_room(fit, rows, room, seed=fit.facts.seed or 0, progress=progress)
    return _Ready(again, made, again.rows_swept, True, None)


def _compared(fit: Held, rows: Arrived, key: Array) -> tuple[Drift, Pending | None]:
    """Compare the new rows, and those that wait for it, with the posterior before them; or have them wait."""
    prepared, new, count, trace = fit.prepared, rows.rows, rows.num_rows, fit.trace
    assert prepared is not None
    assert isinstance(prepared.source, Stored)
    if fit.pending is not None:
        new = jax.tree.map(lambda *parts: np.concatenate(parts), fit.pending.rows, new)
        count, trace = count + fit.pending.num_rows, fit.pending.trace
    if count < FEWEST:
        return Drift(count, None, None), Pending(new, count, dataclasses.replace(trace, kernel=None))
    predictive, p_value = None, None
    if fit.model is not None and trace.num_chains * trace.num_draws >= LEAST_DRAWS:
        predictive = predictive_check(with_rows(fit.model, new), trace, key)
    terms = terms_of(prepared, with_weights(prepared.posterior, new, prepared.source.data))
    if terms is not None:
        p_value = score_p_value(terms, _flat(prepared.reference.position), _flat_draws(trace))
    return Drift(count, p_value, predictive), None


def _flat_draws(trace: Trace) -> np.ndarray:
    """The draws as vectors of the sampler, (draw, d)."""
    positions = trace.unconstrained
    like = jax.tree.map(lambda leaf: np.asarray(leaf)[0, 0], positions)
    flat = flat_of(jax.tree.map(np.asarray, positions), like)
    return flat.reshape(-1, flat.shape[-1]).astype(np.float64)


def _flat(position: PyTree) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(position)])


def _distance(prepared: Prepared, draws: np.ndarray) -> float:
    """From the reference to the mean of the draws, in their standard deviations, root mean square."""
    away = draws.mean(0) - _flat(prepared.reference.position)
    spread = draws.std(0)
    return float(np.sqrt(np.mean((away / np.where(spread > 0, spread, 1)) ** 2)))


def _of_scores(fit: Held, found: Grown, rows: Arrived) -> tuple[Advice, ...] | None:
    """Say so if the new rows make most of the noise of decisions: no scan of all rows comes after them."""
    scored = found.prepared.scored
    if found.prepared.is_exact or not isinstance(scored, Influence) or scored.stored_scores is None:
        return None
    some = jax.tree.map(lambda leaf: leaf[:SCORED], last_positions(fit.trace))
    if len(jax.tree.leaves(some)[0]) < 4:
        return None
    new = residual_scores(found.prepared.posterior, found.new, found.kernel.surrogate, some)[: rows.num_rows]
    noise = float(np.sum(new.astype(np.float64) ** 2))
    before = float(np.sum(scored.stored_scores.astype(np.float64) ** 2))
    share, of_rows = noise / max(noise + before, 1e-300), rows.num_rows / (rows.num_rows + fit.facts.num_rows)
    if share <= max(_SHARE, _TIMES * of_rows):
        return ()
    return (
        Advice(
            "new-rows-carry",
            f"The new rows, {of_rows:.2%} of all, make {share:.0%} of the noise of the decisions: some of them have "
            "extreme values, and decisions hardly ever see them.",
            "Look for extreme values among them; `fit.update(..., scan=8)` reads all rows, and `fit.audit()` measures "
            "what it does to the draws.",
            is_grave=True,
        ),
    )


def _asked(fit: Held, rows: Arrived, limits: Limits, reading: float) -> Asked:
    facts = fit.facts
    call, number = (facts.call or "fit").partition(".update(...)")[0], fit.num_updates + 1
    missing = {name: facts.dropped.get(name, 0) + rows.missing.get(name, 0) for name in facts.dropped | rows.missing}
    return Asked(
        num_draws=limits.num_draws,
        seed=facts.seed or 0,
        formula=facts.formula,
        outcome=facts.outcome,
        outcome_levels=fit.spec.outcome_levels if fit.spec else (),
        call=f"{call}.update(...)" + (f", {number} updates in all" if number > 1 else ""),
        checksum=rows.checksum,
        num_dropped=facts.num_dropped + rows.num_dropped,
        dropped=missing,
        words=facts.coding,
        reading_seconds=reading,
        rows_taken=rows.num_rows,
    )
