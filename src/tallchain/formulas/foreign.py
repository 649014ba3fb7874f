"""What R, lme4, mgcv and brms write in a formula and is written otherwise here: the nearest thing, in one line."""

from __future__ import annotations

import re

from tallchain.formulas.reading import FormulaError, outside, plain_name, split

_CALL = re.compile(r"(?<![\w.])([A-Za-z][\w.]*)\(")
_POWER = re.compile(r"(?<![\w.)])([A-Za-z_][\w.]*)\s*(?:\^|\*\*)\s*(\d+)")
_FACTORS = ("as.character", "as.factor", "as_factor", "factor")
_NUMBERS = ("as.integer", "as.logical", "as.numeric")
_SMOOTH = ("gp", "lo", "loess", "ns", "rcs", "s", "t2", "te", "ti")
_ORDERED = ("as.ordered", "mo", "ordered")
_PAIRS = {"trials": "p({left}, {inner})", "cens": "censored({left}, is_event)"}


def check_functions(call: str, text: str) -> None:
    """Refuse functions of other languages in the sum of terms, and powers of a column that R drops without a word."""
    plain = _unquoted(call, text)
    for found in _CALL.finditer(plain):
        written = _whole(call, text, found.start(), found.end() - 1)
        if said := _instead(call, found[1], written):
            raise FormulaError(f"{call}: a formula has no `{written}`; {said}.")
    if found := _POWER.search(_without_arguments(call, plain)):
        written = " ".join(text[found.start() : found.end()].split())
        base = text[found.start(1) : found.end(1)]
        raise FormulaError(
            f"{call}: `{written}` is `{base}` crossed with itself, so `{base}` alone; write `I({base}**{found[2]})` "
            f"for the power, or `poly({base}, {found[2]})` for a curve."
        )


def check_outcome(call: str, text: str) -> None:
    """Refuse outcomes as R and brms write them."""
    sides = [side.strip() for side in split(call, text, "|")]
    if len(sides) == 2:
        name, _, rest = sides[1].partition("(")
        inner = rest.removesuffix(")").strip()
        if name.strip() == "weights":
            raise FormulaError(f'{call}: weights are an argument; write `{sides[0]} ~ ...` and `weights="{inner}"`.')
        if name.strip() in _PAIRS:
            instead = _PAIRS[name.strip()].format(left=sides[0], inner=inner)
            raise FormulaError(f"{call}: a formula has no `{text}`; write `{instead}`.")
    for name, instead in (("cbind", "p({0}, {0} + {1})"), ("Surv", "censored({0}, {1})")):
        if text.startswith(f"{name}(") and len(inner := _arguments(call, text)) == 2:
            what = "successes and all trials" if name == "cbind" else "the time, and whether it ended then"
            raise FormulaError(f"{call}: a formula has no `{text}`; write `{instead.format(*inner)}`, {what}.")


def bare_column(call: str, text: str) -> str | None:
    """Return the column in `factor(g)` or `C(g)`; None if there is more to it."""
    found = _CALL.match(text.strip())
    if not found or found[1] not in (*_FACTORS, *_ORDERED, "C"):
        return None
    inner = _arguments(call, text.strip())
    return inner[0] if len(inner) == 1 and plain_name(inner[0]) else None


def _instead(call: str, name: str, written: str) -> str | None:
    """Say what to write, if the function is one of another language."""
    inner = _arguments(call, written)
    first = (bare_column(call, inner[0]) or inner[0]) if inner else "x"
    said = [
        (_FACTORS, f"write `C({first})` for a coefficient for each level"),
        (_ORDERED, f"write `C({first}, contr.poly)` for a trend over the levels, or `C({first})`"),
        (("relevel",), f"write `C({first}, Treatment(level))` for another reference level"),
        (_SMOOTH, f"for a smooth curve use bs({first}, df=5) or poly({first}, 3)"),
        (_NUMBERS, f"a column of numbers or truth values is used as it is, `{first}`; compute others before"),
    ]
    return next((words for names, words in said if name in names), None)


def _arguments(call: str, written: str) -> list[str]:
    """Return what is between the brackets of a call, apart at the commas."""
    inner = written[written.index("(") + 1 :].rstrip().removesuffix(")")
    return [piece.strip() for piece in split(call, inner, ",") if piece.strip()]


def _whole(call: str, text: str, start: int, bracket: int) -> str:
    """Return a call with its arguments, given where it begins and where its bracket is."""
    depths = {at: depth for at, character, depth in outside(call, text) if character in "()"}
    end = min((at for at, depth in depths.items() if at > bracket and depth == depths[bracket] and text[at] == ")"))
    return text[start : end + 1]


def _unquoted(call: str, text: str) -> str:
    """Return the text with a letter in place of everything in quotes, so that places stay."""
    kept = {at for at, _, _ in outside(call, text)}
    return "".join(character if at in kept else "q" for at, character in enumerate(text))


def _without_arguments(call: str, text: str) -> str:
    """Return the text with letters in place of calls' arguments: `I(x**2)` is one name then."""
    found, opened = list(text), 0
    within: list[bool] = []
    for at, character in enumerate(text):
        if character == "(":
            is_call = at > 0 and (text[at - 1].isalnum() or text[at - 1] in "_.")
            within.append(is_call)
            opened += is_call
        if opened:
            found[at] = "q"
        if character == ")" and within:
            opened -= within.pop()
    return "".join(found)
