"""Rows that a regression has not seen, as numbers: features by name, groups by label; or what is wrong with them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from tallchain import frames
from tallchain.models.design import are_names, column_of, few, matrix, named, named_features, row_numbers
from tallchain.models.families.family import Family
from tallchain.models.groups import (
    Group,
    as_groups,
    check_labels,
    item,
    labels_of,
    match,
    quote,
    slope_numbers,
    slopes_of,
)
from tallchain.models.layout import Layout
from tallchain.types import Posterior, PyTree
from tallchain.validation import is_truth


class Columns(NamedTuple):
    """Columns of a frame that a regression took its rows from, as far as they were given by name; see `Model.names`."""

    groups: dict[str, Group]
    offset: str | None = None
    size: str | None = None
    """Of the numbers of trials."""

    @classmethod
    def of(cls, family: Family, y: Any, groups: Any, offset: Any) -> Columns:
        """Return those that are names among the arguments of `Regression`."""
        by_name = {name: Group(group.index, group.slopes) for name, group in groups.items() if _has_names(group)}
        size = y[1] if family.has_trials and are_names(y) and len(y) == 2 else None
        return cls(by_name, offset if isinstance(offset, str) else None, size)


def _has_names(group: Group) -> bool:
    slopes = group.slopes
    return isinstance(group.index, str) and (slopes is None or isinstance(slopes, str) or are_names(slopes))


class Model(Protocol):
    """What new rows must fit: a `Regression`."""

    @property
    def family(self) -> Family:
        """Of the outcomes."""
        ...

    @property
    def layout(self) -> Layout:
        """Of the parameters."""
        ...

    @property
    def posterior(self) -> Posterior:
        """Of the parameters."""
        ...

    @property
    def data(self) -> dict[str, np.ndarray]:
        """The rows it has seen."""
        ...

    @property
    def start(self) -> PyTree:
        """A position."""
        ...

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the coefficients."""
        ...

    @property
    def levels(self) -> dict[str, np.ndarray]:
        """Labels by factor."""
        ...

    @property
    def columns(self) -> Columns:
        """Of the frame."""
        ...


class Rows(NamedTuple):
    """Rows to predict."""

    data: dict[str, np.ndarray]
    """ "x", and "groups", "slopes", "offset" if there are any."""
    size: np.ndarray | None = None
    """Numbers of trials; None if they are not known."""
    index: np.ndarray | None = None
    """Which rows of the data, in order; None for all of them."""
    unknown: tuple[np.ndarray, ...] = ()
    """Labels that the regression does not have, by factor: their codes follow those of its levels."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.data["x"] if self.index is None else self.index)


def own_rows(call: str, model: Model, rows: Any, size: Any) -> Rows:
    """Return the rows of the regression itself, or some of them."""
    data = {name: leaf for name, leaf in model.data.items() if name in ("x", "groups", "slopes", "offset")}
    num_rows = len(data["x"])
    index = None if rows is None else _index(call, rows, num_rows)
    count = num_rows if index is None else len(index)
    if size is None and model.family.has_trials:
        trials = model.data["y"][:, 1]
        return Rows(data, trials if index is None else trials[index], index)
    return Rows(data, _size(call, model, size, None, count), index)


def new_rows(
    call: str, model: Model, x: Any, groups: Any, offset: Any, frame: Any, size: Any, *, may_be_new: bool
) -> Rows:
    """Return new rows, or raise an error that says what is wrong; `may_be_new`: labels of groups may be unknown."""
    features = _features(call, model, x, frame)
    count = _count(call, features, groups, offset, frame)
    width = model.layout.num_features - model.layout.has_intercept
    found = np.zeros((count, 0), np.float32) if features is None else _matrix(call, features, width)
    if model.layout.has_intercept:
        found = np.concatenate([np.ones((count, 1), np.float32), found], axis=1)
    data = {"x": found}
    at = _offset(call, model, offset, frame, count)
    if at is not None:
        data["offset"] = at
    tables = [table for table in (frame, features) if frames.is_frame(table)]
    coded, unknown = _groups(call, model, groups, frame, tables, count, may_be_new=may_be_new)
    return Rows(data | coded, _size(call, model, size, frame, count), None, unknown)


# ---- features ----------------------------------------------------------------------------------


def _features(call: str, model: Model, x: Any, frame: Any) -> Any:
    """Return a matrix, a frame of the columns that the regression has, or None if it has no features."""
    layout, names = model.layout, model.names
    width = layout.num_features - layout.has_intercept
    if not width:
        if x is not None:
            raise ValueError(f"`{call}(x=...)`: this regression has no features; leave `x` out.")
        return None
    names = None if names is None else names[len(names) - width :]
    if x is None and frame is not None and names:
        return _by_name(f"`{call}(data=...)`", frame, names)
    if x is None:
        has = f": {few(list(names))}" if names else ""
        raise ValueError(f"`{call}(x=...)`: new rows need the {width} features of this regression{has}.")
    x = named_features(call, x, frame)
    return _by_name(f"`{call}(x=...)`", x, names) if names and frames.is_frame(x) else x


def _by_name(quoted: str, frame: Any, names: tuple[str, ...]) -> Any:
    """Take the columns of the regression out of a frame, in its order."""
    there = {str(name): name for name in frame.columns}
    missing = [name for name in names if name not in there]
    if missing:
        raise ValueError(
            f"{quoted} must have the columns of the features, by name: there is no {few(missing)}; it has "
            f"{few(list(there))}."
        )
    return frame[[there[name] for name in names]]


def _matrix(call: str, features: Any, width: int) -> np.ndarray:
    found, _ = matrix(f"`{call}(x=...)`", features)
    if found.ndim != 2 or found.shape[1] != width:
        hint = " Write `x[None, :]` for a single row." if found.shape == (width,) else ""
        raise ValueError(
            f"`{call}(x=...)` must be an array (rows, {width}), without the intercept, or a frame; got shape "
            f"{found.shape}.{hint}"
        )
    return found


def _count(call: str, features: Any, groups: Any, offset: Any, frame: Any) -> int:
    """Number of rows, by the first of the arguments that has any."""
    indices = [group.index for group in as_groups(call, groups).values()]
    for values in (features, frame, *indices, offset):
        if values is not None and not isinstance(values, str) and np.ndim(values):
            count = len(values)
            if not count:
                raise ValueError(f"`{call}` needs at least one row; got none.")
            return count
    raise ValueError(f"`{call}` needs rows: give `x`, `groups` or `data`; got one number or name for all of them.")


# ---- offsets and numbers of trials -------------------------------------------------------------


def _offset(call: str, model: Model, offset: Any, frame: Any, count: int) -> np.ndarray | None:
    quoted, column = f"`{call}(offset=...)`", model.columns.offset
    if offset is None and frame is not None and column is not None:
        offset = column_of(quoted, column, frame)
    if offset is not None:
        return _each(quoted, named(call, "offset", offset, frame), count)
    if "offset" in model.data:
        raise ValueError(f"{quoted}: this regression has an offset, so new rows need one; give 0 for none.")
    return None


def _size(call: str, model: Model, size: Any, frame: Any, count: int) -> np.ndarray | None:
    quoted, column = f"`{call}(size=...)`", model.columns.size
    if not model.family.has_trials:
        if size is not None:
            raise ValueError(f"{quoted} is the number of trials, and {model.family!r} has none; leave it out.")
        return np.ones(count, np.float32)
    if size is None and frame is not None and column is not None and column in list(frame.columns):
        size = frame[column]
    if size is None:
        return None
    found = _each(quoted, named(call, "size", size, frame), count)
    wrong = np.flatnonzero((found < 0) | (found != np.floor(found)))
    if len(wrong):
        raise ValueError(f"{quoted} must be numbers of trials: 0, 1, 2 and so on; got {found[wrong[0]]:g}.")
    return found


def _each(quoted: str, values: Any, count: int) -> np.ndarray:
    """One number for each row; a single number is for all of them."""
    is_one = not hasattr(values, "to_numpy") and np.ndim(values) == 0
    return row_numbers(quoted, np.full(count, values) if is_one else values, count)


def _index(call: str, rows: Any, num_rows: int) -> np.ndarray:
    """Numbers of rows, from numbers, a mask or a slice."""
    rows = rows if isinstance(rows, slice) else np.atleast_1d(np.asarray(rows))
    is_mask = isinstance(rows, np.ndarray) and all(map(is_truth, rows[:1]))
    if isinstance(rows, np.ndarray) and not (rows.ndim == 1 and len(rows) and rows.dtype.kind in "iub"):
        raise TypeError(
            f"`{call}(rows=...)` must be numbers of rows, a mask or a slice; got {rows.dtype}, {rows.shape}."
        )
    if isinstance(rows, np.ndarray):
        wrong = len(rows) != num_rows if is_mask else bool(np.any((rows < 0) | (rows >= num_rows)))
        if wrong:
            what = f"a mask of {len(rows):,}" if is_mask else f"{rows.min()} to {rows.max()}"
            raise ValueError(f"`{call}(rows=...)` must be of the {num_rows:,} rows, from 0; got {what}.")
    index = np.arange(num_rows)[rows]
    if not len(index):
        raise ValueError(f"`{call}(rows=...)` must have at least one of the {num_rows:,} rows; got none.")
    return index


# ---- groups ------------------------------------------------------------------------------------


def _groups(
    call: str, model: Model, groups: Any, frame: Any, tables: list[Any], count: int, *, may_be_new: bool
) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, ...]]:
    """Return codes and slopes of every factor of the regression, and labels that it does not have."""
    given = as_groups(call, groups)
    extra = [name for name in given if name not in model.levels]
    if extra:
        raise ValueError(
            f"`{call}(groups=...)` must be those of the regression, {few(list(model.levels))}; got {extra}."
        )
    by_name = model.columns.groups if frame is not None else {}
    codes, slopes, unknown = [], [], []
    for at, (name, labels) in enumerate(model.levels.items()):
        quoted, group = quote(call, name), given.get(name, by_name.get(name))
        if group is None:
            raise ValueError(f"{quoted}: new rows need the label of their {name!r}, one of {few(labels.tolist())}.")
        found, others = _codes(quoted, labels_of(quoted, group.index, frame), labels, count, may_be_new=may_be_new)
        codes.append(found)
        unknown.append(others)
        slopes += _slopes(quoted, model.layout, at, name, slopes_of(quoted, group.slopes, frame), tables, count)
    data = {"groups": np.stack(codes, 1)} if codes else {}
    return data | ({"slopes": np.stack(slopes, 1)} if slopes else {}), tuple(unknown)


def _codes(
    quoted: str, index: np.ndarray, labels: np.ndarray, count: int, *, may_be_new: bool
) -> tuple[np.ndarray, np.ndarray]:
    check_labels(quoted, index, count)
    codes, is_known = match(quoted, index, labels)
    if is_known.all():
        return codes, labels[:0]
    others, at = np.unique(index[~is_known], return_inverse=True)
    if not may_be_new:
        row = int(np.argmin(is_known))
        more = f" {len(others)} labels are unknown in all." if len(others) > 1 else ""
        raise ValueError(
            f"{quoted}: label {item(index, row)!r} of row {row} is not among the {len(labels):,} levels of the "
            f"regression: {few(labels.tolist())}.{more} To draw the effect of a new level from N(0, sd^2), give "
            '`new_levels="draw"`.'
        )
    codes[~is_known] = len(labels) + at
    return codes, others


def _slopes(
    quoted: str, layout: Layout, factor: int, name: str, given: dict[str, Any], tables: list[Any], count: int
) -> list[np.ndarray]:
    """Numbers of the features that have slopes, in the order of the terms: as given, or columns of that name."""
    found = []
    for term in layout.terms:
        if term.factor != factor or term.slope is None:
            continue
        feature = term.name[len(name) + 1 :]
        values = given.get(feature)
        for table in tables:
            if values is None and feature in list(table.columns):
                values = table[feature]
        if values is None:
            raise ValueError(
                f"{quoted}: new rows need the feature {feature!r}, whose slopes differ between groups; write "
                f"`Group(index, slopes={{{feature!r}: ...}})`."
            )
        found.append(slope_numbers(quoted, feature, values, count))
    return found
