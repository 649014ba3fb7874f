"""Maps to constrained parameters: against NumPyro's, against derivatives by JAX, far out, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallchain.models.constraints import (
    Constraint,
    cholesky_correlation,
    greater_than,
    interval,
    less_than,
    ordered,
    positive,
    simplex,
    unit_interval,
)

# A constraint, its name in numpyro.distributions.constraints, the shape of coordinates, and which numbers of a value
# are free: the Jacobian is of these.
CASES: dict[str, tuple[Constraint, Callable[[Any], Any], tuple[int, ...], Any]] = {
    "positive": (positive, lambda c: c.positive, (), ...),
    "greater than": (greater_than(-2.5), lambda c: c.greater_than(-2.5), (), ...),
    "less than": (less_than(3.0), lambda c: c.less_than(3.0), (), ...),
    "unit interval": (unit_interval, lambda c: c.unit_interval, (), ...),
    "interval": (interval(-3.0, 5.0), lambda c: c.interval(-3.0, 5.0), (), ...),
    "ordered": (ordered, lambda c: c.ordered_vector, (4,), ...),
    "one number in order": (ordered, lambda c: c.ordered_vector, (1,), ...),
    "simplex": (simplex, lambda c: c.simplex, (4,), (..., slice(-1))),
    "two numbers of a simplex": (simplex, lambda c: c.simplex, (1,), (..., slice(-1))),
    "cholesky": (cholesky_correlation, lambda c: c.corr_cholesky, (6,), (..., *np.tril_indices(4, -1))),
    "cholesky of two rows": (cholesky_correlation, lambda c: c.corr_cholesky, (1,), (..., *np.tril_indices(2, -1))),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Constraint, Any, tuple[int, ...], Any]:
    return CASES[request.param]


def coordinates(shape: tuple[int, ...], spread: float = 1.5) -> np.ndarray:
    return np.random.default_rng(0).normal(scale=spread, size=(20, *shape))


def maps(constraint: Constraint) -> Callable[[Any], Any]:
    """Return the parameters, the log determinant, and the coordinates again, in one program."""

    def both(u: Any) -> Any:
        t = constraint.constrain(u)
        return t, constraint.log_det(u), constraint.unconstrain(t)

    return both


def test_agrees_with_numpyro_and_with_derivatives(case: tuple[Constraint, Any, tuple[int, ...], Any]) -> None:
    distributions = pytest.importorskip("numpyro.distributions")
    constraint, theirs, shape, free = case
    theirs = distributions.biject_to(theirs(distributions.constraints))

    def jacobian(u: Any) -> Any:
        found = jax.jacfwd(lambda u: jnp.atleast_1d(constraint.constrain(u))[free])(u)
        return jnp.reshape(found, (u.size, u.size))

    with jax.enable_x64(True):
        u = jnp.asarray(coordinates(shape))
        t, log_det, again = jax.jit(maps(constraint))(u)
        assert np.allclose(again, u, rtol=1e-9)
        assert np.allclose(t, theirs(u), rtol=1e-12, atol=0)
        assert np.allclose(log_det, theirs.log_abs_det_jacobian(u, t), rtol=1e-10)
        by_jax = np.linalg.slogdet(jax.jit(jax.vmap(jacobian))(u))[1]
        assert np.allclose(log_det, by_jax, rtol=1e-9)


def test_there_and_back_in_float32(case: tuple[Constraint, Any, tuple[int, ...], Any]) -> None:
    """With leading axes, the shapes that are stated, and within the limits however far out."""
    constraint, _, shape, _ = case
    scale = np.geomspace(0.1, 200, 20).astype(np.float32).reshape(20, *(1,) * len(shape))
    near = coordinates(shape).astype(np.float32)
    u = np.stack([near, near * (near if constraint is ordered else scale)])
    t, log_det, again = map(np.asarray, jax.jit(maps(constraint))(u))
    assert t.dtype == np.float32
    assert constraint.shape(t.shape) == u.shape
    assert log_det.shape == (2, 20)
    assert np.all(np.isfinite(t))
    assert constraint.violated(t) == ""
    assert np.allclose(again[0], near, rtol=1e-4, atol=2e-5)
    with jax.enable_x64(True):
        assert np.allclose(log_det, jax.jit(constraint.log_det)(np.asarray(u, float)), rtol=1e-5, atol=1e-5)


def test_gradients_are_finite_far_out() -> None:
    for constraint, _, shape, _ in (CASES[name] for name in ("interval", "simplex", "cholesky")):
        total = lambda u, of=constraint: jnp.sum(of.log_det(u)) + jnp.sum(of.constrain(u))  # noqa: E731
        for u in (np.full(shape, 80, np.float32), np.full(shape, -80, np.float32)):
            assert np.all(np.isfinite(jax.jit(jax.grad(total))(u)))


def test_small_shares_keep_their_digits() -> None:
    t = np.array([1e-30, 1.0, 1e-20, 3e-25], np.float32)
    again = simplex.constrain(simplex.unconstrain(jnp.asarray(t)))
    assert np.allclose(again, t, rtol=1e-4, atol=0)
    near_one = np.array([[1, 0, 0], [0.9999, 0.0141418, 0], [-0.9999, 1e-3, 0.0141064]], np.float32)
    near_one /= np.linalg.norm(near_one, axis=1, keepdims=True)
    again = cholesky_correlation.constrain(cholesky_correlation.unconstrain(jnp.asarray(near_one)))
    assert np.allclose(again, near_one, rtol=1e-4, atol=0)


def test_zero_is_the_middle() -> None:
    assert np.allclose(simplex.constrain(jnp.zeros(4)), 1 / 5)
    assert np.allclose(cholesky_correlation.constrain(jnp.zeros(3)), np.eye(3))
    assert float(interval(-1.0, 3.0).constrain(jnp.zeros(()))) == 1.0


def test_a_wrong_jacobian_is_noticed() -> None:
    """The density of u integrates to 1 with the Jacobian, and to something else without it."""
    u = jnp.linspace(-12, 12, 20_001)
    for constraint, log_density in (
        (positive, lambda t: math.log(16 / 6) + 3 * jnp.log(t) - 2 * t),  # Gamma(4, 2)
        (unit_interval, lambda t: math.log(12) + jnp.log(t) + 2 * jnp.log1p(-t)),  # Beta(2, 3)
    ):
        by_u = log_density(constraint.constrain(u))
        assert float(jnp.trapezoid(jnp.exp(by_u + constraint.log_det(u)), u)) == pytest.approx(1, rel=1e-4)
        assert abs(float(jnp.trapezoid(jnp.exp(by_u), u)) - 1) > 0.1


def test_derivatives_are_finite_however_far_out() -> None:
    """A gradient of NaN would be the end of a search for the mode."""
    far = np.array([80.0, 89.0, 104.0, 720.0, 1e30], np.float32)
    for constraint, size in [
        (positive, 1),
        (greater_than(-1e30), 1),
        (less_than(1e6), 1),
        (unit_interval, 1),
        (interval(-3, 5), 1),
        (ordered, 4),
        (simplex, 3),
        (cholesky_correlation, 6),
    ]:
        u = jnp.asarray(np.repeat(np.concatenate([-far, far])[:, None], size, 1))
        t, slope = jax.jit(jax.vmap(lambda u, of=constraint: (of.constrain(u), jax.jacrev(of.constrain)(u))))(u)
        assert bool(jnp.isfinite(t).all() & jnp.isfinite(slope).all()), constraint


def test_ordered_numbers_differ_where_gaps_are_lost_in_rounding() -> None:
    first = np.array([0.0, 1e-30, -1e-30, 1.0, -87.0, 1e6, -1e30], np.float32)
    for gap in (-10.0, -20.0, -87.0, -1e30):
        u = np.full((len(first), 4), gap, np.float32)
        u[:, 0] = first
        assert not ordered.violated(np.asarray(jax.jit(ordered.constrain)(u)))


@pytest.mark.parametrize(
    ("constraint", "value", "words"),
    [
        (positive, 0.0, "must be greater than 0"),
        (positive, math.nan, "must be greater than 0"),
        (positive, math.inf, "must be finite"),
        (less_than(2), -math.inf, "must be finite"),
        (greater_than(2), [3.0, 1.0], "must be greater than 2"),
        (less_than(2), 2.0, "must be less than 2"),
        (unit_interval, 1.0, "must be between 0 and 1"),
        (interval(2, 3), 1.0, "must be between 2 and 3"),
        (interval(1, 1 + 2**-26), 1.0, "must be between 1 and 1.00000001"),
        (ordered, [1.0, 1.0], "must be in ascending order, all different"),
        (simplex, [0.5, 0.6], "must be positive numbers that add up to 1"),
        (simplex, [0.0, 1.0], "must be positive numbers that add up to 1"),
        (cholesky_correlation, [[1.0, 0.1], [0.0, 1.0]], "must be lower triangular"),
        (cholesky_correlation, [[1.0, 0.0], [0.5, 0.5]], "with rows of norm 1"),
        (cholesky_correlation, [[1.0, 0.0], [0.6, -0.8]], "a positive diagonal"),
    ],
)
def test_what_violates_a_constraint(constraint: Constraint, value: Any, words: str) -> None:
    assert words in constraint.violated(np.asarray(value, np.float32))


@pytest.mark.parametrize(
    ("constraint", "shape"),
    [(simplex, (1,)), (simplex, ()), (ordered, ()), (cholesky_correlation, (1, 1)), (cholesky_correlation, (2, 3))],
)
def test_shapes_that_no_value_has(constraint: Constraint, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"of [12] or more .*got shape"):
        constraint.shape(shape)


def test_limits_are_numbers_in_order() -> None:
    with pytest.raises(ValueError, match="low < high; got 2 and 2"):
        interval(2, 2)
    with pytest.raises(ValueError, match=r"`greater_than\(low=...\)` must be a finite number; got inf"):
        greater_than(math.inf)
