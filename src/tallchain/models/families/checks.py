"""Outcomes as float32 arrays, or an error that quotes the call and names the first row that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallchain import frames
from tallchain.models.design import finite
from tallchain.validation import RowError

_MOST_ROUNDING = 6e-6  # of an outcome: the rounding of float32 is then a hundredth of a standard deviation
_SMALLEST = 1e-8  # standard deviation of outcomes, and the inverse of the largest


def numbers(call: str, y: Any) -> np.ndarray:
    """Return finite numbers, one for each row; a single column counts as a vector."""
    if frames.is_frame(y):
        columns = frames.columns(_quoted(call), y)
        if len(columns) != 1:
            named = ", ".join(map(repr, columns)) or "none"
            raise ValueError(f"{_quoted(call)} must be one column; got {len(columns)} columns: {named}.")
        ((_, y),) = columns.items()
    array = finite(_quoted(call), y)
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{_quoted(call)} must be one number for each row; got shape {array.shape}.")
    return array


def pairs(call: str, y: Any, first: str, second: str) -> np.ndarray:
    """Return two finite numbers for each row, (N, 2), from such an array, a frame of two columns, or two vectors."""
    meaning = f"an array (rows, 2) of {first} and {second}, or a tuple of these two as vectors"
    if frames.is_frame(y):
        y = tuple(frames.columns(_quoted(call), y).values())
    if not isinstance(y, tuple):
        array = finite(_quoted(call), y)
        if array.ndim != 2 or array.shape[1] != 2 or not len(array):
            raise ValueError(f"{_quoted(call)} must be {meaning}; got shape {array.shape}.")
        return array
    if len(y) != 2:
        raise ValueError(f"{_quoted(call)} must be {meaning}; got {len(y)} columns.")
    columns = [finite(_quoted(call), values, f" in {name}") for values, name in zip(y, (first, second), strict=True)]
    shapes = [column.shape for column in columns]
    if columns[0].ndim != 1 or not len(columns[0]) or shapes[0] != shapes[1]:
        raise ValueError(f"{_quoted(call)} must be {meaning}; got shapes {shapes[0]} and {shapes[1]}.")
    return np.stack(columns, axis=1)


def labels(call: str, y: Any) -> np.ndarray:
    """Return outcomes of 0 and 1."""
    y = numbers(call, y)
    refuse(
        call,
        y,
        ~is_label(y),
        "0 or 1, or False or True",
        "Write `y > 0` for labels of -1 and 1, `y == label` for one label against the others.",
    )
    return y


def counts(call: str, y: Any) -> np.ndarray:
    """Return outcomes that are whole numbers, at least 0."""
    y = numbers(call, y)
    refuse(call, y, ~is_count(y), "counts: 0, 1, 2 and so on", "Use another family for outcomes that are not counts.")
    return y


def positive(call: str, y: Any) -> np.ndarray:
    """Return outcomes above 0."""
    y = numbers(call, y)
    refuse(call, y, ~(y > 0), "above 0", "This family has no outcomes of 0: drop them, or model them apart.")
    return y


def levels(call: str, y: Any, count: int) -> np.ndarray:
    """Return levels 0 to count - 1."""
    y = numbers(call, y)
    is_wrong = ~(is_count(y) & (y < count))
    if is_wrong.any() and np.all(is_count(y - 1) & (y <= count)):
        hint = f"Levels count from 0, and these seem to count from 1: write `y - 1` for the {count} levels."
    else:
        hint = f"Give the family as many levels as there are; got levels={count}."
    refuse(call, y, is_wrong, f"levels from 0 to {count - 1}, whole numbers", hint)
    return y


def differing(call: str, y: np.ndarray, what: str) -> np.ndarray:
    """Refuse outcomes that are all the same, where a spread is to be estimated."""
    if np.all(y == y[0]):
        raise ValueError(
            f"{_quoted(call)} must differ, in float32 as well, for {what} to be estimated; got {y[0]:g} for every row."
        )
    return y


def measured(call: str, y: np.ndarray) -> np.ndarray:
    """Refuse outcomes in a unit in which float32 has no digits for their differences."""
    sd, largest = float(y.std(dtype=np.float64)), float(np.max(np.abs(y)))
    if 0 < sd < _MOST_ROUNDING * largest:
        raise ValueError(
            f"{_quoted(call)}: the outcomes vary by {sd:.2g} about {float(y.mean(dtype=np.float64)):.3g}, and float32 "
            "would round them too much. Subtract a number near their mean from all of them."
        )
    if sd and not _SMALLEST < sd < 1 / _SMALLEST:
        raise ValueError(
            f"{_quoted(call)}: the outcomes have a standard deviation of {sd:.2g}. Give them in another unit, in which "
            "it is of the order of 1."
        )
    return y


def is_label(y: np.ndarray) -> np.ndarray:
    """Whether each number is 0 or 1."""
    return (y == 0) | (y == 1)


def is_count(y: np.ndarray) -> np.ndarray:
    """Whether each number is whole, and at least 0."""
    return (y >= 0) & (y == np.floor(y))


def refuse(call: str, y: np.ndarray, is_wrong: np.ndarray, rule: str, hint: str = "") -> None:
    """Raise an error that names the first row that is wrong, if there is one; y has one number for each row."""
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        raise RowError(f"{_quoted(call)} must be {rule}; got {y[row]:g} at row ", row, f". {hint}".rstrip())


def _quoted(call: str) -> str:
    return f"`{call}(y=...)`"
