"""The random walk: steps with the covariance asked for, in the shape and type of the position."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from jax.flatten_util import ravel_pytree

from conftest import SEED
from tallchain.proposals import RandomWalk

Z_LIMIT = 4.5
NUM_KEYS = 20_000
L3 = np.array([[0.5, 0.0, 0.0], [1.0, 2.0, 0.0], [-0.3, 0.7, 0.1]])
NESTED = {"a": jnp.float32(2.0), "b": (jnp.zeros(2), {"c": jnp.ones((1, 2))})}

# name: scale, position, standard deviations of the flattened step or a factor of its covariance
CASES = {
    "number": (0.3, jnp.float32(5.0), [0.3]),
    "whole number": (2, jnp.float32(5.0), [2.0]),
    "number for a vector": (0.3, jnp.arange(3.0), [0.3, 0.3, 0.3]),
    "number for a nested position": (0.3, NESTED, [0.3] * 5),
    "vector": (np.array([0.1, 1.0, 10.0]), jnp.arange(3.0), [0.1, 1.0, 10.0]),
    "list": ([0.1, 1.0, 10.0], jnp.arange(3.0), [0.1, 1.0, 10.0]),
    "vector along the rows of a matrix": (np.array([0.1, 1.0]), jnp.zeros((2, 2)), [0.1, 1.0, 0.1, 1.0]),
    "matrix of the position's shape": (np.array([[1.0, 2.0], [3.0, 4.0]]), jnp.zeros((2, 2)), [1.0, 2.0, 3.0, 4.0]),
    "1 x 1 position": (np.array([[2.0]]), jnp.zeros((1, 1)), [2.0]),
    "dict": ({"a": 0.1, "b": np.array([1.0, 2.0])}, {"a": jnp.float32(0.0), "b": jnp.zeros(2)}, [0.1, 1.0, 2.0]),
    "nested": (
        {"a": 0.5, "b": (np.array([1.0, 2.0]), {"c": np.array([[3.0, 4.0]])})},
        NESTED,
        [0.5, 1.0, 2.0, 3.0, 4.0],
    ),
    "linear map": (L3, jnp.arange(3.0), L3),
    "linear map that is not triangular": (np.rot90(L3).copy(), jnp.arange(3.0), np.rot90(L3)),
    "linear map of a dict": (L3, {"a": jnp.float32(0.0), "b": jnp.zeros(2)}, L3),
    "linear map of a matrix": (np.diag([1.0, 2.0, 3.0, 4.0]), jnp.zeros((2, 2)), np.diag([1.0, 2.0, 3.0, 4.0])),
    "1 x 1 linear map": (np.array([[2.0]]), jnp.float32(1.0), [2.0]),
}
cases = pytest.mark.parametrize(("scale", "position", "factor"), CASES.values(), ids=CASES)


def propose(scale: Any, position: Any, keys: jax.Array) -> Any:
    """One proposal per key; the walk is an argument, as in a sampler."""

    def one(walk: RandomWalk, key: jax.Array) -> Any:
        return walk.propose(walk.draw(key, position), position)

    walk = RandomWalk(scale)
    walk.check(position)
    return jax.jit(jax.vmap(one, (None, 0)))(walk, keys)


def flat_steps(proposed: Any, position: Any) -> np.ndarray:
    """Steps by key and flattened coordinate."""
    flatten = jax.vmap(lambda each: ravel_pytree(each)[0])
    return np.asarray(flatten(proposed), float) - np.asarray(ravel_pytree(position)[0], float)


def z_scores(steps: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Means and products of the steps against what is expected, in standard errors."""
    products = np.einsum("ki,kj->kij", steps, steps).reshape(len(steps), -1)
    values = np.concatenate([steps, products], 1)
    truth = np.concatenate([np.zeros(steps.shape[1]), covariance.ravel()])
    return (values.mean(0) - truth) / (values.std(0) / np.sqrt(len(values)))


@cases
def test_steps_have_the_covariance_asked_for(scale: Any, position: Any, factor: Any) -> None:
    proposed = propose(scale, position, jr.split(jr.key(SEED), NUM_KEYS))
    factor = np.asarray(factor)
    covariance = np.diag(factor**2) if factor.ndim == 1 else factor @ factor.T
    steps = flat_steps(proposed.position, position)
    assert np.abs(z_scores(steps, covariance)).max() < Z_LIMIT
    assert np.abs(z_scores(steps, 1.1 * covariance)).max() > Z_LIMIT
    np.testing.assert_array_equal(proposed.log_correction, 0)


def test_steps_are_normal_and_independent_between_leaves() -> None:
    steps = flat_steps(propose(1.0, NESTED, jr.split(jr.key(SEED), NUM_KEYS)).position, NESTED)
    fourth = steps**4
    assert np.abs((fourth.mean(0) - 3) / (fourth.std(0) / np.sqrt(NUM_KEYS))).max() < Z_LIMIT
    assert len(np.unique(steps[0].round(4))) == 5


def test_check_refuses_a_transposed_map() -> None:
    steps = flat_steps(propose(L3.T, jnp.arange(3.0), jr.split(jr.key(SEED), NUM_KEYS)).position, jnp.arange(3.0))
    assert np.abs(z_scores(steps, L3 @ L3.T)).max() > Z_LIMIT


@cases
def test_proposals_look_like_the_position(scale: Any, position: Any, factor: Any) -> None:
    walk = RandomWalk(scale)
    noise = jax.eval_shape(walk.draw, jr.key(0), position)
    proposed = jax.eval_shape(walk.propose, noise, position).position
    for made in (noise, proposed):
        assert jax.tree.structure(made) == jax.tree.structure(position)
        assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), made) == jax.tree.map(
            lambda leaf: (leaf.shape, leaf.dtype), position
        )


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("scale", [0.5, np.array([0.5, 2.0]), np.eye(2)], ids=["number", "vector", "linear map"])
def test_proposals_keep_the_type_of_the_position(scale: Any, dtype: Any) -> None:
    walk = RandomWalk(scale)
    position = jnp.ones(2, dtype)
    assert walk.propose(walk.draw(jr.key(0), position), position).position.dtype == dtype


def test_the_noise_depends_on_the_key_and_the_shapes_alone() -> None:
    walk = RandomWalk(0.5)
    first, moved = walk.draw(jr.key(1), NESTED), walk.draw(jr.key(1), jax.tree.map(lambda leaf: leaf + 7, NESTED))
    other = walk.draw(jr.key(2), NESTED)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, first, moved))
    assert not jax.tree.all(jax.tree.map(jnp.array_equal, first, other))


def test_another_scale_moves_the_same_noise_further() -> None:
    walk, position = RandomWalk(0.5), jnp.zeros(3)
    noise = walk.draw(jr.key(1), position)
    near, far = walk.propose(noise, position), walk.with_scale(1.5).propose(noise, position)
    np.testing.assert_allclose(far.position, 3 * near.position, rtol=1e-6)
    assert walk.scale == 0.5


# ---- scales that do not fit the position -------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "position"),
    [
        (np.ones(2), jnp.float32(0.0)),
        (np.ones(2), jnp.zeros(3)),
        (np.ones((3, 2)), jnp.zeros(2)),
        (np.eye(3), jnp.zeros(2)),
        (np.ones(2), {"a": jnp.float32(0.0), "b": jnp.zeros(2)}),
        ({"a": 1.0}, jnp.zeros(2)),
        ({"a": 1.0}, {"a": jnp.float32(0.0), "b": jnp.zeros(2)}),
        ({"a": 1.0, "b": np.ones(3)}, {"a": jnp.float32(0.0), "b": jnp.zeros(2)}),
    ],
)
def test_refuses_a_scale_of_another_shape(scale: Any, position: Any) -> None:
    with pytest.raises(
        ValueError, match=r"`RandomWalk\(scale=\.\.\.\)` must be a number, or fit .*; got shapes .* for"
    ):
        RandomWalk(scale).check(position)


@pytest.mark.parametrize("scale", [np.zeros((2, 2)), np.ones((2, 2)), np.array([[1.0, 2.0], [2.0, 4.0]])])
def test_refuses_a_singular_matrix(scale: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"`RandomWalk\(scale=\.\.\.\)` received a singular 2 x 2 matrix"):
        RandomWalk(scale).check(jnp.zeros(2))


def test_refuses_a_matrix_with_zeros_where_it_is_no_linear_map() -> None:
    with pytest.raises(ValueError, match=r"`RandomWalk\(scale=\.\.\.\)` must be positive; got"):
        RandomWalk(np.eye(2)).check(jnp.zeros((2, 2)))
