"""Crank-Nicolson steps: their law, their correction, and chains that end in the right place because of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from jax.flatten_util import ravel_pytree
from scipy import stats

import checks
import scenarios
from conftest import SEED
from tallchain import Barker, Metropolis, MetropolisHastings, Schedule, Shuffled, Trace
from tallchain.parts import part
from tallchain.proposals import PCN, RandomWalk
from tallchain.surrogates import Laplace, find_reference
from tallchain.types import Array, Proposed, Target

COVARIANCE = np.array([[1.0, 0.3, -0.2], [0.3, 0.5, 0.1], [-0.2, 0.1, 2.0]])
MEAN = {"a": jnp.float32(1.0), "b": jnp.array([-2.0, 0.5])}
LAPLACE = Laplace(MEAN, covariance=COVARIANCE)
R = np.array([1.0, -2.0, 0.5])
POSITION = {"a": jnp.float32(2.5), "b": jnp.array([-1.0, -0.7])}
NUM_KEYS = 20_000


def flat(position: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(position)[0], np.float64)


@pytest.mark.parametrize("beta", [0.05, 0.7, 1.0])
def test_the_correction_is_that_of_both_ways(beta: float) -> None:
    """log q(t | t') - log q(t' | t) from the two densities, and from N(r, S) alone."""
    pcn, t = PCN(LAPLACE, beta), flat(POSITION)
    target = stats.multivariate_normal(R, COVARIANCE)
    for key in jr.split(jr.key(SEED), 5):
        proposed = pcn.propose(pcn.draw(key, POSITION), POSITION)
        there = flat(proposed.position)
        forth = stats.multivariate_normal(R + np.sqrt(1 - beta**2) * (t - R), beta**2 * COVARIANCE).logpdf(there)
        back = stats.multivariate_normal(R + np.sqrt(1 - beta**2) * (there - R), beta**2 * COVARIANCE).logpdf(t)
        assert proposed.log_correction == pytest.approx(back - forth, abs=2e-5 / beta)
        assert proposed.log_correction == pytest.approx(target.logpdf(t) - target.logpdf(there), abs=2e-5)


@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_the_law_of_a_step(beta: float) -> None:
    def one(pcn: PCN, key: Array) -> Array:
        return ravel_pytree(pcn.propose(pcn.draw(key, POSITION), POSITION).position)[0]

    steps = jax.jit(jax.vmap(one, (None, 0)))(PCN(LAPLACE, beta), jr.split(jr.key(SEED), NUM_KEYS))
    deviations = np.asarray(steps, np.float64) - R - np.sqrt(1 - beta**2) * (flat(POSITION) - R)
    products = np.einsum("ni,nj->nij", deviations, deviations).reshape(NUM_KEYS, -1)
    values = np.concatenate([deviations, products], 1)

    def z_scores(covariance: np.ndarray) -> np.ndarray:
        return (values.mean(0) - np.r_[np.zeros(3), covariance.ravel()]) / values.std(0) * np.sqrt(NUM_KEYS)

    assert np.abs(z_scores(beta**2 * COVARIANCE)).max() < 4.5
    assert np.abs(z_scores(1.1 * beta**2 * COVARIANCE)).max() > 4.5


def test_some_steps_are_those_of_a_random_walk() -> None:
    def one(pcn: PCN, key: Array) -> tuple[Array, Array, Array]:
        noise = pcn.draw(key, POSITION)
        candidate, log_correction, _ = pcn.propose(noise, POSITION)
        return noise.is_walk, ravel_pytree(candidate)[0], jnp.asarray(log_correction)

    keys = jr.split(jr.key(SEED), NUM_KEYS)
    is_walk, steps, corrections = map(np.asarray, jax.jit(jax.vmap(one, (None, 0)))(PCN(LAPLACE, walk=0.3), keys))
    assert abs(is_walk.mean() - 0.3) < 4.5 * np.sqrt(0.21 / NUM_KEYS)
    assert not corrections[is_walk].any()
    walked = steps[is_walk] - flat(POSITION)
    np.testing.assert_allclose(np.cov(walked.T), 2.38**2 / 3 * COVARIANCE, atol=0.1)
    np.testing.assert_allclose(walked.mean(0), 0, atol=4.5 * 2.38 * np.sqrt(2.0 / 3 / len(walked)))
    plain = np.asarray(jax.jit(jax.vmap(one, (None, 0)))(PCN(LAPLACE), keys)[1])
    np.testing.assert_allclose(steps[~is_walk], plain[~is_walk], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("walk", [-0.1, 1.0, np.nan, "some", np.array([0.1, 0.2])])
def test_the_chance_to_walk_is_a_chance(walk: Any) -> None:
    with pytest.raises(ValueError, match=r"`PCN\(walk=...\)` must be a chance"):
        PCN(LAPLACE, walk=walk)
    assert PCN(LAPLACE, walk=jnp.float32(0.25)).walk == 0.25
    assert hash(jax.tree.structure(PCN(LAPLACE, walk=jnp.float32(0.25))))


def test_a_small_step_loses_no_digits() -> None:
    """The correction of a step of 0.0001, far out: a difference of two squares would be off by some 1e-3."""
    pcn = PCN(Laplace(jnp.zeros(2), covariance=np.eye(2)), 1e-4)
    position, z = jnp.array([120.0, -90.0]), jnp.array([0.5, 0.25])
    w, beta = np.array([120.0, -90.0]), 1e-4
    there = np.sqrt(1 - beta**2) * w + beta * np.asarray(z, np.float64)
    expected = (there @ there - w @ w) / 2
    noise = pcn.draw(jr.key(0), position)._replace(normals=z)
    assert pcn.propose(noise, position).log_correction == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_candidates_look_like_the_position(dtype: Any) -> None:
    position = jax.tree.map(lambda leaf: leaf.astype(dtype), POSITION)
    pcn = PCN(LAPLACE, 0.5)
    made = jax.eval_shape(lambda key: pcn.propose(pcn.draw(key, position), position).position, jr.key(0))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), made) == jax.tree.map(lambda x: (x.shape, x.dtype), position)


# ---- chains ------------------------------------------------------------------------------------

TARGET = scenarios.normal_vector(1001)


def laplace_of(mean: np.ndarray, covariance: np.ndarray) -> Laplace:
    return Laplace({"a": mean[0], "b": mean[1]}, covariance=covariance)


# Off in place, size and direction; wider than the posterior, so that chains are not stuck in its tails.
OFF = laplace_of(TARGET.mean + 0.1, np.diag([1.8, 1.4]) @ TARGET.covariance @ np.diag([1.8, 1.4]))


@part
class Signed:
    """Crank-Nicolson with its correction times a sign: right with 1, wrong with -1. Both share one program."""

    right: PCN
    sign: float = 1.0

    def check(self, position: Any) -> None:
        self.right.check(position)

    def draw(self, key: Array, position: Any) -> Array:
        return self.right.draw(key, position)

    def propose(self, noise: Array, position: Any, target: Target) -> Proposed:
        candidate, log_correction, _ = self.right.propose(noise, position, target)
        return Proposed(candidate, self.sign * log_correction)


def run(pcn: PCN, sign: float = 1.0, acceptance: Any = Metropolis) -> Trace:
    return checks.run(TARGET, acceptance(), Shuffled, length=60, proposal=Signed(pcn, sign))


@pytest.mark.parametrize("beta", [0.6, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("acceptance", [Metropolis, pytest.param(Barker, marks=pytest.mark.slow)])
def test_chains_are_exact_for_a_wrong_laplace(acceptance: Any, beta: float) -> None:
    assert checks.agrees(run(PCN(OFF, beta), acceptance=acceptance), TARGET)


def test_chains_are_exact_where_some_steps_walk() -> None:
    assert checks.agrees(run(PCN(OFF, walk=0.4)), TARGET)


@pytest.mark.parametrize("beta", [0.6, pytest.param(1.0, marks=pytest.mark.slow)])
def test_chains_notice_the_sign_of_the_correction(beta: float) -> None:
    assert np.abs(checks.z_scores(run(PCN(OFF, beta), -1.0), TARGET)).max() > 2 * checks.Z_LIMIT


def test_everything_is_accepted_where_laplace_is_the_posterior() -> None:
    found = find_reference(TARGET.posterior, TARGET.data, {"a": 0.0, "b": 0.0}, progress=False)
    trace = run(PCN(found.laplace))
    assert np.abs(trace.log_ratio).max() < 1e-3
    assert trace.is_accepted.mean() > 0.999


def test_preconditioned_random_walk() -> None:
    walk = RandomWalk.preconditioned(laplace_of(TARGET.mean, TARGET.covariance))
    np.testing.assert_allclose(walk.scale, 2.38 / np.sqrt(2) * np.linalg.cholesky(TARGET.covariance), rtol=1e-5)
    np.testing.assert_allclose(RandomWalk.preconditioned(LAPLACE, 0.5).scale, 0.5 * LAPLACE.factor)
    walk.check({"a": 0.0, "b": 0.0})


@pytest.mark.slow
def test_preconditioned_random_walk_is_exact() -> None:
    walk = RandomWalk.preconditioned(laplace_of(TARGET.mean, TARGET.covariance))
    trace = checks.run(TARGET, Metropolis(), Shuffled, length=60, proposal=walk)
    assert checks.agrees(trace, TARGET)
    assert 0.2 < trace.is_accepted.mean() < 0.5


def test_coordinates_of_very_different_size() -> None:
    RandomWalk.preconditioned(Laplace(jnp.zeros(2), covariance=np.diag([1e-12, 1e8]))).check(jnp.zeros(2))


# ---- beta, and refusals ------------------------------------------------------------------------


def test_a_schedule_sets_beta() -> None:
    source = Shuffled(TARGET.data, 100)
    kernel = MetropolisHastings(TARGET.posterior, source, proposal=PCN(OFF), acceptance=Metropolis())
    position = {"a": jnp.float32(0.0), "b": jnp.float32(0.0)}
    halving = Schedule(scale=lambda draw: 0.5 ** (draw + 1.0))
    halving.check(kernel, position, 10)
    assert halving.at(kernel, jnp.int32(1)).proposal.beta == 0.25
    assert kernel.proposal.beta == 1
    with pytest.raises(
        ValueError, match=r"`Schedule\(scale=...\)` at draw 0: `PCN\(beta=...\)` must be above 0 and at"
    ):
        Schedule(scale=lambda draw: 2.0).check(kernel, position, 10)


@pytest.mark.parametrize("beta", [0, -0.5, 1.01, np.nan, np.inf, "a", np.ones(2), None])
def test_refuses_beta(beta: Any) -> None:
    with pytest.raises(ValueError, match=r"`PCN\(beta=...\)` must be above 0 and at most 1; got "):
        PCN(LAPLACE, beta)


def test_refuses_what_is_no_laplace() -> None:
    for wrong in (Laplace, np.eye(3), None):
        with pytest.raises(TypeError, match=r"`PCN\(laplace=...\)` must be a Laplace\(...\)"):
            PCN(wrong)
        with pytest.raises(TypeError, match=r"`RandomWalk.preconditioned\(laplace=...\)` must be a Laplace\(...\)"):
            RandomWalk.preconditioned(wrong)
    with pytest.raises(ValueError, match=r"`RandomWalk.preconditioned\(scale=...\)` must be a positive number or None"):
        RandomWalk.preconditioned(LAPLACE, 0.0)


@pytest.mark.parametrize("position", [jnp.zeros(3), {"a": 0.0, "b": jnp.zeros(3)}, {"a": 0.0}])
def test_refuses_positions_of_other_shapes(position: Any) -> None:
    with pytest.raises(ValueError, match=r"`PCN\(laplace=...\)` moves positions of shapes .*; got one of shapes"):
        PCN(LAPLACE).check(position)
