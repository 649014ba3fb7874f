"""How many rows to read: the rules by hand, their laws by simulation, and that fresh rows end the shift by growth."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.pairs import DELTAS, kernel_of, measure
from scipy import stats

from conftest import SEED
from tallchain.acceptance import MinibatchBarker, Penalty
from tallchain.acceptance.evidence import Moments, SkewMoments
from tallchain.acceptance.stopping import LEAST_ROWS, Pilot, third_cumulant
from tallchain.types import Population

POPULATION = Population(10_000, 100, repeats=False)
REPEATING = POPULATION._replace(repeats=True)
RULES = [MinibatchBarker(), MinibatchBarker(stopping="pilot"), Penalty(), Penalty(stopping="pilot")]
IDS = ["fresh", "pilot", "penalty fresh", "penalty pilot"]


def moments(count: int, variance: float, mean: float = 0.0) -> SkewMoments:
    """Rows with this variance and no skewness."""
    return SkewMoments(jnp.int32(count), jnp.float32(mean), jnp.float32(variance * (count - 1)), jnp.float32(0.0))


def after_pilot(test: Any, variance: float, population: Population, count: int = 100) -> Any:
    """The judgement of a pilot's rows."""
    memory, ask = test.open(test.draw(jnp.zeros(2, jnp.uint32)), jnp.float32(0.0), None, population)
    assert int(ask.rows) == 100
    return test.judge(memory, moments(count, variance), population)


# ---- by hand -----------------------------------------------------------------------------------


@pytest.mark.parametrize("test", RULES, ids=IDS)
def test_a_pilot_asks_for_fresh_rows_and_does_not_decide(test: Any) -> None:
    judgement = after_pilot(test, 250.4, REPEATING)
    assert not judgement.is_decided
    assert judgement.ask.fresh
    assert int(judgement.ask.rows) == 251
    assert judgement.memory.pilot.is_over


@pytest.mark.parametrize("test", RULES, ids=IDS)
def test_a_pilot_counts_with_the_rows_there_are(test: Any) -> None:
    """v/n (1 - n/N) = 1 at n = v/(1 + v/N); where the pilot and that are all rows, the pilot's rows are kept."""
    assert int(after_pilot(test, 5_000.0, POPULATION).ask.rows) == 3_334
    everything = after_pilot(test, 1e7, POPULATION).ask
    assert (int(everything.rows), bool(everything.fresh)) == (9_900, False)


@pytest.mark.parametrize("test", RULES, ids=IDS)
def test_a_pilot_asks_for_some_rows_at_least(test: Any) -> None:
    assert int(after_pilot(test, 1e-6, REPEATING).ask.rows) == LEAST_ROWS


def test_a_pilot_has_rows_enough_for_a_variance() -> None:
    small = POPULATION._replace(batch_size=2)
    assert MinibatchBarker().appetite(small) == LEAST_ROWS
    assert MinibatchBarker(stopping="growth").appetite(small) == 2
    assert MinibatchBarker().appetite(Population(7, 2, repeats=False)) == 7


def test_skewed_rows_ask_for_more() -> None:
    pilot = moments(100, 100.0)._replace(cubes=jnp.float32(3.0 * 100 * 100.0**1.5))
    for test in (MinibatchBarker(), Penalty()):
        memory, _ = test.open(test.draw(jnp.zeros(2, jnp.uint32)), jnp.float32(0.0), None, REPEATING)
        assert int(test.judge(memory, pilot, REPEATING).ask.rows) > 150


def test_stein_weighs_both_means_so_that_the_scale_is_sigma() -> None:
    test = MinibatchBarker(stopping="stein")
    memory, _ = test.open(test.draw(jnp.zeros(2, jnp.uint32)), jnp.float32(0.0), None, REPEATING)
    n0, n1, variance = 100, 170, 250.0
    for means in ((1.0, 0.0), (0.0, 1.0)):  # the weights of both, one at a time
        first = Moments(jnp.int32(n0), jnp.float32(means[0]), jnp.float32(variance * (n0 - 1)))
        second = Moments(jnp.int32(n1), jnp.float32(means[1]), jnp.float32(0.0))
        reading = test.read(memory._replace(pilot=Pilot.of(first)), second, REPEATING)
        if means[0]:
            w = float(reading.estimate)
        else:
            assert float(reading.estimate) == pytest.approx(1 - w, abs=1e-5)
    assert variance * (w**2 / n0 + (1 - w) ** 2 / n1) == pytest.approx(1.0, rel=1e-4)


def test_fresh_rows_far_noisier_than_planned_are_added_to() -> None:
    test = MinibatchBarker()
    memory, _ = test.open(test.draw(jnp.zeros(2, jnp.uint32)), jnp.float32(0.0), None, REPEATING)
    memory = memory._replace(pilot=Pilot.of(moments(100, 100.0)))
    assert test.judge(memory, moments(100, 300.0), REPEATING).is_decided
    judgement = test.judge(memory, moments(100, 900.0), REPEATING)
    assert not judgement.is_decided
    assert not judgement.ask.fresh
    assert int(judgement.ask.rows) == 400


# ---- moments and cumulants ---------------------------------------------------------------------


def test_third_moments_merge() -> None:
    random = np.random.default_rng(SEED)
    rows = random.standard_exponential((7, 30)).astype(np.float32) + 5
    seen = SkewMoments.empty()
    for i, window in enumerate(rows):
        is_valid = np.arange(30) < 30 - 3 * i
        seen = seen.merge(SkewMoments.of(jnp.asarray(window), jnp.asarray(is_valid)))
    kept = np.concatenate([window[: 30 - 3 * i] for i, window in enumerate(rows)]).astype(np.float64)
    assert int(seen.count) == len(kept)
    assert float(seen.mean) == pytest.approx(kept.mean(), rel=1e-5)
    assert float(seen.cubes) == pytest.approx(((kept - kept.mean()) ** 3).sum(), rel=1e-3)
    assert float(seen.skewness) == pytest.approx(stats.skew(kept, bias=False), rel=1e-3)


def test_rows_all_the_same_have_no_skewness() -> None:
    assert float(SkewMoments.of(jnp.full(30, 2.5), jnp.ones(30, bool)).skewness) == 0


@pytest.mark.parametrize("of_same_rows", [True, False])
@pytest.mark.parametrize("repeats", [True, False])
def test_third_cumulant_of_noise_and_padding(of_same_rows: bool, repeats: bool) -> None:
    """kappa3(e + X_nc) = E e^3 - 3 E e s2, simulated with numpy on a small population of skewed rows."""
    random = np.random.default_rng(SEED)
    population = Population(60, 20, repeats=repeats)
    rows = random.standard_exponential(population.num_rows)
    b, trials = 20, 300_000
    if repeats:
        first, other = (random.integers(0, len(rows), (trials, b)) for _ in range(2))
    else:
        order = random.permuted(np.tile(np.arange(len(rows)), (trials, 1)), axis=1)
        first, other = order[:, :b], order[:, b : 2 * b]
    factor = 1 / b if repeats else (1 - b / len(rows)) / b
    e = rows[first].mean(1) - rows.mean()
    s2 = rows[first if of_same_rows else other].var(1, ddof=1) * factor
    terms = e**3 - 3 * e * s2
    gamma, variance = stats.skew(rows), rows.var()
    predicted = float(
        third_cumulant(jnp.float32(gamma), jnp.float32(variance), jnp.int32(b), population, of_same_rows=of_same_rows)
    )
    error = terms.std() / np.sqrt(trials)
    slack = 0.1 * abs(predicted)  # terms of order 1/N
    if not (repeats or of_same_rows):
        slack += 3 * abs(np.mean(e * s2))  # other rows without replacement are a little dependent
    assert abs(terms.mean() - predicted) < 4.5 * error + slack


# ---- the shift, and its end --------------------------------------------------------------------

_TRIALS = 20_000


@pytest.fixture(scope="module")
def exponential() -> np.ndarray:
    rows = np.random.default_rng(SEED).standard_exponential(200_000)
    return (rows - rows.mean()) / rows.std()


def test_growth_shifts_the_estimate_and_fresh_rows_do_not(exponential: np.ndarray) -> None:
    """E Delta* - Delta is about -gamma sqrt(s2/b) with growth: the negative control of the rules that have none."""
    gamma = float(np.mean(exponential**3))
    grown = measure(kernel_of(exponential, 150.0, MinibatchBarker(stopping="growth")), _TRIALS)
    predicted = -gamma * grown["mean_root_inverse_b"]
    assert grown["shift"] < -10 * grown["shift_error"]
    assert 0.6 < grown["shift"] / predicted < 1.1  # coarse steps make it smaller
    fresh = measure(kernel_of(exponential, 150.0, MinibatchBarker()), _TRIALS)
    assert abs(fresh["shift"]) < 4.5 * fresh["shift_error"]
    # the log-odds at Delta = -1, 0 and 1: a pilot of 50 rows of skewness 2 leaves an error of order 1/b
    at = [DELTAS.index(delta) for delta in (-1.0, 0.0, 1.0)]
    assert np.all(
        np.abs(np.asarray(fresh["log_odds_error"])[at]) < 0.02 + 4.5 * np.asarray(fresh["standard_error"])[at]
    )
    assert np.all(np.asarray(grown["log_odds_error"])[at] < -0.06)
