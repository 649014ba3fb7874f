"""Linear regression that estimates its noise: draws against quadrature, the mode from the start, and refusals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tallchain as tc
from checks import Z_LIMIT, run, z_scores
from conftest import SEED
from scenarios import Scenario
from tallchain.models import linear_regression
from tallchain.surrogates import find_reference

RANDOM = np.random.default_rng(5)
NUM_ROWS = 200
X = RANDOM.normal(size=(NUM_ROWS, 2))
Y = X @ [1.0, -2.0] + 10 * RANDOM.normal(size=NUM_ROWS)


def exact(temperature: float) -> tuple[np.ndarray, np.ndarray, Any]:
    """Mean, covariance and a sampler in float64, for a flat prior of t: normal given the noise, which is on a grid."""
    best, residuals = np.linalg.lstsq(X, Y, rcond=None)[:2]
    spread = temperature * np.linalg.inv(X.T @ X)
    s = np.linspace(np.log(10) - 3, np.log(10) + 3, 20_001)
    log_density = -(NUM_ROWS / temperature - 2) * s - residuals[0] / 2 / temperature * np.exp(-2 * s)
    log_density += stats.norm.logpdf(s, np.log(np.std(Y)), 3)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = np.array([*best, weights @ s])
    covariance = np.zeros((3, 3))
    covariance[:2, :2] = weights @ np.exp(2 * s) * spread
    covariance[2, 2] = weights @ (s - mean[2]) ** 2

    def starts(random: np.random.Generator, chains: int) -> dict[str, np.ndarray]:
        noise = random.choice(s, chains, p=weights)
        t = best + np.exp(noise)[:, None] * random.multivariate_normal(np.zeros(2), spread, chains)
        return {"coefficients": t.astype(np.float32), "log_noise_sd": noise.astype(np.float32)}

    return mean, covariance, starts


def scenario(temperature: float) -> Scenario:
    model = linear_regression(X, Y, prior_sd=None, temperature=temperature)
    mean, covariance, starts = exact(temperature)
    laplace = find_reference(model.posterior, model.data, model.start, progress=False).laplace
    return Scenario(model.posterior, model.data, tc.RandomWalk.preconditioned(laplace), mean, covariance, starts)


def test_draws_agree_with_quadrature() -> None:
    target = scenario(4.0)
    scores = z_scores(run(target, tc.Metropolis(), tc.Shuffled), target)
    assert np.all(np.abs(scores) < Z_LIMIT), scores


def test_check_refuses_noise_that_is_fixed_wrong() -> None:
    """Negative control: at the standard deviation of 1 that used to be the default."""
    target = scenario(4.0)
    fixed = tc.Posterior(
        lambda t: jnp.zeros(()),
        lambda t, row: -0.5 * (row["y"] - row["x"] @ t["coefficients"]) ** 2 - 0.5 * t["log_noise_sd"] ** 2,
        4.0,
    )
    trace = run(target._replace(posterior=fixed), tc.Metropolis(), tc.Shuffled, chains=100, length=60)
    assert np.any(np.abs(z_scores(trace, target)) > Z_LIMIT)


@pytest.mark.parametrize(("level", "noise"), [(0.0, 10.0), (1000.0, 10.0), (1000.0, 1.0), (1e-3, 1e-4)])
def test_the_start_leads_to_the_mode(level: float, noise: float) -> None:
    random = np.random.default_rng(SEED)
    x = random.normal(size=(20_000, 1))
    y = level + 3 * noise * x[:, 0] + noise * random.normal(size=20_000)
    model = linear_regression(x, y, prior_sd=None, intercept=True)
    reference = find_reference(model.posterior, model.data, model.start, progress=False)
    sd = np.sqrt(np.diag(np.linalg.inv(reference.hessian)))
    error = noise / np.sqrt(20_000)
    np.testing.assert_allclose(sd, [error, error, np.sqrt(1 / 2 / 20_000)], rtol=0.05)
    t, log_sd = reference.position["coefficients"], reference.position["log_noise_sd"]
    assert np.all(np.abs(t - np.array([level, 3 * noise])) < 5 * error + 1e-6 * level)
    assert abs(log_sd - np.log(noise)) < 0.03


@pytest.mark.slow
def test_prepare_from_the_start(key: jax.Array) -> None:
    """The posterior standard deviation is that of the residuals over the root of N, not a tenth of it."""
    random = np.random.default_rng(SEED)
    x = random.normal(size=(20_000, 1))
    model = linear_regression(x, 10 * random.normal(size=20_000))
    prepared = tc.prepare(model.posterior, model.data, model.start, progress=False)
    trace = tc.sample(key, prepared.kernel(), prepared.starts(key, 50), 20, num_chains=50, progress=False)
    assert trace.position["coefficients"].std() == pytest.approx(10 / np.sqrt(20_000), rel=0.15)


def test_known_noise_keeps_positions_of_coefficients() -> None:
    model = linear_regression(X, Y, noise_sd=10.0)
    np.testing.assert_array_equal(model.start, np.zeros(2, np.float32))
    reference = find_reference(model.posterior, model.data, model.start, progress=False)
    np.testing.assert_allclose(reference.hessian, np.eye(2) + X.T @ X / 100, rtol=1e-4, atol=1e-3)


def test_a_position_without_noise_is_refused() -> None:
    model = linear_regression(X, Y)
    with pytest.raises(ValueError, match=r"is a dict of arrays of shapes .*'log_noise_sd': \(\)}; got \(2,\)\."):
        find_reference(model.posterior, model.data, np.zeros(2, np.float32), progress=False)
