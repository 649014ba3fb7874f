"""Rows that a source has several times, and rows that every decision reads."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tallchain.sources.rows import MOST_ROWS


def check_weights(
    call: str, exact: Any, copies: Any, num_rows: int, batch_size: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the rows to read always and how often to have each row, or raise an error that says what is wrong."""
    return _check_exact(call, exact, num_rows, batch_size), _check_copies(call, copies, num_rows)


def slots_of(num_rows: int, exact: np.ndarray, copies: np.ndarray | None) -> np.ndarray:
    """Return the rows to sample from, each as often as its number of copies, in the order of the data."""
    slots = np.delete(np.arange(num_rows, dtype=np.int32), exact)
    return slots if copies is None else np.repeat(slots, np.delete(copies, exact))


def shares_of(order: np.ndarray, num_exact: int, copies: np.ndarray | None) -> np.ndarray | None:
    """Return 1/c_i of the rows in this order, of which the first are read always; None if each has one copy."""
    if copies is None:
        return None
    shares = np.divide(1, copies, out=np.empty(len(copies), jnp.result_type(float)), casting="same_kind")[order]
    shares[:num_exact] = 1
    return shares


def _check_copies(call: str, copies: Any, num_rows: int) -> np.ndarray | None:
    if copies is None:
        return None
    counts = np.asarray(copies)
    if counts.shape != (num_rows,) or counts.dtype.kind not in "iu" or counts.min() < 1:
        raise ValueError(
            f"`{call}(copies=...)` must be whole numbers, at least 1, one for each of the {num_rows} rows; got "
            f"{copies!r}."
        )
    total = counts.sum(dtype=np.float64)  # integers could overflow
    if total > MOST_ROWS:
        raise ValueError(
            f"`{call}(copies=...)` must add up to fewer than 2^31 rows, the reach of a 32-bit index; got "
            f"{total:,.0f}. Divide them all by the same number, and round up."
        )
    return counts.astype(np.int64) if counts.dtype == np.uint64 else counts  # np.repeat takes no uint64


def _check_exact(call: str, exact: Any, num_rows: int, batch_size: int) -> np.ndarray:
    indices = np.asarray(exact)
    if indices.size == 0:
        return np.zeros(0, np.int32)
    is_index = indices.ndim == 1 and indices.dtype.kind in "iu" and indices.min() >= 0 and indices.max() < num_rows
    if not is_index or len(np.unique(indices)) < len(indices):
        raise ValueError(
            f"`{call}(exact=...)` must be indices of rows, each once, between 0 and {num_rows - 1}; got {exact!r}."
        )
    if num_rows - len(indices) < batch_size:
        raise ValueError(
            f"`{call}(exact=...)` leaves {num_rows - len(indices)} of {num_rows} rows to sample from, fewer than a "
            f"batch of {batch_size}. Name fewer rows."
        )
    return indices.astype(np.int32)
