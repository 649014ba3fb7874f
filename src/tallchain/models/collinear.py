"""Columns of features that others determine: under a flat prior their coefficients have no posterior."""

from __future__ import annotations

import numpy as np

_ROWS = 50_000  # looked at first
_LEAST = (
    1e-6  # eigenvalue of the second moments, scaled to a diagonal of ones: float32 cannot tell a smaller one from 0
)
_PART = 0.1  # of a direction of unit length: columns with less are not named
_BLOCK = 2**15  # rows held in float64 at a time


def check_columns(call: str, x: np.ndarray, names: tuple[str, ...] | None) -> None:
    """Refuse columns that determine one another."""
    some = x[:: max(1, len(x) // _ROWS)]
    if _dependent(some) is None:
        return
    columns = _dependent(x)
    if columns is None:
        return
    named = ", ".join(names[at] if names else f"column {at}" for at in columns)
    raise ValueError(
        f"`{call}(x=..., prior=...)`: under a flat prior no column may be determined by others, and these are: {named} "
        "(the intercept, if any, counts as the first). Leave one of them out, or give the coefficients a proper prior."
    )


def _dependent(x: np.ndarray) -> list[int] | None:
    moments = np.zeros((x.shape[1], x.shape[1]))
    for start in range(0, len(x), _BLOCK):
        rows = x[start : start + _BLOCK].astype(np.float64)
        moments += rows.T @ rows
    scale = np.sqrt(np.diag(moments))
    if not np.all(scale > 0):
        return [int(np.argmin(scale))]
    values, vectors = np.linalg.eigh(moments / np.outer(scale, scale))
    if values[0] > _LEAST:
        return None
    return [int(at) for at in np.flatnonzero(np.abs(vectors[:, 0]) > _PART)]
