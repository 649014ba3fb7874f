"""The keyed permutation: a bijection for every size and key, under which single indices and pairs go anywhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from scipy import stats

from conftest import SEED
from tallchain.sources import permutation
from tallchain.sources.permutation import permute

SIZES = [1, 2, 3, 5, 7, 8, 16, 97, 1000, 13_007, 20_000, 2**16 + 1]
SMALL_SIZES = [2, 3, 5, 7, 10]
NUM_KEYS = 100_000
P_LIMIT = 1e-6  # for the least of up to 45 p-values
REACH = 2**31 - 1


def random_words(count: int) -> jax.Array:
    return jr.bits(jr.key(SEED), (count, 2), jnp.uint32)


def low_entropy_words(count: int) -> jax.Array:
    """(0, 1), (0, 2), ...: the words of `jax.random.key(1)`, `jax.random.key(2)`, ..."""
    return jnp.stack([jnp.zeros(count, jnp.uint32), jnp.arange(1, count + 1, dtype=jnp.uint32)], 1)


WORDS = {"random": random_words, "low entropy": low_entropy_words}


@partial(jax.jit, static_argnums=(1, 2))
def all_images(words: jax.Array, size: int, permute: Callable = permute) -> jax.Array:
    """The images of 0, 1, ... under every key: (key, index)."""
    return jax.vmap(lambda each: permute(each, jnp.arange(size), size))(words)


def is_bijection(images: jax.Array) -> bool:
    return np.array_equal(np.sort(images, -1), np.broadcast_to(np.arange(images.shape[-1]), images.shape))


@pytest.mark.parametrize("size", SIZES)
def test_is_a_bijection(size: int) -> None:
    count = 3 if size > 1000 else 300
    assert is_bijection(all_images(jnp.concatenate([random_words(count), low_entropy_words(count)]), size))


@pytest.mark.parametrize("size", [9, 1000, 20_000])  # products of the two halves: nothing walks, so nothing can hang
def test_is_a_bijection_when_hashes_are_close_to_the_largest_word(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash plus a half must not pass 2^32: one in a thousand random keys has such a hash for a million rows."""
    mix = permutation.mix
    monkeypatch.setattr(permutation, "mix", lambda *words: mix(*words) | jnp.uint32(0xFFFFFFFC))
    assert is_bijection(all_images(random_words(20), size, partial(permute)))


@pytest.mark.parametrize("size", [REACH, REACH - 1, 2**30 + 1, 10**9])
def test_stays_within_and_apart_at_the_reach_of_the_index(size: int) -> None:
    spread = np.linspace(0, size - 1, 3000).astype(np.int32)
    index = jnp.asarray(np.unique(np.concatenate([spread, np.arange(500), size - 1 - np.arange(500)])), jnp.int32)
    places = np.asarray(jax.jit(permute, static_argnums=2)(random_words(1)[0], index, size))
    assert places.dtype == np.int32
    assert places.min() >= 0
    assert places.max() < size
    assert len(np.unique(places)) == len(index)


@pytest.mark.parametrize("size", [1, 2, 12, 1000, 1009, 10**9])
def test_there_and_back(size: int) -> None:
    index = jnp.asarray(np.unique(np.linspace(0, size - 1, 300).astype(np.int32)))
    there = jax.jit(permute, static_argnums=2)(random_words(1)[0], index, size)
    back = jax.jit(partial(permute, inverse=True), static_argnums=2)(random_words(1)[0], there, size)
    np.testing.assert_array_equal(back, index)


def test_takes_indices_of_any_shape() -> None:
    words = random_words(1)
    grid = jax.jit(permute, static_argnums=2)(words[0], jnp.arange(12).reshape(3, 4), 12)
    single = jax.jit(permute, static_argnums=2)(words[0], jnp.int32(6), 12)
    np.testing.assert_array_equal(grid, all_images(words, 12).reshape(3, 4))
    assert single == grid[1, 2]


def test_another_key_is_another_permutation() -> None:
    images = np.asarray(all_images(low_entropy_words(100), 1000))
    agreements = [(a == b).mean() for a, b in combinations(images[:20], 2)]
    assert len(np.unique(images, axis=0)) == 100
    assert max(agreements) < 0.02  # 1 in 1000 expected


# ---- uniform over keys -------------------------------------------------------------------------


def single_p_value(images: np.ndarray) -> float:
    """The least p-value, over indices, of the image being uniform."""
    size = images.shape[1]
    return min(stats.chisquare(np.bincount(images[:, i], minlength=size)).pvalue for i in range(size))


def pair_p_value(images: np.ndarray) -> float:
    """The least p-value, over pairs of indices, of the two images being uniform over pairs of different places."""
    size = images.shape[1]
    is_possible = ~np.eye(size, dtype=bool).ravel()
    counts = (
        np.bincount(images[:, i] * size + images[:, j], minlength=size**2)[is_possible]
        for i, j in combinations(range(size), 2)
    )
    return min(stats.chisquare(each).pvalue for each in counts)


def order_p_value(images: np.ndarray) -> float:
    """The p-value of the permutation as a whole being uniform over all of them."""
    size = images.shape[1]
    counts = np.unique(images @ size ** np.arange(size), return_counts=True)[1]
    return stats.chisquare(np.pad(counts, (0, factorial(size) - len(counts)))).pvalue


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("size", SMALL_SIZES)
def test_images_are_uniform(size: int, words: Callable) -> None:
    images = np.asarray(all_images(words(NUM_KEYS), size))
    assert single_p_value(images) > P_LIMIT
    assert pair_p_value(images) > P_LIMIT
    if factorial(size) < NUM_KEYS / 100:
        assert order_p_value(images) > P_LIMIT


@pytest.mark.parametrize("size", [97, 1000])
def test_places_and_gaps_are_uniform_in_larger_sizes(size: int) -> None:
    images = np.asarray(all_images(random_words(20_000), size))[:, [0, 1, size // 2, size - 1]]
    gaps = (images[:, 1:] - images[:, :1]) % size - 1  # uniform over 0..size-2
    assert min(stats.chisquare(np.bincount(each, minlength=size)).pvalue for each in images.T) > P_LIMIT
    assert min(stats.chisquare(np.bincount(each, minlength=size - 1)).pvalue for each in gaps.T) > P_LIMIT


# ---- negative controls -------------------------------------------------------------------------


def rotate(words: jax.Array, index: jax.Array, size: int) -> jax.Array:
    return ((index.astype(jnp.uint32) + words[0] % size) % size).astype(jnp.int32)


def affine(words: jax.Array, index: jax.Array, size: int) -> jax.Array:
    """Index times a unit, plus a shift: for size 10 a bijection, but even gaps stay even."""
    unit = jnp.asarray([1, 3, 7, 9], jnp.uint32)[words[1] % 4]
    return rotate(words, index.astype(jnp.uint32) * unit, size)


@pytest.mark.parametrize("weak", [rotate, affine])
def test_check_refuses_a_weak_permutation(weak: Callable) -> None:
    images = np.asarray(all_images(random_words(NUM_KEYS), 10, weak))
    assert is_bijection(images)
    assert single_p_value(images) > P_LIMIT
    assert pair_p_value(images) < P_LIMIT


def test_check_refuses_a_biased_place() -> None:
    images = np.array(all_images(random_words(NUM_KEYS), 10))
    images[: NUM_KEYS // 50] = np.arange(10)
    assert single_p_value(images) < P_LIMIT
