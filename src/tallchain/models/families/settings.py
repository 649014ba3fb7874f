"""Settings of families, or an error that quotes the family."""

from __future__ import annotations

from typing import Any

from tallchain.validation import brief, is_positive, is_whole


def check_choice(call: str, name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse what is not among the choices."""
    if value not in choices:
        raise ValueError(f"`{call}({name}=...)` must be one of {', '.join(map(repr, choices))}; got {brief(value)}.")


def check_positive(call: str, name: str, value: Any, otherwise: str) -> None:
    """Refuse what is neither None nor a positive number."""
    if value is not None and not is_positive(value):
        raise ValueError(f"`{call}({name}=...)` must be a positive number, or None {otherwise}; got {brief(value)}.")


def check_levels(call: str, value: Any) -> None:
    """Refuse what is not a number of levels."""
    if not is_whole(value, 2):
        raise ValueError(f"`{call}(levels=...)` must be a whole number, at least 2; got {brief(value)}.")
