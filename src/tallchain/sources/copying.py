"""A copy of the rows for JAX that no other code can write to, in little more memory than the copy itself.

`jnp.asarray(array)` is not enough: for a large array it returns before the copy is made, so later writes to the array
may end up in the copy. Here NumPy makes the copy, in JAX's type and block by block, and JAX takes it over: on a CPU it
uses the same memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tallchain.cores import in_order, num_cores
from tallchain.sources.permutation import permute
from tallchain.sources.rows import on_host, row_bytes
from tallchain.types import Array, PyTree

_ALIGNMENT = 64  # bytes: JAX does not take over memory with a smaller alignment
_GATHERED = 2**21  # bytes that a core gathers at a time
_KEYED = 2**25  # rows
_PLACES = 2**22  # of a keyed permutation to evaluate at a time
_NARROW = 16  # bytes of a row: for narrower rows, the indices of an order would take too much memory


def copy_rows(leaf: Any) -> Array:
    """Copy an array; a JAX array needs no copy, since it is immutable."""
    if isinstance(leaf, jax.Array):
        return leaf
    held = allocate(leaf.shape, leaf.dtype)
    held[...] = leaf
    return _hand_over(held, leaf)


def shuffle_rows(data: PyTree, seed: int, repeated: int) -> PyTree:
    """Copy all rows in the order of `shuffle(arange(N), seed)`, followed by the first `repeated` of them again."""
    leaves = jax.tree.leaves(data)
    num_rows = len(leaves[0])
    if num_rows > _KEYED:
        places = _Places(num_rows, seed)
        return _gathered(data, num_rows + repeated, places, places.all)
    if row_bytes(data) >= _NARROW or any(on_host(leaf) is None for leaf in leaves):
        order = np.arange(num_rows + repeated, dtype=np.int32)
        shuffle(order[:num_rows], seed)
        order[num_rows:] = order[:repeated]
        return order_rows(data, order)

    def shuffled(leaf: Any) -> Array:
        held = allocate((num_rows + repeated, *leaf.shape[1:]), leaf.dtype)
        held[:num_rows] = on_host(leaf)
        if held.size:
            shuffle(held[:num_rows].reshape(num_rows, -1).view(f"V{held[0].nbytes}")[:, 0], seed)
        held[num_rows:] = held[:repeated]
        return _hand_over(held, leaf)

    return jax.tree.map(shuffled, data)


def order_rows(data: PyTree, order: np.ndarray) -> PyTree:
    """Copy the rows at these indices, in this order."""
    some = lambda first, count: order[first : first + count]  # noqa: E731
    return _gathered(data, len(order), some, lambda count: jnp.asarray(order))


def _gathered(data: PyTree, count: int, some: Callable[[int, int], np.ndarray], all_: Callable[[int], Array]) -> PyTree:
    """Copy `count` rows: those at the indices `some(first, count)` on the host, at `all_(count)` on a device."""
    leaves, structure = jax.tree.flatten(data)
    values = [on_host(leaf) for leaf in leaves]
    pairs = [(each, allocate((count, *each.shape[1:]), each.dtype)) for each in values if each is not None]
    step = max(1, _GATHERED // max(1, sum(each[:1].nbytes for each, _ in pairs)))

    def gather(first: int) -> None:
        order = some(first, min(step, count - first))
        for each, copy in pairs:
            part = copy[first : first + step]
            if copy.dtype == each.dtype:
                np.take(each, order, axis=0, out=part, mode="clip")  # no copy in between
            else:
                part[...] = each[order]

    for _ in in_order(gather, range(0, count if pairs else 0, step), num_cores()):
        pass
    copies, order = (copy for _, copy in pairs), None if len(pairs) == len(leaves) else all_(count)
    found = [
        leaf[order] if each is None else _hand_over(next(copies), leaf)
        for leaf, each in zip(leaves, values, strict=True)
    ]
    return jax.tree.unflatten(structure, found)


def shuffle(values: np.ndarray, seed: int) -> np.ndarray:
    """Shuffle one axis of anything, perhaps in place, and return it.

    Up to 2^25 rows come in the order of `default_rng(seed).permutation(N)`. It takes seconds from there on, on one
    core; more come in the order of a keyed permutation, which every core, and every device, can evaluate in parts.
    """
    if len(values) > _KEYED:
        return values[_Places(len(values), seed)(0, len(values))]
    np.random.default_rng(seed).shuffle(values)
    return values


def words_of(seed: int) -> np.ndarray:
    """Return a seed in words of 32 bits."""
    return np.frombuffer(seed.to_bytes(4 * max(1, -(-seed.bit_length() // 32)), "little"), "<u4").astype(np.uint32)


def seed_of(words: np.ndarray) -> int:
    """Return the seed of some words."""
    return int.from_bytes(np.asarray(words).astype("<u4").tobytes(), "little")


class _Places:
    """Indices of N rows in the order of a keyed permutation, then those of the first rows again."""

    def __init__(self, num_rows: int, seed: int) -> None:
        self._num_rows = num_rows
        self._words = np.random.SeedSequence(seed).generate_state(2)

    def __call__(self, first: int, count: int) -> np.ndarray:
        """Return `count` of them, from number `first`."""
        size = _PLACES if count > _PLACES else 1 << (count - 1).bit_length()  # few sizes, and few programs
        parts = [
            np.asarray(_places(self._words, np.int32(start), num_rows=self._num_rows, count=size))
            for start in range(first, first + count, size)
        ]
        return np.concatenate(parts)[:count]

    def all(self, count: int) -> Array:
        """Return the first `count` of them, on the device."""
        return _all_places(self._words, num_rows=self._num_rows, count=count)


@partial(jax.jit, static_argnames=("num_rows", "count"))
def _places(words: Array, first: Array, *, num_rows: int, count: int) -> Array:
    return permute(words, (first + jnp.arange(count, dtype=jnp.int32)) % num_rows, num_rows)


@partial(jax.jit, static_argnames=("num_rows", "count"))
def _all_places(words: Array, *, num_rows: int, count: int) -> Array:
    firsts = jnp.arange(0, count, _PLACES, dtype=jnp.int32)
    return lax.map(lambda first: _places(words, first, num_rows=num_rows, count=_PLACES), firsts).ravel()[:count]


def _hand_over(held: np.ndarray, leaf: Any) -> Array:
    """Turn the copy into a JAX array, on the device of the leaf if it has one."""
    is_placed = isinstance(leaf, jax.Array) and leaf.committed
    return jax.device_put(held, leaf.sharding if is_placed else None)


def allocate(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an empty array of JAX's type for these numbers, aligned for JAX to take over."""
    kept = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    size = int(np.prod(shape)) * kept.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    return memory[first : first + size].view(kept).reshape(shape)
