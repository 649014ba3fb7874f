"""Factors in the fixed part: which numbers stand for the levels of `hour` or `C(hour, Treatment(12))`."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tallchain.formulas.grammar import WORDS, check_column, parse, settings
from tallchain.formulas.labels import Label, Labels
from tallchain.formulas.reading import FormulaError
from tallchain.tables import nearest
from tallchain.tables.table import Kind
from tallchain.validation import cut

_CONTRASTS = {
    "treatment": "treatment",
    "Treatment": "treatment",
    "sum": "sum",
    "Sum": "sum",
    "helmert": "helmert",
    "Helmert": "helmert",
    "diff": "diff",
    "Diff": "diff",
    "poly": "poly",
    "Poly": "poly",
    "SAS": "SAS",
}
MOST_LEVELS = 2000


@dataclasses.dataclass(frozen=True)
class Factor:
    """A column of labels, and how its levels are coded."""

    text: str
    column: str
    contrast: str = "treatment"
    reference: Label | None = None
    levels: tuple[Label, ...] | None = None
    """In this order, if the formula says so."""

    def ordered(self, call: str, labels: Labels) -> Labels:
        """Return the levels in the order of this factor."""
        if self.levels is None:
            return labels
        missing = [label for label in labels.values if label not in self.levels]
        if missing:
            raise FormulaError(f"{call}: `{self.text}` leaves out the level {missing[0]!r}; list all levels or none.")
        return Labels(tuple(label for label in self.levels if label in labels.values))

    def matrix(self, call: str, labels: Labels, *, reduced: bool) -> tuple[np.ndarray, list[str]]:
        """Return the numbers of each level, (levels, columns), and what the columns are called."""
        from formulaic.transforms.contrasts import ContrastsRegistry, TreatmentContrasts

        count = len(labels.values)
        if count > MOST_LEVELS:
            raise too_many(call, self.column, labels.values)
        if count < 2 and reduced:
            raise FormulaError(f"{call}: `{self.text}` has one level, {labels.values[0]!r}; leave it out.")
        levels, of = list(labels.values), ContrastsRegistry
        if self.contrast == "treatment":
            coding: Any = TreatmentContrasts(base=self._reference(call, labels))
        else:
            coding = {"sum": of.sum, "helmert": of.helmert, "diff": of.diff, "poly": of.poly, "SAS": of.SAS}[
                self.contrast
            ]()
        matrix = np.asarray(coding.get_coding_matrix(levels, reduced_rank=reduced), np.float64)
        form = coding.get_factor_format(levels, reduced_rank=reduced).replace("[T.", "[")
        fields = coding.get_coding_column_names(levels, reduced_rank=reduced)
        return matrix, [form.format(name=self.column, field=field) for field in fields]

    def _reference(self, call: str, labels: Labels) -> Label:
        if self.reference is None:
            return labels.values[0]
        if self.reference not in labels.values:
            near = nearest(str(self.reference), map(str, labels.values))
            raise FormulaError(f"{call}: `{self.text}` has no level {self.reference!r}; {near}.")
        return self.reference


def too_many(call: str, column: str, labels: Iterable[Label]) -> FormulaError:
    """Return the error for a factor that should be groups, or numbers."""
    other = next((label for label in labels if isinstance(label, str) and not _is_number(label)), None)
    text = "" if other is None else f", which is text such as {cut(repr(other))}"
    return FormulaError(
        f"{call}: column {column!r} has more than {MOST_LEVELS:,} levels, each with a coefficient of its own; write "
        f"`(1 | {column})` for groups; if it should hold numbers, make them of what it holds{text}."
    )


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


def factor(call: str, text: str, kinds: Mapping[str, Kind]) -> Factor | None:
    """Return the factor that a part of a term is: text, a category, or `C(column, ...)`; None if it is numbers."""
    name = text.strip().strip("`")
    if name in kinds:
        return Factor(text, name) if kinds[name] in ("text", "category") else None
    if not text.startswith("C("):
        return None
    node, names = parse(call, text)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "C" and node.args):
        return None
    if not isinstance(node.args[0], ast.Name) or len(node.args) > 2:
        raise FormulaError(
            f"{call}: `{text}` must be `C(column)`, `C(column, Treatment(level))` or `C(column, levels=[...])`; "
            "compute other columns before."
        )
    column = names.get(node.args[0].id, node.args[0].id)
    check_column(call, column, kinds, text)
    if kinds[column] == "other":
        raise FormulaError(f"{call}: `{text}`: column {column!r} holds {WORDS['other']}.")
    levels = _levels(call, text, node)
    contrast, reference = ("treatment", None) if len(node.args) < 2 else _contrast(call, text, node.args[1])
    for keyword in node.keywords:
        if keyword.arg == "contrasts":
            contrast, reference = _contrast(call, text, keyword.value)
    return Factor(text, column, contrast, reference, levels)


def _levels(call: str, text: str, node: ast.Call) -> tuple[Label, ...] | None:
    found: Any = None
    for keyword in node.keywords:
        if keyword.arg not in ("levels", "contrasts"):
            raise FormulaError(f"{call}: `{text}`: C takes contrasts and levels, and no {keyword.arg!r}.")
        if keyword.arg == "levels":
            try:
                found = tuple(ast.literal_eval(keyword.value))
            except (ValueError, TypeError, SyntaxError):
                raise FormulaError(f"{call}: `{text}`: levels must be a list of labels.") from None
    return found


def _contrast(call: str, text: str, node: ast.expr) -> tuple[str, Label | None]:
    called = node.func if isinstance(node, ast.Call) else node
    match called:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="contr"), attr=name) if name in _CONTRASTS:
            kind = _CONTRASTS[name]
        case _:
            raise FormulaError(
                f"{call}: `{text}`: a coding is one of Treatment(level), contr.treatment(level), contr.sum, "
                f"contr.helmert, contr.diff, contr.poly and contr.SAS; got `{ast.unparse(node)}`."
            )
    if not isinstance(node, ast.Call):
        return kind, None
    try:
        _, named = settings(ast.Call(node.func, [ast.Constant(0)], node.keywords))
        given = [ast.literal_eval(each) for each in node.args] + list(named.values())
    except (ValueError, TypeError, SyntaxError):
        given = [None, None]
    if len(given) > (kind == "treatment"):
        raise FormulaError(f"{call}: `{text}`: only Treatment takes an argument, the reference level.")
    return kind, given[0] if given else None
