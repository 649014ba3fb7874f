"""SGFS: right for normal posteriors whatever the step and the minibatch; one update by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

import tallchain as tc
from conftest import SEED
from gaussian import BATCH, ROWS, Z_LIMIT, run, shuffled, with_replacement
from tallchain.stochastic import SGFS, StochasticGradient, sgfs
from tallchain.stochastic.dynamics import Chance, Moving
from tallchain.stochastic.sgfs import scores_of

COVARIANCE = np.array([[1.0, 0.6], [0.6, 0.5]])  # of rows; the model knows it
INVERSE = np.linalg.inv(COVARIANCE)


def rows_of(ddof: int) -> np.ndarray:
    """Rows whose covariance is exactly right: the information equality holds for these data."""
    raw = np.random.default_rng(SEED).normal(size=(ROWS, 2))
    centred = raw - raw.mean(0)
    white = centred @ np.linalg.inv(np.linalg.cholesky(np.cov(centred.T, ddof=ddof))).T
    return (white @ np.linalg.cholesky(COVARIANCE).T + 0.5).astype(np.float32)


def posterior(temperature: float = 1.0, model: np.ndarray = INVERSE) -> tc.Posterior:
    precision = jnp.asarray(model, jnp.float32)
    return tc.Posterior(lambda t: -1e-6 * jnp.sum(t**2), lambda t, x: -0.5 * (x - t) @ precision @ (x - t), temperature)


def z_scores(trace: tc.Trace, temperature: float = 1.0) -> np.ndarray:
    """Means, variances and covariance, in coordinates in which the posterior is standard normal."""
    white = np.linalg.cholesky(np.linalg.inv(COVARIANCE * temperature / ROWS))
    scaled = (trace.position.astype(float) - 0.5) @ white
    pairs = np.einsum("cti,ctj->ctij", scaled, scaled).mean(1) - np.eye(2)
    by_chain = np.concatenate([scaled.mean(1), pairs.reshape(-1, 4)[:, [0, 1, 3]]], -1)
    return by_chain.mean(0) / (by_chain.std(0, ddof=1) / np.sqrt(len(by_chain)))


START = np.full(2, 0.5)


@pytest.mark.parametrize(("step_size", "rows"), [(4.0, ROWS // 2), (1e6, BATCH)])
@pytest.mark.parametrize("source", [shuffled, with_replacement])
def test_right_for_a_normal_posterior(step_size: float, rows: int, source: Any) -> None:
    """Also without noise of its own: that of the minibatch is enough."""
    data = rows_of(ddof=int(source is shuffled))
    kernel = StochasticGradient(posterior(), source(data), SGFS(step_size), rows)
    trace = run(kernel, START, 300, num_warmup=300)
    assert np.abs(z_scores(trace)).max() < Z_LIMIT
    assert (trace.rows_read == rows).all()


def test_the_check_fails_for_another_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of rows that repeat, where they do not: the variance is 4/5 of the right one."""
    monkeypatch.setattr(sgfs, "noise_share", lambda population, rows: 1.0)
    kernel = StochasticGradient(posterior(), shuffled(rows_of(1)), SGFS(4.0), ROWS // 2)
    trace = run(kernel, START, 300, num_warmup=300)
    assert np.abs(z_scores(trace)).max() > 2 * Z_LIMIT
    ratio = np.linalg.det(np.cov(trace.position.reshape(-1, 2).astype(float).T)) / np.linalg.det(COVARIANCE / ROWS)
    assert ratio == pytest.approx(0.8**2, rel=0.1)


def test_another_temperature_and_a_matrix_of_ones_own() -> None:
    """The noise is then in proportion to B."""
    hot = posterior(temperature=8.0)
    kernel = StochasticGradient(hot, shuffled(rows_of(1)), SGFS(2.0, ROWS / 8 * np.diag([2.0, 5.0])), 100)
    trace = run(kernel, START, 300, num_warmup=300)
    assert np.abs(z_scores(trace, 8.0)).max() < Z_LIMIT


def test_the_check_fails_where_the_model_is_wrong() -> None:
    """Without correlations in the model the covariance of scores is not the information."""
    wrong = posterior(model=np.diag(1 / np.diag(COVARIANCE)))
    trace = run(StochasticGradient(wrong, shuffled(rows_of(1)), SGFS(1.0), BATCH), START, 300, num_warmup=300)
    assert np.abs(z_scores(trace)).max() > 2 * Z_LIMIT


def test_one_update_by_hand() -> None:
    """With all rows, in any order: the scores are those of all of them, and only the noise is random."""
    data, temperature, eps = rows_of(1), 3.0, 0.7
    kernel = StochasticGradient(posterior(temperature), shuffled(data), SGFS(eps), ROWS)
    t = np.array([0.2, 0.9])
    chance = Chance(*jr.split(jr.key(SEED)))
    state = Moving(jnp.asarray(t, jnp.float32), kernel.dynamics.begin(jnp.asarray(t), ROWS))
    moved = jax.jit(lambda state: kernel.dynamics.update(chance, state, kernel.target, ROWS))(state)
    scores = (data.astype(float) - t) @ INVERSE
    information = np.cov(scores.T)
    of_data = ROWS / temperature * information  # G = 1: rows do not repeat, and all are read
    noise = np.sqrt(4 / eps) * np.linalg.cholesky(of_data) @ np.asarray(jr.normal(chance.noise, (2,)), float)
    force = -2e-6 * t + ROWS / temperature * scores.mean(0) + noise
    np.testing.assert_allclose(moved.memory.information, information, rtol=1e-4)
    np.testing.assert_allclose(moved.position, t + 2 * np.linalg.solve((1 + 4 / eps) * of_data, force), rtol=1e-4)


@pytest.mark.parametrize("rows", [ROWS, 150])
def test_scores_of_several_looks(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows merge to the same covariance, however wide; those beyond the rows asked for do not count."""
    source, t = shuffled(rows_of(1)), jnp.asarray([0.2, 0.9])
    target, key = tc.MetropolisHastings(posterior(), source, proposal=tc.RandomWalk(1.0)).target, jr.key(SEED)
    whole = scores_of(target, key, rows, t)
    monkeypatch.setattr(tc.Shuffled, "width", lambda self, appetite: 64)
    parts = scores_of(target, key, rows, t)
    assert float(parts.count) == float(whole.count) == rows
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-4)
    np.testing.assert_allclose(parts.covariance, whole.covariance, rtol=1e-4)


def test_the_information_is_the_mean_over_updates() -> None:
    kernel = StochasticGradient(posterior(), shuffled(rows_of(1)), SGFS(1.0), BATCH)
    state, step, seen = kernel.init(START.astype(np.float32)), jax.jit(kernel.step), []
    for at in range(20):
        key = jr.fold_in(jr.key(SEED), at)
        before = state
        state, _ = step(key, state)
        noise = kernel.randomness(before).draw(key)
        seen.append(scores_of(kernel.target, Chance(*jr.split(noise.source)).rows, BATCH, before.position).covariance)
    np.testing.assert_allclose(state.memory.information, np.mean(seen, 0), rtol=1e-4)
    assert int(state.memory.count) == 20
