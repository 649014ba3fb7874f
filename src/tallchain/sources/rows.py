"""What the sources share: taking the user's data, and how wide a window may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain import frames
from tallchain.types import Array, PyTree
from tallchain.validation import cut, is_traced, is_whole

_WINDOW_BYTES = 2**18  # of data per window and chain: wide enough to stream, small enough for a thousand chains
_NARROWEST, _WIDEST = 128, 8192
MOST_ROWS = 2**31 - 2 * _WIDEST
"""The reach of a 32-bit index, with room for a window."""
_BLOCK = 2**18  # entries that are checked at a time
_WIDER = 'or give JAX 64 bits: `jax.config.update("jax_enable_x64", True)`.'

# ---- taking data -------------------------------------------------------------------------------


def take_data(call: str, data: PyTree) -> tuple[PyTree, int]:
    """Return the data as a pytree of arrays and the number of rows, or raise an error that says what is wrong.

    Nothing is copied: NumPy arrays stay as they are, for the caller to convert. A frame of pandas or polars becomes a
    dict of its columns. JAX arrays stay where they are; inside `jit` only their shapes are checked.
    """
    data = jax.tree.map(lambda leaf: _arrays(call, leaf), data)
    leaves = [(f"data{jax.tree_util.keystr(path)}", leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(data)]
    if not leaves or any(leaf.ndim == 0 for _, leaf in leaves):
        raise ValueError(
            f"`{call}(data=...)` must be an array, a frame or a pytree of arrays, with the rows along the first axis; "
            f"got {_shapes(leaves) if leaves else repr(data)}."
        )
    if len({len(leaf) for _, leaf in leaves}) > 1:
        raise ValueError(f"`{call}(data=...)` must have the same number of rows in every array; got {_shapes(leaves)}.")
    wrong = ", ".join(f"{name}: {leaf.dtype}" for name, leaf in leaves if leaf.dtype.kind not in "biufc")
    if wrong:
        raise TypeError(
            f"`{call}(data=...)` must hold numbers; got {cut(wrong)}. Encode text as numbers first, and convert "
            "objects that are numbers with `.astype(float)`."
        )
    num_rows = len(leaves[0][1])
    if num_rows == 0:
        raise ValueError(f"`{call}(data=...)` must hold at least one row; got {_shapes(leaves)}.")
    if num_rows > MOST_ROWS:
        raise ValueError(
            f"`{call}(data=...)` must hold fewer than 2^31 rows, the reach of a 32-bit index; got {num_rows}."
        )
    for name, leaf in leaves:
        if not is_traced(leaf):
            check_values(f"`{call}(data=...)`", name, leaf)
    return data, num_rows


def check_batch_size(call: str, batch_size: Any, num_rows: int, of: str = "rows") -> int:
    """Return the batch size, or raise an error that says what is wrong with it."""
    if is_whole(batch_size, least=1) and batch_size <= num_rows:
        return int(batch_size)
    hint = f" Write {int(batch_size)}." if isinstance(batch_size, float) and batch_size.is_integer() else ""
    raise ValueError(
        f"`{call}(batch_size=...)` must be a whole number between 1 and {num_rows}, the number of {of}; got "
        f"{batch_size!r}.{hint}"
    )


def on_host(leaf: Any) -> np.ndarray | None:
    """Return the array itself if NumPy can read it without a transfer; None for one on an accelerator, or a tracer."""
    if isinstance(leaf, np.ndarray):
        return leaf
    if is_traced(leaf) or {device.platform for device in leaf.devices()} != {"cpu"} or len(leaf.devices()) > 1:
        return None
    return np.asarray(leaf)


def slice_rows(data: PyTree, rows: slice) -> PyTree:
    """Return some rows, on the host if they are there: a slice by JAX would be a program of its own."""

    def of_leaf(leaf: Any) -> Any:
        values = on_host(leaf)
        return (leaf if values is None else values)[rows]

    return jax.tree.map(of_leaf, data)


def _arrays(call: str, leaf: Any) -> PyTree:
    if isinstance(leaf, np.ma.MaskedArray):
        masked = int(np.ma.count_masked(leaf))
        if masked:
            raise ValueError(
                f"`{call}(data=...)` must have no missing values; got a masked array with {masked:,} entries masked. "
                "Fill in or drop missing values first."
            )
        leaf = leaf.data
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iufc":
        # In this machine's byte order, which JAX needs; and no longer than 64 bits.
        kept = np.dtype(float) if leaf.dtype == np.longdouble else leaf.dtype.newbyteorder("=")
        return leaf.astype(kept, copy=False)
    if isinstance(leaf, jax.Array | np.ndarray):
        return leaf
    if frames.is_frame(leaf):
        return frames.columns(f"`{call}(data=...)`", leaf)
    return frames.column(leaf) if hasattr(leaf, "to_numpy") else np.asarray(leaf)


def check_values(quoted: str, name: str, leaf: Any) -> None:
    """Refuse missing values, and numbers that do not survive the conversion to JAX's type."""
    kept = jax.dtypes.canonicalize_dtype(leaf.dtype)
    if leaf.dtype.kind in "iu" and kept != leaf.dtype:
        _check_integers(quoted, name, leaf, kept)
    if leaf.dtype.kind not in "fc":
        return
    values = on_host(leaf)
    missing, first = _missing_on_device(leaf) if values is None else _check_floats(quoted, name, values, kept)
    if missing:
        raise ValueError(
            f"{quoted} must have no missing values; got NaN in {name}, in {int(missing):,} of {len(leaf):,} rows, the "
            f"first of them row {int(first)}. Fill in or drop missing values first."
        )


def _check_integers(quoted: str, name: str, values: np.ndarray, kept: np.dtype) -> None:
    reach = np.iinfo(kept)
    if not values.size or (reach.min <= values.min() and values.max() <= reach.max):
        return
    for start, block in _blocks(values):
        is_lost = (block < reach.min) | (block > reach.max)
        if is_lost.any():
            at = int(np.argwhere(is_lost)[0, 0])
            raise ValueError(
                f"{quoted} must hold integers that fit into {kept}, JAX's type for them; got {block[is_lost][0]} in "
                f"{name}, row {start + at}. Subtract an offset, convert them to floats, {_WIDER}"
            )


def _check_floats(quoted: str, name: str, values: np.ndarray, kept: np.dtype) -> tuple[int, int]:
    """Refuse values that overflow in the conversion; return how many rows have a NaN, and the first of them."""
    missing, first = 0, -1
    for start, block in _blocks(values):
        if kept != values.dtype:
            with np.errstate(over="ignore"):
                is_lost = np.isinf(block.astype(kept))
            is_lost &= np.isfinite(block)
            if is_lost.any():
                at = int(np.argwhere(is_lost)[0, 0])
                raise ValueError(
                    f"{quoted} must hold numbers that fit into {kept}, JAX's type for them; got {block[is_lost][0]} "
                    f"in {name}, row {start + at}. Rescale them, {_WIDER}"
                )
        is_missing = np.isnan(block)
        if is_missing.any():
            rows = np.flatnonzero(is_missing.reshape(len(block), -1).any(1))
            missing, first = missing + len(rows), start + int(rows[0]) if first < 0 else first
    return missing, first


@jax.jit
def _missing_on_device(leaf: Array) -> tuple[Array, Array]:
    is_missing = jnp.any(jnp.isnan(leaf), axis=tuple(range(1, leaf.ndim)))
    return jnp.sum(is_missing), jnp.argmax(is_missing)


def _blocks(values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, rows) of bounded size, so that no temporary is as large as the data."""
    step = max(1, _BLOCK // max(1, int(np.prod(values.shape[1:]))))
    return ((start, values[start : start + step]) for start in range(0, len(values), step))


def _shapes(leaves: list[tuple[str, Any]]) -> str:
    return cut(", ".join(f"{name}: shape {leaf.shape}" for name, leaf in leaves))


# ---- windows -----------------------------------------------------------------------------------


def window_width(appetite: int, data: PyTree) -> int:
    """Rows per look for a test that wants `appetite` rows between judgements: all, or equal bounded parts of them."""
    looks = -(-appetite // widest_window(data))
    return -(-appetite // looks)


def widest_window(data: PyTree) -> int:
    """Return the most rows one look may read.

    Wide windows spread the cost of a look over more rows. But every chain holds its own window, so rows of many columns
    get narrower windows.
    """
    return widest_of(row_bytes(data))


def widest_of(size: int) -> int:
    """As `widest_window`, for rows of so many bytes."""
    return min(max(_WINDOW_BYTES // max(size, 1), _NARROWEST), _WIDEST)


def row_bytes(data: PyTree) -> int:
    """Return the bytes of one row once JAX holds it, which may be half of NumPy's."""
    sizes = (jax.dtypes.canonicalize_dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(data))
    return sum(size * int(np.prod(leaf.shape[1:])) for size, leaf in zip(sizes, jax.tree.leaves(data), strict=True))


def take_rows(data: PyTree, index: Array) -> PyTree:
    """Gather rows by index."""
    return jax.tree.map(lambda leaf: jnp.take(leaf, index, axis=0, mode="clip"), data)
