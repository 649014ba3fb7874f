"""Input of regressions: features, outcomes, offsets and weights as rows for a source, or what is wrong with them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallchain import frames
from tallchain.validation import RowError, brief, check_switch

INTERCEPT = "(intercept)"


class Design(NamedTuple):
    """Rows for a source, and what their columns are called."""

    data: dict[str, np.ndarray]
    """{"x": features, float32 (N, d); "y": outcomes, float32 (N,)}."""
    names: tuple[str, ...] | None
    """Names of the coefficients; None if the features are not a frame."""


def design(
    call: str,
    features: Any,
    outcomes: np.ndarray,
    intercept: bool,
    words: tuple[str, str] = ("features", "outcomes"),
) -> Design:
    """Return the rows, or raise an error that says why features and outcomes do not make rows.

    `words` are what the call names them.
    """
    x, names = matrix(f"`{call}({words[0]}=...)`", features)
    if x.ndim != 2:
        hint = f" Write `{words[0]}[:, None]` for a single feature." if x.ndim == 1 else ""
        raise ValueError(f"`{call}({words[0]}=...)` must be an array (rows, features); got shape {x.shape}.{hint}")
    if check_switch(call, "intercept", intercept):
        x = np.concatenate([np.ones((len(x), 1), np.float32), x], axis=1)
        names = None if names is None else (INTERCEPT, *names)
    if 0 in x.shape:
        raise ValueError(f"`{call}({words[0]}=...)` must have at least one row and one feature; got shape {x.shape}.")
    if outcomes.shape[:1] != (len(x),) or (words[1] == "outcomes" and outcomes.ndim > 1):
        raise ValueError(
            f"`{call}({words[1]}=...)` must be one number for each row of the features, shape ({len(x)},); got shape "
            f"{outcomes.shape}."
        )
    return Design({"x": x, "y": outcomes}, names)


def labels(call: str, outcomes: Any) -> np.ndarray:
    """Return outcomes of 0 and 1."""
    y = numbers(call, outcomes)
    if not np.all((y == 0) | (y == 1)):
        raise ValueError(
            f"`{call}(outcomes=...)` must be 0 or 1, or False or True; got {_some(y)}. Write `outcomes > 0` for labels "
            "of -1 and 1, `outcomes == label` for one label against the others."
        )
    return y


def counts(call: str, outcomes: Any) -> np.ndarray:
    """Return outcomes that are whole numbers, at least 0."""
    y = numbers(call, outcomes)
    if not np.all((y >= 0) & (y == np.floor(y))):
        wrong = y[(y < 0) | (y != np.floor(y))]
        raise ValueError(
            f"`{call}(outcomes=...)` must be counts: 0, 1, 2 and so on; got {_some(wrong)}. Use "
            "`linear_regression` for outcomes that are not counts."
        )
    return y


def numbers(call: str, outcomes: Any) -> np.ndarray:
    """Return outcomes that are finite numbers; a single column counts as a vector."""
    if frames.is_frame(outcomes):
        columns = frames.columns(f"`{call}(outcomes=...)`", outcomes)
        if len(columns) != 1:
            named = ", ".join(map(repr, columns)) or "none"
            raise ValueError(f"`{call}(outcomes=...)` must be one column; got {len(columns)} columns: {named}.")
        ((_, outcomes),) = columns.items()
    y = finite(f"`{call}(outcomes=...)`", outcomes)
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


# ---- names of columns --------------------------------------------------------------------------


def check_frame(call: str, frame: Any) -> None:
    """Refuse what is not a table."""
    if not (frame is None or frames.is_frame(frame)):
        raise TypeError(
            f"`{call}(data=...)` must be a frame of pandas or polars, or None; got {brief(frame)}. Write "
            "`pandas.DataFrame(data)` for a dict of columns."
        )


def named(call: str, argument: str, values: Any, frame: Any) -> Any:
    """Return a column of the frame, or several, if that is what a name says; anything else unchanged."""
    if are_names(values):
        return tuple(named(call, argument, name, frame) for name in values)
    return column_of(f"`{call}({argument}={values!r})`", values, frame) if isinstance(values, str) else values


def column_of(quoted: str, name: str, frame: Any) -> Any:
    """Return the column of this name."""
    if frame is None:
        raise TypeError(f"{quoted} names the column {name!r}: give the frame as `data=`.")
    if name not in list(frame.columns):
        raise ValueError(f"{quoted}: the frame has no column {name!r}; it has {few(list(frame.columns))}.")
    return frame[name]


def named_features(call: str, x: Any, frame: Any) -> Any:
    """Return a frame with the features, if names say which columns they are; anything else unchanged."""
    if isinstance(x, str):
        x = [x]
    if not are_names(x):
        return x
    named(call, "x", x, frame)
    return frame[list(x)]


def are_names(values: Any) -> bool:
    """Whether a value is a list of names."""
    return isinstance(values, tuple | list) and bool(values) and all(isinstance(name, str) for name in values)


def few(values: list[Any], most: int = 8) -> str:
    """Quote the first few."""
    return ", ".join(map(repr, values[:most])) + (", ..." if len(values) > most else "")


# ---- numbers of rows ---------------------------------------------------------------------------


def row_numbers(quoted: str, values: Any, num_rows: int) -> np.ndarray:
    """Return one finite number for each row."""
    found = finite(quoted, values)
    if found.shape != (num_rows,):
        raise ValueError(f"{quoted} must be one number for each of {num_rows:,} rows; got shape {found.shape}.")
    return found


def row_offset(call: str, values: Any, num_rows: int) -> np.ndarray:
    """Return what is added to the predictor of each row."""
    return row_numbers(f"`{call}(offset=...)`", values, num_rows)


def row_weights(call: str, weights: Any, num_rows: int) -> np.ndarray:
    """Return how often each row counts."""
    quoted = f"`{call}(weights=...)`"
    found = row_numbers(quoted, weights, num_rows)
    wrong = np.flatnonzero(found < 0)
    if len(wrong):
        raise RowError(f"{quoted} must be at least 0; got {found[wrong[0]]:g} for row ", int(wrong[0]), ".")
    if not np.any(found):
        raise ValueError(f"{quoted} must not all be 0: no row would count.")
    return found


def matrix(quoted: str, features: Any) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Return a matrix in float32, and the names of its columns if it is a frame."""
    if not frames.is_frame(features):
        return finite(quoted, features), None
    columns = frames.columns(quoted, features)
    x = np.empty((len(features), len(columns)), np.float32)
    for j, (name, values) in enumerate(columns.items()):
        x[:, j] = finite(quoted, values, f" in column {name!r}")
    return x, tuple(map(str, columns))


def finite(quoted: str, values: Any, where: str = "") -> np.ndarray:
    """Return finite float32 values, or say what is wrong with them."""
    if np.ma.is_masked(values):
        raise ValueError(f"{quoted} must have no masked values{where}. Fill in or drop such rows first.")
    array = frames.column(values) if hasattr(values, "to_numpy") else np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{quoted} must hold numbers; got {array.dtype}{where}. Encode text as numbers first.")
    with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, and are refused
        array = array.astype(np.float32, copy=False)
    with np.errstate(all="ignore"):  # a sum is quicker, and finite only if every number is
        is_finite = bool(np.isfinite(array.sum())) or bool(np.all(np.isfinite(array)))
    if not is_finite:
        at = tuple(int(index[0]) for index in np.nonzero(~np.isfinite(array)))
        found = f"{quoted} must be finite, in float32 as well; got {array[at]}{where}"
        remedy = ". Fill in or drop missing values first, and rescale values that are too large."
        if not at:
            raise ValueError(found + remedy)
        column = f", column {at[1]}" if len(at) > 1 else ""
        raise RowError(f"{found} at row ", at[0], column + remedy)
    return array


def _some(values: np.ndarray) -> str:
    """Quote a few of the different values."""
    different = np.unique(values)
    return ", ".join(f"{value:g}" for value in different[:5]) + (", ..." if len(different) > 5 else "")
