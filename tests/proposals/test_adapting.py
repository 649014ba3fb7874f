"""Transitions adapted to the surrogate posterior, and draws from it: no row is read, and nothing compiled twice."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

import tallchain as tc
from checks import Z_LIMIT
from skewed import HMC, MAP, NO_ROWS, SHAPES, SKEWED, Skewed, Skewless, skewed_draws, target_of
from tallchain.proposals import Laplace, Transition, adapt_transition, sample_surrogate
from tallchain.types import Array, Target

MORE = {"hmc": {"num_integration_steps": 4}}


@pytest.mark.parametrize("algorithm", ["nuts", "hmc", "mala", "barker_proposal"])
def test_adapted_transitions_draw_from_the_surrogate_posterior(algorithm: str) -> None:
    starts = skewed_draws(4)
    found = adapt_transition(
        jr.key(2), SKEWED, starts, algorithm, parameters=MORE.get(algorithm), num_steps=200, progress=False
    )
    assert found.positions.shape == (4, 2)
    wide = jnp.asarray(skewed_draws(500))
    drawn = np.asarray(sample_surrogate(jr.key(3), SKEWED, found.transition, wide, 40), np.float64)
    assert drawn.shape == (500, 40, 2)
    share = np.mean(np.any(np.diff(drawn, axis=1) != 0, -1))
    assert {"nuts": 0.9, "hmc": 0.6, "mala": 0.4, "barker_proposal": 0.25}[algorithm] < share
    assert {"nuts": 1.0, "hmc": 0.99, "mala": 0.8, "barker_proposal": 0.6}[algorithm] >= share
    s = np.exp(drawn @ MAP.T).mean(1)  # gamma: mean a, by chain
    assert np.abs((s.mean(0) - SHAPES) / (s.std(0) / np.sqrt(500))).max() < Z_LIMIT


def test_units_of_any_size() -> None:
    """Stan's scheme shrinks variances to 0.001: not here."""
    scale = np.array([1e-4, 1.0, 1e3])
    whitened = Laplace(jnp.zeros(3), np.diag(scale**2))
    target = target_of(lambda t: -0.5 * jnp.sum(whitened.whiten(t) ** 2), Skewless(jnp.zeros(3)))
    found = adapt_transition(jr.key(2), target, jnp.zeros(3), progress=False)
    assert np.abs(np.log(np.sqrt(found.transition.parameters["inverse_mass_matrix"]) / scale)).max() < 0.5
    assert found.transition.parameters["step_size"] > 0.3


def test_a_dense_mass_matrix() -> None:
    factor = np.array([[1.0, 0.0], [0.95, 0.3]])
    laplace = Laplace(jnp.zeros(2), factor @ factor.T)
    target = target_of(lambda t: -0.5 * jnp.sum(laplace.whiten(t) ** 2), Skewless(jnp.zeros(2)))
    found = adapt_transition(jr.key(2), target, jnp.zeros((4, 2)), is_dense=True, num_steps=300, progress=False)
    matrix = np.asarray(found.transition.parameters["inverse_mass_matrix"])
    assert np.abs(matrix - factor @ factor.T).max() < 0.35
    assert matrix[0, 1] > 0.5


def test_nothing_is_compiled_twice() -> None:
    traced = 0

    def counted(t: Array) -> Array:
        nonlocal traced
        traced += 1
        return -0.5 * jnp.sum(t**2)

    posterior = tc.Posterior(counted, NO_ROWS.function)
    options = {"algorithm": "mala", "num_steps": 30, "progress": False}
    for again in (False, True):
        before = traced
        target = Target(posterior, Skewed(jnp.full(2, 0.1 * again)), None)
        found = adapt_transition(jr.key(int(again)), target, jnp.zeros((3, 2)), **options)
        sample_surrogate(jr.key(0), target, found.transition, found.positions, 5)
        assert (traced == before) == again
    assert all(key.__name__ in ("_adapted", "_draws") for key in posterior.log_likelihood.programs)


def test_draws_do_not_depend_on_other_chains_or_later_draws() -> None:
    transition, starts = Transition("hmc", HMC), skewed_draws(5)
    many = sample_surrogate(jr.key(3), SKEWED, transition, starts, 9)
    few = sample_surrogate(jr.key(3), SKEWED, transition, starts[:2], 6)
    np.testing.assert_allclose(many[:2, :6], few, rtol=2e-3, atol=1e-4)
    assert sample_surrogate(jr.key(3), SKEWED, transition, starts[0], 2).shape == (1, 2, 2)
