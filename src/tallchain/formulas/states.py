"""What functions have learned, as plain JSON: arrays as lists, whole numbers as keys, all digits."""

from __future__ import annotations

from typing import Any

import numpy as np


def to_plain(value: Any) -> Any:
    """Return what JSON can hold."""
    if isinstance(value, dict):
        return {"items": [[to_plain(key), to_plain(held)] for key, held in value.items()]}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a state cannot hold {type(value).__name__}")


def from_plain(value: Any) -> Any:
    """Return what `to_plain` was given."""
    if isinstance(value, dict):
        if "array" in value:
            return np.asarray(value["array"], np.float64)
        return {from_plain(key): from_plain(held) for key, held in value["items"]}
    return [from_plain(each) for each in value] if isinstance(value, list) else value
