"""Expressions of columns, such as `log(w) + poly(z, 2)`: checked when they are read, computed without `eval`."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.formulas import functions
from tallchain.formulas.grammar import BINARY, COMPARE, UNARY, Checker, function_name, parse, settings
from tallchain.formulas.reading import FormulaError
from tallchain.tables.table import Kind

if TYPE_CHECKING:
    import pandas as pd

States = dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Expression:
    """A number for each row, or several, computed from columns."""

    call: str = dataclasses.field(repr=False, compare=False)
    text: str
    node: ast.expr = dataclasses.field(repr=False, compare=False)
    columns: tuple[str, ...] = ()
    """Columns that it needs."""
    learns: bool = False
    """Whether it calls functions that learn something from all rows."""
    names: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    """Columns by what the node calls them."""

    def values(self, rows: pd.DataFrame, states: States) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return (rows, columns) in float64, and what its columns are called; states that are missing are learned."""
        try:
            with np.errstate(all="ignore"):  # what is not finite is refused where it is used
                found = _value(self.node, self, rows, states)
            return functions.columns_of(np.full(len(rows), found) if isinstance(found, np.generic) else found)
        except (ValueError, TypeError, KeyError, IndexError, np.linalg.LinAlgError) as error:
            hint = '; add extrapolation="extend"' if "extrapolation" in str(error) else ""
            said = " ".join(str(error).split()).rstrip(".")
            raise FormulaError(f"{self.call}: `{self.text}` cannot be computed: {said}{hint}.") from None


def expression(call: str, text: str, kinds: Mapping[str, Kind]) -> Expression:
    """Check an expression, and return it."""
    name = text.strip().strip("`")
    node, names = (ast.Name(name), {}) if name in kinds else parse(call, text)
    checker = Checker(call, text, kinds, names)
    checker.number(node, 0)
    return Expression(call, text, node, tuple(dict.fromkeys(checker.columns)), checker.learns, names)


# ---- values ------------------------------------------------------------------------------------


def _value(node: ast.expr, of: Expression, rows: pd.DataFrame, states: States) -> Any:
    """Compute a checked expression."""
    inner = lambda each: _value(each, of, rows, states)  # noqa: E731
    match node:
        case ast.Constant(value=value):
            found = value if isinstance(value, str) else np.float64(value)  # ty: ignore[invalid-argument-type]
        case ast.Name(id=name):
            column = rows[of.names.get(name, name)]
            found = column.to_numpy(np.float64) if column.dtype.kind in "biuf" else column.astype(object).to_numpy()
        case ast.BinOp(left=left, op=op, right=right):
            found = BINARY[type(op)](inner(left), inner(right))
        case ast.UnaryOp(op=op, operand=operand):
            found = UNARY[type(op)](inner(operand))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            found = np.asarray(COMPARE[type(op)](inner(left), inner(right))).astype(np.float64)
        case ast.Call():
            found = _called(node, of, rows, states)
        case _:
            raise AssertionError(ast.dump(node))
    return found


def _called(node: ast.Call, of: Expression, rows: pd.DataFrame, states: States) -> Any:
    name, inner = function_name(node), _value(node.args[0], of, rows, states)
    if name in functions.PLAIN:
        return functions.PLAIN[name](inner)
    positional, named = settings(node)
    state = states.setdefault(of.text, {}).setdefault(ast.unparse(node), {})
    return functions.learned(name, inner, positional, named, state)
