"""What a value is, and how to quote it in an error."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.core import Tracer

_LONGEST_QUOTE = 200


class RowError(ValueError):
    """A row that is wrong, by its number; `of` says the same where the user counts rows otherwise."""

    def __init__(self, before: str, row: int, after: str) -> None:
        super().__init__(before, row, after)
        self.row = row

    def of(self, row: int) -> RowError:
        """Return the same error about the row with another number."""
        before, _, after = self.args
        return RowError(before, row, after)

    def __str__(self) -> str:
        return "".join(map(str, self.args))


def is_traced(tree: Any) -> bool:
    """Whether some value is a tracer: inside `jit` or `vmap` shapes can be checked, but values cannot."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def is_number(value: Any) -> bool:
    """Whether a value is one finite number; True and False are not numbers."""
    is_one = not isinstance(value, str | bool | None) and np.ndim(value) == 0
    return is_one and np.asarray(value).dtype.kind in "iuf" and bool(np.isfinite(value))


def is_positive(value: Any) -> bool:
    """Whether a value is one positive finite number."""
    return is_number(value) and bool(value > 0)


def is_whole(value: Any, least: int) -> bool:
    """Whether a value is a whole number, at least `least`; True and False are not numbers."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least


def is_truth(value: Any) -> bool:
    """Whether a value is True or False, also of NumPy."""
    return isinstance(value, bool | np.bool_)


def check_switch(call: str, name: str, value: Any) -> bool:
    """Return True or False; refuse anything else."""
    if not is_truth(value):
        raise TypeError(f"`{call}({name}=...)` must be True or False; got {brief(value)}.")
    return bool(value)


def brief(value: Any) -> str:
    """Quote a value in an error: its repr, cut where that is long."""
    return cut(repr(value))


def cut(text: str) -> str:
    """Bring a long text onto one line, and cut it."""
    return text if len(text) <= _LONGEST_QUOTE else " ".join(text.split())[:_LONGEST_QUOTE] + " ..."
