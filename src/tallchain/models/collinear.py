"""What has no posterior under a flat prior: columns that others determine, and columns that separate the outcomes."""

from __future__ import annotations

import numpy as np

_ROWS = 50_000  # looked at first: what others determine, or separates, does so among some of the rows as well
_LEAST = (
    1e-6  # eigenvalue of the second moments, scaled to a diagonal of ones: float32 cannot tell a smaller one from 0
)
_PART = 0.1  # of a direction of unit length: columns with less are not named
_BLOCK = 2**15  # rows held in float64 at a time


def check_columns(call: str, x: np.ndarray, names: tuple[str, ...] | None, *, has_intercept: bool) -> None:
    """Refuse columns that determine one another."""
    if _dependent(_some(x)) is None:
        return
    columns = _dependent(x)
    if columns is None:
        return
    named = ", ".join(_name(at, names, has_intercept) for at in columns)
    raise ValueError(
        f"`{call}(x=..., prior=...)`: under a flat prior no column may be determined by others, and these are, to the "
        f"precision of float32: {named}. Leave one of them out, give the coefficients a proper prior, or subtract the "
        "mean of a column that hardly varies about it."
    )


def determined(x: np.ndarray, names: tuple[str, ...] | None, *, has_intercept: bool) -> list[str]:
    """Name columns that determine one another, if there are any."""
    return [_name(at, names, has_intercept) for at in _dependent(x) or ()]


def check_separation(
    call: str,
    x: np.ndarray,
    is_one: np.ndarray,
    is_zero: np.ndarray,
    names: tuple[str, ...] | None,
    *,
    has_intercept: bool,
    is_free: bool,
) -> None:
    """Refuse outcomes that the sign of a column, or a threshold if the intercept is free too, tells apart.

    Then the likelihood rises for ever along the column, and only a prior could stop it.

    Args:
        call: to quote.
        x: features, with the intercept first if there is one.
        is_one: rows with an outcome of 1, or with successes.
        is_zero: rows with an outcome of 0, or with failures.
        names: of the columns.
        has_intercept: whether there is one.
        is_free: whether it has a flat prior.
    """
    for kind, is_other in ((1, is_zero), (0, is_one)):
        if has_intercept and is_free and not is_other.any():
            raise ValueError(
                f"`{call}(y=..., prior=...)`: all outcomes are {kind}, and the intercept has a flat prior: it would "
                "grow without end. Give it a proper prior such as priors.Normal(10.0)."
            )
    for rows in (slice(None, None, _step(x)), slice(None)):
        found = _separating(x[rows], is_one[rows], is_zero[rows], has_intercept=has_intercept, is_free=is_free)
        if found is None:
            return
    raise ValueError(
        f"`{call}(x=..., y=..., prior=...)`: {_name(found, names, has_intercept)} tells outcomes of 1 from outcomes of "
        "0, or all rows that it concerns have one outcome: under a flat prior its coefficient would grow without end. "
        "Give the coefficients a proper prior such as priors.Normal(2.5), or leave the column out."
    )


def _separating(
    x: np.ndarray, is_one: np.ndarray, is_zero: np.ndarray, *, has_intercept: bool, is_free: bool
) -> int | None:
    """Return a column that is at most c where an outcome is 0 and at least c where one is 1, or the reverse.

    c is any number if the intercept is free, and else 0.
    """
    first = int(has_intercept)
    low, high = np.full((2, 2, x.shape[1] - first), np.inf) * np.array([1, -1])[:, None, None]
    for start in range(0, len(x), _BLOCK):
        block = x[start : start + _BLOCK, first:]
        for at, which in enumerate((is_zero, is_one)):
            rows = block[which[start : start + _BLOCK]]
            low[at] = np.minimum(low[at], rows.min(0, initial=np.inf))
            high[at] = np.maximum(high[at], rows.max(0, initial=-np.inf))
    if is_free and has_intercept:
        is_split = (high[0] <= low[1]) | (high[1] <= low[0])
    else:
        is_split = ((high[0] <= 0) & (low[1] >= 0)) | ((high[1] <= 0) & (low[0] >= 0))
    return first + int(np.argmax(is_split)) if is_split.any() else None


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


def _step(x: np.ndarray) -> int:
    return max(1, len(x) // _ROWS)


def _some(x: np.ndarray) -> np.ndarray:
    return x[:: _step(x)]


def _name(at: int, names: tuple[str, ...] | None, has_intercept: bool) -> str:
    if has_intercept and at == 0:
        return "the intercept"
    return f"column {names[at]!r}" if names else f"column {at - has_intercept} of x"
