"""Errors of decisions: sizes without their noise, p-values, and which decisions count."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit

from audits import (
    PRECISION,
    STEP,
    Blurred,
    Scaled,
    normal_kernel,
)
from conftest import SEED
from tallchain.checking import drift, errors


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
    decisions = errors.decisions_of(normal_kernel(Scaled(1.0)), delta, outcomes, reach)
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
    decisions = errors.decisions_of(normal_kernel(Blurred(1.0)), delta, outcomes, 4.0)
    flow = drift.flow_of(decisions, 1000, 4.0, is_integrated=True)
    np.testing.assert_array_equal(flow.weight, [2, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(decisions.is_near, [False, True, True, False, False, False])
    np.testing.assert_allclose(flow.net[:3], 0, atol=1e-12)


def test_a_decision_never_accepted_one_way_is_left_out_and_counted() -> None:
    outcomes = errors.Outcomes(np.array([0.5, 0.0, 0.6, 0.5, 0.3, 0.4]), np.full(6, 0.01), 100)
    decisions = errors.decisions_of(normal_kernel(Scaled(1.0)), np.array([0.0, -3.0, 0.4]), outcomes, 4.0)
    np.testing.assert_array_equal(decisions.is_near, [True, False, True])
    assert math.isnan(decisions.log_odds_error[1])
