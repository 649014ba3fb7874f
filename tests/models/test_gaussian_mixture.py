"""The paper's mixture: data, posterior, quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from tallchain.models import gaussian_mixture
from tallchain.models.gaussian_mixture import log_likelihood


def exact_log_posterior(mixture, theta: np.ndarray) -> float:
    """Row by row in float64, with scipy's densities; up to a constant in theta."""
    x = mixture.data.astype(np.float64)
    density = 0.5 * stats.norm.pdf(x, theta[0], np.sqrt(2)) + 0.5 * stats.norm.pdf(x, theta[0] + theta[1], np.sqrt(2))
    prior = stats.norm.logpdf(theta[0], 0, np.sqrt(10)) + stats.norm.logpdf(theta[1], 0, 1)
    return prior + np.log(density).sum() / float(mixture.posterior.temperature)


def test_the_data_are_the_mixture() -> None:
    mixture = gaussian_mixture(200_000)
    cdf = lambda x: 0.5 * stats.norm.cdf(x, 0, np.sqrt(2)) + 0.5 * stats.norm.cdf(x, 1, np.sqrt(2))  # noqa: E731
    assert stats.kstest(mixture.data, cdf).pvalue > 1e-3
    assert float(mixture.posterior.temperature) == 2000
    assert mixture.data.dtype == np.float32


def test_quadrature_is_the_posterior_row_by_row() -> None:
    mixture = gaussian_mixture(20_000)
    grid = mixture.quadrature(points=61)
    at = [(20, 30), (25, 38), (35, 22), (30, 30)]
    exact = np.array([exact_log_posterior(mixture, np.array([grid.theta_1[i], grid.theta_2[j]])) for i, j in at])
    ours = np.array([grid.log_density[i, j] for i, j in at])
    np.testing.assert_allclose(ours - ours[0], exact - exact[0], atol=1e-4)


def test_quadrature_has_converged_and_covers_the_mass() -> None:
    mixture = gaussian_mixture(2_000)
    coarse, fine = mixture.quadrature(points=121), mixture.quadrature(points=201, reach_1=(-3, 4), reach_2=(-4.5, 4.5))
    np.testing.assert_allclose(coarse.mean, fine.mean, atol=1e-5)
    np.testing.assert_allclose(coarse.covariance, fine.covariance, atol=1e-5)
    mass = integrate.trapezoid(integrate.trapezoid(np.exp(fine.log_density), fine.theta_2), fine.theta_1)
    assert mass == pytest.approx(1, abs=1e-6)


def test_a_flat_prior_is_another_target() -> None:
    with_prior, without = gaussian_mixture(20_000), gaussian_mixture(20_000, flat_prior=True)
    assert without.quadrature(points=61).covariance[1, 1] > 1.05 * with_prior.quadrature(points=61).covariance[1, 1]


def test_log_likelihood_is_for_one_row() -> None:
    value = log_likelihood(np.array([0.2, 0.7], np.float32), np.float32(1.3))
    expected = np.log(np.exp(-((1.3 - 0.2) ** 2) / 4) + np.exp(-((1.3 - 0.9) ** 2) / 4))
    assert float(value) == pytest.approx(expected, abs=1e-6)
