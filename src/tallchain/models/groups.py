"""Groups of rows: levels of a factor as codes from 0, and what is wrong with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tallchain import frames
from tallchain.models.design import finite
from tallchain.models.layout import Term
from tallchain.validation import brief, is_whole


@dataclasses.dataclass(frozen=True)
class Group:
    """A factor: which group each row is in.

    Args:
        index: one label for each row: integers, text or anything that can be sorted; or the name of a column.
        slopes: features whose slopes differ between groups, independent of each other and of the intercept: a dict of
            arrays by name, a frame, or names of columns; None for intercepts alone.
        levels: the labels there are, or their number if the labels are 0, 1 and so on; None takes those that occur.
    """

    index: Any
    slopes: Any = None
    levels: Any = None


class Coded(NamedTuple):
    """Factors as numbers."""

    groups: np.ndarray | None
    """(N, factors), int32."""
    slopes: np.ndarray | None
    """(N, slopes), float32."""
    terms: tuple[Term, ...]
    levels: dict[str, np.ndarray]
    """Labels by factor."""


def code_groups(call: str, groups: Mapping[str, Any] | None, num_rows: int, frame: Any) -> Coded:
    """Return the factors as codes, or raise an error that says what is wrong."""
    if groups is None:
        return Coded(None, None, (), {})
    if not isinstance(groups, Mapping) or not all(isinstance(name, str) for name in groups):
        raise TypeError(f'`{call}(groups=...)` must be a dict such as {{"clinic": Group(index)}}; got {brief(groups)}.')
    codes, slopes, terms, levels = [], [], [], {}
    for name, given in groups.items():
        group = given if isinstance(given, Group) else Group(given)
        quoted = f"`{call}(groups={{{name!r}: ...}})`"
        found, levels[name] = _codes(quoted, _column(quoted, group.index, frame), group.levels, num_rows)
        terms.append(Term(name, len(codes), None, len(levels[name])))
        for feature, values in _slopes(quoted, group.slopes, frame).items():
            if np.shape(values) != (num_rows,):
                raise ValueError(
                    f"{quoted}: slopes must be one number for each of {num_rows:,} rows; got {brief(values)}."
                )
            terms.append(Term(f"{name}:{feature}", len(codes), len(slopes), len(levels[name])))
            slopes.append(finite(quoted, values, f" in slope {feature!r}"))
        codes.append(found)
    stacked = np.stack(slopes, 1) if slopes else None
    return Coded(np.stack(codes, 1) if codes else None, stacked, tuple(terms), levels)


def _column(quoted: str, values: Any, frame: Any) -> np.ndarray:
    if isinstance(values, str):
        if frame is None or values not in list(frame.columns):
            raise ValueError(f"{quoted}: there is no column {values!r}" + ("; give `data=`." if frame is None else "."))
        values = frame[values]
    return frames.column(values) if hasattr(values, "to_numpy") else np.asarray(values)


def _slopes(quoted: str, slopes: Any, frame: Any) -> dict[str, np.ndarray]:
    if slopes is None:
        return {}
    if isinstance(slopes, str):
        slopes = [slopes]
    if frames.is_frame(slopes):
        return {str(name): values for name, values in frames.columns(quoted, slopes).items()}
    if isinstance(slopes, Mapping):
        return {str(name): _column(quoted, values, frame) for name, values in slopes.items()}
    if isinstance(slopes, list | tuple) and all(isinstance(name, str) for name in slopes):
        return {name: _column(quoted, name, frame) for name in slopes}
    raise TypeError(f"{quoted}: slopes must be a dict of arrays, a frame or names of columns; got {brief(slopes)}.")


def _codes(quoted: str, index: np.ndarray, levels: Any, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    if index.shape != (num_rows,):
        raise ValueError(f"{quoted} must be one label for each of {num_rows:,} rows; got shape {index.shape}.")
    is_missing = _missing(index)
    if is_missing.any():
        at = int(np.argmax(is_missing))
        raise ValueError(
            f"{quoted} must have no missing labels; got {index[at]!r} for row {at}. Fill in or drop such rows."
        )
    if levels is None:
        try:
            labels, codes = np.unique(index, return_inverse=True)
        except TypeError as error:
            raise TypeError(f"{quoted}: labels must be of one type, to be sorted: {error}.") from error
        return codes.astype(np.int32), labels
    if is_whole(levels, least=1):
        return _checked_codes(quoted, index, int(levels)), np.arange(int(levels))
    labels = np.asarray(levels)
    order = np.argsort(labels)
    at = np.minimum(np.searchsorted(labels[order], index), len(labels) - 1)
    codes = order[at].astype(np.int32)
    wrong = np.flatnonzero(labels[codes] != index)
    if len(wrong):
        raise ValueError(f"{quoted}: label {index[wrong[0]]!r} of row {wrong[0]} is not among the levels.")
    return _all_used(quoted, codes, labels), labels


def _missing(index: np.ndarray) -> np.ndarray:
    """NaN, None and the like."""
    if index.dtype.kind not in "fO":
        return np.zeros(len(index), bool)
    return index != index  # noqa: PLR0124 - NaN differs from itself, in arrays of objects too


def _checked_codes(quoted: str, index: np.ndarray, count: int) -> np.ndarray:
    """JAX would clamp a code that is out of range, and merge two groups without a word."""
    if index.dtype.kind not in "iu":
        raise TypeError(f"{quoted} must hold whole numbers if `levels` is a number; got {index.dtype}.")
    wrong = np.flatnonzero((index < 0) | (index >= count))
    if len(wrong):
        hint = " They seem to begin at 1: subtract 1, or leave `levels` out." if index.min() >= 1 else ""
        raise ValueError(
            f"{quoted} must hold codes from 0 to {count - 1}, as `levels={count}` says; got {index[wrong[0]]} for row "
            f"{wrong[0]}.{hint}"
        )
    return _all_used(quoted, index.astype(np.int32), np.arange(count))


def _all_used(quoted: str, codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    empty = labels[np.bincount(codes, minlength=len(labels)) == 0]
    if len(empty):
        some = ", ".join(repr(label) for label in empty[:5].tolist()) + (", ..." if len(empty) > 5 else "")
        raise ValueError(
            f"{quoted}: {len(empty)} of {len(labels)} levels have no rows: {some}. Leave them out; the effect of a new "
            "group is a draw from N(0, sd^2)."
        )
    return codes
