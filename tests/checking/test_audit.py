"""Audits: known errors are found and measured, sound tests pass, and intervals cover."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import signal
import threading
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from scipy.special import expit
from typer.testing import CliRunner

import tallchain as tc
from conftest import SEED
from registry import ACCEPTANCE, FEW_ROWS, READS_ALL, SOUND, SOURCES
from scenarios import BATCH_SIZE, SCENARIOS, Redrawn
from tallchain import checking, cli
from tallchain.acceptance.evidence import Moments
from tallchain.checking import Audit, Drift, Estimate, auditing, drift, errors, scan, trials
from tallchain.parts import part, replace
from tallchain.pictures.audit import audit_figure
from tallchain.types import Array, Ask, Judgement, Population

# ---- a target and tests with known errors ------------------------------------------------------

NUM_ROWS, TEMPERATURE, STEP = 40, 4.0, 0.6
DATA = np.random.default_rng(1).normal(0.3, 1.0, NUM_ROWS).astype(np.float32)
PRECISION = 1 / 4 + NUM_ROWS / TEMPERATURE
MEAN = DATA.mean(dtype=np.float64) * NUM_ROWS / TEMPERATURE / PRECISION


def log_prior(t: Array) -> Array:
    return -(t**2) / 8


def log_likelihood(t: Array, x: Array) -> Array:
    return -((x - t) ** 2) / 2


def log_ratio(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Delta in closed form."""
    return -PRECISION / 2 * ((there - MEAN) ** 2 - (here - MEAN) ** 2)


class _Memory(NamedTuple):
    logistic: Array
    blur: Array


@part
class Scaled:
    """Barker's test at another temperature: accepts with probability 1/(1 + exp(-factor Delta)).

    So eta = (factor - 1) Delta, and the chain has the posterior to the power `factor`.
    """

    factor: Array

    def appetite(self, population: Population) -> int:
        return population.num_rows

    def draw(self, key: Array) -> tuple[Array, Array]:
        return jr.logistic(jr.fold_in(key, 0)), jr.uniform(jr.fold_in(key, 1), minval=-0.9, maxval=0.9)

    def open(self, noise: Any, bound: Any, population: Population) -> tuple[_Memory, Moments, Ask]:
        return _Memory(*noise), Moments.empty(), Ask(population.num_rows)

    def judge(self, memory: _Memory, offset: Array, evidence: Moments, population: Population) -> Judgement:
        return Judgement(memory, Ask(0), True, self.factor * (evidence.mean + offset) + memory.logistic > 0)


@part
class Blurred(Scaled):
    """The same; says its chance to accept, give or take some noise that is 0 on average."""

    def chance(self, memory: _Memory, offset: Array, evidence: Moments, population: Population) -> Array:
        chance = jax.nn.sigmoid(self.factor * (evidence.mean + offset))
        return chance + memory.blur * jnp.minimum(chance, 1 - chance)

    def exact_chance(self, log_ratio: Array) -> Array:
        return jax.nn.sigmoid(log_ratio)


def kernel_of(acceptance: Any, data: Any = DATA) -> tc.MetropolisHastings:
    posterior = tc.Posterior(log_prior, log_likelihood, TEMPERATURE * len(data) / NUM_ROWS)
    return tc.MetropolisHastings(posterior, tc.Shuffled(data, 20), proposal=tc.RandomWalk(STEP), acceptance=acceptance)


def trace_of(
    factor: float = 1.0, seed: int = 0, shape: tuple[int, int] = (50, 400), num_rows: int = NUM_ROWS, **fields
):
    """Independent draws from the posterior to the power `factor`, which is where a `Scaled` chain is stationary."""
    position = np.random.default_rng(seed).normal(MEAN, (factor * PRECISION) ** -0.5, shape).astype(np.float32)
    zeros = np.zeros(shape)
    no = zeros > 0
    values = {"position": position, "num_rows": num_rows} | fields
    return tc.Trace(
        is_accepted=no,
        rows_read=np.full(shape, num_rows),
        rows_scanned=no * 0,
        log_ratio=zeros,
        is_invalid=no,
        **values,
    )


def scaled_audit(factor: float, *, test: type = Blurred, seed: int = 0, **options: Any) -> Audit:
    options = {"num_decisions": 200, "num_trials": 200} | options
    kernel = kernel_of(test(jnp.float32(factor)))
    return tc.audit(kernel, trace_of(factor, seed), seed=seed, progress=False, **options)


@pytest.fixture(scope="module")
def sound() -> Audit:
    return scaled_audit(1.0)


@pytest.fixture(scope="module")
def broken() -> Audit:
    """The wrong temperature inside the test."""
    return scaled_audit(1.1)


# ---- what is measured --------------------------------------------------------------------------


def test_delta_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against NumPy in float64: 19 windows, the last of them not full; two blocks of pairs."""
    num_rows = 150_001
    data = np.resize(DATA, num_rows) + np.linspace(0, 0.1, num_rows, dtype=np.float32)
    kernel = kernel_of(tc.Barker(), data)
    pairs = scan.make_pairs(kernel, trace_of().position, 9, jr.key(0))
    monkeypatch.setattr(scan, "_PAIRS", 5)
    found = auditing.exact_log_ratios(kernel, pairs, threading.Event())
    here, there = (np.asarray(t, np.float64) for t in (pairs.here, pairs.there))
    rows = np.mean((data.astype(np.float64) - here[:, None]) ** 2 - (data - there[:, None]) ** 2, axis=1) / 2
    expected = rows * NUM_ROWS / TEMPERATURE - (there**2 - here**2) / 8
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_decisions_are_those_of_the_chain() -> None:
    trace = trace_of()
    pairs = scan.make_pairs(kernel_of(tc.Barker()), trace.position, 5000, jr.key(SEED))
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
    kernel = kernel_of(test, data)
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
    audit = tc.audit(kernel_of(Redrawn(), NORMAL), trace_of(num_rows=ROWS), num_trials=200, progress=False)
    assert audit.is_error_found


def test_a_test_on_all_rows_takes_two_trials_and_has_no_error() -> None:
    audit = tc.audit(kernel_of(tc.Barker()), trace_of(), progress=False)
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


# ---- theory, by enumeration --------------------------------------------------------------------

STATES = np.linspace(-4, 4, 81)
TWO_HUMPS = np.logaddexp(-((STATES - 1.2) ** 2), -((STATES + 1.0) ** 2) / 0.8)
LAW = np.exp(TWO_HUMPS) / np.exp(TWO_HUMPS).sum()
FROM, TO = (index.ravel() for index in np.meshgrid(np.arange(81), np.arange(81), indexing="ij"))
IS_STEP = (np.abs(FROM - TO) <= 8) & (FROM != TO)
FROM, TO = FROM[IS_STEP], TO[IS_STEP]
DELTA = TWO_HUMPS[TO] - TWO_HUMPS[FROM]
PERTURBATIONS = {
    "a temperature": 0.1 * DELTA,
    "a force": 0.1 * (STATES[TO] - STATES[FROM]),
    "no gradient": 0.1
    * (np.sin(2 * STATES[FROM]) * np.sin(STATES[TO]) - np.sin(2 * STATES[TO]) * np.sin(STATES[FROM])),
    "odd in Delta": 0.1 * DELTA**3 / (1 + DELTA**2),
}


def stationary(chance: np.ndarray) -> np.ndarray:
    matrix = np.zeros((81, 81))
    matrix[FROM, TO] = chance / 16
    np.fill_diagonal(matrix, 1 - matrix.sum(1))
    law = np.linalg.lstsq(np.vstack([matrix.T - np.eye(81), np.ones(81)]), np.eye(82)[-1], rcond=None)[0]
    return law / law.sum()


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_drift_is_that_of_an_enumerated_chain(name: str) -> None:
    """All pairs of states as decisions, weighted by how often they occur, against the perturbed stationary law."""
    forward, backward = expit(DELTA + PERTURBATIONS[name]), expit(-DELTA - PERTURBATIONS[name])
    law = stationary(forward)
    mean = law @ STATES
    sd = math.sqrt(law @ (STATES - mean) ** 2)
    z = (STATES - mean) / sd
    exact_mean = LAW @ STATES
    exact_variance = LAW @ (STATES - exact_mean) ** 2
    size = (forward + np.exp(DELTA) * backward) / 2
    flow = drift.Flow(forward - np.exp(DELTA) * backward, size * 0.01, size, law[FROM], np.ones(len(FROM), bool))
    features = np.stack([z**power for power in range(1, 5)], 1)  # the law is not normal: quadratics are not enough
    regression = drift.regress(flow, features[TO] - features[FROM])
    found = [(law * f) @ (features - law @ features) @ regression.coefficients for f in (z, z**2)]
    truth = [(mean - exact_mean) / sd, sd**2 / exact_variance - 1]
    assert max(map(abs, truth)) > 0.02  # there is something to find
    np.testing.assert_allclose(found, truth, atol=0.022)  # second order: 0.2^2/2


def test_regression_does_without_one_of_two_equal_features() -> None:
    """Two states: the square of the position is a linear function of it."""
    random = np.random.default_rng(0)
    net, step = random.normal(0.1, 0.01, 50), random.choice([-1.0, 1.0], 50)
    flow = drift.Flow(net * step, np.full(50, 0.01), np.full(50, 0.5), np.ones(50), np.ones(50, bool))
    one, two = drift.regress(flow, step[:, None]), drift.regress(flow, np.stack([step, 2 * step], 1))
    assert two.coefficients @ [1, 2] == pytest.approx(one.coefficients[0])
    assert np.array([1, 2]) @ two.covariance @ [1, 2] == pytest.approx(one.covariance[0, 0])
    assert two.p_value == pytest.approx(one.p_value)
    assert two.freedom == one.freedom == 49


@pytest.mark.parametrize(
    ("dimension", "decisions", "features", "name"),
    [
        (2, 100, 5, "linear and quadratic functions"),
        (5, 100, 20, "linear and quadratic functions"),
        (6, 100, 12, "linear functions and squares"),
        (11, 100, 11, "linear functions"),
        (21, 100, 0, "no functions"),
    ],
)
def test_features_are_as_many_as_the_decisions_can_bear(
    dimension: int, decisions: int, features: int, name: str
) -> None:
    position = np.random.default_rng(0).normal(size=(2, 50, dimension))
    basis = drift.Basis.of(trace_of(shape=(2, 50), position=position), decisions)
    assert basis.name == name
    assert len(basis.factors) == features
    assert basis.covariances.shape == (20, 2 * dimension, features)
    regression = drift.Regression(np.ones(features), np.eye(features), 9.0, 1.0)
    drifts = drift.drift_of([str(i) for i in range(dimension)], basis, regression)
    assert len(drifts) == (dimension if features else 0)
    assert all(math.isnan(d.variance.value) == (name == "linear functions") for d in drifts)


def test_no_drift_of_a_parameter_that_never_moved() -> None:
    position = np.stack([np.random.default_rng(0).normal(size=(2, 50)), np.ones((2, 50))], -1)
    basis = drift.Basis.of(trace_of(shape=(2, 50), position=position), 100)
    moving, still = drift.drift_of(["a", "b"], basis, drift.Regression(np.ones(5), np.eye(5), 9.0, 1.0))
    assert math.isfinite(moving.mean.value)
    assert math.isnan(still.mean.value)


@pytest.mark.parametrize("coefficient", [0.0, 0.9, -0.4])
def test_autocorrelation_time_of_an_autoregression(coefficient: float) -> None:
    random = np.random.default_rng(SEED)
    draws = random.normal(size=(64, 4000)) * math.sqrt(1 - coefficient**2)
    draws[:, 0] = random.normal(size=64)
    for i in range(1, draws.shape[1]):
        draws[:, i] += coefficient * draws[:, i - 1]
    truth = (1 + coefficient) / (1 - coefficient)
    assert drift.autocorrelation_time(draws) == pytest.approx(truth, rel=0.05)


def test_autocorrelation_time_of_chains_that_did_not_mix() -> None:
    apart = np.random.default_rng(0).normal(size=(4, 100)) + np.arange(4)[:, None] * 10
    assert drift.autocorrelation_time(apart) == math.inf
    assert drift.autocorrelation_time(np.ones((4, 100))) == math.inf


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.2])
def test_mean_size_is_without_the_noise(spread: float) -> None:
    """On average over repetitions, for normal errors; the upper limit is above the truth in 95 per cent of them."""
    random = np.random.default_rng(SEED)
    truth = spread * math.sqrt(2 / math.pi)
    sizes = []
    for _ in range(100):
        noise = random.uniform(0.02, 0.1, 100)
        sizes.append(errors.size_of(random.normal(0, spread, 100) + noise * random.standard_normal(100), noise))
    values = np.array([size.value for size in sizes])
    assert abs(values.mean() - truth) < 0.012 if spread == 0 else abs(values.mean() / truth - 1) < 0.12
    assert np.mean([size.with_noise for size in sizes]) > truth + 0.004
    assert np.mean([size.upper >= truth for size in sizes]) >= 0.95
    assert np.mean([size.low <= truth <= size.high for size in sizes]) > 0.88


def simulated_p_values(random: np.random.Generator, count: int, num_trials: int) -> tuple[float, float]:
    """The two p-values of an audit of a test without error, by counts."""
    here = random.normal(0, PRECISION**-0.5, count)
    there = here + STEP * random.standard_normal(count)
    delta = -PRECISION / 2 * (there**2 - here**2)
    share = random.binomial(num_trials, np.concatenate([expit(delta), expit(-delta)])) / num_trials
    reach = errors.reach_of(4.0, num_trials, is_integrated=False)
    outcomes = errors.Outcomes(share, np.sqrt(share * (1 - share) / num_trials), num_trials)
    decisions = errors.decisions_of(kernel_of(Scaled(1.0)), delta, outcomes, reach)
    flow = drift.flow_of(decisions, num_trials, reach, is_integrated=False)
    steps = np.stack([there - here, there**2 - here**2], 1)
    return drift.error_p_value(flow), drift.regress(flow, steps).p_value


@pytest.mark.parametrize("num_trials", [32, 2000])
def test_false_alarms_are_as_rare_as_promised(num_trials: int) -> None:
    random = np.random.default_rng(SEED)
    p_values = np.array([simulated_p_values(random, 100, num_trials) for _ in range(400)])
    for level in (0.05, 0.005):
        assert (np.mean(p_values < level, axis=0) < level + 4.5 * math.sqrt(level / 400)).all()


def test_two_steps_down_stand_for_one_up() -> None:
    """Beyond the reach only steps down count, twice; what is not finite does not count at all."""
    delta = np.array([-9.0, -1.0, 1.0, 9.0, -np.inf, np.nan])
    chance = np.concatenate([expit(delta), expit(-delta)])
    outcomes = errors.Outcomes(np.nan_to_num(chance), np.full(12, 1e-3), 1000)
    decisions = errors.decisions_of(kernel_of(Blurred(1.0)), delta, outcomes, 4.0)
    flow = drift.flow_of(decisions, 1000, 4.0, is_integrated=True)
    np.testing.assert_array_equal(flow.weight, [2, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(decisions.is_near, [False, True, True, False, False, False])
    np.testing.assert_allclose(flow.net[:3], 0, atol=1e-12)


def test_a_decision_never_accepted_one_way_is_left_out_and_counted() -> None:
    outcomes = errors.Outcomes(np.array([0.5, 0.0, 0.6, 0.5, 0.3, 0.4]), np.full(6, 0.01), 100)
    decisions = errors.decisions_of(kernel_of(Scaled(1.0)), np.array([0.0, -3.0, 0.4]), outcomes, 4.0)
    np.testing.assert_array_equal(decisions.is_near, [True, False, True])
    assert math.isnan(decisions.log_odds_error[1])


# ---- reports -----------------------------------------------------------------------------------


def test_report(broken: Audit) -> None:
    report = str(broken)
    for line in (
        r"Audit of Blurred\(\), N = 40 rows",
        r"temperature          4   tempered: NOT the posterior",
        r"draws                the means are off by at most 0\.0\d+ sd, the sds by at most \d\.\d %",
        "to first order, among linear and quadratic functions of the position",
        r"position +[+-]0\.\d{4} \([+-]0\.\d{4} to [+-]0\.\d{4}\) +-\d\.\d\d \(-\d\.\d\d to -\d\.\d\d\)",
        r"decisions            200, each repeated 200 times each way, with its noise integrated out",
        r"log-odds           off by 0\.\d{4} on average, at most 0\.\d{4} \(95 %\); the worst by [+-]0\.\d{4} \(",
        r"probabilities      off by 0\.\d{4} on average, at most 0\.\d{4}",
        r"beyond their noise \d+ % of these errors; 5 % by chance alone",
        r"cost                 80,200 passes over all rows in \d+\.\d s: 8,000 rows for exact log ratios, 3,200,000 by",
        r"worst case           total variation at most 0\.\d+",
        "ERROR FOUND",
    ):
        assert re.search(line, report), line


def test_a_bound_that_says_nothing_is_left_out(broken: Audit) -> None:
    bound = dataclasses.replace(broken.bound, value=1.2)
    assert "total variation" not in str(dataclasses.replace(broken, bound=bound))


def test_drift_of_a_standard_deviation_in_per_cent() -> None:
    unknown = Estimate(math.nan, math.nan, math.nan)
    found = Drift("a", unknown, Estimate(-0.19, -0.36, 0.21)).sd
    assert (found.value, found.low, found.high) == pytest.approx((-10, -20, 10))
    assert math.isnan(Drift("a", unknown, unknown).sd.value)


def test_numbers_are_json(broken: Audit) -> None:
    numbers = json.loads(json.dumps(broken.to_json(), allow_nan=False))
    assert numbers["is_sound"] is False
    assert numbers["log_odds"]["value"] == broken.log_odds.value
    assert len(numbers["decisions"]["log_ratio"]) == 200
    assert numbers["drift"][0]["name"] == "position"
    assert numbers["verdict"] == broken.verdict


def test_nothing_within_reach_is_said() -> None:
    audit = scaled_audit(1.0, max_log_ratio=1e-9)
    assert not audit.is_sound
    assert "NOTHING AUDITED" in str(audit)
    json.dumps(audit.to_json(), allow_nan=False)


def test_picture(broken: Audit, tmp_path: Path) -> None:
    audit_figure(broken).savefig(tmp_path / "audit.png")
    assert (tmp_path / "audit.png").stat().st_size > 20_000
    without = dataclasses.replace(broken, drift=())
    audit_figure(without).savefig(tmp_path / "without.svg")
    assert "too few decisions" in (tmp_path / "without.svg").read_text()


def test_diagnostics_offer_it() -> None:
    assert checking.audit is tc.audit


# ---- interruption ------------------------------------------------------------------------------


def test_interrupt_keeps_the_trials_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during the trials: those that every lane has finished are averaged."""
    run_chunk, calls = trials.lockstep.execute, []

    def run_then_interrupt(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)
        return run_chunk(*arguments, **options | {"turns": jnp.int32(10)})

    monkeypatch.setattr(trials.lockstep, "execute", run_then_interrupt)
    audit = scaled_audit(1.1)
    assert audit.is_interrupted
    assert 2 <= audit.num_trials < 200
    assert "INTERRUPTED" in str(audit)


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
    kernel: Any = kernel_of(tc.Barker())
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


# ---- the command -------------------------------------------------------------------------------


def call(*arguments: object) -> Any:
    return CliRunner().invoke(cli.build_app(), ["audit", *map(str, arguments)])


def words(output: str) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    return " ".join(re.sub("[│╭╮╰╯─]", " ", plain).split())


def test_help_explains_every_option() -> None:
    help_text = words(call("--help").output)
    for name in cli.audit.__annotations__.keys() - {"return"}:
        assert re.search(rf"--{name.replace('_', '-')}\b[^-]* [A-Z]\w*", help_text), name


def test_command_prints_and_saves(broken: Audit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = {}

    def audit(kernel: Any, trace: Any, **options: Any) -> Audit:
        asked.update(options, kernel=kernel, trace=trace)
        return broken

    monkeypatch.setattr(cli.tallchain, "sample", lambda *_, **__: "a trace")
    monkeypatch.setattr(cli.tallchain, "audit", audit)
    path = tmp_path / "new" / "numbers.json"
    result = call("--rows", 1000, "--decisions", 77, "--test", "paper", "--no-progress", "--output", path)
    assert result.exit_code == 0, result.output
    assert asked["num_decisions"] == 77
    assert asked["num_trials"] is None
    assert asked["trace"] == "a trace"
    assert asked["kernel"].acceptance.stopping.terms.grows
    assert "ERROR FOUND" in result.output
    assert "theta_1" in result.output
    assert json.loads(path.read_text())["num_decisions"] == 200
    assert path.with_suffix(".png").stat().st_size > 20_000


@pytest.mark.parametrize(
    ("option", "value"), [("--decisions", 1), ("--trials", 1), ("--output", "a.csv"), ("--picture", "a.docx")]
)
def test_command_refuses_a_bad_option_by_name(option: str, value: object, tmp_path: Path) -> None:
    result = call("--rows", 1000, "--output", tmp_path / "a.json", option, value)
    assert result.exit_code == 2
    assert option in words(result.output)


@pytest.mark.slow
def test_command_from_end_to_end(tmp_path: Path) -> None:
    options = ("--rows", 20_000, "--chains", 16, "--draws", 500, "--warmup", 200, "--decisions", 50, "--trials", 100)
    result = call(*options, "--no-progress", "--output", tmp_path / "a.json")
    assert result.exit_code == 0, result.output
    assert "passes over all rows" in result.output
    assert json.loads((tmp_path / "a.json").read_text())["population"] == 20_000
