"""Our Threefry against JAX's, to the bit."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

from tallchain import keys
from tallchain.sources.permutation import permute
from tallchain.threefry import same_key
from tallchain.types import Array

DRAWS: dict[str, Callable[[Array], Array]] = {
    "split": lambda key: jr.key_data(jr.split(key, 5)),
    "split to an array": lambda key: jr.key_data(jr.split(key, (2, 3))),
    "fold in": lambda key: jr.key_data(jax.vmap(lambda i: jr.fold_in(key, i))(jnp.arange(-3, 4))),
    "bits of 8": lambda key: jr.bits(key, (7,), jnp.uint8),
    "bits of 16": lambda key: jr.bits(key, (7,), jnp.uint16),
    "whole numbers": lambda key: jr.randint(key, (9,), 0, 1000),
    "normal": lambda key: jr.normal(jr.fold_in(key, 1), (3, 5)),
    "exponential": jr.exponential,
    "permutation": lambda key: jr.permutation(key, 20),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("is_64_bits", [False, True])
def test_numbers_are_those_of_jax(draw: Callable[[Array], Array], is_64_bits: bool, key: Array) -> None:
    with jax.enable_x64(is_64_bits):
        np.testing.assert_array_equal(jax.jit(lambda key: draw(same_key(key)))(key), jax.jit(draw)(key))


def test_keys_made_on_the_host_are_those_of_jax(key: Array) -> None:
    def words(key: Array) -> np.ndarray:
        return np.asarray(jr.key_data(key))

    np.testing.assert_array_equal(words(keys.split(key)), words(jr.split(key)))
    np.testing.assert_array_equal(words(keys.split(key, 5)), words(jr.split(key, 5)))
    for number in (0, 7, 2**32 - 1):
        np.testing.assert_array_equal(words(keys.fold_in(key, number)), words(jr.fold_in(key, number)))
    many = jax.vmap(lambda i: jr.fold_in(key, i))(jnp.arange(6))
    np.testing.assert_array_equal(words(keys.fold_in(key, np.arange(6))), words(many))


def test_words_split_on_the_host_are_those_of_jax(key: Array) -> None:
    found = keys.split_words(np.asarray(jr.key_data(key)), 3, 2)
    expected = jax.vmap(lambda one: jr.split(one, 2))(jr.split(key, 3))
    np.testing.assert_array_equal(found, jr.key_data(expected))


def test_nothing_else_needs_to_be_compiled(key: Array) -> None:
    """To look at numbers on their way, a user calls functions as they are."""
    with jax.disable_jit():
        found = jr.bits(same_key(key), (3,))
        order = permute(jr.key_data(key), jnp.arange(5), 5)
    np.testing.assert_array_equal(found, jr.bits(key, (3,)))
    assert sorted(order.tolist()) == [0, 1, 2, 3, 4]
