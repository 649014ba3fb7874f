"""What a table is: named columns of known kinds, and their rows in blocks."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tallchain.validation import cut

if TYPE_CHECKING:
    import pandas as pd

BLOCK = 2**18  # rows, at most
_MOST_QUOTED = 8  # names of columns

Kind = Literal["number", "truth", "text", "category", "time", "other"]
Report = Callable[[int], None]


class TableError(ValueError):
    """A table that cannot be read, in one line."""


class Table(Protocol):
    """Named columns, and their rows in blocks."""

    @property
    def name(self) -> str:
        """For messages: the file, or what was given."""
        ...

    @property
    def columns(self) -> dict[str, Kind]:
        """Kinds by name, in the order of the table. Columns of kind "other" (lists, bytes) cannot be used."""
        ...

    @property
    def num_rows(self) -> int | None:
        """Number of rows; None if only reading tells."""
        ...

    def blocks(self, columns: Iterable[str], report: Report | None = None) -> Iterator[pd.DataFrame]:
        """Yield the rows in order, in blocks of these columns alone.

        Missing numbers and truth values are NaN, missing labels are None or NA. A category column is ordered if its
        order is meant: that of a frame, or one which the file says has an order.

        Args:
            columns: names.
            report: called with the rows read so far.
        """
        ...

    def checksum(self) -> str:
        """Return "blake2b:..." of the content: of the bytes of a file, or of names and values in memory."""
        ...


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which names are like this one, or else which there are."""
    known = list(map(str, known))
    lower = {each.lower(): each for each in reversed(known)}
    found = [lower[each] for each in difflib.get_close_matches(name.lower(), lower, n=3)]
    if found:
        return "the nearest: " + ", ".join(map(repr, found))
    more = ", ..." if len(known) > _MOST_QUOTED else ""
    return "there are " + ", ".join(map(repr, known[:_MOST_QUOTED])) + more if known else "there are none"


def wanted(call: str, table: Table, names: Iterable[str]) -> list[str]:
    """Return names as a list without repetitions, or refuse one that the table does not have."""
    found = list(dict.fromkeys(names))
    for name in found:
        if name not in table.columns:
            raise TableError(f"`{call}`: {table.name} has no column {name!r}; {nearest(name, table.columns)}.")
    return found


def check_names(call: str, name: str, columns: Iterable[Any]) -> list[str]:
    """Return names of columns as text, or refuse none and repeated ones."""
    names = [str(each) for each in columns]
    repeated = sorted({each for each in names if names.count(each) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        quoted = ", ".join(map(repr, repeated))
        raise TableError(f"`{call}`: every column needs a name of its own; {name} has two of {quoted}.")
    if not names:
        raise TableError(f"`{call}`: {name} has no columns.")
    return names


def need(call: str, *modules: str) -> None:
    """Refuse to go on without libraries that are not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"`{call}` needs {' and '.join(missing)}: pip install 'tallchain[fit]'")


def one_line(error: BaseException) -> str:
    """Return what an error of another library says, in one line."""
    return cut(" ".join(str(error).split())).rstrip(".") or type(error).__name__


def checksum_of_rows(table: Table) -> str:
    """Hash names and values, block by block."""
    from pandas import util

    hashed: Any = util.hash_pandas_object
    total = hashlib.blake2b(digest_size=16)
    for name in table.columns:
        total.update(name.encode() + b"\0")
    usable = [name for name, kind in table.columns.items() if kind != "other"]
    for block in table.blocks(usable):
        for name in usable:
            total.update(hashed(block[name], index=False).to_numpy().tobytes())
    return f"blake2b:{total.hexdigest()}"
