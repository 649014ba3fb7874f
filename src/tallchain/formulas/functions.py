"""The functions that a formula may call. Nothing else is: a formula from a stranger computes with columns, no more."""

from __future__ import annotations

from typing import Any

import numpy as np

PLAIN: dict[str, Any] = {
    "I": lambda values: values,
    "abs": np.abs,
    "cos": np.cos,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "sin": np.sin,
    "sqrt": np.sqrt,
}
"""Functions of one argument."""

SETTINGS: dict[str, tuple[str, ...]] = {
    "bs": ("df", "knots", "degree", "lower_bound", "upper_bound", "extrapolation"),
    "cc": ("df", "knots", "lower_bound", "upper_bound", "constraints", "extrapolation"),
    "cr": ("df", "knots", "lower_bound", "upper_bound", "constraints", "extrapolation"),
    "cs": ("df", "knots", "lower_bound", "upper_bound", "constraints", "extrapolation"),
    "center": (),
    "poly": ("degree", "raw"),
    "scale": ("center", "scale", "ddof"),
    "standardize": ("center", "rescale", "ddof"),
}
"""Functions that learn something from all rows, which new rows are then treated with; and their other arguments."""

_SPLINES = ("bs", "cc", "cr", "cs")
_MOST = 1000  # of a degree or of degrees of freedom
_ENOUGH = 2**20  # numbers from which a spline learns its knots


def names() -> str:
    """List the functions, in words."""
    return ", ".join([*sorted([*PLAIN, *SETTINGS], key=str.lower), "C"])


def check_settings(name: str, positional: list[Any], named: dict[str, Any]) -> str | None:
    """Say what is wrong with the arguments of a function that learns, if something is."""
    allowed = SETTINGS[name]
    if len(positional) > len(allowed) or not set(named) <= set(allowed):
        return f"`{name}` takes {', '.join(allowed) or 'nothing'} besides its first argument"
    for value in [*positional, *named.values()]:
        if isinstance(value, int) and abs(value) > _MOST:
            return f"{value} is too large for `{name}`"
    return None


def learned(name: str, values: np.ndarray, positional: list[Any], named: dict[str, Any], state: dict[str, Any]) -> Any:
    """Call a function that learns: what it has learned is written to the state, or taken from it.

    A spline makes many columns as long as its input when it learns. Of more than a million rows it gets every k-th in
    order of size, with the smallest and the largest: its bounds are exact, and its knots quantiles of all rows.
    """
    from formulaic.transforms import TRANSFORMS

    known: dict[str, Any] = {**TRANSFORMS}
    if name in _SPLINES and not state and len(values) > _ENOUGH:
        at = np.linspace(0, len(values) - 1, _ENOUGH).round().astype(np.int64)
        values = np.sort(values)[at]
    return known[name](values, *positional, **named, _state=state)


def columns_of(values: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return what a function gave as a matrix (rows, columns), and the names of its columns; of one column none."""
    from formulaic.materializers.types import FactorValues

    if isinstance(values, FactorValues):
        values = values.__wrapped__
    if isinstance(values, dict):
        kept = {key: each for key, each in values.items() if not str(key).startswith("__")}
        return np.stack([np.asarray(each, np.float64) for each in kept.values()], axis=1), tuple(map(str, kept))
    array = np.asarray(values, np.float64)
    if array.ndim == 1:
        return array[:, None], ("",)
    return array, tuple(str(at) for at in range(1, array.shape[1] + 1))
