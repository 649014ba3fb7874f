"""The drift of a chain: against chains that can be enumerated, and autocorrelation times that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit

from audits import (
    trace_of,
)
from conftest import SEED
from tallchain.checking import drift

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
