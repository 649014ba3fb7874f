"""Langevin, Hamiltonian and AMAGOLD steps along minibatches: log ratios, reversal, volume, balance; and broken ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from jax.flatten_util import ravel_pytree
from scipy import stats

from checks import agrees, run
from conftest import SEED
from registry import ACCEPTANCE, EXACT, FEW_ROWS, READS_ALL, REWEIGHTED, ROW_BY_ROW, SOUND, SOURCES
from scenarios import SCENARIOS, Scenario
from tallchain import Metropolis, MetropolisHastings, Penalty, Posterior, Shuffled, WithReplacement, sample
from tallchain.bounds import Bound
from tallchain.parts import part
from tallchain.proposals import Amagold, Hamiltonian, Langevin, Laplace
from tallchain.proposals.gradients import gradient_of
from tallchain.proposals.hamiltonian import State
from tallchain.surrogates import Taylor
from tallchain.types import Ask, Proposed, Target

ROWS = np.random.default_rng(3).normal(0.4, 1.3, 6)


@pytest.fixture
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def log_prior(t: Any) -> Any:
    return -0.5 * jnp.sum(t**2) / 4


def log_likelihood(t: Any, x: Any) -> Any:  # not normal, so that gradients differ in more than a shift
    return -jnp.log1p((x - t) ** 2)


POSTERIOR = Posterior(log_prior, log_likelihood)


def density(t: float) -> float:
    """log p(t), by NumPy."""
    return -0.5 * t**2 / 4 - np.log1p((ROWS - t) ** 2).sum()


def gradient(t: float, rows: np.ndarray) -> float:
    """Of log p_xi(t), by NumPy."""
    return -t / 4 + len(ROWS) / len(rows) * np.sum(2 * (rows - t) / (1 + (rows - t) ** 2))


def rows_by_key(source: Any, size: int, keys: Any) -> list[tuple[float, ...]]:
    """The rows that each key draws for a minibatch."""
    look = lambda key: source.look(source.start(source.draw(key)), Ask(size), size, lambda x: x, lambda v, _: v)[1]  # noqa: E731
    return [tuple(np.sort(np.asarray(look(key).evidence)[:size])) for key in keys]


# ---- balance -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("wide")
def test_langevin_is_in_detailed_balance_for_every_minibatch() -> None:
    """In one dimension, with all 15 minibatches of 2 of 6 rows: pi(t) q(t'|t) A(t, t') is the same both ways."""
    source, h = Shuffled(ROWS, 2, windows=False), 0.8
    target, langevin = Target(POSTERIOR, None, source), Langevin(h, 2)
    keys = jr.split(jr.key(SEED), 100)
    found = dict(zip(rows_by_key(source, 2, keys), keys, strict=True))
    assert sorted(found) == sorted(itertools.combinations(np.sort(ROWS), 2))
    propose = jax.jit(lambda langevin, noise, t: langevin.propose(noise, t, target))
    noise = langevin.draw(keys[0], jnp.zeros(()))

    def flow(t: float, there: float, rows: tuple[float, ...], *, is_corrected: bool = True, back: Any = None) -> float:
        """log of pi(t) q(t'|t) A(t, t'), the density by NumPy, the correction by the proposal."""
        mean = t + 0.5 * h**2 * gradient(t, np.array(rows))
        proposed = propose(langevin, noise._replace(normals=jnp.asarray((there - mean) / h), rows=found[rows]), t)
        assert proposed.position == pytest.approx(there, abs=1e-12)
        assert proposed.rows_read == 2
        correction = float(proposed.log_correction) if is_corrected else 0.0
        if back is not None:  # another minibatch on the way back
            on_the_way_back = there + 0.5 * h**2 * gradient(there, np.array(back))
            correction = stats.norm(on_the_way_back, h).logpdf(t) - stats.norm(mean, h).logpdf(there)
        return density(t) + stats.norm(mean, h).logpdf(there) + min(0.0, density(there) - density(t) + correction)

    unbalanced = {"uncorrected": 0.0, "another minibatch": 0.0}
    for t, there in [(-0.7, 0.9), (0.3, 0.5), (2.0, -1.0)]:
        for rows, other in zip(found, [*list(found)[1:], next(iter(found))], strict=True):
            assert flow(t, there, rows) == pytest.approx(flow(there, t, rows), abs=1e-10)
            for name, options in {"uncorrected": {"is_corrected": False}, "another minibatch": {"back": other}}.items():
                gap = abs(flow(t, there, rows, **options) - flow(there, t, rows, **options))
                unbalanced[name] = max(unbalanced[name], gap)
    assert min(unbalanced.values()) > 0.05


@pytest.mark.usefixtures("wide")
def test_langevin_corrects_by_both_densities() -> None:
    """In three dimensions with a matrix as scale, against scipy; all rows, so the gradient is that of the posterior."""
    x = np.random.default_rng(5).normal(size=(50, 3))
    posterior = Posterior(
        lambda t: -0.5 * jnp.sum(t["a"] ** 2) - jnp.sum(t["b"] ** 4),
        lambda t, row: -jnp.logaddexp(0.0, row[0] * t["a"][0] + row[1] * t["a"][1] + row[2] * t["b"]),
    )

    def slope(t: np.ndarray) -> np.ndarray:
        p = 1 / (1 + np.exp(-x @ t))
        return np.r_[-t[:2], -4 * t[2] ** 3] - p @ x

    factor = np.array([[0.3, 0, 0], [0.1, 0.2, 0], [-0.1, 0.05, 0.4]])
    target, langevin = Target(posterior, None, Shuffled(x, 10)), Langevin(factor, 50)
    position = {"a": jnp.array([0.2, -0.3]), "b": jnp.asarray(0.5)}
    for key in jr.split(jr.key(SEED), 3):
        proposed = langevin.propose(langevin.draw(key, position), position, target)
        here, there = (np.asarray(ravel_pytree(t)[0]) for t in (position, proposed.position))
        law = lambda t: stats.multivariate_normal(t + 0.5 * factor @ factor.T @ slope(t), factor @ factor.T)  # noqa: E731
        assert proposed.log_correction == pytest.approx(law(there).logpdf(here) - law(here).logpdf(there), abs=1e-9)


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("has_laplace", [False, True])
def test_trajectories_lead_back_and_keep_volume(has_laplace: bool) -> None:
    x = np.random.default_rng(5).normal(size=(30, 3))
    posterior = Posterior(lambda t: -jnp.sum(t**4), lambda t, row: -jnp.logaddexp(0.0, row @ t))
    laplace = Laplace(np.array([0.1, 0.2, -0.1]), 0.1 * np.eye(3) + 0.02) if has_laplace else None
    scale = 0.3 if has_laplace else np.array([[0.2, 0, 0], [0.1, 0.15, 0], [0, 0.05, 0.1]])
    proposal = Hamiltonian(scale, 7, 4, laplace)
    target = Target(posterior, None, Shuffled(x, 10, windows=False))
    field = gradient_of(target, jr.key(SEED), 4, jnp.zeros(3))

    def flow(both: Any) -> Any:
        return jnp.concatenate(list(proposal.trajectory(State(both[:3], both[3:]), field)))

    start = jnp.array([0.3, -0.2, 0.5, 0.7, -1.1, 0.2])
    end = flow(start)
    assert np.abs(end - start).max() > 0.1
    back = flow(end * jnp.array([1, 1, 1, -1, -1, -1]))
    np.testing.assert_allclose(back * np.array([1, 1, 1, -1, -1, -1]), start, atol=1e-10)
    assert np.linalg.det(jax.jacfwd(flow)(start)) == pytest.approx(1, abs=1e-10)
    noise = proposal.draw(jr.key(1), start[:3])
    noise = noise._replace(momentum=start[3:], rows=jr.key(SEED))
    proposed = proposal.propose(noise, start[:3], target)
    np.testing.assert_allclose(proposed.position, end[:3], atol=1e-12)
    energy = lambda p: 0.5 * np.sum(np.asarray(p) ** 2)  # noqa: E731
    assert proposed.log_correction == pytest.approx(energy(start[3:]) - energy(end[3:]), abs=1e-10)


@pytest.mark.usefixtures("wide")
def test_amagold_adds_up_the_work_of_its_forces() -> None:
    """The formula of the paper, step by step in NumPy."""
    source, b = Shuffled(ROWS, 2, windows=False), 0.3
    amagold, target = Amagold(0.4, 5, 2, b), Target(POSTERIOR, None, source)
    noise = amagold.draw(jr.key(SEED), jnp.zeros(()))
    proposed = amagold.propose(noise, jnp.asarray(0.7), target)
    t, p, work = 0.7 + 0.2 * float(noise.momentum), float(noise.momentum), 0.0
    for step in range(5):
        rows, key = jr.split(jr.fold_in(noise.key, step))
        force = -0.4 * gradient(t, np.array(rows_by_key(source, 2, [rows])[0]))
        z = float(jr.normal(key, (), jnp.float64))
        pushed = ((1 - b) * p - force + np.sqrt(4 * b) * z) / (1 + b)
        work += force * (p + pushed) / 2
        t, p = t + 0.4 * pushed * (0.5 if step == 4 else 1), pushed
    assert float(proposed.position) == pytest.approx(t, abs=1e-10)
    assert float(proposed.log_correction) == pytest.approx(work, abs=1e-10)
    assert proposed.rows_read == 10


# ---- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["shuffled", "weighted", "exact rows", "several looks"])
def test_gradients_of_minibatches_are_right_on_average(source: str) -> None:
    """The mean over many minibatches is the gradient of the log posterior, in standard errors."""
    x = np.random.default_rng(2).normal(0.5, 1.0, 500).astype(np.float32)
    x[:3] = 8.0
    of = {
        "shuffled": Shuffled(x, 10, windows=False),
        "weighted": WithReplacement(x, 10, weights=1 + np.abs(x)),
        "exact rows": Shuffled(x, 10, windows=False).reweighted(exact=np.arange(3)),
        "several looks": _Narrow(Shuffled(x, 10, windows=False)),
    }[source]
    target = Target(Posterior(log_prior, log_likelihood, 2.0), None, of)
    one = lambda key: gradient_of(target, key, 20, jnp.float32(0.2))(jnp.float32(0.9))  # noqa: E731
    found = np.asarray(jax.jit(jax.vmap(one))(jr.split(jr.key(SEED), 2000)), np.float64)
    truth = -0.9 / 4 + np.sum(2 * (x - 0.9) / (1 + (x - 0.9) ** 2.0)) / 2.0
    assert abs(found.mean() - truth) < 4.5 * found.std() / np.sqrt(len(found))
    assert found.std() > 0


@part
class _Narrow:
    """A source with looks of at most 7 rows."""

    source: Shuffled

    @property
    def population(self) -> Any:
        return self.source.population

    def width(self, appetite: int) -> int:
        return min(appetite, 7)

    def draw(self, key: Any) -> Any:
        return self.source.draw(key)

    def start(self, noise: Any) -> Any:
        return self.source.start(noise)

    def look(self, *arguments: Any) -> Any:
        return self.source.look(*arguments)


def test_a_surrogate_leaves_little_to_the_minibatch() -> None:
    """With an expansion of order 2 the gradient of 5 rows is nearly that of all; without one it is far off."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2000, 2)).astype(np.float32)
    y = (rng.random(2000) < 1 / (1 + np.exp(-x @ [1.0, -0.5]))).astype(np.float32)
    model = _logistic()
    mode = np.array([1.0, -0.5], np.float32)
    source = Shuffled({"x": x, "y": y}, 10)
    taylor = Taylor(model, source, mode, 2)
    at = jnp.asarray(mode + 0.05)
    everything = gradient_of(Target(model, None, source), jr.key(0), 2000, at)(at)
    errors = []
    for surrogate in (taylor, None):
        target = Target(model, surrogate, source)
        one = lambda key, target=target: gradient_of(target, key, 5, at)(at)  # noqa: E731
        found = jax.jit(jax.vmap(one))(jr.split(jr.key(SEED), 200))
        errors.append(float(jnp.std(found - everything)))
    assert errors[0] < 0.02 * errors[1]


def _logistic() -> Posterior:
    return Posterior(
        lambda t: -0.5 * jnp.sum(t**2), lambda t, row: jax.nn.log_sigmoid((2 * row["y"] - 1) * (row["x"] @ t))
    )


def test_around_a_normal_posterior_every_trajectory_is_accepted() -> None:
    """Then nothing is left for kicks, and a quarter turn is an independent draw."""
    target = SCENARIOS["normal vector"]()
    laplace = Laplace({"a": target.mean[0], "b": target.mean[1]}, target.covariance)
    proposal = Hamiltonian(None, 3, 0, laplace)
    reference = {"a": jnp.float32(0.3), "b": jnp.float32(-0.4)}
    kernel = MetropolisHastings(
        target.posterior,
        Shuffled(target.data, 40),
        proposal=proposal,
        acceptance=Penalty(),
        surrogate=Taylor(target.posterior, target.data, reference, 2),
    )
    starts = target.starts(np.random.default_rng(SEED), 100)
    trace = sample(jr.key(SEED), kernel, starts, 30, num_chains=100, scan=0, progress=False)
    assert trace.is_accepted.mean() > 0.99
    values = np.asarray(trace.position["a"])
    assert abs(np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]) < 0.1


# ---- chains --------------------------------------------------------------------------------------

STEPS = {
    "langevin": lambda scale, rows: Langevin(1.2 * scale, 30),
    "hamiltonian": lambda scale, rows: Hamiltonian(0.5 * scale, 2, min(800, rows)),
    "amagold": lambda scale, rows: Amagold(0.25 * scale, 4, 200, 0.2),
}


# Trajectories are tested in quick runs by detailed balance, reversal and volume above. Whatever the source, the engine
# hands the same rows to every test: those that reweight rows meet one.
def _is_fast(steps: str, test: str, source: str) -> bool:
    return steps != "hamiltonian" and (test, source) == ("minibatch", "windows")


PRODUCT = [
    pytest.param(steps, test, source, marks=[] if _is_fast(steps, test, source) else [pytest.mark.slow])
    for tests, sources in ((SOUND, SOURCES), (["minibatch"], REWEIGHTED))
    for steps in STEPS
    for test in tests
    for source in sources
]


@pytest.mark.parametrize(("steps", "test", "source"), PRODUCT)
def test_chains_agree_with_the_closed_form(steps: str, test: str, source: str) -> None:
    target = SCENARIOS["normal vector"](*([FEW_ROWS] if test in READS_ALL else []))
    proposal = STEPS[steps](np.linalg.cholesky(target.covariance), len(target.data))
    trace = run(target, ACCEPTANCE[test](), (SOURCES | REWEIGHTED)[source], proposal=proposal)
    assert trace.is_accepted.mean() > 0.1
    assert agrees(trace, target)


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps", [Langevin(0.4, 30), Hamiltonian(0.2, 3, 600), Amagold(0.15, 3, 300, 0.2)], ids=list(STEPS)
)
@pytest.mark.parametrize("test", ["mh-ss", "scalable", "tuna", "mh-ss without replacement"])
def test_under_exact_tests_chains_agree_with_the_closed_form(test: str, steps: Any) -> None:
    """Log likelihoods x t are bounded by |x|, and shift the prior: t ~ N(sum x/(4 K), 1/4)."""
    x = np.random.default_rng(2).normal(0.3, 1.0, 1500).astype(np.float32)
    posterior, mean = Posterior(lambda t: -2 * t**2, lambda t, x: x * t, 75.0), x.astype(float).sum() / 75 / 4
    source = Shuffled(x, 40, windows=False) if test in ROW_BY_ROW else WithReplacement(x, 40, weights=0.01 + np.abs(x))
    kernel = MetropolisHastings(posterior, source, proposal=steps, acceptance=EXACT[test](), bound=Bound(np.abs(x), 0))
    target = Scenario(posterior, x, steps, np.array([mean]), np.array([[0.25]]), None)
    starts = (mean + 0.5 * np.random.default_rng(SEED).normal(size=300)).astype(np.float32)
    trace = sample(jr.key(SEED), kernel, starts, 150, num_chains=300, scan=0, progress=False)
    assert trace.is_accepted.mean() > 0.05
    assert agrees(trace, target)


@part
class _WithoutCorrection:
    proposal: Any

    def check(self, position: Any) -> None:
        pass

    def draw(self, key: Any, position: Any) -> Any:
        return self.proposal.draw(key, position)

    def propose(self, noise: Any, position: Any, target: Target) -> Proposed:
        return self.proposal.propose(noise, position, target)._replace(log_correction=0.0)


@pytest.mark.parametrize(
    "steps", [pytest.param(name, marks=pytest.mark.slow) if name == "hamiltonian" else name for name in STEPS]
)
def test_chains_without_the_correction_do_not(steps: str) -> None:
    target = SCENARIOS["normal vector"](FEW_ROWS)
    few = {"langevin": 1.6, "hamiltonian": 0.9, "amagold": 0.6}[steps]
    factor = few * np.linalg.cholesky(target.covariance)
    proposal = {
        "langevin": Langevin(factor, 30),
        "hamiltonian": Hamiltonian(factor, 2, 300),
        "amagold": Amagold(factor, 3, 30, 0.2),
    }[steps]
    assert agrees(run(target, Metropolis(), SOURCES["windows"], proposal=proposal), target)
    assert not agrees(run(target, Metropolis(), SOURCES["windows"], proposal=_WithoutCorrection(proposal)), target)


@pytest.mark.slow
@pytest.mark.parametrize("is_apart", [True, False])
def test_the_rows_of_the_test_must_not_be_those_of_the_gradient(is_apart: bool) -> None:
    """MALA along 40 of 60 rows, and a penalty test on 40 rows: the same ones make the posterior too wide."""
    rows = np.random.default_rng(3).normal(0.4, 1.0, 60).astype(np.float32)
    posterior = Posterior(jnp.zeros_like, lambda t, x: -0.5 * (t - x) ** 2)
    source = Shuffled(rows, 40, windows=False)
    kernel = MetropolisHastings(posterior, source, proposal=Langevin(0.2, 40), acceptance=Penalty(stopping="growth"))
    sd = 1 / np.sqrt(60)

    @jax.jit
    def chain(kernel: MetropolisHastings, key: Any, start: Any) -> Any:
        def step(t: Any, key: Any) -> Any:
            noise = kernel.draw(key, t)
            decision = kernel.decide(noise if is_apart else noise._replace(source=noise.proposal.rows), t)
            return decision.position, decision.position

        return jax.lax.scan(step, start, jr.split(key, 4000))[1]

    starts = (rows.mean() + sd * np.random.default_rng(SEED).normal(size=256)).astype(np.float32)
    draws = np.asarray(jax.vmap(chain, (None, 0, 0))(kernel, jr.split(jr.key(SEED), 256), starts), np.float64)
    ratios = ((draws - rows.mean(dtype=np.float64)) ** 2).mean(1) / sd**2
    z = (ratios.mean() - 1) / (ratios.std(ddof=1) / np.sqrt(len(ratios)))
    assert abs(z) < 4.5 if is_apart else z > 4.5, (z, ratios.mean())
