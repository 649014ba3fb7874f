"""The grammar of expressions: what a formula may compute, and what is refused before anything is computed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tallchain.formulas import functions
from tallchain.formulas.reading import FormulaError, outside
from tallchain.tables import nearest
from tallchain.tables.table import Kind

BINARY: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: lambda left, right: np.asarray((left != 0) & (right != 0), np.float64),
}
UNARY: dict[type, Callable[..., Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
COMPARE: dict[type, Callable[..., Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_MODULES = ("np", "numpy")
_DEEPEST = 100


def parse(call: str, text: str) -> tuple[ast.expr, dict[str, str]]:
    """Return the syntax of an expression, and the columns that stand in backticks by what the syntax calls them."""
    plain, names = _without_backticks(call, text)
    powers = {at for at, character, _ in outside(call, plain) if character == "^"}  # R's; binds as ** does
    plain = "".join("**" if at in powers else character for at, character in enumerate(plain))
    try:
        node = ast.parse(plain.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise FormulaError(f"{call}: `{text}` is not an expression of columns and functions.") from None
    return node, names


def _without_backticks(call: str, text: str) -> tuple[str, dict[str, str]]:
    quoted, names, start, is_open = "", {}, 0, False
    covered = {at for at, _, _ in outside(call, text)}
    for at, character in enumerate(text):
        if character != "`" or at in covered:
            continue
        if is_open:
            alias = f"_column_{len(names)}"
            names[alias] = text[start:at]
            quoted += alias
        else:
            quoted += text[start:at]
        start, is_open = at + 1, not is_open
    return quoted + text[start:], names


# ---- checks ------------------------------------------------------------------------------------


class Checker:
    """Goes through an expression, and refuses what is not listed here."""

    def __init__(self, call: str, text: str, kinds: Mapping[str, Kind], names: Mapping[str, str]) -> None:
        self.call, self.text, self.kinds, self.names = call, text, kinds, names
        self.columns: list[str] = []
        self.learns = False

    def number(self, node: ast.expr, depth: int) -> None:
        """Something that is a number for each row."""
        if depth > _DEEPEST:
            raise self.refusal("is nested too deeply")
        match node:
            case ast.Constant(value=bool() | int() | float()):
                return
            case ast.Name(id=name):
                self.column(name, ("number", "truth"))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                self.number(left, depth + 1)
                self.number(right, depth + 1)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY:
                self.number(operand, depth + 1)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARE:
                self.comparison(left, right, depth)
            case ast.Call():
                self.function(node, depth)
            case _:
                raise self.refusal(
                    f"has `{ast.unparse(node)}`, and a formula knows columns, numbers, arithmetic, comparisons and "
                    f"{functions.names()}; compute other columns before"
                )

    def comparison(self, left: ast.expr, right: ast.expr, depth: int) -> None:
        """A comparison of numbers, or of a label with text."""
        for side, other in ((left, right), (right, left)):
            if isinstance(side, ast.Name) and isinstance(other, ast.Constant) and isinstance(other.value, str):
                self.column(side.id, ("text", "category"))
                return
        self.number(left, depth + 1)
        self.number(right, depth + 1)

    def function(self, node: ast.Call, depth: int) -> None:
        """A call of a function that is listed."""
        name = function_name(node)
        if name in functions.PLAIN and len(node.args) == 1 and not node.keywords:
            self.number(node.args[0], depth + 1)
        elif name in functions.SETTINGS and node.args:
            self.learns = True
            wrong = functions.check_settings(name, *self.settings(node))
            if wrong:
                raise self.refusal(f"cannot be computed: {wrong}")
            self.number(node.args[0], depth + 1)
        elif name in functions.PLAIN or name in functions.SETTINGS:
            raise self.refusal(f"calls `{name}` with other arguments than it takes")
        elif name == "C":
            raise self.refusal("has `C(...)`, which stands on its own: a term, or a part of an interaction")
        else:
            raise self.refusal(
                f"calls `{ast.unparse(node.func)}`, and a formula knows {functions.names()}; compute other columns "
                "before"
            )

    def settings(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """The arguments after the first one, which are literals."""
        try:
            return settings(node)
        except (ValueError, TypeError, SyntaxError):
            raise self.refusal("has an argument that must be a plain number, text or list of these") from None

    def column(self, name: str, wanted: tuple[Kind, ...]) -> None:
        """The name of a column of one of these kinds."""
        name = self.names.get(name, name)
        check_column(self.call, name, self.kinds, self.text)
        kind = self.kinds[name]
        if kind not in wanted:
            hint = f"; write C({name}) for a factor" if kind in ("text", "category") else ""
            needs = "numbers" if "number" in wanted else "text"
            raise self.refusal(f"needs {needs}, and column {name!r} holds {WORDS[kind]}{hint}")
        self.columns.append(name)

    def refusal(self, what: str) -> FormulaError:
        """Return the error."""
        return FormulaError(f"{self.call}: `{self.text}` {what}.")


WORDS: dict[Kind, str] = {
    "number": "numbers",
    "truth": "truth values",
    "text": "text",
    "category": "labels",
    "time": "times",
    "other": "values that are neither numbers nor text",
}


def check_column(call: str, name: str, kinds: Mapping[str, Kind], text: str = "") -> None:
    """Refuse a column that there is not."""
    if name not in kinds:
        where = f" (in `{text}`)" if text and text != name else ""
        raise FormulaError(f"{call}: there is no column {name!r}{where}; {nearest(name, kinds)}.")


def function_name(node: ast.expr) -> str:
    """Return the name of the function that is called, without NumPy's; empty if there is none."""
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)) if module in _MODULES:
            return name if name in functions.PLAIN and name != "I" else ""
        case _:
            return ""


def settings(node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments after the first one."""
    if any(keyword.arg is None for keyword in node.keywords):
        raise ValueError("no dict of arguments")
    named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    return [ast.literal_eval(each) for each in node.args[1:]], named
