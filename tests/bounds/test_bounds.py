"""Bounds: measures against the largest part that any row could have, constants against rows, families by their grid."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallchain as tc
from conftest import SEED
from refusals import refuse, table
from tallchain.bounds import regression_bound
from tallchain.bounds.measures import MEASURES
from tallchain.models import families
from tallchain.models.families.family import Family
from tallchain.parts import replace
from tallchain.residuals import residual
from tallchain.surrogates import Predictors, Taylor

D, PAIRS, DIRECTIONS = 5, 40, 500


def powers(order: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The largest part of a row whose (k+1)-th derivative is at most 1, x.v = a before and b after.

    The remainder of an expansion of order k, f(b) - f(a) minus that of the expansion at 0, is an integral of the
    (k+1)-th derivative times ((b - s)^k - (a - s)^k)/k!, over s on either side of 0.
    """
    if order == 0:
        return np.abs(b - a)
    if order == 2:
        return np.abs(b**3 - a**3) / 6
    grid = np.linspace(-1, 1, 2001)[:, None] * np.maximum(np.abs(a), np.abs(b))
    weight = np.where((grid > 0) & (grid < b), b - grid, 0) + np.where((grid < 0) & (grid > b), grid - b, 0)
    weight -= np.where((grid > 0) & (grid < a), a - grid, 0) + np.where((grid < 0) & (grid > a), grid - a, 0)
    return np.abs(weight).sum(0) * (grid[1] - grid[0])


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("measure", MEASURES)
def test_no_row_has_more_than_its_bound(measure: str, order: int) -> None:
    """Rows of length 1 in every direction. Ours is at most 2 % above the largest where steps are long."""
    rng = np.random.default_rng(SEED)
    distance = jax.jit(partial(MEASURES[measure], order, is_concave=False))
    ratios = []
    for pair in range(PAIRS):
        v = rng.normal(size=D)
        v2 = rng.normal(size=D) if pair % 2 else v + 0.3 * rng.normal(size=D)
        u, w = v2 - v, v + v2
        plane, _ = np.linalg.qr(np.stack([u, w], 1))
        angles = np.linspace(0, np.pi, DIRECTIONS)
        x = np.stack([np.cos(angles), np.sin(angles)], 1) @ plane.T
        x = np.concatenate([x, rng.normal(size=(DIRECTIONS, D))])
        x /= (np.abs(x).max(1) if measure == "scalable" else np.linalg.norm(x, axis=1))[:, None]
        ratios.append(float(distance(v, v2)) / powers(order, x @ v, x @ v2).max())
    assert min(ratios) > 1 - 1e-3  # of the numerical integral
    if measure == "predictor":
        assert np.median(ratios) < (1.02 if order != 1 else 1.3)


@pytest.mark.parametrize("order", [1])
def test_concave_functions_need_less(order: int) -> None:
    v, v2 = jnp.array([0.2, 0.1]), jnp.array([-1.0, 0.5])
    concave, other = (MEASURES["predictor"](order, v, v2, is_concave=each) for each in (True, False))
    assert concave <= other


# ---- families ------------------------------------------------------------------------------------

BOUNDED: dict[str, tuple[Family, list[Any]]] = {
    "logit": (families.Bernoulli(), [0.0, 1.0]),
    "probit": (families.Bernoulli("probit"), [0.0, 1.0]),
    "cloglog": (families.Bernoulli("cloglog"), [0.0, 1.0]),
    "binomial": (families.Binomial(), [[3.0, 10.0], [0.0, 4.0]]),
    "poisson": (families.Poisson(), [0.0, 7.0]),
    "gaussian": (families.Gaussian(0.5), [0.0, 1.3]),
}
EVERYWHERE = {
    "logit": (1, 1 / 4, 0.0962250),
    "probit": (np.inf, 1, 0.295719),
    "binomial": (7, 10 / 4, 10 * 0.0962250),
    "gaussian": (np.inf, 4, 0),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_derivative_bounds_hold_and_are_attained(name: str) -> None:
    """Over intervals of every size: at most 1 % above the largest value on a grid of 4001."""
    family, outcomes = BOUNDED[name]
    rng = np.random.default_rng(SEED)
    with jax.enable_x64(True):
        derivatives = jax.jit(jax.vmap(family.derivatives, (0, None)))
        bounds = jax.jit(family.derivative_bounds)
        for y in map(jnp.asarray, outcomes):
            for _ in range(40):
                low = rng.uniform(-6, 5)
                high = low + rng.choice([0.01, 0.5, 3.0, 10.0])
                found = bounds(jnp.asarray(low), jnp.asarray(high), y)
                grid = derivatives(np.linspace(low, high, 4001)[:, None], y)
                for derivative, bound in zip((grid.first, grid.second, grid.third), found, strict=True):
                    largest = np.max(np.abs(derivative))
                    assert largest <= bound * (1 + 1e-6) + 1e-12
                    assert bound <= 1.01 * largest + 1e-9


@pytest.mark.parametrize("name", EVERYWHERE)
def test_derivative_bounds_everywhere(name: str) -> None:
    family, outcomes = BOUNDED[name]
    found = family.derivative_bounds(jnp.float32(-jnp.inf), jnp.float32(jnp.inf), jnp.asarray(outcomes[0]))
    np.testing.assert_allclose(found, EVERYWHERE[name], rtol=1e-5)


def test_softmax_bounds_hold() -> None:
    """The norm of the k-th derivative along random directions."""
    family, rng = families.Categorical(4), np.random.default_rng(SEED)
    with jax.enable_x64(True):
        bounds = family.derivative_bounds(jnp.asarray(-jnp.inf), jnp.asarray(jnp.inf), jnp.asarray(1.0))

        def along(eta: jax.Array, by: jax.Array, y: jax.Array) -> jax.Array:
            f = lambda s: family.log_density(eta + s * by, y)  # noqa: E731
            first = jax.grad(f)
            second = jax.grad(first)
            return jnp.stack([first(0.0), second(0.0), jax.grad(second)(0.0)])

        eta = rng.normal(size=(20_000, 3)) * rng.choice([0.3, 1.0, 4.0], size=(20_000, 1))
        by = rng.normal(size=(20_000, 3))
        by /= np.linalg.norm(by, axis=1)[:, None]
        found = np.abs(jax.vmap(along)(eta, by, rng.integers(0, 4, 20_000).astype(float)))
    assert np.all(found <= np.asarray(bounds) * (1 + 1e-9))
    assert np.all(found.max(0) > 0.6 * np.asarray(bounds))


# ---- regressions ---------------------------------------------------------------------------------


def regression(family: Family, rng: np.random.Generator, rows: int = 3000) -> tc.models.Regression:
    x = rng.normal(size=(rows, 3))
    z = 0.3 * x.sum(1)
    if isinstance(family, families.Poisson):
        y: Any = rng.poisson(np.exp(z))
    elif isinstance(family, families.Binomial):
        trials = rng.integers(1, 20, rows)
        y = np.stack([rng.binomial(trials, 1 / (1 + np.exp(-z))), trials], 1)
    elif isinstance(family, families.Gaussian):
        y = z + rng.normal(size=rows)
    elif isinstance(family, families.Categorical):
        y = rng.integers(0, 3, rows)
    else:
        y = rng.random(rows) < 1 / (1 + np.exp(-z))
    return tc.models.Regression(family, y=y, x=x, weights=rng.integers(1, 4, rows))


MODELS: dict[str, Family] = {
    "logit": families.Bernoulli(),
    "probit": families.Bernoulli("probit"),
    "cloglog": families.Bernoulli("cloglog"),
    "binomial": families.Binomial(),
    "poisson": families.Poisson(),
    "softmax": families.Categorical(3),
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_no_row_of_a_regression_has_more_than_its_bound(name: str, order: int) -> None:
    """All rows at 60 pairs of positions; a third of them are outside of the ball, if there is a bound there."""
    model = regression(MODELS[name], np.random.default_rng(SEED))
    laplace = tc.surrogates.find_reference(model.posterior, model.data, model.start, progress=False).laplace
    bound = regression_bound(model.posterior, model.data, laplace, order)
    assert bound.rows_swept == 3000
    half = jnp.float32(0.5)
    distance = replace(bound.fitted(tc.WithReplacement(model.data, 10)), inside=half, outside=half)
    rows = jax.tree.map(jnp.asarray, model.data)

    @jax.jit
    def parts(surrogate: Any, here: Any, there: Any) -> tuple[jax.Array, jax.Array]:
        found = jax.vmap(residual(model.posterior, surrogate, here, there))(rows)
        return jnp.abs(found), distance(here, there)

    expansion = Taylor if order == 1 else Predictors
    surrogate, closest = expansion(model.posterior, model.data, laplace.mean, order=order), 0.0
    for pair in range(60):
        here, there = (laplace.draw(key) for key in jax.random.split(jax.random.key(pair), 2))
        constants = bound.constants
        if pair % 3 == 2 and bound.outside is not None:
            here = jax.tree.map(lambda t, r: r + 6 * (t - r), here, laplace.mean)
            is_inside = np.linalg.norm(laplace.whiten(here)) <= bound.radius
            constants = bound.constants if is_inside else bound.outside
        found, apart = map(np.asarray, parts(surrogate, here, there))
        assert np.all(found <= 1.001 * constants * apart + 3e-6 * (1 + np.abs(found)))  # the second is rounding
        closest = max(closest, float(np.max((found - 3e-6) / (constants * apart))))
    assert closest > (0.3 if name not in ("binomial", "softmax") else 0.01)


def test_constants_and_weights_of_different_orders_are_matched_by_row() -> None:
    """Made from a shuffled copy or from the data, for either: the largest share of a row is the same, and no less."""
    model = regression(families.Bernoulli(), np.random.default_rng(SEED))
    laplace = tc.surrogates.find_reference(model.posterior, model.data, model.start, progress=False).laplace
    shuffled = tc.Shuffled(model.data, 10, seed=3)
    plain = regression_bound(model.posterior, model.data, laplace)
    moved = regression_bound(model.posterior, shuffled, laplace)
    np.testing.assert_array_equal(moved.constants, plain.constants[shuffled.order()])
    by_row, uneven = tc.WithReplacement(model.data, 10, weights=plain.weights), 1 + np.arange(3000) % 7
    by_copy = tc.WithReplacement.of_stored(shuffled, 10, moved.weights_of(shuffled))
    np.testing.assert_array_equal(moved.weights, plain.weights)
    known = np.max(plain.constants * np.asarray(by_row.share))
    for bound in (plain, moved):
        for source in (by_row, by_copy):
            assert float(bound.fitted(source).inside) == pytest.approx(known, rel=1e-3)
        other = tc.WithReplacement(model.data, 10, weights=uneven)
        assert float(bound.fitted(other).inside) == pytest.approx(np.max(plain.constants * np.asarray(other.share)))


LARGE: dict[str, Any] = {
    "trials": lambda rng, p: {"y": np.stack([rng.binomial(10_000, p), np.full(len(p), 10_000)], 1)},
    "counts": lambda rng, p: {"y": rng.poisson(50_000 * p)},
    "weights": lambda rng, p: {"y": rng.random(len(p)) < p, "weights": np.full(len(p), 1_000_000)},
}


@pytest.mark.parametrize("name", ["trials", pytest.param("counts", marks=pytest.mark.slow), "weights"])
def test_rounding_of_large_rows_is_no_violation(name: str) -> None:
    """A row of 10,000 trials has rounding errors 10,000 times as large, far beyond its bound."""
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(200, 1))
    family = {"trials": families.Binomial(), "counts": families.Poisson(), "weights": families.Bernoulli()}[name]
    model = tc.models.Regression(family, x=x, **LARGE[name](rng, 1 / (1 + np.exp(-0.3 - 0.5 * x[:, 0]))))
    prepared = tc.prepare(model, progress=False)
    assert prepared.is_exact
    starts = prepared.starts(jax.random.key(3), 50)
    trace = tc.sample(jax.random.key(5), prepared.kernel(), starts, 1000, num_chains=50, progress=False)
    assert not trace.complaints()
    sd = np.asarray(prepared.laplace.standard_deviations)
    np.testing.assert_allclose(trace.position.astype(float).std((0, 1)), sd, rtol=0.05)


def test_a_candidate_that_overflows_is_rejected() -> None:
    """As by any other test: a log ratio that is not a number says nothing of the bound."""
    model = regression(families.Bernoulli(), np.random.default_rng(SEED))
    prepared = tc.prepare(model, progress=False)
    kernel, starts = prepared.kernel(tc.MHSS(), tc.RandomWalk(1e20)), prepared.starts(jax.random.key(0), 4)
    with pytest.warns(tc.SamplingWarning, match="NaN or"):
        trace = tc.sample(jax.random.key(0), kernel, starts, 20, num_chains=4, progress=False)
    assert trace.is_invalid.any()


def test_constants_are_largest_for_rows_that_move_most() -> None:
    """A normal model of known noise is quadratic: nothing is left at order 2, and nothing is read."""
    model = regression(families.Gaussian(1.0), np.random.default_rng(SEED))
    prepared = tc.prepare(model, progress=False)
    assert prepared.is_exact
    assert prepared.exact is not None
    assert not prepared.exact.bound.constants.any()
    trace = tc.sample(
        jax.random.key(0), prepared.kernel(), prepared.starts(jax.random.key(1), 8), 50, num_chains=8, progress=False
    )
    assert not trace.rows_read.any()
    assert trace.is_accepted.mean() > 0.9


GROUPED = tc.models.Regression(
    families.Bernoulli(), y=np.arange(40) % 2, x=np.ones((40, 1)), groups={"g": np.arange(40) % 5}
)
SCALED = tc.models.Regression(families.Gaussian(), y=np.arange(40) % 7, x=np.arange(40.0)[:, None])
SIMPLE = tc.models.Regression(families.Bernoulli(), y=np.arange(40) % 2, x=np.arange(40.0)[:, None])
LAPLACE = tc.proposals.Laplace(np.zeros(2), np.eye(2))


@table(
    {
        "groups": (lambda: regression_bound(GROUPED.posterior, GROUPED.data, LAPLACE), ValueError, "without groups"),
        "scales": (lambda: regression_bound(SCALED.posterior, SCALED.data, LAPLACE), ValueError, "Gaussian"),
        "order": (
            lambda: regression_bound(SIMPLE.posterior, SIMPLE.data, LAPLACE, 3),
            ValueError,
            "order=...",
            "0, 1 or 2",
            "3",
        ),
        "model": (lambda: regression_bound(SIMPLE, SIMPLE.data, LAPLACE), TypeError, "posterior=...", "Posterior"),
        "rows": (lambda: regression_bound(SIMPLE.posterior, np.ones((40, 2)), LAPLACE), ValueError, "log_likelihood"),
        "coefficients": (
            lambda: regression_bound(SIMPLE.posterior, SIMPLE.data, tc.proposals.Laplace(np.zeros(3), np.eye(3))),
            ValueError,
            "laplace=...",
            "2 coefficients",
            "got 3",
        ),
        "measures": (
            lambda: regression_bound(SIMPLE.posterior, SIMPLE.data, LAPLACE, 2, measure=["norm"]),
            ValueError,
            "measure=...",
        ),
        "measure": (
            lambda: regression_bound(SIMPLE.posterior, SIMPLE.data, LAPLACE, 2, measure="best"),
            ValueError,
            "measure=...",
            "predictor",
            "best",
        ),
    }
)
def test_refusals(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)
