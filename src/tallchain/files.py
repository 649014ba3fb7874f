"""Files of arrays, written completely or not at all; the folder that keeps them; and locks."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def cache_folder() -> Path | None:
    """Where computed files are kept, or None on a machine without a home folder."""
    if chosen := os.environ.get("TALLCHAIN_CACHE"):
        return Path(chosen)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "tallchain"
    try:
        return Path.home() / ".cache" / "tallchain"
    except RuntimeError:
        return None


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an .npz to `path` under a temporary name first, so that no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        os.chmod(temporary, 0o644)  # mkstemp makes files that only their owner can read
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_arrays(path: Path, names: Iterable[str] | None = None) -> dict[str, np.ndarray] | None:
    """Read arrays of an .npz, all or those named; None if the file is unusable or lacks one."""
    try:
        # Opened here: for a truncated archive np.load would leave the file open.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in (file.files if names is None else names)}
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error):
        return None


def locked(handle: int) -> bool:
    """Take the lock of a file, if nobody has it; the system releases it when the process ends."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # ty: ignore[missing-attribute]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
