"""Expansions in the predictors: residuals and sums against expansions in the parameters in float64, orders, limits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from conftest import SEED
from models.families.family_cases import COSTLY_SLOW, FAMILIES
from tallchain.models import Group, Regression, families
from tallchain.surrogates import Predictors, Taylor

ROWS = 300
PAIRS = 8  # of positions, as `influence` has them


def model_of(name: str, *, has_groups: bool = True) -> Regression:
    """Two features, weights and an offset; a factor with a slope, and one crossed with it."""
    random, case = np.random.default_rng(SEED), FAMILIES[name]
    x = random.normal(size=(ROWS, 2))
    groups = {
        "clinic": Group(np.r_[np.arange(9), random.integers(0, 9, ROWS - 9)], slopes={"x0": x[:, 0]}),
        "doctor": Group(np.r_[np.arange(4), random.integers(0, 4, ROWS - 4)]),
    }
    return Regression(
        case.family,
        y=case.outcomes(random, ROWS),
        x=x,
        groups=groups if has_groups and case.family.num_linear == 1 else None,
        weights=random.integers(1, 4, ROWS),
        offset=0.1 * random.normal(size=ROWS),
    )


def positions(model: Regression, count: int, spread: float, like: Any = None) -> Any:
    random = np.random.default_rng(SEED + 1)
    like = model.start if like is None else like
    return jax.tree.map(lambda v: np.asarray(v + spread * random.normal(size=(count, *np.shape(v))), np.float32), like)


def wide(tree: Any) -> Any:
    return jax.tree.map(lambda v: jnp.asarray(v, jnp.float64 if np.asarray(v).dtype.kind == "f" else None), tree)


@pytest.mark.parametrize("name", COSTLY_SLOW)
def test_residuals_of_order_2_are_those_of_an_expansion_in_the_parameters(name: str) -> None:
    """In float32 and compiled for several pairs at once, against `Taylor` in float64."""
    model = model_of(name)
    if model.layout.is_vector:
        model = model_of(name, has_groups=False)
    reference = jax.tree.map(lambda v: v[0], positions(model, 1, 0.1))
    there = positions(model, PAIRS, 0.02, reference)
    here = positions(model, PAIRS, 0.01, reference)
    ours = Predictors(model.posterior, model.data, reference, order=2)

    def residuals(surrogate: Predictors, here: Any, there: Any, rows: Any) -> Any:
        return jax.vmap(lambda a, b: jax.vmap(surrogate.residual(a, b))(rows))(here, there)

    found = np.asarray(jax.jit(residuals)(ours, here, there, jax.tree.map(jnp.asarray, model.data)), np.float64)
    with jax.enable_x64(True):
        rows = wide(model.data)
        taylor = Taylor(model.posterior, rows, wide(reference), 2)

        def exact(a: Any, b: Any) -> Any:
            of = jax.vmap(model.posterior.log_likelihood, (None, 0))
            return of(b, rows) - of(a, rows) - jax.vmap(taylor.row_difference(a, b))(rows)

        wanted = np.asarray(jax.jit(jax.vmap(exact))(wide(here), wide(there)))
        totals = np.asarray(jax.vmap(taylor.total)(wide(here), wide(there)))
    # A step is of size 0.05, and what is left of it of size 1e-5: rounding is relative to the step.
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-6 * max(1.0, np.abs(wanted).max() / 1e-3))
    np.testing.assert_allclose(np.asarray(jax.vmap(ours.total)(here, there)), totals, rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize("order", [2, 3, 6])
@pytest.mark.parametrize("name", ["logit", pytest.param("negative binomial", marks=pytest.mark.slow)])
def test_the_sum_of_all_rows_is_known(name: str, order: int) -> None:
    """Also beyond the reach; and a reach that is not the same in rows and in the sum is seen."""
    model = model_of(name)
    with jax.enable_x64(True):
        reference = wide(jax.tree.map(lambda v: v[0], positions(model, 1, 0.2)))
        rows, reach = wide(model.data), np.full(9, 0.3)
        ours = Predictors(model.posterior, rows, reference, order=order, reach=reach)
        a, b = (wide(jax.tree.map(lambda v, k=k: v[k], positions(model, 2, 0.5))) for k in (0, 1))
        summed = jnp.sum(jax.vmap(ours.row_difference(a, b))(rows))
        np.testing.assert_allclose(ours.total(a, b), summed, rtol=1e-6)
        if order > 2:
            other = Predictors(model.posterior, rows, reference, order=order, reach=2 * reach, sums=ours.sums)
            assert abs(other.total(a, b) - summed) > 0.1


def test_derivatives_of_the_sum_are_those_of_the_log_likelihood() -> None:
    model = model_of("logit")
    with jax.enable_x64(True):
        rows = wide(model.data)
        reference = wide(jax.tree.map(lambda v: v[0], positions(model, 1, 0.2)))
        flat, unravel = ravel_pytree(reference)
        ours = Predictors(model.posterior, rows, reference)

        def log_likelihood(flat: Any) -> Any:
            return jnp.sum(jax.vmap(model.posterior.log_likelihood, (None, 0))(unravel(flat), rows))

        mine = lambda flat: ours.total(reference, unravel(flat))  # noqa: E731
        np.testing.assert_allclose(jax.grad(mine)(flat), jax.grad(log_likelihood)(flat), atol=1e-4)
        np.testing.assert_allclose(jax.hessian(mine)(flat), jax.hessian(log_likelihood)(flat), atol=1e-4)


@pytest.mark.parametrize("order", [2, 3, 4, 5, 6])
def test_order(order: int) -> None:
    """Without features, all rows of a group have one predictor: what is left is of order k + 1 in the step."""
    random = np.random.default_rng(SEED)
    model = Regression(families.Bernoulli(), y=random.integers(0, 2, 60), groups={"g": np.arange(60) % 6})
    with jax.enable_x64(True):
        rows, reference = wide(model.data), wide(model.start)
        ours = Predictors(model.posterior, rows, reference, order=order)
        step = random.normal(size=6)

        def left(size: float) -> Any:
            moved = reference | {"g": reference["g"] + size * step}
            return jax.vmap(ours.residual(reference, moved))(rows)

        size = 0.1 if order < 5 else 0.4  # what is left of shorter steps is rounding
        ratio = np.asarray(left(size) / left(size / 2))
        np.testing.assert_allclose(np.median(ratio), 2.0 ** (order + 1), rtol=0.2)


def test_an_intercept_that_moves_against_its_groups_leaves_nothing() -> None:
    """No row's predictor changes; an expansion in the effects alone would say that it does."""
    random = np.random.default_rng(SEED)
    model = Regression(families.Bernoulli(), y=random.integers(0, 2, 60), groups={"g": np.arange(60) % 6})
    ours = Predictors(model.posterior, model.data, model.start)
    moved = model.start | {"g": model.start["g"] - 0.8, "coefficients": model.start["coefficients"] + np.float32(0.8)}
    assert abs(float(ours.total(model.start, moved))) < 1e-4
    rows = jax.tree.map(jnp.asarray, model.data)
    assert float(jnp.max(jnp.abs(jax.vmap(ours.residual(model.start, moved))(rows)))) < 1e-6
