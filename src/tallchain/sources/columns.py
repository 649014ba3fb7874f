"""Rows of a packed table, read from its columns on disk: some consecutive ones at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import zlib
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from tallchain.sources.copying import allocate
from tallchain.sources.manifest import Column, Manifest, PackError, column_file
from tallchain.sources.rows import MOST_ROWS, check_values
from tallchain.validation import brief

_AT_ONCE = 2**24  # bytes to read at a time, where they have to be converted


@dataclasses.dataclass(frozen=True)
class _File:
    """A column of a shard."""

    path: Path
    dtype: np.dtype
    row: tuple[int, ...]
    """Shape of a row."""
    first: int
    """Number of its first row in the table."""
    num_rows: int
    begin: int
    """Byte of the first number."""
    checksum: str

    @property
    def row_bytes(self) -> int:
        """Of one row."""
        return self.dtype.itemsize * int(np.prod(self.row))


class Columns:
    """Columns of a packed table, as arrays of JAX's types.

    The first time that rows are read from the first to the last, their checksums are compared.

    Args:
        path: the folder.
        names: a pytree of names of columns; rows come in its structure. None for all, as a dict.
        call: to quote in errors.
    """

    def __init__(self, path: Path, names: Any = None, call: str = "Packed") -> None:
        self.path, self._call = path, call
        self.manifest = Manifest.read(path)
        if self.manifest.num_rows > MOST_ROWS:
            raise PackError(
                f"`{call}(...)`: a source must have fewer than 2^31 rows, all parts together, the reach of a 32-bit "
                f"index; {path} has {self.manifest.num_rows:,}."
            )
        self.names = {name: name for name in self.manifest.columns} if names is None else names
        wanted = jax.tree.leaves(self.names)
        for name in wanted:
            if name not in self.manifest.columns:
                known = ", ".join(map(repr, self.manifest.columns))
                raise PackError(f"`{call}(columns=...)`: {path} has no column {brief(name)}; there are {known}.")
        if not wanted:
            raise PackError(f"`{call}(columns=...)` must name columns; got {brief(names)}.")
        self._files = {name: self._open(name, self.manifest.columns[name]) for name in wanted}
        self._checked = dict.fromkeys(self._files, (0, 0))  # rows in order so far, and the checksum of those in a file
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="tallchain-read")
        self._ahead: tuple[tuple[int, int, int], Future[Any]] | None = None

    @property
    def num_rows(self) -> int:
        """Of the table."""
        return self.manifest.num_rows

    @property
    def identity(self) -> str:
        """What tells it from other tables, wherever it lies."""
        return f"{self.manifest.checksum}, {len(self.manifest.shards)} shards, columns {self.names}"

    @property
    def row_bytes(self) -> int:
        """Of a row, in JAX's types."""
        return sum(
            _kept(files[0].dtype).itemsize * int(np.prod(files[0].row, dtype=int)) for files in self._files.values()
        )

    def read(self, begin: int, count: int, repeated: int = 0) -> Any:
        """Return `count` rows from number `begin`, and the first `repeated` of them again."""
        found = {}
        for name, files in self._files.items():
            into = allocate((count + repeated, *files[0].row), files[0].dtype)
            self._fill(name, into[:count], begin)
            into[count:] = into[:repeated]
            found[name] = into
        return jax.tree.map(lambda name: jax.device_put(found[name]), self.names)

    def read_ahead(self, begin: int, count: int, repeated: int = 0) -> None:
        """Begin to read, for the next `take` of the same rows."""
        wanted = (begin, count, repeated)
        with self._lock:
            if self._ahead is None or self._ahead[0] != wanted:
                self._ahead = wanted, self._threads.submit(self.read, *wanted)

    def take(self, begin: int, count: int, repeated: int = 0) -> Any:
        """As `read`; what was read ahead is there already."""
        with self._lock:
            ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == (begin, count, repeated):
            return ahead[1].result()
        if ahead is not None:
            ahead[1].cancel()
        return self.read(begin, count, repeated)

    # ---- files ----------------------------------------------------------------------------------

    def _open(self, name: str, column: Column) -> list[_File]:
        """Find where the numbers of a column are, and refuse files that are not as the manifest says."""
        found, first = [], 0
        for shard in self.manifest.shards:
            path = self.path / shard.folder / column_file(name)
            try:
                with self._stream(path) as stream:
                    shape, dtype, begin = _header(stream)
                    size = path.stat().st_size - begin
            except ValueError as error:
                raise PackError(f"`{self._call}(...)`: {path} cannot be read as a column: {error}.") from error
            wanted = (shard.num_rows, *column.shape)
            if shape != wanted or dtype != np.dtype(column.dtype):
                raise PackError(
                    f"`{self._call}(...)`: {path} has {dtype}{list(shape)}, and the manifest says {column.dtype}"
                    f"{list(wanted)}. Pack the table again."
                )
            file = _File(path, dtype, column.shape, first, shard.num_rows, begin, shard.checksums[name])
            if size != shard.num_rows * file.row_bytes:
                raise PackError(
                    f"`{self._call}(...)`: {path} has {size:,} bytes of numbers in place of "
                    f"{shard.num_rows * file.row_bytes:,}: it was cut short, or added to. Pack the table again."
                )
            found.append(file)
            first += shard.num_rows
        return found

    @contextlib.contextmanager
    def _stream(self, path: Path) -> Generator[Any]:
        """Open a file; say in one line that it cannot be read."""
        try:
            if not path.is_file():  # but a pipe, say, which would be waited for
                raise FileNotFoundError("there is no such file")
            with path.open("rb", buffering=0) as stream:
                yield stream
        except OSError as error:
            said = f"{path} cannot be read as a column: {error.strerror or error}"
            raise PackError(f"`{self._call}(...)`: {said}. Pack the table again.") from error

    def _fill(self, name: str, into: np.ndarray, begin: int) -> None:
        """Read rows of a column from all shards that have some of them."""
        end = begin + len(into)
        for file in self._files[name]:
            at, to = max(begin, file.first), min(end, file.first + file.num_rows)
            if at < to:
                self._read_part(name, file, into[at - begin : to - begin], at)

    def _read_part(self, name: str, file: _File, into: np.ndarray, at: int) -> None:
        with self._stream(file.path) as stream:
            stream.seek(file.begin + (at - file.first) * file.row_bytes)
            step = len(into) if into.dtype == file.dtype else max(_AT_ONCE // max(file.row_bytes, 1), 1)
            for start in range(0, len(into), max(step, 1)):
                part = into[start : start + step]
                numbers = part if into.dtype == file.dtype else np.empty(part.shape, file.dtype)
                self._read_bytes(stream, numbers.reshape(-1).view(np.uint8).data, file)
                self._check(name, file, at + start, numbers)
                if numbers is not part:
                    part[...] = numbers

    def _read_bytes(self, stream: Any, into: memoryview, file: _File) -> None:
        done = 0
        while done < len(into):
            count = stream.readinto(into[done:])
            if not count:
                raise PackError(f"`{self._call}(...)`: {file.path} was cut short. Pack the table again.")
            done += count

    def _check(self, name: str, file: _File, at: int, numbers: np.ndarray) -> None:
        """Compare the checksum of a file once all of it was read, if that was in order; and values read before."""
        done, found = self._checked[name]
        if at + len(numbers) > done:
            self._check_values(name, file, at, numbers)
        if at != done:
            return
        found = zlib.crc32(numbers.reshape(-1).view(np.uint8).data, 0 if at == file.first else found)
        done += len(numbers)
        if done == file.first + file.num_rows and f"crc32:{found:08x}" != file.checksum:
            raise PackError(
                f"`{self._call}(...)`: the numbers of {file.path} are not those that were packed: their checksum "
                "differs. Pack the table again."
            )
        self._checked[name] = (done, found)

    def _check_values(self, name: str, file: _File, at: int, numbers: np.ndarray) -> None:
        """Refuse missing values, and numbers that do not survive the conversion."""
        try:
            check_values(f"`{self._call}(...)`", f"column {name!r} from row {at:,} on", numbers)
        except ValueError as error:
            raise PackError(str(error)) from None


def _header(stream: BinaryIO) -> tuple[tuple[int, ...], np.dtype, int]:
    """Return shape and type of a .npy file, and where its numbers begin."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(stream)
    if is_fortran or dtype.hasobject:
        raise ValueError("it holds no numbers in rows")
    return shape, dtype, stream.tell()


def _kept(dtype: np.dtype) -> np.dtype:
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))
