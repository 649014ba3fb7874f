"""Tables that ship with the package, and the folder where computed ones are kept."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tallchain.acceptance.correction.record import Correction, halve, mirror

SHIPPED = Path(__file__).with_name("tables.npz")


def cache_folder() -> Path | None:
    """Where computed tables are kept, or None on a machine without a home."""
    if chosen := os.environ.get("TALLCHAIN_CACHE"):
        return Path(chosen)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "tallchain"
    try:
        return Path.home() / ".cache" / "tallchain"
    except RuntimeError:
        return None


def cached(key: str, compute: Callable[[], Correction]) -> Correction:
    """Read `key` from the package, else from the cache folder, else compute and keep it."""
    folder = cache_folder()
    cached = folder / f"{key}.npz" if folder else None
    for path in filter(None, (SHIPPED, cached)):
        if (table := load(path, key)) is not None:
            return table
    table = compute()
    if cached:
        # A folder that cannot be written costs the time of computing again, nothing else.
        with contextlib.suppress(OSError):
            save(cached, {key: table})
    return table


def save(path: Path, tables: dict[str, Correction]) -> None:
    """Write tables to `path` under a temporary name first, so that no reader sees half a file."""
    arrays: dict[str, Any] = {}
    for key, table in tables.items():
        atoms, weights = (table.atoms, table.weights) if table.is_skewed else halve(table.atoms, table.weights)
        arrays[f"{key}/atoms"] = atoms
        arrays[f"{key}/weights"] = weights
        numbers = (table.sigma, table.cdf_error, table.log_odds_error, table.reach, table.is_skewed)
        arrays[f"{key}/numbers"] = np.array(numbers)
        arrays[f"{key}/method"] = np.array(table.method)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, **arrays)
        os.chmod(temporary, 0o644)  # mkstemp makes files for one reader
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: Path, key: str) -> Correction | None:
    """The table `key` of a file, or None where there is none that can be used."""
    try:
        # Opened here: of a truncated archive np.load itself leaves the file open.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            atoms, weights = file[f"{key}/atoms"], file[f"{key}/weights"]
            sigma, cdf_error, log_odds_error, reach, is_skewed = map(float, file[f"{key}/numbers"])
            method = str(file[f"{key}/method"])
        if not is_skewed:
            atoms, weights = mirror(atoms, weights)
        return Correction(sigma, atoms, weights, cdf_error, log_odds_error, reach, method, bool(is_skewed))
    except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile, zlib.error):
        return None
