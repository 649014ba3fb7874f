"""Tables of pandas and polars, recognised by their methods: neither library is imported."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_frame(value: Any) -> bool:
    """Whether a value is a table with named columns."""
    return all(hasattr(value, name) for name in ("columns", "shape", "to_numpy"))


def columns(quoted: str, frame: Any) -> dict[Any, np.ndarray]:
    """Return the columns by name, in the order of the frame; `quoted` is the call, for a message."""
    names = list(frame.columns)
    repeated = sorted({str(name) for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{quoted} must be a frame with one column of each name; got two of {', '.join(repeated)}.")
    kinds = sorted({type(name).__name__ for name in names})
    if len(kinds) > 1:
        raise TypeError(
            f"{quoted} must be a frame whose column names are all of one type; got {', '.join(kinds)}. Write "
            "`frame.columns = frame.columns.astype(str)`."
        )
    return {name: column(frame[name]) for name in names}


def column(series: Any) -> np.ndarray:
    """Return the values of a series; if some numbers are missing, floats with NaN for these."""
    values = series.to_numpy()
    if values.dtype != object:
        return values
    numbers = getattr(series.dtype, "numpy_dtype", None)  # of the nullable types of pandas
    if numbers is not None and numbers.kind in "biuf":
        return series.to_numpy(dtype=float, na_value=np.nan) if series.isna().any() else values.astype(numbers)
    if str(series.dtype) == "Boolean":  # of polars, with nulls
        return values.astype(float)
    return values
