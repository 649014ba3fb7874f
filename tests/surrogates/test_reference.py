"""The mode and the curvature there, against closed forms and SciPy in float64; and what has no mode."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax import random as jr
from jax.flatten_util import ravel_pytree
from scipy import optimize, stats
from scipy.special import expit

from conftest import SEED
from scenarios import normal_vector
from tallchain.models import Posterior, linear_regression, logistic_regression
from tallchain.sources import sweeping
from tallchain.surrogates import Laplace, NoReferenceError, Reference, find_reference, objective

NUM_ROWS = 20_011  # three blocks, the last one not full
RANDOM = np.random.default_rng(SEED)
X = RANDOM.normal(size=(NUM_ROWS, 3)).astype(np.float32)


def find(posterior: Any, data: Any, initial: Any, **options: Any) -> Reference:
    return find_reference(posterior, data, initial, progress=False, **options)


def in_standard_deviations(found: Reference, mode: np.ndarray, precision: np.ndarray) -> float:
    error = np.asarray(ravel_pytree(found.position)[0], np.float64) - mode
    return float(np.sqrt(error @ precision @ error))


# ---- against independent computations ----------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 50.0])
def test_linear_regression(temperature: float) -> None:
    y = X @ [1.0, -2.0, 0.5] + RANDOM.normal(size=NUM_ROWS)
    model = linear_regression(X, y, noise_sd=0.7, prior_sd=0.3, temperature=temperature)
    found = find(model.posterior, model.data, jnp.zeros(3))
    x, y = model.data["x"].astype(np.float64), model.data["y"].astype(np.float64)
    weight = 1 / (temperature * 0.7**2)
    precision = weight * x.T @ x + np.eye(3) / 0.3**2
    mode = np.linalg.solve(precision, weight * x.T @ y)
    assert in_standard_deviations(found, mode, precision) < 3e-3
    np.testing.assert_allclose(found.hessian, precision, rtol=1e-5, atol=1e-5 * precision.max())
    # The gradient is that at the float32 position, not at the mode.
    t = np.asarray(found.position, np.float64)
    gradient = precision @ (mode - t)
    assert np.linalg.norm(np.linalg.solve(np.linalg.cholesky(precision), found.gradient - gradient)) < 3e-3
    assert found.decrement == pytest.approx(in_standard_deviations(found, mode, precision), abs=3e-3)
    assert found.log_likelihood == pytest.approx(-0.5 * np.sum((y - x @ t) ** 2) / 0.7**2, rel=1e-6)
    assert found.log_density == pytest.approx(found.log_likelihood / temperature - 0.5 * t @ t / 0.3**2, rel=1e-6)
    np.testing.assert_allclose(found.likelihood_hessian, -(x.T @ x) / 0.7**2, rtol=1e-5, atol=0.1)


def test_logistic_regression() -> None:
    """In several dispatches, with a block that is not full and one beyond the last row."""
    y = RANDOM.random(NUM_ROWS) < expit(X @ [2.0, -1.0, 0.5])
    model = logistic_regression(X, y, prior_sd=2.0, temperature=3.0, bound=False)
    assert sweeping.block_width(model.data, NUM_ROWS, lanes=1) == 8192
    found = find(model.posterior, model.data, jnp.zeros(3))
    x, sign = X.astype(np.float64), 2 * y - 1

    def minus_log_density(t: np.ndarray) -> float:
        return np.sum(np.logaddexp(0, -sign * (x @ t))) / 3 + t @ t / 8

    mode = optimize.minimize(minus_log_density, np.zeros(3), method="BFGS", options={"gtol": 1e-2}).x
    p = expit(x @ mode)
    precision = x.T @ (x * (p * (1 - p))[:, None]) / 3 + np.eye(3) / 4
    assert in_standard_deviations(found, mode, precision) < 0.01
    np.testing.assert_allclose(found.hessian, precision, rtol=2e-3, atol=1e-3 * precision.max())
    assert found.log_density == pytest.approx(-minus_log_density(np.asarray(found.position, float)), rel=1e-6)
    assert found.rows_swept == found.num_passes * NUM_ROWS
    assert "the mode of 3 parameters over 20,011 rows" in str(found)


def test_poisson_regression_with_a_nested_position() -> None:
    """From a start where the rates overflow a float32 within two steps of Newton's."""
    counts = RANDOM.poisson(np.exp(3 + X @ [0.5, -0.3, 1.0])).astype(np.float32)
    data = {"x": jnp.asarray(X), "y": counts}

    def log_likelihood(t: Any, row: Any) -> Any:
        logarithm = t["level"] + row["x"] @ t["slopes"][0]
        return row["y"] * logarithm - jnp.exp(logarithm)

    def log_prior(t: Any) -> Any:
        return -0.5 * (t["level"] ** 2 + jnp.sum(t["slopes"][0] ** 2))

    initial = {"slopes": (jnp.zeros(3),), "level": 0.0}
    posterior = Posterior(log_prior, log_likelihood, 10.0)
    found = find(posterior, data, initial)
    assert jax.tree.structure(found.position) == jax.tree.structure(initial)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found.position))
    x = np.concatenate([np.ones((NUM_ROWS, 1)), X], 1)  # "level" before "slopes"

    def minus_log_density(t: np.ndarray) -> tuple[float, np.ndarray]:
        rates = np.exp(x @ t)
        return np.sum(rates - counts * (x @ t)) / 10 + t @ t / 2, x.T @ (rates - counts) / 10 + t

    solved = optimize.minimize(minus_log_density, np.array([3.0, 0, 0, 0]), jac=True, method="BFGS")
    precision = x.T @ (x * np.exp(x @ solved.x)[:, None]) / 10 + np.eye(4)
    assert in_standard_deviations(found, solved.x, precision) < 0.01
    np.testing.assert_allclose(found.hessian, precision, rtol=1e-3, atol=1e-3 * precision.max())
    # Where the start is far narrower than the posterior.
    far = find(posterior, data, {"slopes": (jnp.full(3, 3.0),), "level": 5.0})
    assert in_standard_deviations(far, solved.x, precision) < 0.01


def test_many_coordinates_go_by_products_with_the_hessian(monkeypatch: pytest.MonkeyPatch) -> None:
    """And features of very different size."""
    d = 30
    monkeypatch.setattr(objective, "_DENSE", d - 1)
    x = (RANDOM.normal(size=(900, d)) * np.geomspace(0.01, 100, d)).astype(np.float32)
    y = RANDOM.random(900) < expit(x[:, 15])
    model = logistic_regression(x, y, prior_sd=3.0, bound=False)
    found = find(model.posterior, model.data, jnp.zeros(d))
    monkeypatch.undo()
    same = find(model.posterior, model.data, jnp.zeros(d))
    assert found.num_passes > same.num_passes
    assert in_standard_deviations(found, np.asarray(same.position, np.float64), same.hessian) < 0.02
    x, t = x.astype(np.float64), np.asarray(found.position, np.float64)
    p = expit(x @ t)
    precision = x.T @ (x * (p * (1 - p))[:, None]) + np.eye(d) / 9
    scale = np.sqrt(np.diag(precision))
    np.testing.assert_allclose(found.hessian / np.outer(scale, scale), precision / np.outer(scale, scale), atol=1e-4)
    gradient = x.T @ (y - p) - t / 9
    assert gradient @ np.linalg.solve(precision, gradient) < 0.01**2


def test_a_start_at_the_mode_stays_there() -> None:
    found = find(Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2), np.array([-1.0, 1.0]), 0.0)
    assert (found.position, found.decrement) == (0.0, 0.0)
    np.testing.assert_allclose(found.hessian, [[3.0]])


def test_a_start_next_to_a_minimum_finds_the_mode() -> None:
    """The gradient is small there too: less than one standard deviation, by the size of the curvature."""
    squares = Posterior(lambda t: -0.5 * t**2, lambda t, row: -0.5 * (row - t**2) ** 2)
    found = find(squares, np.abs(X[:, 0]), 0.005)
    assert found.position == pytest.approx(np.sqrt(np.abs(X[:, 0]).mean()), abs=0.01)


def test_the_same_posterior_does_not_compile_again() -> None:
    model = logistic_regression(X[:999], X[:999, 0] > 0, bound=False)
    reverse = jax.tree.map(lambda leaf: np.asarray(leaf)[::-1], model.data)
    programs: list[str] = []

    def note(event: str, duration_secs: float, **facts: Any) -> None:
        if event.endswith("backend_compile_duration"):
            programs.append(str(facts.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(note)
    find(model.posterior, model.data, jnp.zeros(3))
    assert any("_summaries" in name for name in programs)
    programs.clear()
    find(model.posterior, reverse, np.full(3, 0.1, np.float32))
    assert programs == []


# ---- the Laplace approximation -----------------------------------------------------------------

MEAN = {"a": jnp.float32(1.0), "b": jnp.array([[-2.0, 0.5]])}
COVARIANCE = np.array([[1.0, 0.3, -0.2], [0.3, 0.5, 0.1], [-0.2, 0.1, 2.0]])
FLAT_MEAN = np.array([1.0, -2.0, 0.5])
LAPLACES = {
    "covariance": Laplace(MEAN, covariance=COVARIANCE),
    "precision": Laplace.of_precision(MEAN, np.linalg.inv(COVARIANCE)),
}
laplaces = pytest.mark.parametrize("laplace", LAPLACES.values(), ids=LAPLACES)


@laplaces
def test_laplace(laplace: Laplace) -> None:
    assert laplace.d == 3
    np.testing.assert_allclose(laplace.factor, np.linalg.cholesky(COVARIANCE), atol=1e-6)
    np.testing.assert_allclose(laplace.inverse, np.linalg.inv(np.linalg.cholesky(COVARIANCE)), atol=1e-6)
    flat = np.asarray(ravel_pytree(laplace.standard_deviations)[0])
    np.testing.assert_allclose(flat, np.sqrt(np.diag(COVARIANCE)), rtol=1e-6)
    position = {"a": jnp.float32(0.3), "b": jnp.array([[0.4, 0.5]])}
    w = laplace.whiten(position)
    back = laplace.colour(w)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), back, position)
    density = stats.multivariate_normal(FLAT_MEAN, COVARIANCE)
    expected = density.logpdf(ravel_pytree(position)[0]) - density.logpdf(FLAT_MEAN)
    assert -0.5 * w @ w == pytest.approx(expected, abs=1e-5)


def test_laplace_draws() -> None:
    draws = jax.jit(jax.vmap(lambda laplace, key: laplace.draw(key), (None, 0)))(
        LAPLACES["precision"], jr.split(jr.key(SEED), 20_000)
    )
    flat = np.asarray(jax.vmap(lambda draw: ravel_pytree(draw)[0])(draws), np.float64)
    deviations = flat - FLAT_MEAN
    products = np.einsum("ni,nj->nij", deviations, deviations).reshape(len(flat), -1)
    values = np.concatenate([deviations, products], 1)

    def z_scores(covariance: np.ndarray) -> np.ndarray:
        return (values.mean(0) - np.r_[np.zeros(3), covariance.ravel()]) / values.std(0) * np.sqrt(len(values))

    assert np.abs(z_scores(COVARIANCE)).max() < 4.5
    assert np.abs(z_scores(np.linalg.inv(COVARIANCE))).max() > 4.5


def test_laplace_of_a_normal_posterior_is_the_posterior() -> None:
    target = normal_vector()
    laplace = find(target.posterior, target.data, {"a": 0.0, "b": 0.0}).laplace
    np.testing.assert_allclose(laplace.factor @ laplace.factor.T, target.covariance, rtol=1e-4)
    np.testing.assert_allclose(ravel_pytree(laplace.mean)[0], target.mean, atol=1e-4)


# ---- refusals ----------------------------------------------------------------------------------


def flat_prior(t: Any) -> Any:
    return 0.0 * jnp.sum(t)


def log_likelihood(t: Any, row: Any) -> Any:
    return -0.5 * jnp.sum((row - t) ** 2)


GOOD = Posterior(flat_prior, log_likelihood)
ROWS = X[:20]
MISSING = np.where(np.arange(20)[:, None] == 17, np.nan, ROWS)
INFINITE = np.where(np.arange(20)[:, None] == 17, np.inf, ROWS)
SEPARABLE = {"flat": logistic_regression(X, X[:, 0] > 0, prior_sd=None, bound=False)}
SEPARABLE["few"] = logistic_regression(X[:20], X[:20, 0] > 0, prior_sd=None, bound=False)
REPEATED = linear_regression(X[:, [0, 1, 0]], X[:, 0], prior_sd=None, noise_sd=1.0)
SCALED = {scale: linear_regression(scale * X, X[:, 0], prior_sd=None, noise_sd=1.0) for scale in (1e30, 1e-30)}

REFUSALS = {
    "no posterior": (log_likelihood, ROWS, np.zeros(3), TypeError, "`find_reference(posterior=...)` must be"),
    "no rows": (GOOD, ROWS[:0], np.zeros(3), ValueError, "`find_reference(data=...)` must hold at least one row"),
    "unequal rows": (GOOD, (ROWS, ROWS[:3]), np.zeros(3), ValueError, "the same number of rows", "(3, 3)"),
    "whole start": (GOOD, ROWS, {"t": [1, 2]}, TypeError, "`find_reference(initial=...)`", "got int64 for ['t'][0]"),
    "infinite start": (GOOD, ROWS, np.array([np.inf]), ValueError, "initial=...)` must be finite; got array([inf])"),
    "empty start": (GOOD, ROWS, {}, ValueError, "initial=...)` must hold at least one number; got {}"),
    "large start": (GOOD, ROWS, np.zeros(2001), ValueError, "has d = 2,001 coordinates", "at most 2,000"),
    "likelihood of entries": (
        Posterior(flat_prior, lambda t, row: t - row),
        ROWS,
        np.zeros(3),
        ValueError,
        "`log_likelihood(position, row)` must return one float (shape ()); got shape (3,), float32",
    ),
    "missing value": (
        GOOD,
        MISSING,
        np.zeros(3),
        ValueError,
        "NaN in data, in 1 of 20 rows, the first of them row 17.",
    ),
    "infinite value": (
        GOOD,
        INFINITE,
        np.zeros(3),
        NoReferenceError,
        "not finite",
        "for row 17, array([inf, inf, inf]",
    ),
    "large numbers": (
        SCALED[1e30].posterior,
        SCALED[1e30].data,
        np.zeros(3),
        NoReferenceError,
        "a second derivative of the sum over rows",
        "holds a number of size ",
        "e+30",
        "rescale the columns",
    ),
    "small numbers": (
        SCALED[1e-30].posterior,
        SCALED[1e-30].data,
        np.zeros(3),
        NoReferenceError,
        "is 0",
        "rescale such columns",
    ),
    "impossible start": (
        Posterior(lambda t: jnp.sum(jnp.log(t)), log_likelihood),
        ROWS,
        -np.ones(3),
        NoReferenceError,
        "the value (nan) of `log_prior(position)`, at the position [-1. -1. -1.]",
    ),
    "separable": (
        SEPARABLE["flat"].posterior,
        SEPARABLE["flat"].data,
        np.zeros(3),
        NoReferenceError,
        "found no mode",
        "of norm 0",
        "proper prior",
    ),
    "few separable": (
        SEPARABLE["few"].posterior,
        SEPARABLE["few"].data,
        np.zeros(3),
        NoReferenceError,
        "found no mode",
        "One posterior standard deviation further on",
        "about 0.5",
        "use a proper prior",
    ),
    "repeated feature": (
        REPEATED.posterior,
        REPEATED.data,
        np.zeros(3),
        NoReferenceError,
        "found no mode",
        "not positive definite",
        "repeated or constant features",
    ),
    "unbounded": (
        Posterior(flat_prior, lambda t, row: jnp.sum(t * row**2)),
        ROWS,
        np.ones(3),
        NoReferenceError,
        "not positive definite",
        "position[0]",
    ),
    "wrong gradient": (
        Posterior(lambda t: -0.5 * jnp.sum(t**2), lambda t, row: log_likelihood(lax.stop_gradient(t), row)),
        3 + ROWS,
        np.zeros(3),
        NoReferenceError,
        "has fallen by",
        "Or its gradient is wrong",
    ),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_refusals(case: tuple) -> None:
    posterior, data, initial, error, *fragments = case
    with pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, fragments))):
        find(posterior, data, initial)


def test_too_few_iterations() -> None:
    y = RANDOM.random(NUM_ROWS) < expit(X @ [8.0, 0.0, 0.0])
    model = logistic_regression(X, y, prior_sd=None, bound=False)
    with pytest.raises(ValueError, match=r"`find_reference\(max_iterations=...\)` must be .*; got 0"):
        find(model.posterior, model.data, jnp.zeros(3), max_iterations=0)
    # Polishing makes up for a few that are missing.
    assert find(model.posterior, model.data, jnp.zeros(3), max_iterations=3).decrement < 0.01


def test_without_a_mode_in_reach() -> None:
    posterior = Posterior(lambda t: -0.5 * (t / 1e6) ** 2, lambda t, row: -(jnp.abs(row - t) ** 1.01))
    with pytest.raises(NoReferenceError, match=r"After 1 iterations and 1 Newton steps|not positive definite"):
        find(posterior, np.linspace(-1, 1, 5, dtype=np.float32), 1e4, max_iterations=1)


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (np.eye(2), r"`Laplace\(covariance=...\)` must be a d x d matrix.*here 3; got shape \(2, 2\)"),
        (np.triu(np.ones((3, 3))), r"must be symmetric; got 1 at index \(0, 1\) and 0 at \(1, 0\)"),
        (np.diag([1.0, -1.0, 1.0]), r"must be positive definite; its least eigenvalue is -1"),
        (np.diag([1.0, np.nan, 1.0]), r"must be finite; got nan at index \(1, 1\)"),
    ],
)
def test_laplace_refuses(covariance: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Laplace(MEAN, covariance=covariance)
    with pytest.raises(ValueError, match=message.replace("Laplace\\(covariance", "Laplace.of_precision\\(precision")):
        Laplace.of_precision(MEAN, covariance)


# ---- which coordinate is to blame --------------------------------------------------------------


def test_a_coordinate_without_curvature_is_named() -> None:
    posterior = Posterior(lambda t: -(t["a"] ** 2) + 0 * t["scale"], lambda t, x: -((x - t["a"]) ** 2))
    with pytest.raises(NoReferenceError, match=r"the curvature along position\['scale'\] is 0\."):
        find_reference(posterior, np.zeros(50, np.float32), {"a": 1.0, "scale": 1.0}, progress=False)


def test_a_derivative_that_is_not_finite_is_named() -> None:
    """A hierarchical prior with its scale at 0: the value is finite, the slope is not."""
    posterior = Posterior(lambda t: -jnp.sqrt(t["scale"]) - t["a"] ** 2, lambda t, x: -((x - t["a"]) ** 2))
    with pytest.raises(
        NoReferenceError, match=r"the derivative by position\['scale'\] \(-inf\) of `log_prior"
    ) as caught:
        find_reference(posterior, np.zeros(50, np.float32), {"a": 1.0, "scale": 0.0}, progress=False)
    assert "sample the logarithm of the scale" in str(caught.value)


def test_the_direction_that_the_data_leave_open_is_named() -> None:
    posterior = Posterior(lambda t: 0.0 * jnp.sum(t), lambda t, x: -((x - t[0] - t[1]) ** 2) - t[2] ** 2)
    with pytest.raises(NoReferenceError, match=r"along position\[[01]\], position\[[01]\]\. Some"):
        find_reference(posterior, np.zeros(50, np.float32), np.ones(3, np.float32), progress=False)
