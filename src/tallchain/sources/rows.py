"""What the sources share: checking the data, and how wide a window may be."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.types import Array, PyTree, is_whole

_WINDOW_BYTES = 2**18  # of data per window and chain: wide enough to stream, small enough for a thousand chains
_NARROWEST, _WIDEST = 128, 8192


def check_data(call: str, data: PyTree, batch_size: Any) -> tuple[int, int]:
    """Return (number of rows, batch size), or say what is wrong with them."""
    leaves = jax.tree_util.tree_leaves_with_path(data)
    if not leaves or any(np.ndim(leaf) == 0 for _, leaf in leaves):
        raise ValueError(
            f"`{call}(data=...)` must be an array, or a pytree of arrays, with the rows along the first axis; "
            f"got {_shapes(leaves) if leaves else repr(data)}."
        )
    if len({len(leaf) for _, leaf in leaves}) > 1:
        raise ValueError(f"`{call}(data=...)` must have the same number of rows in every array; got {_shapes(leaves)}.")
    if not all(_dtype(leaf).kind in "biufc" for _, leaf in leaves):
        raise TypeError(
            f"`{call}(data=...)` must hold numbers; got "
            + ", ".join(f"{jax.tree_util.keystr(path) or 'data'}: {_dtype(leaf)}" for path, leaf in leaves)
            + ". Encode text as numbers first."
        )
    num_rows = len(leaves[0][1])
    if num_rows == 0:
        raise ValueError(f"`{call}(data=...)` must hold at least one row; got {_shapes(leaves)}.")
    if num_rows > 2**31 - 2 * _WIDEST:
        raise ValueError(
            f"`{call}(data=...)` must hold fewer than 2^31 rows, the reach of a 32-bit index; got {num_rows}."
        )
    if not is_whole(batch_size, least=1) or batch_size > num_rows:
        raise ValueError(
            f"`{call}(batch_size=...)` must be between 1 and {num_rows}, the number of rows; got {batch_size!r}."
        )
    return num_rows, int(batch_size)


def window_width(appetite: int, data: PyTree) -> int:
    """Rows per look for a test that wants `appetite` rows between judgements: all, or equal bounded parts of them."""
    looks = -(-appetite // widest_window(data))
    return -(-appetite // looks)


def widest_window(data: PyTree) -> int:
    """Return the most rows one look may read.

    Wide windows spread the cost of a look over more rows; but every chain holds its own window, so rows of many columns
    get narrower ones.
    """
    row_bytes = sum(_itemsize(leaf) * int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(data))
    return min(max(_WINDOW_BYTES // max(row_bytes, 1), _NARROWEST), _WIDEST)


def take_rows(data: PyTree, index: Array) -> PyTree:
    """Gather rows by index."""
    return jax.tree.map(lambda leaf: jnp.take(leaf, index, axis=0, mode="clip"), data)


def _dtype(leaf: Any) -> np.dtype:
    return leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype


def _itemsize(leaf: Any) -> int:
    """Bytes of one entry once JAX holds it, which may be half of what NumPy does."""
    return jax.dtypes.canonicalize_dtype(leaf.dtype).itemsize


def _shapes(leaves: list[Any]) -> str:
    return ", ".join(f"{jax.tree_util.keystr(path) or 'data'}: shape {np.shape(leaf)}" for path, leaf in leaves)
