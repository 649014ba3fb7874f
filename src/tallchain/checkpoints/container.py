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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_MAGIC, _LENGTH, _HASH = b"tallchain checkpoint 1\n", 8, 16
_KINDS = "biuf"  # of numbers: truth, whole, unsigned, floating


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
        with temporary.open("wb") as file:
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


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return facts and arrays, or refuse a file that `write` has not written as it is."""
    try:
        found = path.read_bytes()
        begin = len(_MAGIC) + _LENGTH
        length = int.from_bytes(found[len(_MAGIC) : begin], "little")
        is_whole = found.startswith(_MAGIC) and len(found) >= begin + length + _HASH
        if not is_whole or hashlib.blake2b(found[:-_HASH], digest_size=_HASH).digest() != found[-_HASH:]:
            raise CheckpointError(f"{path} was cut short or changed: its checksum is not right.")
        header = json.loads(found[begin : begin + length])
        return dict(header["facts"]), _arrays(found, begin + length, header["arrays"])
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is no checkpoint, or a broken one: {error}.") from error


def _arrays(found: bytes, at: int, entries: list[Any]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, kind, shape in entries:
        dtype, count = np.dtype(kind), math.prod(shape)
        if dtype.kind not in _KINDS or count < 0 or at + count * dtype.itemsize > len(found) - _HASH:
            raise ValueError(f"array {name!r} of type {kind} and shape {shape} does not fit")
        arrays[name] = np.frombuffer(found, dtype, count, at).reshape(shape).copy()
        at += count * dtype.itemsize
    if at != len(found) - _HASH:
        raise ValueError(f"{len(found) - _HASH - at} bytes too many")
    return arrays
