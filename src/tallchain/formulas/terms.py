"""What formulaic does: the grammar of the fixed part, and which factors lose a level to the intercept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tallchain.formulas.foreign import check_functions
from tallchain.formulas.reading import FormulaError

Product = tuple[tuple[int, bool], ...]
"""Parts that are multiplied, and whether each is coded without its reference level; empty: the column of ones."""

_NO_NAME = re.compile(r"`(?:[\d.]*|~)`")  # formulaic reads them as what they are without backticks
_COLOURS = re.compile(r"\x1b?⧛?\x1b?\[[\d;]*m⧚?|[⧛⧚]")


def terms_of(call: str, text: str) -> tuple[bool, list[tuple[str, ...]]]:
    """Return whether there is an intercept, and the parts of the other terms: names of columns or expressions."""
    from formulaic import Formula, SimpleFormula
    from formulaic.errors import FormulaicError

    if found := _NO_NAME.search(text):
        raise FormulaError(f"{call}: {found[0]} would not be read as a name; rename the column.")
    check_functions(call, text)
    make: Any = Formula
    try:
        found = make(text)
    except (FormulaicError, ValueError, TypeError, SyntaxError, RecursionError, KeyError, IndexError) as error:
        said = _COLOURS.sub("", str(error).strip().split("\n")[0]).strip().rstrip(".")
        raise FormulaError(f"{call}: `{text.strip()}` is not a sum of terms: {said}.") from None
    if not isinstance(found, SimpleFormula):
        raise FormulaError(f"{call}: `{text.strip()}` must be one sum of terms.")
    has_one, terms = False, []
    for term in found:
        literals = [factor.expr for factor in term.factors if factor.eval_method.value == "literal"]
        parts = tuple(factor.expr for factor in term.factors if factor.eval_method.value != "literal")
        if set(literals) - {"1"}:
            raise FormulaError(f"{call}: `{term}` multiplies a term by a number; write `I(2 * x)` for a column.")
        if parts:
            terms.append(parts)
        else:
            has_one = True
    return has_one, terms


def products(has_one: bool, terms: Sequence[Sequence[int]], is_factor: Sequence[bool]) -> list[Product]:
    """Return what columns are products of, so that no level is determined by the intercept or by other terms."""
    import numpy as np
    import pandas as pd
    from formulaic import Formula
    from formulaic.materializers.types import FactorValues
    from formulaic.parser.types import Factor, Term

    if not terms:
        return [()] if has_one else []
    examples = {  # formulaic needs to know which parts are factors, and no more
        f"part{at}": FactorValues(pd.Series(["a", "b"]), kind="categorical", spans_intercept=True)
        if is_one
        else FactorValues(np.arange(2.0), kind="numerical", spans_intercept=False)
        for at, is_one in enumerate(is_factor)
    }
    one = [Term([Factor("1", eval_method="literal")])] if has_one else []
    given = [*one, *(Term([Factor(f"part{at}") for at in term]) for term in terms)]
    make: Any = Formula
    matrix = make(given).get_model_matrix(pd.DataFrame({"row": [0, 1]}), context=examples)
    found = []
    for term in matrix.model_spec.structure:
        for scoped in term.scoped_terms:
            found.append(tuple((int(each.factor.expr.removeprefix("part")), each.reduced) for each in scoped.factors))
    return found
