"""The order in b of the test's error at a fixed b: b^(-1/2) without the skew correction, 1/b with it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.special import expit, log_ndtr, logit
from scipy.stats import gamma, norm

from conftest import SEED
from studies.orders.pictures import METHODS
from studies.orders.powers import powers
from studies.orders.quadrature import DELTAS, KNOWN_SIGMA, KNOWN_VARIANCE, chances, characteristic, interpolated
from studies.orders.rows import Rows
from studies.orders.simulation import expected_controls
from studies.study import load
from tallchain.acceptance.correction import Correction, Law, minimax
from tallchain.acceptance.correction.program import compute_for_law
from tallchain.acceptance.tables import KAPPA3, LADDER

VARIANCE, SIGMA = KNOWN_VARIANCE, KNOWN_SIGMA
FEW, MANY = 50, 200


def accepted(b: int, atoms: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """P(Delta + e + X_nc + X_corr > 0): b exponential rows sum to a Gamma(b), X_nc by Gauss and Hermite's rule."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(60)
    below = -(DELTAS[:, None, None] + atoms[:, None] + np.sqrt(SIGMA**2 - VARIANCE) * nodes)
    beyond = gamma.sf(b + below * np.sqrt(b / VARIANCE), b)
    return np.einsum("dak,a,k->d", beyond, weights, shares / shares.sum())


@cache
def skewed(b: int) -> Correction:
    """X_corr made for kappa3 = gamma s2^(3/2)/sqrt(b), gamma = 2: the variance is known."""
    return compute_for_law(Law(SIGMA, kappa3=2 * VARIANCE**1.5 / np.sqrt(b)), 20.0)


def correction(b: int, sign: float) -> tuple[np.ndarray, np.ndarray]:
    """X_corr for the skewness that there is, for none, or for the opposite one."""
    table = skewed(b) if sign else minimax(SIGMA)
    return (table.atoms if sign >= 0 else -table.atoms), table.weights


@pytest.mark.parametrize(("sign", "power"), [(0.0, -0.5), (1.0, -1.0), (-1.0, -0.5)], ids=["none", "skew", "mirrored"])
def test_the_skew_correction_gains_half_a_power_of_b(sign: float, power: float) -> None:
    errors = [np.abs(logit(accepted(b, *correction(b, sign))) - DELTAS).mean() for b in (FEW, MANY)]
    assert np.log(errors[1] / errors[0]) / np.log(MANY / FEW) == pytest.approx(power, abs=0.03)


def exponential() -> Rows:
    """Exponential rows as points and weights: -log Phi(-z), z normal, on a fine grid."""
    z = np.linspace(-9.0, 9.0, 4001)
    points, weights = -log_ndtr(-z) - 1, norm.pdf(z) * (z[1] - z[0])
    return Rows(points, points, weights)


@pytest.mark.parametrize("b", [25, 400])
def test_the_quadrature_of_the_study_is_right(b: int) -> None:
    plain = correction(b, 0.0)
    noise = characteristic(exponential(), b, VARIANCE)
    found = chances(noise, plain, np.sqrt(SIGMA**2 - VARIANCE))
    assert found == pytest.approx(accepted(b, *plain), abs=1e-9)
    assert found != pytest.approx(expit(DELTAS), abs=1e-4)


def test_interpolation_is_that_of_the_tables() -> None:
    """At a node the table itself, half-way both; beyond the last node the last; mirrored where negative."""
    between = lambda skew: interpolated(1.0, skew, KAPPA3, "kappa3")  # noqa: E731
    mean = lambda skew: float(np.dot(*between(skew)))  # noqa: E731
    node, following = KAPPA3[1], KAPPA3[2]
    assert between(0.2)[1].sum() == pytest.approx(1)
    assert mean((node + following) / 2) == pytest.approx((mean(node) + mean(following)) / 2)
    assert mean(9.0) == pytest.approx(mean(KAPPA3[-1]))
    assert mean(-node) == pytest.approx(-mean(node))


def test_the_controls_have_the_means_they_are_said_to_have() -> None:
    """A control with another mean would bias what it is regressed out of."""
    random = np.random.default_rng(SEED)
    b, trials = 20, 200_000
    rows = Rows.of(random.standard_exponential(100_000))
    read = np.sqrt(b) * random.choice(rows.values, (trials, b))
    mean, extra = read.mean(1), read.var(1, ddof=1) / b - 1
    plain = minimax(LADDER[0])
    pad = np.sqrt(plain.sigma**2 - 1)
    simple = norm.cdf((DELTAS[3] + mean[:20_000, None] + plain.atoms) / pad) @ plain.weights
    expected = expected_controls(rows, b)
    found = [simple, mean, mean**2, extra, mean * extra, mean**2 * extra]
    for control, value in zip(found, [expected[3], *expected[len(DELTAS) :]], strict=True):
        assert abs(control.mean() - value) < 4 * control.std() / np.sqrt(len(control))


def test_the_powers_on_file_are_those_of_the_errors_on_file() -> None:
    results = load("orders").results
    measured = {method: results[method] for method in METHODS}
    for found, kept in zip(powers(measured), results["powers"], strict=True):
        assert found["power"] == pytest.approx(kept["power"])
        assert (found["rows"], found["rule"], found["fitted_b"]) == (kept["rows"], kept["rule"], kept["fitted_b"])
