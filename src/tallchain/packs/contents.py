"""What is to be packed: blocks of columns, and what is known of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from tallchain.sources.manifest import PackError, column_file
from tallchain.sources.out_of_core import Blocks
from tallchain.validation import brief

BLOCK = 2**18  # rows


class Contents(NamedTuple):
    """A table to pack."""

    blocks: Blocks
    num_rows: int
    levels: dict[str, tuple[Any, ...]]
    """Labels of factors, by column."""
    design: dict[str, Any] | None = None
    """What the columns are the design of, for `fit`."""


def chosen(names: Any, known: Iterable[str], name: str) -> list[str]:
    """Return the names of the columns to pack."""
    known = list(known)
    wanted = known if names is None else [names] if isinstance(names, str) else list(names)
    for each in wanted:
        if each not in known:
            raise PackError(
                f"`pack(columns=...)`: {name} has no column {brief(each)}; there are {', '.join(map(repr, known))}."
            )
    if not wanted:
        raise PackError(f"`pack(columns=...)` must name columns; got {brief(names)}.")
    for each in wanted:
        column_file(each)  # or it says what is wrong with the name
    return wanted


def kept(values: np.ndarray) -> np.ndarray:
    """Return numbers in the type to pack: floats in JAX's, anything else as it is."""
    if values.dtype.kind != "f":
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    with np.errstate(over="ignore"):
        return values.astype(jax.dtypes.canonicalize_dtype(np.float64), copy=False)


def check_finite_after(name: str, before: np.ndarray, after: np.ndarray, first: int) -> None:
    """Refuse numbers that the conversion has made infinite."""
    if after.dtype == before.dtype or after.dtype.kind != "f":
        return
    lost = np.isinf(after) & np.isfinite(before)
    if lost.any():
        at = int(np.flatnonzero(lost.reshape(len(lost), -1).any(1))[0])
        raise PackError(
            f"`pack(...)`: column {name!r} has {before[at]} in row {first + at:,}, which is too large for "
            f"{after.dtype}; rescale it, or give JAX 64 bits."
        )


def lacking(columns: dict[str, np.ndarray]) -> tuple[np.ndarray, str]:
    """Return which rows of a block lack a number, and the name of a column that does."""
    name, found = "", np.zeros(len(next(iter(columns.values()))), bool)
    for each, values in columns.items():
        if values.dtype.kind == "f" and np.isnan(values.min(initial=0)):
            found |= np.isnan(values).reshape(len(found), -1).any(1)
            name = name or each
    return found, name


def refuse_missing(name: str, row: int) -> PackError:
    """Say that a value is missing."""
    return PackError(
        f"`pack(...)`: column {name!r} lacks a value in row {row:,}. Fill it in, or leave such rows out: "
        '`missing="drop"` (`--drop-missing`).'
    )
