"""Open a table, whatever it is given as; or say in one line what is wrong with it."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallchain import frames
from tallchain.tables.arrow import ArrowTable, ParquetTable
from tallchain.tables.memory import MemoryTable, of_arrays
from tallchain.tables.table import Table, TableError, nearest, need, one_line
from tallchain.tables.text import CsvTable
from tallchain.validation import brief

_ENDINGS = (".csv", ".csv.gz", ".parquet", ".arrow", ".feather", ".ipc", ".npz")


def open_table(given: Any, call: str = "fit(data=...)") -> Table:
    """Return a table to be read in blocks.

    Args:
        given: a frame of pandas or polars, a dict of arrays, a table of pyarrow, or the path of a file or of a folder
            of Parquet files.
        call: to quote in errors.
    """
    need(call, "pandas", "pyarrow")
    if isinstance(given, str | os.PathLike):
        return _file(call, Path(given))
    if isinstance(given, Mapping):
        return of_arrays(call, "the dict", given)
    library = type(given).__module__.partition(".")[0]
    if library == "pyarrow" and hasattr(given, "column_names"):
        import pyarrow as pa

        return ArrowTable(call, "the table", pa.table(given))
    if library == "polars" and hasattr(given, "collect"):
        raise TypeError(f"`{call}`: a lazy frame has no rows yet; give `frame.collect()`, or the file that it reads.")
    if frames.is_frame(given) and hasattr(given, "iloc"):
        return MemoryTable(call, "the frame", given)
    if frames.is_frame(given) and hasattr(given, "to_arrow"):
        return ArrowTable(call, "the frame", given.to_arrow())
    raise TypeError(
        f"`{call}` must be a frame of pandas or polars, a dict of arrays, a table of pyarrow, or the path of a file; "
        f"got {brief(given)}."
    )


def _file(call: str, path: Path) -> Table:
    name = str(path)
    if not path.exists():
        raise TableError(f"`{call}`: there is no file {path.name!r} in {_folder(path)}{_alike(path)}.")
    if path.is_dir():
        files = sorted(each for each in path.rglob("*.parquet") if not each.name.startswith(("_", ".")))
        if not files:
            raise TableError(f"`{call}`: the folder {name} has no file that ends in .parquet.")
        return ParquetTable(call, name, files, path)
    ending = next((each for each in _ENDINGS if path.name.lower().endswith(each)), None)
    if ending is None:
        raise TableError(f"`{call}`: the name of a table must end in one of {', '.join(_ENDINGS)}; got {name}.")
    if not path.stat().st_size:
        raise TableError(f"`{call}`: {name} is empty.")
    if not os.access(path, os.R_OK):
        raise TableError(f"`{call}`: there is no permission to read {name}.")
    if ending.startswith(".csv"):
        return CsvTable(call, name, path)
    if ending == ".parquet":
        return ParquetTable(call, name, [path], path.parent)
    return _arrays(call, name, path) if ending == ".npz" else _arrow(call, name, path)


def _folder(path: Path) -> str:
    """Say where was looked."""
    folder = path.parent.absolute()
    return str(folder) if folder.is_dir() else f"{folder}, which does not exist"


def _alike(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    said = nearest(path.name, [each.name for each in path.parent.iterdir()])
    return f"; {said}" if said.startswith("the nearest") else ""


def _arrow(call: str, name: str, path: Path) -> Table:
    import pyarrow as pa
    from pyarrow import feather

    try:
        held = feather.read_table(path, memory_map=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(
            f"`{call}`: {name} is not a whole Arrow file ({one_line(error)}); write or download it again."
        ) from None
    return ArrowTable(call, name, held, path)


def _arrays(call: str, name: str, path: Path) -> Table:
    import numpy as np

    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as held:
            arrays = {key: held[key] for key in held.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise TableError(f"`{call}`: {name} is not a whole .npz file of plain arrays ({one_line(error)}).") from None
    return of_arrays(call, name, arrays)
