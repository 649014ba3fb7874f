"""Tables that ship with the package, and those that were computed and kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tallchain.acceptance.correction.record import Correction, halve, mirror
from tallchain.files import cache_folder, read_arrays, write_arrays

SHIPPED = Path(__file__).with_name("tables.npz")
_ARRAYS = ("atoms", "weights", "numbers", "method")  # of a table


def cached(key: str, compute: Callable[[], Correction]) -> Correction:
    """Read `key` from the package, else from the cache folder, else compute and keep it."""
    folder = cache_folder()
    cached = folder / f"{key}.npz" if folder else None
    for path in filter(None, (SHIPPED, cached)):
        if (table := load(path, key)) is not None:
            return table
    table = compute()
    if cached:
        # If the folder cannot be written, the only cost is computing again.
        with contextlib.suppress(OSError):
            save(cached, {key: table})
    return table


def save(path: Path, tables: dict[str, Correction]) -> None:
    """Write tables to `path` under a temporary name first, so that no reader sees half a file."""
    arrays: dict[str, Any] = {}
    for key, table in tables.items():
        atoms, weights = (table.atoms, table.weights) if table.is_skewed else halve(table.atoms, table.weights)
        numbers = (table.sigma, table.cdf_error, table.log_odds_error, table.reach, table.is_skewed)
        values = (atoms, weights, np.array(numbers), np.array(table.method))
        arrays |= {f"{key}/{name}": value for name, value in zip(_ARRAYS, values, strict=True)}
    write_arrays(path, arrays)


def load(path: Path, key: str) -> Correction | None:
    """The table `key` of a file, or None if the file has no usable one."""
    arrays = read_arrays(path, [f"{key}/{name}" for name in _ARRAYS])
    if arrays is None:
        return None
    atoms, weights, numbers, method = arrays.values()
    try:
        sigma, cdf_error, log_odds_error, reach, is_skewed = map(float, numbers)
        if not is_skewed:
            atoms, weights = mirror(atoms, weights)
        return Correction(sigma, atoms, weights, cdf_error, log_odds_error, reach, str(method), bool(is_skewed))
    except (ValueError, TypeError):
        return None
