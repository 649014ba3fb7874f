"""Arrays and JSON in one file: written under a temporary name, flushed, renamed; refused if cut short or changed.

    magic | length of the header | header | numbers of the arrays, one after another | hash of all that

The header is JSON: facts, and the name, type and shape of every array. Nothing in it is run when it is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

_MAGIC, _LENGTH, _HASH = b"tallchain checkpoint 1\n", 8, 16
_KINDS = "biuf"  # of numbers: truth, whole, unsigned, floating
_PIECE, _LONGEST_HEADER = 2**20, 2**26  # bytes: to read at a time; more is no header


class CheckpointError(ValueError):
    """A checkpoint that is of another run, that is broken, or that cannot be written."""


def write(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray], *, is_flushed: bool = True) -> None:
    """Replace a file by another in one step; a power cut spares it too if it is flushed."""
    whole = {name: np.ascontiguousarray(of).reshape(np.shape(of)) for name, of in arrays.items()}
    entries = [[name, of.dtype.str, list(of.shape)] for name, of in whole.items()]
    header = json.dumps({"facts": dict(facts), "arrays": entries}, allow_nan=False).encode()
    pieces: list[Any] = [_MAGIC, len(header).to_bytes(_LENGTH, "little"), header]
    pieces += [of.reshape(-1).view(np.uint8).data for of in whole.values() if of.size]
    total = hashlib.blake2b(digest_size=_HASH)
    for piece in pieces:
        total.update(piece)
    replace_file(path, [*pieces, total.digest()], is_flushed=is_flushed)


def replace_file(path: Path, pieces: list[Any], *, is_flushed: bool = True) -> None:
    """Write pieces of bytes under a temporary name, and rename it."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:  # not to where a link leads
            for piece in pieces:
                file.write(piece)
            file.flush()
            if is_flushed:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if is_flushed:
            flush_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def flush_folder(folder: Path) -> None:
    """Make names of files last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def open_plain(path: Path, flags: int) -> int:
    """Open a file in a folder that may be from somebody else: not what a link leads to, and nothing that waits."""
    if path.is_symlink():
        raise CheckpointError(f"{path} is a link; files of a checkpoint are plain files.")
    handle = os.open(
        path, flags | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY")), 0o644
    )
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise CheckpointError(f"{path} is no plain file.")
    return handle


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return facts and arrays, or refuse a file that `write` has not written as it is."""
    try:
        with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
            end = os.fstat(file.fileno()).st_size - _HASH
            header, entries = _header(file)
            if file.tell() + sum(each.size for each in entries) != end or not _is_whole(file, end):
                raise CheckpointError(f"{path} was cut short or changed: its checksum is not right.")
            return dict(header["facts"]), {each.name: each.read(file) for each in entries}
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is no checkpoint, or was cut short or changed: {error}.") from error


class _Entry(NamedTuple):
    """An array of a file."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, name: str, kind: str, shape: list[int]) -> _Entry:
        dtype = np.dtype(kind)
        if dtype.kind not in _KINDS or any(size < 0 for size in shape):
            raise ValueError(f"array {name!r} cannot be of type {kind} and shape {shape}")
        return cls(name, dtype, tuple(shape))

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, file: BinaryIO) -> np.ndarray:
        """Return the numbers that come next."""
        return np.frombuffer(file.read(self.size), self.dtype).reshape(self.shape).copy()


def _header(file: BinaryIO) -> tuple[dict[str, Any], list[_Entry]]:
    """Read what a file says it holds."""
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it begins otherwise")
    length = int.from_bytes(file.read(_LENGTH), "little")
    if length > _LONGEST_HEADER:
        raise ValueError(f"a header of {length} bytes is too long")
    header = json.loads(file.read(length))
    return header, [_Entry.of(*entry) for entry in header["arrays"]]


def _is_whole(file: BinaryIO, end: int) -> bool:
    """Whether the hash is right, which begins at the end; a large file is not read at once."""
    numbers = file.tell()
    file.seek(0)
    total = hashlib.blake2b(digest_size=_HASH)
    while piece := file.read(min(_PIECE, end - file.tell())):
        total.update(piece)
    is_right = file.read() == total.digest()
    file.seek(numbers)
    return is_right
