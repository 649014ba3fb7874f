"""Posteriors with constraints: draws against closed forms, names and shapes in every output, and refusals."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallchain as tc
from conftest import SEED
from tallchain.checking.joining import last_positions, without_first
from tallchain.coordinates import Coordinates
from tallchain.models.constrained import Constraints
from tallchain.models.constraints import cholesky_correlation, ordered, positive, simplex, unit_interval

NUM_ROWS = 60
START = {"w": np.full(3, 1 / 3, np.float32), "rate": np.float32(1.0)}


def log_prior(t: Any) -> Any:
    """Gamma(2, 1) and Dirichlet(1, 1, 1)."""
    return jnp.log(t["rate"]) - t["rate"]


def log_likelihood(t: Any, row: Any) -> Any:
    """Exponential times, and categories."""
    return jnp.log(t["rate"]) - t["rate"] * row["time"] + jnp.log(t["w"][row["kind"]])


def rows(num_rows: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    kinds = random.choice(3, num_rows, p=[0.1, 0.3, 0.6])
    return {"time": random.exponential(0.5, num_rows).astype(np.float32), "kind": kinds}


def posterior() -> tc.Posterior:
    return tc.Posterior(log_prior, log_likelihood, constraints={"rate": positive, "w": simplex})


def truth(data: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the rate and of the shares: Gamma and Dirichlet."""
    shape, scale = 2 + len(data["time"]), 1 + data["time"].sum(dtype=np.float64)
    alpha = 1 + np.bincount(data["kind"], minlength=3)
    mean, total = alpha / alpha.sum(), alpha.sum()
    sd = np.sqrt(mean * (1 - mean) / (total + 1))
    return np.append(shape / scale, mean), np.append(np.sqrt(shape) / scale, sd)


def worst_z(trace: tc.Trace, data: dict[str, np.ndarray]) -> float:
    """The largest distance of a mean or of a standard deviation from the truth, in Monte Carlo errors."""
    mean, sd = truth(data)
    found = {each.name: each for each in trace.summary().parameters}
    each = [found[name] for name in ("rate", "w[0]", "w[1]", "w[2]")]
    of_means = [(p.mean - m) / p.mcse_mean for p, m in zip(each, mean, strict=True)]
    of_sds = [(p.sd - s) / p.mcse_sd for p, s in zip(each, sd, strict=True)]
    return float(np.max(np.abs([*of_means, *of_sds])))


def kernel_of(posterior: tc.Posterior) -> tc.MetropolisHastings:
    source = tc.Shuffled(rows(NUM_ROWS), 30)
    return tc.MetropolisHastings(posterior, source, proposal=tc.RandomWalk(0.35), acceptance=tc.Metropolis())


def run(kernel: tc.MetropolisHastings, **options: Any) -> tc.Trace:
    options = {"num_chains": 64, "num_warmup": 50, "scan": 0, "progress": False} | options
    return tc.sample(jax.random.key(SEED), kernel, START, 500, **options)


@pytest.fixture(scope="module")
def trace() -> tc.Trace:
    return run(kernel_of(posterior()))


def test_draws_are_those_of_the_closed_form(trace: tc.Trace) -> None:
    assert worst_z(trace, rows(NUM_ROWS)) < 4.5


def test_without_the_jacobian_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Constraints, "log_det", lambda self, position: 0.0)
    assert worst_z(run(kernel_of(posterior())), rows(NUM_ROWS)) > 10


def test_names_and_shapes_are_the_users(trace: tc.Trace) -> None:
    assert {name: leaf.shape for name, leaf in trace.variables().items()} == {"w": (64, 500, 3), "rate": (64, 500)}
    assert list(trace.variables()) == ["w", "rate"]  # in the user's order, not the alphabet's
    assert trace.unconstrained["w"].shape == (64, 500, 2)
    assert np.allclose(trace.position["rate"], np.exp(trace.unconstrained["rate"]))
    assert [p.name for p in trace.summary().parameters] == ["w[0]", "w[1]", "w[2]", "rate"]
    assert trace.to_datatree()["posterior"]["w"].shape == (64, 500, 3)
    assert trace.settings is not None
    assert trace.settings.prior == "log_prior"


def test_moments_are_of_the_parameters(trace: tc.Trace) -> None:
    assert trace.kernel is not None
    short = run(trace.kernel, keep="moments", num_warmup=50)
    found = {p.name: p for p in short.summary().parameters}
    for p in trace.summary().parameters:  # the same draws, all of them
        assert found[p.name].mean == pytest.approx(p.mean, rel=1e-4)
        assert found[p.name].sd == pytest.approx(p.sd, rel=1e-3)


def test_runs_go_on_from_the_coordinates_of_the_sampler(trace: tc.Trace) -> None:
    half = without_first(trace, 250)
    assert half.unconstrained["w"].shape == (64, 250, 2)
    both = trace.extend(half)
    assert both.unconstrained["rate"].shape == both.position["rate"].shape == (64, 750)
    assert np.array_equal(last_positions(trace)["w"], trace.unconstrained["w"][:, -1])


def test_runs_go_on_from_traces_and_checkpoints(trace: tc.Trace, tmp_path: Path) -> None:
    """A trace from a file has no coordinates of the sampler; the second call with a checkpoint reads it."""
    assert trace.kernel is not None
    kernel, key = trace.kernel, jax.random.key(SEED + 1)
    options: dict[str, Any] = {"progress": False, "scan": 0}
    for start in (trace, dataclasses.replace(trace, sampled=None)):
        more = tc.sample(key, kernel, start, 5, **options)
        assert trace.extend(more).unconstrained["w"].shape == (64, 505, 2)
        assert np.allclose(more.position["rate"][:, 0], trace.position["rate"][:, -1], rtol=0.5)
    begun = [tc.sample(key, kernel, START, 20, checkpoint=tmp_path / "run", **options) for _ in range(2)]
    found = [*begun, tc.resume(tmp_path / "run", kernel, **options)]
    for name in ("w", "rate"):
        assert all(np.array_equal(each.position[name], found[0].position[name]) for each in found)


def test_an_audit_names_the_parameters(trace: tc.Trace) -> None:
    """Also of a trace without the coordinates of the sampler, as from a file."""
    assert trace.kernel is not None
    found = tc.audit(trace.kernel, trace, num_decisions=60, progress=False)
    assert [drift.name for drift in found.drift] == ["w[0]", "w[1]", "w[2]", "rate"]
    assert found.is_sound
    again = tc.audit(trace.kernel, dataclasses.replace(trace, sampled=None), num_decisions=60, progress=False)
    assert again.log_odds.upper == pytest.approx(found.log_odds.upper, abs=1e-3)


def test_a_replaced_field_does_not_constrain_twice() -> None:
    made = posterior()
    at = made.unconstrain(START)
    hotter = dataclasses.replace(made, temperature=10.0)
    assert hotter.log_likelihood is made.log_likelihood
    assert float(hotter.log_prior(at)) == float(made.log_prior(at))
    free = dataclasses.replace(made, constraints=())
    assert float(free.log_prior(START)) == pytest.approx(-1.0)
    again = pickle.loads(pickle.dumps(made))
    assert float(again.log_prior(at)) == float(made.log_prior(at))
    assert jax.tree.structure(made) == jax.tree.structure(hotter)


def test_one_constraint_for_a_position_that_is_one_array() -> None:
    made = tc.Posterior(jnp.log, lambda p, row: row * jnp.log(p), constraints=unit_interval)
    at = made.unconstrain(0.25)
    assert float(made.constrain(at)) == pytest.approx(0.25)
    assert float(made.log_prior(at)) == pytest.approx(np.log(0.25) + np.log(0.25 * 0.75))
    with pytest.raises(ValueError, match='"position" must be between 0 and 1; got'):
        made.unconstrain(1.5)


def test_many_positions_along_leading_axes() -> None:
    given = {"c": ordered, "L": cholesky_correlation}
    made = tc.Posterior(lambda t: jnp.zeros(()), lambda t, row: jnp.zeros(()), constraints=given)
    many = {"c": np.tile(np.float32([-1, 0, 2]), (5, 1)), "L": np.tile(np.eye(3, dtype=np.float32), (5, 1, 1))}
    at = made.unconstrain(many)
    assert {name: leaf.shape for name, leaf in at.items()} == {"c": (5, 3), "L": (5, 3)}
    assert np.allclose(jax.vmap(made.constrain)(at)["L"], many["L"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rate": -1.0}, ValueError, '"rate" must be greater than 0; got .*-1'),
        ({"rate": 1}, TypeError, r"\['rate'\] must be of a float type"),
        ({"w": np.ones(3)}, ValueError, '"w" must be positive numbers that add up to 1'),
        ({"w": np.ones(1)}, ValueError, r'"w" must be a simplex of 2 or more numbers; got shape \(1,\)'),
        ({"w": None}, ValueError, r'`Posterior\(constraints=...\)` has "w", and the position has rate'),
    ],
)
def test_starts_that_violate_constraints_are_refused(change: Any, error: type[Exception], message: str) -> None:
    start = {name: value for name, value in (START | change).items() if value is not None}
    with pytest.raises(error, match=r"`prepare\(initial=...\)`.*" + message):
        tc.prepare(posterior(), rows(NUM_ROWS), start, progress=False)
    with pytest.raises(error, match=r"`sample\(initial=...\)`.*" + message):
        tc.sample(jax.random.key(0), kernel_of(posterior()), start, 10, progress=False)


def test_what_is_no_constraint_is_refused() -> None:
    with pytest.raises(TypeError, match=r"'rate': ...}\)` must be one of `models.constraints`.*got 'positive'"):
        tc.Posterior(log_prior, log_likelihood, constraints={"rate": "positive"})
    with pytest.raises(TypeError, match=r"must be a dict of constraints by the name of the parameter.*got 1"):
        tc.Posterior(log_prior, log_likelihood, constraints=1)


def test_a_function_that_fails_is_quoted_with_the_shapes_of_the_parameters() -> None:
    def wrong(t: Any, row: Any) -> Any:
        return jnp.dot(t["w"], jnp.ones(4))

    made = tc.Posterior(log_prior, wrong, constraints={"rate": positive, "w": simplex})
    with pytest.raises(ValueError, match=r"raised TypeError for a position of .*\['w'\] shape \(3,\)"):
        tc.prepare(made, rows(NUM_ROWS), START, progress=False)


@pytest.mark.slow
def test_a_fit_keeps_the_names_in_files(tmp_path: Path) -> None:
    """Also of parameters that are the same in all draws, as the first entry of a Cholesky factor."""
    random = np.random.default_rng(0)
    data = random.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 20_000).astype(np.float32)

    def by_factor(t: Any, row: Any) -> Any:
        factor = t["L"]
        first = row[0] / factor[0, 0]
        second = (row[1] - factor[1, 0] * first) / factor[1, 1]
        return -0.5 * (first**2 + second**2) - jnp.log(factor[1, 1])

    made = tc.Posterior(lambda t: jnp.zeros(()), by_factor, constraints={"L": cholesky_correlation})
    found = tc.fit(made, data, initial={"L": np.eye(2)}, progress=False)
    assert found.facts.convergence.worst_r_hat < 1.01
    assert list(found.summary().index) == ["L[0, 0]", "L[0, 1]", "L[1, 0]", "L[1, 1]"]
    correlation = found.draws["L"][..., 1, 0]
    expected = np.corrcoef(data.T)[0, 1]
    assert abs(correlation.mean() - expected) < 0.5 * correlation.std()
    found.save(tmp_path / "fit")
    assert np.array_equal(tc.Fit.load(tmp_path / "fit").draws["L"], found.draws["L"])


@pytest.mark.slow
def test_a_fit_on_rows_is_right() -> None:
    data = rows(5000)
    found = tc.fit(posterior(), data, initial=START, num_draws=20_000, progress=False)
    assert worst_z(found.trace, data) < 4.5


def test_coordinates_are_a_contract() -> None:
    with pytest.raises(NotImplementedError):
        Coordinates().constrain({})
