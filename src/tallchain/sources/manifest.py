"""What a packed table says of itself: rows, columns and shards. It may come from anybody, so it is checked."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tallchain.validation import brief, is_whole

FORMAT, MANIFEST = 1, "manifest.json"
_NOT_IN_NAMES = re.compile(r'[%/\\:*?"<>|\x00-\x1f\x7f]')  # of files, on one system or another
_LONGEST = 255  # bytes of the name of a file
NUMBERS = "biuf"
"""Kinds of NumPy's types that a column may have."""


class PackError(ValueError):
    """A packed table that cannot be written, or is not whole."""


class Column(NamedTuple):
    """A column of a packed table."""

    dtype: str
    shape: tuple[int, ...]
    """Of one row."""
    levels: tuple[Any, ...] | None = None
    """Labels of a factor, whose numbers the column holds."""


class Shard(NamedTuple):
    """A random part of the rows."""

    folder: str
    num_rows: int
    checksums: dict[str, str]
    """Of the numbers of its columns."""


class Manifest(NamedTuple):
    """What a packed table is."""

    num_rows: int
    columns: dict[str, Column]
    shards: tuple[Shard, ...]
    seed: int
    checksum: str
    """Of all rows, whatever their order."""
    design: dict[str, Any] | None = None
    """What the columns are the design of, if they are one."""

    def to_json(self) -> str:
        """Return it as text."""
        found = self._asdict() | {"format": FORMAT, "columns": {n: of._asdict() for n, of in self.columns.items()}}
        found["shards"] = [shard._asdict() for shard in self.shards]
        return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read that of a folder, or refuse it."""
        file = path / MANIFEST
        if not file.is_file():
            raise PackError(f"{path} is no packed table: it has no {MANIFEST}. Was packing it ended early?")
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            if found.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            columns = {
                name: Column(of["dtype"], tuple(of["shape"]), None if of["levels"] is None else tuple(of["levels"]))
                for name, of in found.pop("columns").items()
            }
            made = cls(columns=columns, shards=tuple(Shard(**of) for of in found.pop("shards")), **found)
            made._check()
            return made
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PackError(f"{file} is no manifest of a packed table: {error}.") from error

    def _check(self) -> None:
        """Refuse what no packing has written: numbers that do not agree, and files elsewhere."""
        if not (self.columns and self.shards and is_whole(self.num_rows, 1)):
            raise ValueError(f"it must have rows, columns and shards; it has {brief(self.num_rows)} rows")
        for name, column in self.columns.items():
            column_file(name)
            is_shape = all(is_whole(size, 0) for size in column.shape)
            if not (is_shape and isinstance(column.dtype, str) and np.dtype(column.dtype).kind in NUMBERS):
                raise ValueError(f"column {name!r} holds no numbers: {brief(column.dtype)}, {brief(column.shape)}")
        for shard in self.shards:
            if not (isinstance(shard.folder, str) and re.fullmatch(r"\d+", shard.folder, re.ASCII)):
                raise ValueError(f"a shard is in {brief(shard.folder)}, and not in a folder of the table")
            if not (is_whole(shard.num_rows, 1) and shard.checksums.keys() == self.columns.keys()):
                raise ValueError(f"shard {shard.folder} has {brief(shard.num_rows)} rows, or not all columns")
        if (held := sum(shard.num_rows for shard in self.shards)) != self.num_rows:
            raise ValueError(f"its shards have {held:,} rows, and the table {self.num_rows:,}")
        if len({shard.folder for shard in self.shards}) < len(self.shards):
            raise ValueError("two of its shards are in one folder")
        if not (isinstance(self.checksum, str) and isinstance(self.design, dict | None)):
            raise ValueError("its checksum or its design is none")


def column_file(name: str) -> str:
    """Return the name of the file of a column: that of the column, or with %2F for a slash and the like."""
    try:
        file = f"{_NOT_IN_NAMES.sub(lambda found: f'%{ord(found[0]):02X}', name)}.npy"
        size = len(file.encode())
    except UnicodeEncodeError:
        size = math.inf
    if not name or size > _LONGEST:
        raise PackError(
            f"the name of a column must be from 1 to {_LONGEST - 4} bytes long; got {brief(name)}. Rename it."
        )
    return file
