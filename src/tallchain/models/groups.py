"""Groups of rows: levels of a factor as codes from 0, and what is wrong with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tallchain import frames
from tallchain.models.design import column_of, few, row_numbers
from tallchain.models.layout import COEFFICIENTS, Term
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
    codes, slopes, terms, levels = [], [], [], {}
    for name, group in as_groups(call, groups).items():
        quoted = quote(call, name)
        found, levels[name] = _codes(quoted, labels_of(quoted, group.index, frame), group.levels, num_rows)
        terms.append(Term(name, len(codes), None, len(levels[name])))
        for feature, values in slopes_of(quoted, group.slopes, frame).items():
            terms.append(Term(f"{name}:{feature}", len(codes), len(slopes), len(levels[name])))
            slopes.append(slope_numbers(quoted, feature, values, num_rows))
            if not slopes[-1].any():
                raise ValueError(f"{quoted}: slope {feature!r} is of a feature that is 0 in every row. Leave it out.")
        codes.append(found)
    stacked = np.stack(slopes, 1) if slopes else None
    return Coded(np.stack(codes, 1) if codes else None, stacked, tuple(terms), levels)


def as_groups(call: str, groups: Any) -> dict[str, Group]:
    """Return factors by name, or refuse what is no dict of them."""
    if groups is None:
        return {}
    if not isinstance(groups, Mapping) or not all(isinstance(name, str) and name for name in groups):
        raise TypeError(f'`{call}(groups=...)` must be a dict such as {{"clinic": Group(index)}}; got {brief(groups)}.')
    return {name: given if isinstance(given, Group) else Group(given) for name, given in groups.items()}


def check_names(call: str, terms: tuple[Term, ...], taken: tuple[str, ...]) -> None:
    """Refuse names that a position would have twice; `taken` are those of the family and of the prior."""
    seen = {COEFFICIENTS, *taken}
    for term in terms:
        for name in (term.name, term.log_sd):
            if name in seen:
                raise ValueError(
                    f"`{call}(groups=...)`: two parts of a position would be called {name!r}; without this group "
                    f"it has {few(sorted(seen))}. Choose another name for the group or for its slope."
                )
            seen.add(name)


def quote(call: str, name: str) -> str:
    """Quote the argument of a factor."""
    return f"`{call}(groups={{{name!r}: ...}})`"


# ---- columns -----------------------------------------------------------------------------------


def labels_of(quoted: str, values: Any, frame: Any) -> np.ndarray:
    """Return a label for each row: a column of the frame, or an array."""
    if isinstance(values, str):
        values = column_of(quoted, values, frame)
    return frames.column(values) if hasattr(values, "to_numpy") else np.asarray(values)


def slopes_of(quoted: str, slopes: Any, frame: Any) -> dict[str, Any]:
    """Return the features that have slopes, by name."""
    if slopes is None:
        return {}
    if isinstance(slopes, str):
        slopes = [slopes]
    if frames.is_frame(slopes):
        return {str(name): values for name, values in frames.columns(quoted, slopes).items()}
    if isinstance(slopes, Mapping):
        given = slopes.items()
    elif isinstance(slopes, list | tuple) and all(isinstance(name, str) for name in slopes):
        given = ((name, name) for name in slopes)
    else:
        raise TypeError(f"{quoted}: slopes must be a dict of arrays, a frame or names of columns; got {brief(slopes)}.")
    return {str(name): column_of(f"{quoted}: slope", of, frame) if isinstance(of, str) else of for name, of in given}


def slope_numbers(quoted: str, feature: str, values: Any, num_rows: int) -> np.ndarray:
    """Return one number for each row."""
    return row_numbers(f"{quoted}: slope {feature!r}", values, num_rows)


# ---- codes -------------------------------------------------------------------------------------


def _codes(quoted: str, index: np.ndarray, levels: Any, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    check_labels(quoted, index, num_rows)
    if levels is None:
        try:
            labels, codes = np.unique(index, return_inverse=True)
        except TypeError as error:
            raise TypeError(f"{quoted}: labels must be of one type, to be sorted: {error}.") from error
        return codes.astype(np.int32), labels
    if is_whole(levels, least=1):
        return _checked_codes(quoted, index, int(levels)), np.arange(int(levels))
    labels = frames.column(levels) if hasattr(levels, "to_numpy") else np.asarray(levels)
    if labels.ndim != 1 or not len(labels) or is_missing(labels).any():
        raise ValueError(
            f"{quoted}: `levels` must be the labels there are, or their number if the labels are 0, 1 and so on; got "
            f"{brief(levels)}."
        )
    codes, is_known = match(quoted, index, labels)
    if len(np.unique(labels)) < len(labels):
        raise ValueError(f"{quoted}: `levels` must be different labels; got {few(labels.tolist())}.")
    if not is_known.all():
        row = int(np.argmin(is_known))
        raise ValueError(
            f"{quoted}: label {item(index, row)!r} of row {row} is not among the levels: {few(labels.tolist())}. Add "
            "it to `levels`, or leave `levels` out."
        )
    return _all_used(quoted, codes, labels), labels


def check_labels(quoted: str, index: np.ndarray, num_rows: int) -> None:
    """Refuse labels that are missing, or not one for each row."""
    if index.shape != (num_rows,):
        raise ValueError(f"{quoted} must be one label for each of {num_rows:,} rows; got shape {index.shape}.")
    missing = is_missing(index)
    if missing.any():
        row = int(np.argmax(missing))
        raise ValueError(
            f"{quoted} must have no missing labels; got {item(index, row)!r} for row {row}. Fill in or drop such rows."
        )


def match(quoted: str, index: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of each row's label among the labels, and whether it is one of them."""
    kinds = [_KINDS.get(of.dtype.kind) for of in (index, labels)]
    if None not in kinds and kinds[0] != kinds[1]:
        raise TypeError(
            f"{quoted} must hold {kinds[1]}, as the levels are {few(labels.tolist(), 3)}; got {index.dtype}."
        )
    try:
        order = np.argsort(labels)
        at = np.minimum(np.searchsorted(labels[order], index), len(labels) - 1)
    except TypeError as error:
        raise TypeError(f"{quoted}: labels must be of the type of the levels: {error}.") from error
    codes = order[at].astype(np.int32)
    return codes, np.asarray(labels[codes] == index, bool)


_KINDS = dict.fromkeys("biuf", "numbers") | dict.fromkeys("US", "text") | dict.fromkeys("mM", "times")


def is_missing(index: np.ndarray) -> np.ndarray:
    """NaN, None and the like."""
    if index.dtype.kind in "mM":
        return np.isnat(index)
    if index.dtype.kind != "O":
        return np.isnan(index) if index.dtype.kind == "f" else np.zeros(index.shape, bool)
    try:
        return np.asarray((index != index) | (index == np.array(None)), bool)  # noqa: PLR0124 - NaN differs from itself
    except TypeError:  # pandas' NA is neither equal to itself nor not
        return np.array([type(label).__name__ == "NAType" or label is None or label != label for label in index])  # noqa: PLR0124


def item(index: np.ndarray, row: int) -> Any:
    """One label, as Python has it."""
    return index[row : row + 1].tolist()[0]


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
        raise ValueError(
            f"{quoted}: {len(empty)} of {len(labels)} levels have no rows: {few(empty.tolist(), 5)}. Leave them out; "
            'the effect of a new group is a draw from N(0, sd^2), and `predict(new_levels="draw")` draws it.'
        )
    return codes
