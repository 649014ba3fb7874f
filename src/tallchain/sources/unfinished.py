"""A folder for work on another that is to be made: of one process at a time, and gone when it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Generator
from pathlib import Path

from tallchain.files import locked
from tallchain.sources.manifest import PackError

_LOCK = "lock"


@contextlib.contextmanager
def unfinished(output: Path) -> Generator[Path]:
    """Yield an empty folder next to the output. What a process that was killed has left in it is removed."""
    folder = output.with_name(f".{output.name}.unfinished")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise PackError(f"`pack(output=...)`: {output} cannot be written: {error.strerror or error}.") from error
    try:
        if not (locked(lock) and _is_there(lock, folder / _LOCK)):
            raise PackError(f"`pack(output=...)`: another process is packing into {output}. Choose another folder.")
        try:
            for each in folder.iterdir():
                if each.name != _LOCK:
                    shutil.rmtree(each)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _is_there(handle: int, path: Path) -> bool:
    """Whether this is still that file: the process that had the lock may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False
