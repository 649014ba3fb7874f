"""Random keys: only threefry, whose numbers do not depend on what else is drawn with them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.threefry import encrypt
from tallchain.types import Array
from tallchain.validation import brief

_IMPLEMENTATION = "threefry2x32"


def make_key(seed: int) -> Array:
    """Return the key of a seed, whatever JAX's default implementation is; made on the host."""
    seed = int(seed)
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"A seed must be a whole number of 64 bits, below 2^63; got {seed}.")
    high = seed >> 32 if jnp.result_type(int) == jnp.int64 else 0
    return _wrap(np.array([high & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32))


def fold_in(key: Array, data: int | np.ndarray) -> Array:
    """`jax.random.fold_in` of a threefry key on the host, which compiles nothing; one key for each number."""
    return _wrap(_encrypt(key, np.asarray(data).astype(np.uint32)))


def keys_of(key: Array, num_chains: int) -> Array:
    """Return the key of every chain, which does not depend on how many there are."""
    return fold_in(key, np.arange(num_chains))


def split(key: Array, count: int = 2) -> Array:
    """`jax.random.split` of a threefry key on the host, which compiles nothing."""
    return fold_in(key, np.arange(count))


def split_words(words: np.ndarray, *counts: int) -> np.ndarray:
    """Split every key, given as its two words along the last axis, again and again; axes of `counts` before the last.

    `jax.random.split`, on the host.
    """
    for count in counts:
        numbers = np.arange(count, dtype=np.uint32)
        words = np.stack(encrypt((words[..., :1], words[..., 1:]), np.zeros_like(numbers), numbers), -1)
    return words


def _encrypt(key: Array, counts: np.ndarray) -> np.ndarray:
    words = np.asarray(jr.key_data(key))
    found = encrypt((words[:1], words[1:]), np.zeros(counts.size, np.uint32), counts.ravel())
    return np.stack(found, -1).reshape(*counts.shape, 2)


def _wrap(words: np.ndarray) -> Array:
    return jr.wrap_key_data(jax.device_put(words), impl=_IMPLEMENTATION)


def words_of(key: Array) -> tuple[int, ...]:
    """Return the words of a key, as plain numbers."""
    return tuple(np.asarray(jr.key_data(key)).tolist())


def as_threefry(key: Array) -> Array:
    """Return a threefry key unchanged, and a hash of any other key; takes typed keys, and words as from `PRNGKey`.

    Mapped over keys, the generators "rbg" and "unsafe_rbg" give numbers that depend on the batch, and give many chains
    the same numbers.
    """
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jr.wrap_key_data(key, impl=_IMPLEMENTATION if len(key) == 2 else "rbg")
    if jr.key_impl(key) == _IMPLEMENTATION:
        return key
    hashed = make_key(0)
    for word in jr.key_data(key):
        hashed = jr.fold_in(hashed, word)  # not on the host: the key may be traced
    return hashed


def single_key(call: str, key: Any) -> Array:
    """Return one threefry key, or raise an error."""
    dtype = getattr(key, "dtype", None)
    is_words = dtype == jnp.uint32 and jnp.shape(key) in ((2,), (4,))
    is_typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key) and key.shape == ()
    if not (is_words or is_typed):
        raise TypeError(f"`{call}` must be one JAX key, as from `jax.random.key(0)`; got {brief(key)}.")
    return as_threefry(key)
