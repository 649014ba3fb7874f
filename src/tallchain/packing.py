"""Records of numbers of several types as words of 32 bits: one array to write to, and to copy, in place of many."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tallchain.types import Array, PyTree


def pack(records: PyTree) -> Array:
    """Return records, whose arrays all have the same first axis, as words: (record, word)."""
    return jnp.concatenate([_words(leaf) for leaf in jax.tree.leaves(records)], 1)


def _words(leaf: Array) -> Array:
    size = leaf.dtype.itemsize
    if leaf.dtype == bool:
        leaf = leaf.astype(jnp.uint32)
    elif size < 4:
        leaf = lax.bitcast_convert_type(leaf, {1: jnp.uint8, 2: jnp.uint16}[size]).astype(jnp.uint32)
    else:
        leaf = lax.bitcast_convert_type(leaf, jnp.uint32)  # 64 bits are two words, along a new last axis
    return leaf.reshape(len(leaf), -1)


def unpack(words: np.ndarray, like: PyTree) -> PyTree:
    """Return the records of words (..., word), without a copy where possible; `like` has the shapes of one record."""
    leaves, structure = jax.tree.flatten(like)
    found, at = [], 0
    for leaf in leaves:
        count = _num_words(leaf)
        found.append(_numbers(words[..., at : at + count], leaf))
        at += count
    return jax.tree.unflatten(structure, found)


def num_words(like: PyTree) -> int:
    """Words of one record of these shapes."""
    return sum(_num_words(leaf) for leaf in jax.tree.leaves(like))


def _num_words(leaf: Any) -> int:
    return math.prod(leaf.shape) * max(leaf.dtype.itemsize // 4, 1)


def _numbers(words: np.ndarray, leaf: Any) -> np.ndarray:
    if leaf.dtype == bool:
        numbers = words != 0
    elif leaf.dtype.itemsize < 4:
        numbers = words.astype(f"u{leaf.dtype.itemsize}").view(leaf.dtype)
    else:
        # Pairs of words are copied, to where their addresses are multiples of 8.
        numbers = (words if leaf.dtype.itemsize == 4 else np.ascontiguousarray(words)).view(leaf.dtype)
    return numbers.reshape(*words.shape[:-1], *leaf.shape)
