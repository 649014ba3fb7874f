"""Surrogate transitions: reversible steps, corrections that cancel, and chains that end in the right place."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

import checks
import tallchain as tc
from conftest import SEED
from scenarios import Scenario, normal_vector
from skewed import AFFINE, DENSE, HMC, NUTS, SKEWED, Bent, Skewed, skewed_draws, target_of
from tallchain.abilities import CostlyProposal
from tallchain.functions import shared
from tallchain.parts import part
from tallchain.proposals import Adapted, Laplace, Transition, Whitened, adapt_transition, sample_surrogate
from tallchain.surrogates import Taylor
from tallchain.types import Array, Proposed, Target

Z_LIMIT = checks.Z_LIMIT
TRANSITIONS = {
    "nuts": partial(Transition, "nuts", NUTS),
    "nuts, dense, short": partial(Transition, "nuts", NUTS | {"inverse_mass_matrix": DENSE, "max_num_doublings": 2}),
    "nuts, bent": partial(Transition, "nuts", NUTS, Bent()),
    "hmc": partial(Transition, "hmc", HMC),
    "hmc, dense": partial(Transition, "hmc", HMC | {"inverse_mass_matrix": DENSE}),
    "hmc, bent, twice": partial(Transition, "hmc", HMC, Bent(), 2),
    "mala": partial(Transition, "mala", {"step_size": 0.3}),
    "mala, whitened": partial(Transition, "mala", {"step_size": 0.4}, AFFINE),
    "barker": partial(Transition, "barker_proposal", {"step_size": 0.8}),
    "barker, three times": partial(Transition, "barker_proposal", {"step_size": 0.8}, repeats=3),
}


# ---- reversibility -----------------------------------------------------------------------------


def functions(z: np.ndarray) -> np.ndarray:
    """Functions of different parity about the mean, and of different coordinates."""
    centred = z - z.mean(0)
    return np.concatenate([centred, np.tanh(centred) ** 2, np.exp(-((centred - 0.5) ** 2))], 1)


def z_scores(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """E f(t) g(t') - g(t) f(t') of all pairs of functions, and E f(t') - f(t), in standard errors."""
    both = functions(np.concatenate([before, after]).astype(np.float64))
    f, g = both[: len(before)], both[len(before) :]
    products = np.einsum("ni,nj->nij", f, g)
    i, j = np.triu_indices(f.shape[1], 1)
    values = np.concatenate([(products - products.swapaxes(1, 2))[:, i, j], g - f], 1)
    return values.mean(0) / (values.std(0) / np.sqrt(len(values)))


@jax.jit
def propose(transition: Transition, target: Target, words: Array, positions: Array) -> Proposed:
    return jax.vmap(lambda noise, position: transition.propose(noise, position, target))(words, positions)


def moved(transition: Any, count: int = 40_000) -> tuple[np.ndarray, Proposed]:
    before = skewed_draws(count)
    return before, propose(transition, SKEWED, jr.key_data(jr.split(jr.key(SEED), count)), before)


@pytest.mark.parametrize("name", TRANSITIONS)
def test_steps_are_reversible(name: str) -> None:
    before, (after, log_correction, rows_read) = moved(TRANSITIONS[name]())
    assert np.abs(z_scores(before, np.asarray(after))).max() < Z_LIMIT
    assert np.mean(np.any(before != after, 1)) > 0.5
    at = jax.vmap(SKEWED.surrogate.at)
    np.testing.assert_allclose(log_correction, at(before) - at(after), atol=1e-3, rtol=1e-4)
    assert not np.any(rows_read)


@pytest.mark.parametrize("share", [0.0, 2.0])
def test_the_check_sees_a_wrong_determinant(share: float) -> None:
    before, proposed = moved(Transition("nuts", NUTS, Bent(share)))
    assert np.abs(z_scores(before, np.asarray(proposed.position))).max() > 2 * Z_LIMIT


def test_the_check_sees_a_momentum_that_persists() -> None:
    """The state of generalised Hamiltonian Monte Carlo has the momentum; started at stationarity, it goes on."""
    import blackjax

    inverse, count = jnp.ones(2), 40_000
    log_density = SKEWED.surrogate.at
    kernel = blackjax.ghmc(log_density, 0.5, inverse, 0.1, 0.2)

    @jax.jit
    @jax.vmap
    def step(key: Array, position: Array) -> tuple[Array, Array]:
        first = kernel.init(position, jr.fold_in(key, 0))
        first = first._replace(slice=jr.uniform(jr.fold_in(key, 1), minval=-1, maxval=1))
        second = kernel.step(jr.fold_in(key, 2), first)[0]
        return tuple(jnp.concatenate([at.position, at.momentum]) for at in (first, second))

    before, after = map(np.asarray, step(jr.split(jr.key(SEED), count), skewed_draws(count)))
    assert np.abs(z_scores(before, after)).max() > 10 * Z_LIMIT
    assert np.abs(z_scores(before[:, :2], after[:, :2])).max() < Z_LIMIT  # a position alone does not tell


def test_the_check_sees_different_kernels_in_a_fixed_order() -> None:
    along = [Whitened(Laplace(jnp.zeros(2), np.diag(variances))) for variances in ([2.0, 1e-4], [1e-4, 2.0])]
    one, other = (Transition("mala", {"step_size": 0.4}, each) for each in along)
    before, half = moved(one)
    words = jr.key_data(jr.split(jr.key(SEED + 1), len(before)))
    after = propose(other, SKEWED, words, half.position).position
    assert np.abs(z_scores(before, np.asarray(after))).max() > 2 * Z_LIMIT


# ---- chains: no residuals ----------------------------------------------------------------------


LINEAR = normal_vector(1001)  # quadratic: order 2 leaves nothing
OFF = {"a": 0.6, "b": -0.1}


@part
class Uncorrected(Transition):
    """Without the log correction."""

    def propose(self, noise: Array, position: Any, target: Target) -> Proposed:
        return super().propose(noise, position, target)._replace(log_correction=0.0)


def kernel_of(scenario: Scenario, proposal: Any, acceptance: Any = None, **options: Any) -> tc.MetropolisHastings:
    surrogate = Taylor(scenario.posterior, scenario.data, OFF if scenario is LINEAR else scenario.mean)
    acceptance = tc.Metropolis() if acceptance is None else acceptance
    source = tc.Shuffled(scenario.data, 100)
    parts = {"proposal": proposal, "acceptance": acceptance, "surrogate": surrogate} | options
    return tc.MetropolisHastings(scenario.posterior, source, **parts)


def run(scenario: Scenario, proposal: Any, *, chains: int = 300, length: int = 60, **options: Any) -> tc.Trace:
    starts = scenario.starts(np.random.default_rng(SEED), chains)
    kernel = kernel_of(scenario, proposal, **options)
    return tc.sample(jr.key(SEED), kernel, starts, length, num_chains=chains, scan=0, progress=False)


LINEAR_NUTS = {"step_size": 0.8, "inverse_mass_matrix": np.diag(LINEAR.covariance)}
LINEAR_HMC = LINEAR_NUTS | {"num_integration_steps": 2}


def test_everything_is_accepted_where_nothing_is_left() -> None:
    trace = run(LINEAR, Transition("nuts", LINEAR_NUTS))
    assert np.abs(trace.log_ratio).max() < 1e-3
    assert trace.is_accepted.mean() > 0.999
    assert checks.agrees(trace, LINEAR)


def test_a_test_on_few_rows_accepts_everything_too() -> None:
    trace = run(LINEAR, Transition("hmc", LINEAR_HMC), acceptance=tc.Penalty())
    assert trace.is_accepted.mean() > 0.999
    assert trace.rows_read.max() < 1001
    assert checks.agrees(trace, LINEAR)


def test_chains_notice_that_the_correction_is_missing() -> None:
    trace = run(LINEAR, Uncorrected("hmc", LINEAR_HMC))
    assert np.abs(checks.z_scores(trace, LINEAR)).max() > 2 * Z_LIMIT


def test_the_offset_cancels() -> None:
    """To the last digits of float32, far from the reference too."""
    kernel = kernel_of(LINEAR, Transition("hmc", LINEAR_HMC))

    @jax.jit
    @partial(jax.vmap, in_axes=(None, 0))
    def offset(kernel: tc.MetropolisHastings, key: Array) -> Array:
        position = {"a": jnp.float32(3.0), "b": jnp.float32(-2.0)}
        return kernel.open(kernel.draw(key, position), position).offset

    assert np.abs(offset(kernel, jr.split(jr.key(SEED), 50))).max() < 1e-5


# ---- chains: a posterior that is not normal ----------------------------------------------------


def _rare(t: Array, row: dict) -> Array:
    z = t[0] + t[1] * row["x"]
    return row["y"] * z - jax.nn.softplus(z)


RARE = tc.Posterior(shared(lambda t: -2.5 * jnp.sum(jnp.log1p(t**2 / 4))), shared(_rare))  # Student t, 4 degrees


def rare_events() -> Scenario:
    """Logistic regression on 2000 rows with a few events, by quadrature."""
    random = np.random.default_rng(3)
    x = random.normal(size=2000)
    y = (random.random(2000) < 1 / (1 + np.exp(6 - x))) * 1.0
    grid = np.stack(np.meshgrid(np.linspace(-12, -3, 121), np.linspace(-2, 5, 121), indexing="ij"), -1).reshape(-1, 2)
    log_density = -2.5 * np.log1p(grid**2 / 4).sum(1)
    for part_ in np.array_split(np.arange(2000), 20):
        z = grid[:, :1] + grid[:, 1:] * x[part_]
        log_density += (y[part_] * z - np.logaddexp(0, z)).sum(1)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = weights @ grid
    covariance = (weights[:, None] * (grid - mean)).T @ (grid - mean)

    def starts(random: np.random.Generator, chains: int) -> np.ndarray:
        spacing = np.array([9, 7]) / 120
        chosen = grid[random.choice(len(grid), chains, p=weights)]
        return (chosen + random.uniform(-0.5, 0.5, (chains, 2)) * spacing).astype(np.float32)

    return Scenario(RARE, {"x": x.astype("f4"), "y": y.astype("f4")}, None, mean, covariance, starts)


@pytest.fixture(scope="module")
def rare() -> Scenario:
    return rare_events()


@pytest.fixture(scope="module")
def adapted(rare: Scenario) -> Adapted:
    target = kernel_of(rare, tc.RandomWalk(1.0)).target._replace(source=None)
    return adapt_transition(jr.key(1), target, rare.mean, num_steps=200, progress=False)


@pytest.mark.slow
def test_chains_are_exact_where_residuals_are_large(rare: Scenario, adapted: Adapted) -> None:
    trace = run(rare, adapted.transition)
    assert 0.2 < trace.is_accepted.mean() < 0.97
    assert np.abs(checks.z_scores(trace, rare)).max() < Z_LIMIT


def test_the_surrogate_alone_is_not_exact(rare: Scenario, adapted: Adapted) -> None:
    starts = rare.starts(np.random.default_rng(SEED), 300)
    target = kernel_of(rare, adapted.transition).target
    drawn = sample_surrogate(jr.key(SEED), target, adapted.transition, starts, 60)
    as_trace = SimpleNamespace(position=drawn, num_draws=60)
    assert np.abs(checks.z_scores(as_trace, rare)).max() > 2 * Z_LIMIT


@pytest.mark.slow
def test_a_test_on_few_rows_agrees(rare: Scenario, adapted: Adapted) -> None:
    trace = run(rare, adapted.transition, acceptance=tc.Penalty(), chains=1000)
    assert trace.rows_read.mean() < 1500
    assert np.abs(checks.z_scores(trace, rare)).max() < 2 * Z_LIMIT


# ---- in the engine -----------------------------------------------------------------------------


def test_draws_do_not_depend_on_chunks_or_other_chains() -> None:
    transition = Transition("hmc", LINEAR_HMC, repeats=2)
    assert isinstance(transition, CostlyProposal)
    kernel, starts = kernel_of(LINEAR, transition), LINEAR.starts(np.random.default_rng(SEED), 9)
    sample = partial(tc.sample, jr.key(SEED), kernel, num_samples=25, scan=0, progress=False)
    whole = sample(initial=starts, num_chains=9)
    chunks = sample(initial=starts, num_chains=9, chunk_size=7)
    few = sample(initial=jax.tree.map(lambda leaf: leaf[:5], starts), num_chains=5, chunk_size=7)
    for name in starts:
        np.testing.assert_array_equal(chunks.position[name], whole.position[name])
        np.testing.assert_allclose(few.position[name], whole.position[name][:5], rtol=1e-4, atol=1e-5)


def test_a_scan_and_a_summary() -> None:
    kernel, start = kernel_of(LINEAR, Transition("hmc", LINEAR_HMC), tc.Penalty()), {"a": 0.1, "b": 0.1}
    trace = tc.sample(jr.key(SEED), kernel, start, 20, num_chains=2, scan=4, progress=False)
    assert trace.scan.num_proposals == 4
    assert "Transition(algorithm='hmc', repeats=1, share_waiting=0.7)" in str(trace.summary())


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_64_bits(dtype: Any, error: float) -> None:
    with jax.enable_x64(True):
        before = jnp.asarray(skewed_draws(4).astype(dtype))
        words, at = jr.key_data(jr.split(jr.key(0), 4)), jax.vmap(SKEWED.surrogate.at)
        for transition in (Transition("nuts", NUTS), Transition("hmc", HMC, Bent(), 2)):
            after, log_correction, _ = propose(transition, SKEWED, words, before)
            assert after.dtype == before.dtype == dtype
            np.testing.assert_allclose(log_correction, at(before) - at(after), atol=error)
        found = adapt_transition(jr.key(2), SKEWED, before, "mala", num_steps=30, progress=False)
        assert sample_surrogate(jr.key(3), SKEWED, found.transition, before, 2).dtype == dtype


def test_a_kernel_that_needs_64_bits() -> None:
    """By its temperature: N/K is 1e11."""
    posterior = tc.Posterior(LINEAR.posterior.log_prior, LINEAR.posterior.log_likelihood, 1e-8)
    start = dict(zip("ab", LINEAR.data.mean(0, dtype=np.float64), strict=True))
    with jax.enable_x64(True):
        surrogate = Taylor(posterior, LINEAR.data, start)
        target, more = Target(posterior, surrogate, None), {"num_integration_steps": 4}
        transition = adapt_transition(jr.key(0), target, start, "hmc", parameters=more, progress=False).transition
    assert np.asarray(transition.parameters["step_size"]) > 0.3
    kernel = tc.MetropolisHastings(
        posterior, tc.Shuffled(LINEAR.data, 100), proposal=transition, acceptance=tc.Metropolis(), surrogate=surrogate
    )
    assert kernel.in_float64
    with jax.enable_x64(True):
        trace = tc.sample(jr.key(0), kernel, start, 5, num_chains=2, scan=0, progress=False)
    assert trace.position["a"].dtype == np.float64
    assert trace.is_accepted.mean() > 0.5


# ---- candidates that are not finite ------------------------------------------------------------


@part
class Torn:
    """Coordinates that lead nowhere from anywhere but 0."""

    def to(self, position: Any) -> Array:
        return position

    def back(self, w: Array) -> Any:
        return jnp.where(w == 0, w, jnp.nan)

    def log_det(self, w: Array) -> float:
        return 0.0


def test_a_candidate_that_is_not_finite_is_impossible() -> None:
    transition = Transition("mala", {"step_size": 0.3}, Torn())
    source = tc.Shuffled(np.zeros(50, np.float32), 10)
    surrogate = Skewed(jnp.zeros(2))
    kernel = tc.MetropolisHastings(SKEWED.posterior, source, proposal=transition, surrogate=surrogate)
    position = jnp.ones(2)
    decision = kernel.decide(kernel.draw(jr.key(0), position), position)
    assert not decision.verdict.is_accepted
    assert not decision.verdict.is_invalid
    assert decision.verdict.log_ratio == -np.inf
    np.testing.assert_array_equal(decision.position, position)


@pytest.mark.parametrize("name", ["nuts", "hmc", "mala", "barker_proposal"])
def test_edges_and_long_steps(name: str) -> None:
    """A prior that is not a number below 0, and steps across it: no candidate is on the other side."""
    target = target_of(lambda t: jnp.sum(jnp.log(t)), Skewed(jnp.ones(2)))
    parameters = {"nuts": NUTS, "hmc": HMC}.get(name, {}) | {"step_size": 3.0}
    before = jnp.full((500, 2), 0.05)
    words = jr.key_data(jr.split(jr.key(SEED), 500))
    after, log_correction, _ = propose(Transition(name, parameters), target, words, before)
    assert np.isfinite(after).all()
    assert (np.asarray(after) > 0).all()
    assert not np.isnan(log_correction).any()
