"""Rows that a source has several times, and rows that every decision reads."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tallchain.sources.rows import MOST_ROWS, check_batch_size
from tallchain.validation import is_whole


def check_weights(call: str, exact: Any, copies: Any, num_rows: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the rows to read always and how often to have each row, or raise an error that says what is wrong."""
    return _check_exact(call, exact, num_rows), _check_copies(call, copies, num_rows)


def check_batch_of(call: str, batch_size: Any, num_rows: int, exact: np.ndarray, copies: np.ndarray | None) -> int:
    """Return the batch size, or raise an error if it exceeds the rows to sample from, with all their copies."""
    left = num_rows - len(exact)
    if copies is not None:
        left = int(copies.sum(dtype=np.int64) - copies[exact].sum(dtype=np.int64))
    if len(exact) and is_whole(batch_size, least=left + 1):
        of = f"{num_rows} rows" if copies is None else f"{copies.sum(dtype=np.int64)} copies of rows"
        raise ValueError(
            f"`{call}(exact=...)` leaves {left} of {of} to sample from, fewer than a batch of {batch_size}. Name fewer "
            "rows."
        )
    return check_batch_size(call, batch_size, left, "rows" if copies is None else "copies of rows")


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


def _check_exact(call: str, exact: Any, num_rows: int) -> np.ndarray:
    indices = np.asarray(exact)
    if indices.size == 0:
        return np.zeros(0, np.int32)
    is_index = indices.ndim == 1 and indices.dtype.kind in "iu" and indices.min() >= 0 and indices.max() < num_rows
    if not is_index or len(np.unique(indices)) < len(indices):
        raise ValueError(
            f"`{call}(exact=...)` must be indices of rows, each once, between 0 and {num_rows - 1}; got {exact!r}."
        )
    return indices.astype(np.int32)
