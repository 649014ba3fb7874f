"""Draws of a trace by name: the coordinates of its position, one after another."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tallchain.checking import Trace
from tallchain.models.design import INTERCEPT
from tallchain.models.layout import COEFFICIENTS
from tallchain.names import coordinates

_PREFIX = f"{COEFFICIENTS}["


class Line(NamedTuple):
    """Mean and interval of one coordinate."""

    name: str
    mean: float
    low: float
    high: float


def coordinates_of(trace: Trace, only: str | None = None) -> dict[str, np.ndarray]:
    """Return the draws (chain, draw) of every coordinate by name, or of those of one variable; none is copied."""
    found = {}
    for variable, draws in trace.variables().items():
        if only is None or variable == only:
            flat = np.reshape(draws, (*draws.shape[:2], -1))
            labels = coordinates(variable, draws.shape[2:], trace.names)
            found |= {label: flat[:, :, at] for at, label in enumerate(labels)}
    return found


def picked(call: str, trace: Trace, names: Sequence[str] | str | None) -> dict[str, np.ndarray]:
    """Return the coordinates of these names, or of variables of these names; all of them for None.

    A coefficient may be named without "coefficients[...]".
    """
    every = coordinates_of(trace)
    if names is None:
        return every
    short, found = {plain(name): name for name in every}, {}
    for name in [names] if isinstance(names, str) else names:
        if name in every or name in short:
            full = name if name in every else short[name]
            found[full] = every[full]
        elif name in trace.variables():
            found |= coordinates_of(trace, name)
        else:
            raise ValueError(_unknown(call, name, [*every, *short, *trace.variables()]))
    return found


def _unknown(call: str, name: str, there: list[str]) -> str:
    near = difflib.get_close_matches(name, there, 3) or there[:3]
    return f"`{call}(names=...)`: the trace has no {name!r}; did you mean {' or '.join(map(repr, near))}?"


def plain(name: str) -> str:
    """Return the name of a coefficient without "coefficients[...]"; other names, and numbers, as they are."""
    inner = name[len(_PREFIX) : -1]
    is_named = name.startswith(_PREFIX) and name.endswith("]") and not inner.replace(", ", "").isdecimal()
    return inner if is_named else name


def is_intercept(name: str) -> bool:
    """Whether a coordinate is the intercept."""
    return plain(name) == INTERCEPT


def line(name: str, draws: np.ndarray, interval: float) -> Line:
    """Summarise draws (chain, draw)."""
    values = np.asarray(draws, np.float64)
    low, high = np.quantile(values, [(1 - interval) / 2, (1 + interval) / 2])
    return Line(plain(name), float(values.mean()), float(low), float(high))
