"""Audits: known errors are found and measured, sound tests pass, and intervals cover."""

from __future__ import annotations

import math
import re
import signal
import threading
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from scipy.special import expit

import tallchain as tc
from audits import (
    DATA,
    MEAN,
    NUM_ROWS,
    PRECISION,
    STEP,
    TEMPERATURE,
    Blurred,
    Scaled,
    log_ratio,
    normal_kernel,
    scaled_audit,
    trace_of,
)
from conftest import SEED
from registry import ACCEPTANCE, FEW_ROWS, READS_ALL, SOUND, SOURCES
from scenarios import BATCH_SIZE, SCENARIOS, Redrawn
from tallchain.checking import Audit, auditing, scan, trials
from tallchain.parts import replace

# ---- what is measured --------------------------------------------------------------------------


def test_delta_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against NumPy in float64: 19 windows, the last of them not full; two blocks of pairs."""
    num_rows = 150_001
    data = np.resize(DATA, num_rows) + np.linspace(0, 0.1, num_rows, dtype=np.float32)
    kernel = normal_kernel(tc.Barker(), data)
    pairs = scan.make_pairs(kernel, trace_of().position, 9, jr.key(0))
    monkeypatch.setattr(scan, "_PAIRS", 5)
    found = auditing.exact_log_ratios(kernel, pairs, threading.Event())
    here, there = (np.asarray(t, np.float64) for t in (pairs.here, pairs.there))
    rows = np.mean((data.astype(np.float64) - here[:, None]) ** 2 - (data - there[:, None]) ** 2, axis=1) / 2
    expected = rows * NUM_ROWS / TEMPERATURE - (there**2 - here**2) / 8
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_decisions_are_those_of_the_chain() -> None:
    trace = trace_of()
    pairs = scan.make_pairs(normal_kernel(tc.Barker()), trace.position, 5000, jr.key(SEED))
    assert len(np.unique(pairs.here)) > 4990  # none twice, but for float32
    assert np.isin(pairs.here, trace.position).all()
    steps = np.asarray(pairs.there - pairs.here, np.float64) / STEP
    assert abs(steps.mean()) < 4.5 / math.sqrt(5000)
    assert abs(steps.var() - 1) < 4.5 * math.sqrt(2 / 5000)


def test_known_errors_are_measured(broken: Audit) -> None:
    decisions, near = broken.decisions, broken.decisions.is_near
    truth = 0.1 * decisions.log_ratio
    z = ((decisions.log_odds_error - truth) / decisions.log_odds_se)[near]
    assert 0.8 < z.std() < 1.2
    assert np.abs(z).max() < 4.5
    z = (decisions.probability_error - expit(1.1 * decisions.log_ratio) + expit(decisions.log_ratio))[near]
    assert np.abs(z / decisions.probability_se[near]).max() < 4.5
    np.testing.assert_allclose(broken.log_odds.value, np.abs(truth[near]).mean(), rtol=0.12)
    assert broken.log_odds.value < broken.log_odds.with_noise
    assert broken.log_odds.low < np.abs(truth[near]).mean() < broken.log_odds.high
    assert broken.log_odds.upper > np.abs(truth[near]).mean()
    assert broken.log_odds_worst.low < truth[near][np.argmax(np.abs(decisions.log_odds_error[near]))]
    assert near.sum() + broken.num_far + broken.num_zero + broken.num_invalid == broken.num_decisions
    assert broken.share_beyond_noise > 0.2


def test_known_drift_is_estimated(broken: Audit) -> None:
    """The posterior to the power 1.1 has its variance divided by 1.1."""
    (found,) = broken.drift
    assert found.name == "position"
    assert found.variance.low < 1 / 1.1 - 1 < found.variance.high
    assert found.variance.high - found.variance.low < 0.03
    assert found.mean.low < 0.01
    assert found.mean.high > -0.01


def test_cost_counts_rows_and_passes(broken: Audit) -> None:
    assert broken.cost.rows_exact == 200 * NUM_ROWS
    assert broken.cost.rows_trials == 2 * 200 * 200 * NUM_ROWS
    assert broken.cost.passes == 200 + 2 * 200 * 200


def test_same_seed_same_audit_other_seed_other(broken: Audit) -> None:
    again, other = scaled_audit(1.1), scaled_audit(1.1, seed=1)
    np.testing.assert_array_equal(again.decisions.forward, broken.decisions.forward)
    assert not np.array_equal(other.decisions.forward, broken.decisions.forward)


@pytest.mark.slow
def test_trials_of_a_pair_do_not_depend_on_the_lanes(monkeypatch: pytest.MonkeyPatch, broken: Audit) -> None:
    """With other numbers of lanes other random numbers are used, for the same pairs."""
    monkeypatch.setattr(trials, "_LANES", {})
    monkeypatch.setattr(trials, "_LANES_ELSEWHERE", 1)
    one_lane_each = scaled_audit(1.1)
    for name in ("forward", "backward"):
        one, other = (getattr(audit.decisions, name) for audit in (one_lane_each, broken))
        noise = np.hypot(broken.decisions.forward_se, broken.decisions.backward_se)
        assert np.abs((one - other) / noise).max() < 6


def test_counts_where_a_test_does_not_say_its_chance() -> None:
    audit = scaled_audit(1.1, test=Scaled, num_trials=400)
    assert not audit.is_integrated
    assert audit.probability is None
    assert audit.bound is None
    assert audit.max_log_ratio == pytest.approx(math.log(40))
    decisions, near = audit.decisions, audit.decisions.is_near
    assert set(np.round(decisions.forward * 400, 3) % 1) == {0.0}
    z = ((decisions.log_odds_error - 0.1 * decisions.log_ratio) / decisions.log_odds_se)[near]
    assert 0.75 < z.std() < 1.25
    assert audit.drift[0].variance.low < 1 / 1.1 - 1 < audit.drift[0].variance.high


# ---- verdicts ----------------------------------------------------------------------------------


def test_a_sound_test_passes(sound: Audit) -> None:
    assert sound.is_sound
    assert sound.verdict.startswith("NO ERROR FOUND: the log-odds are off by at most 0.0")
    assert sound.log_odds.low == 0
    assert sound.log_odds_mean.low < 0 < sound.log_odds_mean.high


def test_the_wrong_temperature_is_found(broken: Audit) -> None:
    assert not broken.is_sound
    assert broken.is_error_found
    assert broken.is_drift_found
    assert re.match(
        r"ERROR FOUND: .* off by 0\.\d+ .*\(p < 1e-9, .*\nDRIFT FOUND: .* off by 0\.(08|09)", broken.verdict
    )


def test_an_error_within_the_tolerance_is_none() -> None:
    audit = scaled_audit(1.1, tolerance=0.5, drift_tolerance=0.5)
    assert audit.is_sound
    assert audit.verdict.startswith("NO ERROR BEYOND THE TOLERANCE: there is one")


ROWS = 4000
NORMAL = np.random.default_rng(2).normal(0.3, 1.0, ROWS).astype(np.float32)
SKEWED = np.random.default_rng(2).exponential(1.0, ROWS).astype(np.float32) - 0.7


def minibatch_audit(data: np.ndarray, *, drop_correction: bool = False) -> Audit:
    """The paper's stopping rule, which reads a few times 20 rows here; data and tables are arguments of one program."""
    test = tc.MinibatchBarker(stopping="growth", skew=False)
    if drop_correction:
        test = replace(test, tables=replace(test.tables, atoms=jnp.zeros_like(test.tables.atoms)))
    mean = np.mean(data, dtype=np.float64) * NUM_ROWS / TEMPERATURE / PRECISION
    trace = trace_of(num_rows=ROWS)
    trace = trace_of(num_rows=ROWS, position=(trace.position + mean - MEAN).astype(np.float32))
    kernel = normal_kernel(test, data)
    return tc.audit(kernel, trace, num_trials=400, progress=False, seed=SEED)


def test_the_minibatch_test_passes_on_normal_rows() -> None:
    audit = minibatch_audit(NORMAL)
    assert audit.is_integrated
    assert audit.is_sound, str(audit)
    assert audit.log_odds.upper < 0.05


def test_a_dropped_correction_is_found() -> None:
    assert minibatch_audit(NORMAL, drop_correction=True).is_error_found


def test_growing_batches_of_skewed_rows_are_found() -> None:
    audit = minibatch_audit(SKEWED)
    assert audit.is_error_found
    assert audit.log_odds.low > 0.02


def test_noise_redrawn_at_each_look_is_found() -> None:
    audit = tc.audit(normal_kernel(Redrawn(), NORMAL), trace_of(num_rows=ROWS), num_trials=200, progress=False)
    assert audit.is_error_found


def test_a_test_on_all_rows_takes_two_trials_and_has_no_error() -> None:
    audit = tc.audit(normal_kernel(tc.Barker()), trace_of(), progress=False)
    assert audit.num_trials == 2
    assert audit.is_sound
    assert audit.log_odds.upper < 1e-4
    assert audit.largest_drift < 1e-3
    assert audit.bound is not None
    assert audit.bound.value < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("acceptance", ACCEPTANCE)
def test_every_acceptance_test(acceptance: str) -> None:
    """Sound ones pass on rows that suit them all; those that are wrong on any rows are found."""
    target = SCENARIOS["normal mean"](FEW_ROWS if acceptance in READS_ALL else 20_000)
    source = SOURCES["row by row"](target.data, BATCH_SIZE)
    test = ACCEPTANCE[acceptance]()
    kernel = tc.MetropolisHastings(target.posterior, source, proposal=target.proposal, acceptance=test)
    starts = target.starts(np.random.default_rng(SEED), 300)
    trace = tc.sample(jr.key(SEED), kernel, starts, 60, num_chains=300, scan=0, progress=False)
    audit = tc.audit(kernel, trace, num_trials=256 if acceptance in READS_ALL else None, progress=False)
    assert audit.is_sound == (acceptance in SOUND), str(audit)


@pytest.mark.slow
@pytest.mark.parametrize(("test", "factor", "audits"), [(Blurred, 1.15, 300), (Scaled, 1.15, 100), (Scaled, 1.0, 100)])
def test_intervals_cover(test: type, factor: float, audits: int) -> None:
    """95 per cent intervals hold the truth in 90 to 99 per cent of audits; a test without error is hardly accused."""
    random = np.random.default_rng(SEED)
    here = random.normal(MEAN, (factor * PRECISION) ** -0.5, 2_000_000)
    delta = log_ratio(here, here + STEP * random.standard_normal(here.size))
    covered: dict[str, list[bool]] = {}

    def note(name: str, interval: Any, truth: float) -> None:
        covered.setdefault(name, []).append(interval.low <= truth <= interval.high)

    for seed in range(audits):
        audit = scaled_audit(factor, test=test, seed=seed, num_trials=400)
        truth = (factor - 1) * delta[np.abs(delta) <= audit.max_log_ratio]
        note("mean", audit.log_odds_mean, truth.mean())
        note("mean absolute", audit.log_odds, np.abs(truth).mean())
        note("drift of the mean", audit.drift[0].mean, 0.0)
        note("drift of the variance", audit.drift[0].variance, 1 / factor - 1)
        covered.setdefault("upper limit", []).append(audit.log_odds.upper >= np.abs(truth).mean())
        covered.setdefault("sound", []).append(audit.is_sound)
    shares = {name: float(np.mean(values)) for name, values in covered.items()}
    assert shares.pop("upper limit") >= 0.95
    assert shares.pop("sound") >= 0.98 if factor == 1 else shares.pop("sound") <= 0.02
    least, most = (0.9, 0.99) if audits == 300 else (0.87, 1.0)  # two standard errors of a share are 0.025, and 0.044
    assert all(least <= share <= most for share in shares.values()), shares


# ---- interruption ------------------------------------------------------------------------------


def test_interrupt_keeps_the_trials_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during the trials: those that every lane has finished are averaged."""
    run_chunk, calls = trials.runner.execute, []

    def run_then_interrupt(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)
        return run_chunk(*arguments, **options | {"turns": jnp.int32(10)})

    monkeypatch.setattr(trials.runner, "execute", run_then_interrupt)
    audit = scaled_audit(1.1)
    assert audit.is_interrupted
    assert 2 <= audit.num_trials < 200
    assert "INTERRUPTED" in str(audit)


def test_interrupt_after_the_trials_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "regress", _interrupted(auditing.regress))
    audit = scaled_audit(1.1, num_decisions=4, num_trials=8)
    assert audit.num_trials == 8
    assert not audit.is_interrupted


def test_interrupt_of_the_scan_ends_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_begin", _interrupted(scan._begin))
    with pytest.raises(KeyboardInterrupt, match="before all rows were read"):
        scaled_audit(1.1)


def _interrupted(function: Any) -> Any:
    def call(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return function(*arguments)

    return call


# ---- refusals ----------------------------------------------------------------------------------


class Case(NamedTuple):
    error: type[Exception]
    message: str
    kernel: Any = normal_kernel(tc.Barker())
    trace: Any = trace_of(shape=(2, 5))
    options: dict[str, Any] = {}  # noqa: RUF012 (read only)


REFUSALS = {
    "no kernel": Case(TypeError, "`audit(kernel=...)` must be a MetropolisHastings(...); got 3.", kernel=3),
    "no trace": Case(TypeError, "`audit(trace=...)` must be a Trace, as from `sample(...)`; got 3.", trace=3),
    "empty trace": Case(ValueError, "needs at least one draw; the trace is empty", trace=trace_of(shape=(2, 0))),
    "other rows": Case(
        ValueError, "the trace was made from 99 rows, and the kernel's source has 40", trace=trace_of(num_rows=99)
    ),
    "other positions": Case(
        ValueError,
        "do not take the positions of the trace, of shapes {'a': (), 'b': ()}. Give the trace as `sample` returned it",
        trace=trace_of(shape=(2, 5), position={"a": np.zeros((2, 5)), "b": np.zeros((2, 5))}),
    ),
    "progress": Case(TypeError, "`audit(progress=...)` must be True or False; got 'no'.", options={"progress": "no"}),
    "vectors": Case(ValueError, "of shapes (3,)", trace=trace_of(shape=(2, 5), position=np.zeros((2, 5, 3)))),
} | {
    f"{name}={value!r}": Case(
        ValueError, f"`audit({name}=...)` must be a {what}; got {value!r}.", options={name: value}
    )
    for name, value, what in (
        ("num_decisions", 1, "whole number, at least 2"),
        ("num_decisions", 2.5, "whole number, at least 2"),
        ("num_decisions", True, "whole number, at least 2"),
        ("num_trials", 1, "whole number, at least 2"),
        ("num_trials", "many", "whole number, at least 2"),
        ("seed", -1, "whole number, at least 0"),
        ("max_log_ratio", 0, "positive number"),
        ("max_log_ratio", math.nan, "positive number"),
        ("tolerance", -0.1, "positive number"),
        ("drift_tolerance", None, "positive number"),
    )
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refuses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = REFUSALS[name]

    def make_pairs(*arguments: Any) -> None:
        raise AssertionError("the audit was begun")

    monkeypatch.setattr(auditing, "make_pairs", make_pairs)
    with pytest.raises(case.error, match=re.escape(case.message)):
        tc.audit(case.kernel, case.trace, **case.options)
