"""Ready regressions: log likelihoods row by row, derivatives far out, the bound, draws against quadrature, refusals."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, log_ndtr

import tallchain as tc
from checks import Z_LIMIT, run, z_scores
from conftest import SEED
from scenarios import Scenario
from tallchain.models import Regression, linear_regression, logistic_regression, poisson_regression, probit_regression
from tallchain.models.likelihoods import log_normal_cdf
from tallchain.parts import replace

known_noise = partial(linear_regression, noise_sd=1.0)
FAR = np.array([-1e4, -300, -100, -40, -15, -6, -5, -4, -1, 0, 1, 5, 15, 40, 100, 300, 1e4], np.float32)


def random_features(num_rows: int, dimension: int) -> np.ndarray:
    return np.random.default_rng(SEED).normal(size=(num_rows, dimension))


def log_likelihoods(model: Regression, position: np.ndarray) -> np.ndarray:
    each_row = jax.vmap(model.posterior.log_likelihood, (None, 0))
    return np.asarray(each_row(jnp.asarray(position, jnp.float32), model.data), np.float64)


# ---- log likelihoods against scipy, row by row -------------------------------------------------

EXACT = {
    "logistic": (logistic_regression, (0, 1), lambda y, s: stats.bernoulli.logpmf(y, expit(s))),
    "probit": (probit_regression, (0, 1), lambda y, s: np.where(y, stats.norm.logcdf(s), stats.norm.logsf(s))),
    "poisson": (poisson_regression, (0, 1, 2, 7, 30), lambda y, s: stats.poisson.logpmf(y, np.exp(s))),
    "linear": (known_noise, (-3.0, -0.2, 1.7), stats.norm.logpdf),
}


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", EXACT)
def test_log_likelihood_is_scipys(name: str, intercept: bool) -> None:
    """Up to a constant per row, so between two positions."""
    make, values, log_density = EXACT[name]
    features = random_features(60, 3)
    outcomes = np.resize(values, 60)
    model = make(features, outcomes, intercept=intercept)
    columns = np.column_stack([np.ones(60), features]) if intercept else features
    first, second = np.random.default_rng(SEED).normal(size=(2, columns.shape[1]))
    exact = [log_density(outcomes, columns @ t) for t in (first, second)]
    ours = log_likelihoods(model, first) - log_likelihoods(model, second)
    np.testing.assert_allclose(ours, exact[0] - exact[1], rtol=2e-6, atol=2e-5)
    assert model.data["x"].dtype == model.data["y"].dtype == np.float32


def test_noise_and_prior_have_their_sd() -> None:
    model = linear_regression(np.ones((1, 2)), [3.0], noise_sd=0.5, prior_sd=2.0, temperature=7.0)
    assert log_likelihoods(model, np.array([1.0, 0.5]))[0] == pytest.approx(-0.5 * (1.5 / 0.5) ** 2)
    assert float(model.posterior.log_prior(jnp.array([1.0, 3.0]))) == pytest.approx(-0.5 * (0.5**2 + 1.5**2))
    assert model.posterior.temperature == 7.0
    flat = known_noise(np.ones((1, 2)), [3.0], prior_sd=None)
    assert float(flat.posterior.log_prior(jnp.array([1.0, 3.0]))) == 0


def test_a_large_count_keeps_its_digits() -> None:
    """The plain formula y x.t - exp(x.t) is off by about 1 here: its terms are of the size of 10^7."""
    count = 1e6
    model = poisson_regression(np.ones((1, 1)), [count])
    there, back = np.float32(np.log(count)) + np.array([1e-3, -2e-3], np.float32)
    exact = stats.poisson.logpmf(count, np.exp(np.float64(there))) - stats.poisson.logpmf(count, np.exp(float(back)))
    ours = log_likelihoods(model, there[None]) - log_likelihoods(model, back[None])
    assert ours[0] == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("s", [-3.0, 0.5, 4.0])
@pytest.mark.parametrize("y", [0.0, 1.0, 30.0])
def test_gradient_of_poisson(y: float, s: float) -> None:
    """y - exp(s), also by reverse mode, which must not see the part beyond the steepest exponent."""
    model = poisson_regression(np.ones((1, 1)), [y])
    row = jax.tree.map(lambda leaf: leaf[0], model.data)
    gradient = jax.grad(model.posterior.log_likelihood)(jnp.array([s]), row)
    np.testing.assert_allclose(gradient, [y - np.exp(s)], rtol=1e-5, atol=1e-5)


def test_one_compilation_serves_two_data_sets() -> None:
    """Parts are looked up by their functions: equal settings must give equal ones."""
    for make in (logistic_regression, probit_regression, poisson_regression, linear_regression):
        first, second = (make(random_features(4, 2) + shift, [0, 1, 0, 1]).posterior for shift in (0, 1))
        assert jax.tree.structure(first) == jax.tree.structure(second)


# ---- derivatives -------------------------------------------------------------------------------


def derivatives(function: Any) -> list[Any]:
    """The function and its first two derivatives, forward over forward."""
    slope = lambda f: lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1]  # noqa: E731
    return [jax.jit(jax.vmap(f)) for f in (function, slope(function), slope(slope(function)))]


@pytest.mark.parametrize(
    ("make", "outcome"),
    [
        (logistic_regression, 0),
        (logistic_regression, 1),
        (probit_regression, 0),
        (probit_regression, 1),
        (poisson_regression, 0),
        (poisson_regression, 3),
        (poisson_regression, 1e7),
        (known_noise, -50.0),
    ],
)
def test_derivatives_are_finite_far_out(make: Any, outcome: float) -> None:
    model = make(np.ones((1, 1)), [outcome])
    row = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), model.data)
    function = lambda s: model.posterior.log_likelihood(s[None], row)  # noqa: E731
    value, first, second = (np.asarray(f(jnp.asarray(FAR))) for f in derivatives(function))
    assert np.all(np.isfinite([value, first, second]))
    assert np.all(second <= 0), "every one of these models is log-concave"
    backward = jax.jit(jax.vmap(jax.hessian(function)))(jnp.asarray(FAR))
    np.testing.assert_allclose(backward, second, rtol=1e-4, atol=1e-6)


def exact_log_normal_cdf(x: np.ndarray) -> list[np.ndarray]:
    """In float64: scipy's value, and both derivatives by the recurrence m' = -m (x + m), m = phi/Phi."""
    x = x.astype(np.float64)
    t = np.maximum(-x, 1)
    fraction = t
    for k in range(200, 0, -1):
        fraction = t + k / fraction
    ratio = np.where(x < -1, fraction, np.exp(stats.norm.logpdf(x) - log_ndtr(x)))
    return [log_ndtr(x), ratio, -ratio * (x + ratio)]


def test_log_normal_cdf() -> None:
    x = np.concatenate([FAR, np.linspace(-12, 12, 97, dtype=np.float32)])
    ours = [np.asarray(f(jnp.asarray(x))) for f in derivatives(log_normal_cdf)]
    for mine, exact in zip(ours, exact_log_normal_cdf(x), strict=True):
        np.testing.assert_allclose(mine, exact, rtol=3e-5, atol=1e-7)


def test_the_check_refuses_jaxs_second_derivative() -> None:
    """Why there is a `log_normal_cdf` at all. If this fails, JAX has mended it."""
    second = np.asarray(derivatives(jax.scipy.special.log_ndtr)[2](jnp.asarray(FAR)))
    assert np.max(np.abs(second - exact_log_normal_cdf(FAR)[2])) > 1


# ---- the bound of the logistic model -----------------------------------------------------------


def features_of(kind: str) -> np.ndarray:
    random = np.random.default_rng(SEED)
    normal = random.normal(size=(3000, 6))
    return {
        "normal": normal,
        "pixels": random.random((3000, 6)) * (random.random((3000, 6)) < 0.3),
        "correlated": normal @ np.tril(np.ones((6, 6))) * np.logspace(-2, 1, 6),
        "repeated and constant": np.column_stack([normal[:, :3], normal[:, 0], np.zeros(3000), np.ones(3000)]),
        "one feature": normal[:, :1],
    }[kind]


def true_range(model: Regression, position: np.ndarray, candidate: np.ndarray) -> float:
    """In float64, over all rows."""
    signed = np.where(model.data["y"] > 0, 1, -1)[:, None] * model.data["x"].astype(np.float64)
    return float(np.ptp(np.logaddexp(0, -signed @ position) - np.logaddexp(0, -signed @ candidate)))


def pairs(dimension: int) -> list[np.ndarray]:
    """Positions near and far with candidates near and far, in float32 as the kernel has them."""
    random = np.random.default_rng(SEED)
    scales = [(reach, step) for reach in (0, 0.3, 3, 30) for step in (1e-3, 0.1, 3) for _ in range(5)]
    moves = [random.normal(size=(2, dimension)) * np.array([scale]).T for scale in scales]
    return [np.cumsum(move, axis=0).astype(np.float32) for move in moves]


KINDS = ["normal", "pixels", "correlated", "repeated and constant", "one feature"]


@pytest.mark.parametrize("kind", KINDS)
def test_bound_is_at_least_the_range(kind: str) -> None:
    features = features_of(kind)
    model = logistic_regression(features, np.arange(len(features)) % 3 == 0)
    bounds = [jax.jit(f) for f in (model.bound, model.bound.by_norm, model.bound.by_ellipsoid)]
    ratios = []
    for position, candidate in pairs(features.shape[1]):
        exact = true_range(model, position.astype(np.float64), candidate.astype(np.float64))
        ratios.append([float(bound(position, candidate)) / exact for bound in bounds])
    lowest = np.min(ratios, axis=0)
    assert np.all(lowest >= 1), lowest
    assert lowest[0] < 2, "negative control: half of the bound is not one"
    np.testing.assert_allclose(np.array(ratios)[:, 0], np.min(np.array(ratios)[:, 1:], axis=1), rtol=1e-5)


def test_bound_is_attained() -> None:
    """Two rows that the model gets wrong, where log sigmoid has slope 1, and a step along and against them."""
    model = logistic_regression([[5.0, 0.1], [-5.0, 0.1]], [1, 1])
    position, candidate = np.array([0.0, -1000.0]), np.array([1e-3, -1000.0])
    assert true_range(model, position, candidate) == pytest.approx(1e-2, rel=1e-3)
    assert float(model.bound(position, candidate)) == pytest.approx(1e-2, rel=1e-3)


def test_ellipsoid_pays_for_correlated_features() -> None:
    model = logistic_regression(features_of("correlated"), np.arange(3000) % 2)
    step = np.random.default_rng(SEED).normal(size=(200, 6)).astype(np.float32)
    norm, ellipsoid = (
        jax.vmap(f, (None, 0))(np.zeros(6), step) for f in (model.bound.by_norm, model.bound.by_ellipsoid)
    )
    assert np.mean(ellipsoid) < 0.7 * np.mean(norm)


def test_rows_read_for_the_bound_are_counted() -> None:
    features, outcomes = random_features(50, 2), np.arange(50) % 2
    assert logistic_regression(features, outcomes).rows_swept == 2 * 50
    without = logistic_regression(features, outcomes, bound=False)
    assert (without.bound, without.rows_swept) == (None, 0)
    for make in (probit_regression, poisson_regression, linear_regression):
        model = make(features, outcomes)
        assert (model.bound, model.rows_swept) == (None, 0)


def test_bound_saves_the_scan_of_the_confidence_test() -> None:
    model = logistic_regression(random_features(400, 2), np.arange(400) % 2, temperature=10.0)
    position = jnp.array([0.3, -0.1])
    parts = {"proposal": tc.RandomWalk(0.1), "acceptance": tc.Confidence(0.1)}
    with_bound, without = (
        tc.MetropolisHastings(model.posterior, tc.Shuffled(model.data, 50), bound=bound, **parts)
        for bound in (model.bound, None)
    )
    noise = with_bound.draw(jax.random.key(SEED), position)
    trial = with_bound.open(noise, position)
    assert not trial.ask.census
    assert float(trial.memory.range) == pytest.approx(40 * float(model.bound(position, trial.candidate)))
    assert without.open(noise, position).ask.census


# ---- draws against quadrature ------------------------------------------------------------------


def small_logistic() -> Scenario:
    """An intercept and a slope from 120 rows, integrated on a grid in float64 with scipy's densities."""
    random = np.random.default_rng(1)
    features = random.normal(size=(120, 1))
    outcomes = random.random(120) < expit(0.5 + features[:, 0])
    model = logistic_regression(features, outcomes, temperature=6.0, intercept=True)
    line = np.linspace(-4, 5, 181)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    sums = stats.bernoulli.logpmf(outcomes, expit(grid[:, :1] + grid[:, 1:] * features[:, 0])).sum(1)
    log_density = stats.norm.logpdf(grid).sum(1) + sums / 6
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = weights @ grid
    covariance = (weights[:, None] * (grid - mean)).T @ (grid - mean)

    def starts(random: np.random.Generator, chains: int) -> np.ndarray:
        return grid[random.choice(len(grid), chains, p=weights)].astype(np.float32)

    proposal = tc.RandomWalk(1.2 * np.linalg.cholesky(covariance))
    return Scenario(model.posterior, model.data, proposal, mean, covariance, starts)


def test_draws_agree_with_quadrature() -> None:
    target = small_logistic()
    scores = z_scores(run(target, tc.Metropolis(), tc.Shuffled), target)
    assert np.all(np.abs(scores) < Z_LIMIT), scores


def test_check_refuses_the_wrong_temperature() -> None:
    target = small_logistic()
    broken = target._replace(posterior=replace(target.posterior, temperature=1.4 * target.posterior.temperature))
    assert np.any(np.abs(z_scores(run(broken, tc.Metropolis(), tc.Shuffled), target)) > Z_LIMIT)


# ---- refusals ----------------------------------------------------------------------------------

X = np.zeros((4, 2))
BOTH = [0, 1, 1, 0]
REFUSALS = {
    "labels -1 and 1": (
        lambda: logistic_regression(X, [-1, 1, 1, -1]),
        ValueError,
        ["`logistic_regression(outcomes=...)` must be 0 or 1", "got -1, 1.", "`outcomes > 0`"],
    ),
    "labels 1 and 2": (
        lambda: probit_regression(X, [1, 2, 2, 1]),
        ValueError,
        ["`probit_regression(outcomes=...)`", "got 1, 2.", "`outcomes == label`"],
    ),
    "probabilities": (
        lambda: logistic_regression(X, [0.1, 0.2, 0.3, 0.4]),
        ValueError,
        ["must be 0 or 1", "got 0.1, 0.2, 0.3, 0.4."],
    ),
    "many labels": (lambda: logistic_regression(np.zeros((9, 1)), range(9)), ValueError, ["got 0, 1, 2, 3, 4, ..."]),
    "text": (
        lambda: logistic_regression(X, ["a", "b", "a", "b"]),
        TypeError,
        ["`logistic_regression(outcomes=...)` must hold numbers; got <U1."],
    ),
    "negative counts": (
        lambda: poisson_regression(X, [0, -1, 2, 3]),
        ValueError,
        ["`poisson_regression(outcomes=...)` must be counts", "got -1."],
    ),
    "parts of a count": (lambda: poisson_regression(X, [0.5, 1, 2, 3]), ValueError, ["must be counts", "got 0.5."]),
    "missing feature": (
        lambda: linear_regression(np.array([[0, 1], [np.nan, 2]]), [0, 1]),
        ValueError,
        ["`linear_regression(features=...)` must be finite", "got nan at row 1, column 0.", "missing values"],
    ),
    "too large for float32": (
        lambda: linear_regression(np.full((1, 1), 1e39), [0]),
        ValueError,
        ["must be finite, in float32 as well; got inf at row 0, column 0."],
    ),
    "infinite outcome": (
        lambda: linear_regression(X, [0, np.inf, 0, 0]),
        ValueError,
        ["`linear_regression(outcomes=...)` must be finite", "got inf at row 1."],
    ),
    "one axis": (
        lambda: logistic_regression(np.zeros(4), BOTH),
        ValueError,
        ["`logistic_regression(features=...)` must be an array (rows, features); got shape (4,).", "features[:, None]"],
    ),
    "no rows": (lambda: logistic_regression(np.zeros((0, 2)), []), ValueError, ["at least one row", "shape (0, 2)"]),
    "rows do not match": (
        lambda: poisson_regression(X, [0, 1]),
        ValueError,
        ["`poisson_regression(outcomes=...)` must be one number for each row", "shape (4,); got shape (2,)."],
    ),
    "outcomes in two columns": (
        lambda: logistic_regression(X, np.zeros((4, 2))),
        ValueError,
        ["shape (4,); got shape (4, 2)."],
    ),
    "outcomes without noise": (
        lambda: linear_regression(X, [2, 2, 2, 2]),
        ValueError,
        ["`linear_regression(outcomes=...)` must differ for the noise to be estimated; got 2 for every row."],
    ),
    "prior of no width": (
        lambda: logistic_regression(X, BOTH, prior_sd=0.0),
        ValueError,
        ["`logistic_regression(prior_sd=...)` must be a positive number, or None for a flat prior; got 0.0."],
    ),
    "prior of negative width": (lambda: probit_regression(X, BOTH, prior_sd=-1), ValueError, ["got -1."]),
    "noise": (
        lambda: linear_regression(X, BOTH, noise_sd=0),
        ValueError,
        ["`linear_regression(noise_sd=...)` must be a positive number", "got 0."],
    ),
    "temperature": (lambda: logistic_regression(X, BOTH, temperature=0), ValueError, ["temperature=...)`", "got 0."]),
    "intercept": (
        lambda: logistic_regression(X, BOTH, intercept=1),
        TypeError,
        ["`logistic_regression(intercept=...)` must be True or False; got 1."],
    ),
    "a bound of your own": (
        lambda: logistic_regression(X, BOTH, bound=max),
        TypeError,
        ["`logistic_regression(bound=...)` must be True or False; got <built-in"],
    ),
    "position of another length": (
        lambda: log_likelihoods(logistic_regression(X, BOTH, intercept=True), np.zeros(2)),
        ValueError,
        ["a vector of 3 coefficients", "got shape (2,)."],
    ),
}


@pytest.mark.parametrize(("call", "error", "fragments"), REFUSALS.values(), ids=list(REFUSALS))
def test_refusals(call: Any, error: type[Exception], fragments: list[str]) -> None:
    with pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, fragments))):
        call()


def test_accepts_what_is_meant() -> None:
    by_bool = logistic_regression(X, np.array([False, True, True, False]))
    by_list = logistic_regression(X.tolist(), [0.0, 1.0, 1.0, 0.0])
    by_jax = logistic_regression(jnp.asarray(X), jnp.asarray(BOTH))
    in_a_column = logistic_regression(X, np.reshape(BOTH, (4, 1)))
    for model in (by_list, by_jax, in_a_column):
        jax.tree.map(np.testing.assert_array_equal, model.data, by_bool.data)
