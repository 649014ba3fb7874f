"""A copy of the rows for JAX that no other code can write to, in little more memory than the copy itself.

`jnp.asarray(array)` is not enough: for a large array it returns before the copy is made, so later writes to the array
may end up in the copy. Here NumPy makes the copy, in JAX's type and block by block, and JAX takes it over: on a CPU it
uses the same memory.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.cores import in_order, num_cores
from tallchain.sources.rows import on_host, row_bytes
from tallchain.types import Array, PyTree

_ALIGNMENT = 64  # bytes: JAX does not take over memory with a smaller alignment
_GATHERED = 2**21  # bytes that a core gathers at a time
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

    def ordered(leaf: Any) -> Array:
        values = on_host(leaf)
        if values is None:
            return leaf[jnp.asarray(order)]
        held = allocate((len(order), *values.shape[1:]), values.dtype)
        step = max(1, _GATHERED // max(1, values[:1].nbytes))

        def gather(start: int) -> None:
            part = slice(start, start + step)
            if held.dtype == values.dtype:
                np.take(values, order[part], axis=0, out=held[part], mode="clip")  # no copy in between
            else:
                held[part] = values[order[part]]

        for _ in in_order(gather, range(0, len(order), step), num_cores()):
            pass
        return _hand_over(held, leaf)

    return jax.tree.map(ordered, data)


def shuffle(values: np.ndarray, seed: int) -> np.ndarray:
    """Shuffle in place, and return, one axis of anything: into the order of `default_rng(seed).permutation(N)`."""
    np.random.default_rng(seed).shuffle(values)
    return values


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
