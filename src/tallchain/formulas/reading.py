"""The text of a formula, taken apart: the outcome, the fixed part, group terms and offsets.

    y ~ x1 + C(hour) * x2 + offset(e) + (1 + x1 | airport)

The fixed part goes to formulaic, which knows no group terms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tallchain.validation import brief, cut

_OPEN, _CLOSE = "([{", ")]}"
_NAME = re.compile(r"[^\W\d][\w.]*|`[^`]+`")


class FormulaError(ValueError):
    """A formula that cannot be used, or not with these rows."""


class GroupTerm(NamedTuple):
    """`(features | factor)`, as it was written."""

    features: str
    factor: str
    text: str


class Parts(NamedTuple):
    """What a formula is made of, still as text."""

    outcome: str
    fixed: str
    groups: tuple[GroupTerm, ...]
    offsets: tuple[str, ...]


def quote(formula: Any) -> str:
    """Quote the call, for errors."""
    return f'`fit("{cut(" ".join(str(formula).split()))}")`'


def read(formula: Any) -> Parts:
    """Take a formula apart, or say what is wrong with it."""
    if not isinstance(formula, str):
        raise TypeError(f'`fit(...)` needs a formula such as "y ~ x + (1 | clinic)"; got {brief(formula)}.')
    call = quote(formula)
    sides = split(call, formula, "~")
    if len(sides) != 2 or not sides[0].strip():
        raise FormulaError(f'{call}: a formula is "outcome ~ features", with one `~`; write `y ~ 1` for no features.')
    if not sides[1].strip():
        raise FormulaError(f"{call}: the right side is empty; write `{sides[0].strip()} ~ 1` for an intercept alone.")
    fixed, groups, offsets = "", [], []
    for sign, text in _signed(call, sides[1]):
        inner = _parenthesised(call, text)
        bars = [] if inner is None else split(call, inner, "|")
        if inner is not None and len(bars) > 1:
            groups.append(_group(call, sign, text, bars))
        elif text.startswith("offset(") and _closes(call, text, len("offset")):
            offsets.append(_plus(call, sign, text)[len("offset(") : -1].strip())
        elif any(character == "|" for _, character, _ in outside(call, text)):
            raise FormulaError(
                f"{call}: group terms stand in parentheses of their own and are added, as in `x + (1 | clinic)`; got "
                f"`{text}`."
            )
        else:
            fixed += f" {sign} {text}" if fixed or sign == "-" else text
    return Parts(sides[0].strip(), fixed or "1", tuple(groups), tuple(offsets))


def _group(call: str, sign: str, text: str, bars: list[str]) -> GroupTerm:
    _plus(call, sign, text)
    is_double = len(bars) == 3 and not bars[1]
    if not (len(bars) == 2 or is_double) or not bars[0].strip() or not bars[-1].strip():
        raise FormulaError(f"{call}: a group term is `(1 | factor)` or `(1 + x | factor)`; got `{text}`.")
    return GroupTerm(bars[0].strip(), bars[-1].strip(), text)


def _plus(call: str, sign: str, text: str) -> str:
    if sign == "-":
        raise FormulaError(f"{call}: `{text}` can only be added; leave it out instead of subtracting it.")
    return text


# ---- characters --------------------------------------------------------------------------------


def outside(call: str, text: str) -> Iterator[tuple[int, str, int]]:
    """Yield places, characters outside quotes, and how deep in brackets they are (a bracket: as deep as outside it)."""
    held: list[str] = []
    quoted = ""
    for at, character in enumerate(text):
        if quoted:
            quoted = "" if character == quoted else quoted
        elif character in "'\"`":
            quoted = character
        elif character in _OPEN:
            yield at, character, len(held)
            held.append(_CLOSE[_OPEN.index(character)])
        elif character in _CLOSE:
            if not held or held.pop() != character:
                raise FormulaError(f"{call}: `{character}` in `{text.strip()}` closes nothing.")
            yield at, character, len(held)
        else:
            yield at, character, len(held)
    if quoted or held:
        raise FormulaError(f"{call}: `{text.strip()}` has no closing {quoted or held[-1]}")


def split(call: str, text: str, separator: str) -> list[str]:
    """Split at a character that is in no brackets and no quotes."""
    places = [at for at, character, depth in outside(call, text) if character == separator and not depth]
    starts, ends = [0, *(at + 1 for at in places)], [*places, len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _signed(call: str, text: str) -> list[tuple[str, str]]:
    """Return the terms of a sum, each with its sign."""
    places = [at for at, character, depth in outside(call, text) if character in "+-" and not depth]
    found = []
    for start, end in zip([-1, *places], [*places, len(text)], strict=True):
        piece = text[start + 1 : end].strip()
        if piece:
            found.append((text[start] if start >= 0 else "+", piece))
        elif start >= 0:
            raise FormulaError(f"{call}: `{text[start]}` in `{text.strip()}` is followed by nothing.")
    return found


def _closes(call: str, text: str, start: int) -> bool:
    """Whether the bracket at this place closes at the end of the text."""
    closing = [at for at, character, depth in outside(call, text) if character == ")" and not depth]
    return text[start] == "(" and closing[:1] == [len(text) - 1]


def _parenthesised(call: str, text: str) -> str | None:
    """Return what is in the parentheses, if they are around all of it."""
    return text[1:-1] if text[0] == "(" and _closes(call, text, 0) else None


def plain_name(text: str) -> str | None:
    """Return the name that a text is, without backticks; None if it is more than a name."""
    text = text.strip()
    return text.strip("`") if _NAME.fullmatch(text) else None


def expand_dot(call: str, fixed: str, names: list[str]) -> str:
    """Write `.` out: the other columns."""
    places = [
        at
        for at, character, _ in outside(call, fixed)
        if character == "." and not re.search(r"[\w.]", fixed[max(at - 1, 0) : at] + fixed[at + 1 : at + 2])
    ]
    others = "(" + " + ".join(f"`{name}`" for name in names) + ")" if names else "1"
    for at in reversed(places):
        fixed = fixed[:at] + others + fixed[at + 1 :]
    return fixed
