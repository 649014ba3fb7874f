"""Tables in memory: frames of pandas, and dicts of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.tables import table
from tallchain.tables.table import Kind, Report, TableError, check_names, checksum_of_rows, wanted

if TYPE_CHECKING:
    import pandas as pd

_OF_OBJECTS: dict[str, Kind] = {  # what pandas infers of a column of objects
    "string": "text",
    "boolean": "truth",
    **dict.fromkeys(("integer", "floating", "mixed-integer-float", "decimal"), "number"),
    **dict.fromkeys(("date", "datetime", "datetime64", "time"), "time"),
    "empty": "text",
}


class MemoryTable:
    """A frame of pandas; its values are not copied."""

    def __init__(self, call: str, name: str, frame: pd.DataFrame) -> None:
        names = check_names(call, name, frame.columns)
        if not len(frame):
            raise TableError(f"`{call}`: {name} has no rows.")
        self._call, self.name, self.num_rows = call, name, len(frame)
        self._frame = frame.set_axis(names, axis=1)

    @cached_property
    def columns(self) -> dict[str, Kind]:
        """Kinds by name."""
        return {name: _kind(self._frame[name]) for name in self._frame.columns}

    def blocks(self, columns: Iterable[str], report: Report | None = None) -> Iterator[pd.DataFrame]:
        """Yield the rows in order, in blocks."""
        names = wanted(self._call, self, columns)
        for start in range(0, self.num_rows, table.BLOCK):
            rows = self._frame.iloc[start : start + table.BLOCK]
            yield frame_of({name: _plain(rows[name], self.columns[name]) for name in names}, len(rows))
            if report is not None:
                report(min(start + table.BLOCK, self.num_rows))

    def checksum(self) -> str:
        """Hash names and values."""
        return checksum_of_rows(self)


def frame_of(columns: dict[str, Any], count: int) -> pd.DataFrame:
    """Return a frame of these columns, without a copy."""
    import pandas as pd

    return pd.DataFrame(columns, index=pd.RangeIndex(count), copy=False)


def of_arrays(call: str, name: str, arrays: Mapping[str, Any]) -> MemoryTable:
    """Return a table of arrays by name."""
    import pandas as pd

    found = {str(key): values if hasattr(values, "dtype") else np.asarray(values) for key, values in arrays.items()}
    shapes = {key: np.shape(values) for key, values in found.items()}
    for key, shape in shapes.items():
        if len(shape) != 1:
            raise TableError(f"`{call}`: a column is an array with one axis; {key!r} of {name} has shape {shape}.")
    if len(set(shapes.values())) > 1:
        counts = ", ".join(f"{key!r} {shape[0]:,}" for key, shape in shapes.items())
        raise TableError(f"`{call}`: all columns must have as many rows; those of {name} have: {counts}.")
    plain = {key: values.array if isinstance(values, pd.Series) else values for key, values in found.items()}
    return MemoryTable(call, name, pd.DataFrame(plain, copy=False))


def _kind(column: pd.Series) -> Kind:
    from pandas.api import types

    dtype = column.dtype
    if types.is_object_dtype(dtype):
        return _OF_OBJECTS.get(types.infer_dtype(column, skipna=True), "other")
    kinds: dict[Kind, bool] = {
        "category": isinstance(dtype, types.CategoricalDtype),
        "truth": types.is_bool_dtype(dtype),
        "number": types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype),
        "time": types.is_datetime64_any_dtype(dtype),
        "text": types.is_string_dtype(dtype),
    }
    return next((kind for kind, is_it in kinds.items() if is_it), "other")


def _plain(column: pd.Series, kind: Kind) -> Any:
    """Return the values without the nullable types of pandas."""
    import pandas as pd

    if kind == "category":
        return pd.Categorical(column).as_ordered()  # the order of a frame's categories is meant
    if kind not in ("number", "truth") or (isinstance(column.dtype, np.dtype) and column.dtype != object):
        return column.array
    if column.isna().any():
        return column.astype(object).where(column.notna(), np.nan).to_numpy().astype(np.float64)
    values = column.to_numpy()
    if values.dtype != object:
        return values
    return values.astype(bool if kind == "truth" else np.float64)
