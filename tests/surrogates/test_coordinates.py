"""Coordinates of regressions with groups, against autodiff and against the densities that they should make normal."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from conftest import SEED
from tallchain.models import Group, Prior, Regression, families
from tallchain.models.priors import Horseshoe, Normal
from tallchain.proposals.transition import SurrogatePosterior
from tallchain.sources import Shuffled
from tallchain.surrogates import Predictors
from tallchain.surrogates.bulk import find_bulk
from tallchain.surrogates.conditional import Conditional
from tallchain.surrogates.decoupled import Decoupled
from tallchain.surrogates.grounds import RegressionGround, without_rows
from tallchain.surrogates.quantiles import Quantiles
from tallchain.surrogates.structure import reach_of

ROWS = 150
KINDS = ["groups", "slopes", "crossed", "horseshoe"]


def wide(tree: Any) -> Any:
    return jax.tree.map(lambda v: v.astype(np.float64) if np.issubdtype(np.asarray(v).dtype, np.floating) else v, tree)


def model_of(kind: str) -> Regression:
    random = np.random.default_rng(SEED)
    x = random.normal(size=(ROWS, 2))
    clinic = Group(np.arange(ROWS) % 8, slopes={"x0": x[:, 0]} if kind == "slopes" else None)
    groups = {"clinic": clinic} | ({"doctor": np.arange(ROWS) // 7 % 3} if kind == "crossed" else {})
    prior = Prior(Horseshoe()) if kind == "horseshoe" else Prior(Normal(1.0))
    if kind == "normal":
        family, y = families.Gaussian(1.0), x[:, 0] + random.normal(size=ROWS)
    else:
        family, y = families.Bernoulli(), random.random(ROWS) < 0.4
    return Regression(family, y=y, x=x, groups=None if kind == "horseshoe" else groups, prior=prior)


def surrogate_of(model: Regression) -> Predictors:
    """In float64: call it where that is enabled."""
    source = Shuffled(wide(model.data), 20)
    bulk = find_bulk(model.posterior, source, model.start)
    log_sds = {term.log_sd: float(bulk.position[term.log_sd]) for term in model.layout.terms}
    reach = reach_of(model.layout, bulk.sums, 1.0, log_sds)
    return Predictors(model.posterior, source, bulk.position, sums=bulk.sums, reach=reach)


@pytest.mark.parametrize(
    ("make", "kind"), [(Conditional, kind) for kind in KINDS] + [(Decoupled, kind) for kind in KINDS[:3]]
)
def test_coordinates_are_a_bijection_with_their_determinant(make: Any, kind: str) -> None:
    model = model_of(kind)
    with jax.enable_x64(True):
        coordinates = make(model.posterior, surrogate_of(model))
        w = jnp.asarray(np.random.default_rng(SEED).normal(size=(2, coordinates.size)))
        position = coordinates.back(w[0])
        assert jax.tree.map(np.shape, position) == jax.tree.map(np.shape, dict(model.start))
        np.testing.assert_allclose(coordinates.to(position), w[0], atol=1e-7)
        slopes = jax.jit(jax.jacfwd(lambda w: ravel_pytree(coordinates.back(w))[0]))
        found = [float(np.linalg.slogdet(slopes(each))[1]) for each in w]
        mine = [float(coordinates.log_det(each)) for each in w]
        np.testing.assert_allclose(mine[0] - mine[1], found[0] - found[1], rtol=1e-6)


@pytest.mark.parametrize("kind", ["normal", "slopes", "crossed"])
def test_all_coordinates_but_scales_are_standard_normal(kind: str) -> None:
    """With a quadratic expansion, of rows that are normal or not, and wherever the scales are."""
    model = model_of(kind)
    with jax.enable_x64(True):
        whole = surrogate_of(model)
        surrogate = Predictors(model.posterior, Shuffled(wide(model.data), 20), whole.position, order=2)
        coordinates = Decoupled(model.posterior, surrogate)
        target = SurrogatePosterior.of("test", without_rows(model.posterior, surrogate))
        num_scales, head = len(model.layout.terms), len(coordinates.factor)
        log_density = jax.jit(lambda w: target.log_density(coordinates.back(w)) + coordinates.log_det(w))
        random = np.random.default_rng(SEED)
        for _ in range(5):
            a, b = random.normal(size=(2, coordinates.size))
            b[head : head + num_scales] = a[head : head + num_scales] = random.uniform(-3, 3, num_scales)
            difference = float(log_density(jnp.asarray(a)) - log_density(jnp.asarray(b)))
            np.testing.assert_allclose(difference, 0.5 * (b @ b - a @ a), atol=1e-6)


def test_the_coordinate_of_a_single_scale_is_standard_normal() -> None:
    """Its density alone, since it is independent of all others."""
    model = model_of("normal")
    with jax.enable_x64(True):
        surrogate = surrogate_of(model)
        coordinates = Decoupled(model.posterior, surrogate)
        target = SurrogatePosterior.of("test", without_rows(model.posterior, surrogate))
        log_density = jax.jit(lambda w: target.log_density(coordinates.back(w)) + coordinates.log_det(w))
        at = len(coordinates.factor)
        values = np.linspace(-3, 3, 25)
        found = np.array([float(log_density(jnp.zeros(coordinates.size).at[at].set(value))) for value in values])
        found += 0.5 * values**2
        assert np.ptp(found) < 0.05, found


def test_quantiles_are_those_of_a_skewed_density() -> None:
    """The logarithm of an exponential number; and how far they go on."""
    with jax.enable_x64(True):
        quantiles = Quantiles.of(lambda x: x - np.exp(x), 0.3)
        w = np.linspace(-4, 4, 33)
        x, _log_slope = jax.vmap(quantiles.back)(jnp.asarray(w))
        truth = np.log(stats.expon.isf(stats.norm.sf(w)))
        np.testing.assert_allclose(x, truth, atol=0.01)
        np.testing.assert_allclose(jax.vmap(quantiles.to)(x), w, atol=1e-6)
        further = jnp.asarray([-30.0, -5.5, -0.01, 0.7, 5.5, 30.0])
        slopes = jax.vmap(jax.grad(lambda w: quantiles.back(w)[0]))(further)
        np.testing.assert_allclose(jax.vmap(quantiles.back)(further)[1], np.log(slopes), rtol=1e-6)
        np.testing.assert_allclose(jax.vmap(quantiles.to)(jax.vmap(quantiles.back)(further)[0]), further, atol=1e-5)


@pytest.mark.parametrize("log_density", [lambda x: np.full_like(x, np.nan), lambda x: 0 * x, lambda x: -1e12 * x**2])
def test_quantiles_of_what_is_no_density_still_are_a_bijection(log_density: Any) -> None:
    with jax.enable_x64(True):
        quantiles = Quantiles.of(log_density, 0.5)
        w = jnp.linspace(-6, 6, 25)
        x, log_slope = jax.vmap(quantiles.back)(w)
        assert np.all(np.isfinite(log_slope))
        assert np.all(np.diff(x) > 0)
        np.testing.assert_allclose(jax.vmap(quantiles.to)(x), w, atol=1e-4)


@pytest.mark.parametrize(("sd", "kind"), [(0.0, Decoupled), (0.5, Conditional)])
def test_a_scale_that_is_known_well_takes_the_coordinates_that_cost_less(sd: float, kind: type) -> None:
    random = np.random.default_rng(SEED)
    group, count = np.arange(20_000) % 100, 20_000
    y = random.normal(size=count) + sd * random.normal(size=100)[group]
    model = Regression(families.Gaussian(1.0), y=y, groups={"g": group})
    ground = RegressionGround(model.posterior, Shuffled(model.data, 20))
    surrogate = ground.place(model.start, lambda *_: None).surrogate
    assert isinstance(ground._coordinates(surrogate), kind)


def test_scales_far_from_the_reference_have_coordinates_in_float32() -> None:
    """From near 0, where the mean of all rows says much of the intercept, to where it says next to nothing."""
    random = np.random.default_rng(SEED)
    count = 20_000
    model = Regression(families.Gaussian(), y=random.normal(size=count), groups={"g": np.arange(count) % 3})
    place = RegressionGround(model.posterior, Shuffled(model.data, 20)).place(model.start, lambda *_: None)
    assert place.position["log_sd(g)"] < -2
    sums = place.surrogate.sums
    of_groups = float(np.sum(np.asarray(sums.terms[0].second, np.float64)))
    assert abs(float(sums.second[0, 0]) / of_groups - 1) < 1e-6  # all rows have the same curvature
    coordinates = Decoupled(model.posterior, place.surrogate)
    for log_sd in (-12.0, -6.0, -2.0, 0.5, 1.0, 2.0, 3.0, 5.0):
        effects = np.float32(0.2 * np.exp(log_sd)) * np.array([1.0, 1.01, 0.99], np.float32)
        position = place.position | {"log_sd(g)": np.float32(log_sd), "g": effects}
        position["coefficients"] = place.position["coefficients"] - effects[0]
        w = coordinates.to(position)
        assert np.all(np.isfinite(w)), (log_sd, w)
        again = coordinates.back(w)
        for name, leaf in position.items():
            np.testing.assert_allclose(again[name], leaf, rtol=1e-3, atol=1e-4 * max(1, np.exp(log_sd)))
