"""A regression from a formula and a table."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Literal

import numpy as np

from tallchain import progress as bars
from tallchain.formulas.arrangement import arrange
from tallchain.formulas.coding import Factor
from tallchain.formulas.filling import Allocate, fill
from tallchain.formulas.grouping import combined
from tallchain.formulas.learning import Learned, by_row_of_table, check_fields, learn
from tallchain.formulas.outcomes import family_of, levels_of, takes_of, with_levels
from tallchain.formulas.plan import Plan, plan_of
from tallchain.formulas.reading import FormulaError, quote
from tallchain.formulas.spec import Spec
from tallchain.models import Prior, Regression
from tallchain.models.design import Design
from tallchain.models.families import Family
from tallchain.models.groups import Coded
from tallchain.models.layout import Term
from tallchain.models.regression import from_design
from tallchain.tables import Table
from tallchain.tables.table import need
from tallchain.validation import brief


@dataclasses.dataclass(frozen=True, eq=False)
class Built:
    """A regression, and what is needed to predict new rows."""

    model: Regression
    spec: Spec
    num_rows: int
    """Rows of the table."""
    num_dropped: int
    """Rows left out, since values were missing."""
    missing: dict[str, int]
    """Values that were missing, by column."""
    words: tuple[str, ...]
    """What was made of the formula, a sentence for each thing that it does not say itself."""
    keep: np.ndarray | None = None
    """Which rows of the table are in the model; None for all."""


def build(
    formula: str,
    table: Table,
    family: Family | type[Family] | str,
    *,
    prior: Prior | None = None,
    weights: str | None = None,
    offset: str | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
    progress: bool = False,
    allocate: Allocate = np.empty,
) -> Built:
    """Return the regression that a formula says, of the rows of a table.

    Columns of labels are read first and kept as small codes; then the design is filled in block by block, in one
    float32 array. A column is read once, or twice if a function such as `poly` learns from it, or if rows may be left
    out; a file of text is read twice in any case.

    Args:
        formula: such as "y ~ x1 + C(hour) * x2 + (1 | clinic)".
        table: see `open_table`.
        family: of the outcomes, or its class or name. `Categorical` and `Ordinal` as classes count the levels.
        prior: of the parameters.
        weights: the column that says how often each row counts.
        offset: a column that is added to the predictor, with those that the formula adds.
        missing: "refuse" missing values, or "drop" the rows that have some.
        progress: show progress.
        allocate: makes the arrays of the design.
    """
    need("fit(...)", "formulaic", "pandas")
    call = quote(formula)
    if missing not in ("refuse", "drop"):
        raise FormulaError(f'{call}: `missing` must be "refuse" or "drop"; got {brief(missing)}.')
    if not (prior is None or isinstance(prior, Prior)):
        raise TypeError(f"{call}: `prior` must be a Prior(...) or None; got {brief(prior)}.")
    given = family_of(call, family)
    takes_intercept = given.takes_intercept if isinstance(given, Family) else given(2).takes_intercept
    settings: dict[str, Any] = {"weights": weights, "offset": offset, "takes_intercept": takes_intercept}
    plan = plan_of(formula, table.columns, takes_of(given), **settings)
    with bars.shown(progress, "Reading rows", table.num_rows, is_step=True) as show:
        learned = learn(plan, table, lambda done: show(done, "labels"), drop=missing == "drop")
        check_fields(call, (*plan.outcome.parts, *plan.offsets), learned.fields)
        arrangement = arrange(plan, learned.labels, learned.fields)
        arrays = fill(plan, table, learned, arrangement, lambda done: show(done, "numbers"), allocate)
    levels = {name: labels.values for name, labels in learned.labels.items()}
    spec = Spec(formula, plan.kinds, plan.outcome.takes, levels, learned.states, learned.fields, **settings)
    coded = _coded(plan, learned, arrays.pop("slopes", None), allocate)
    try:
        model = _model(plan, given, arrays, arrangement.names, coded, prior, spec)
    except (ValueError, TypeError) as error:
        raise _in_words(plan, by_row_of_table(error, learned.keep)) from None
    dropped = learned.num_rows - learned.num_kept
    words = _words(plan, spec, dropped)
    return Built(model, spec, learned.num_rows, dropped, learned.missing, words, learned.keep)


def _coded(plan: Plan, learned: Learned, slopes: np.ndarray | None, allocate: Allocate) -> Coded:
    """Return groups as models take them; the codes of the columns go as they are used."""
    terms: list[Term] = []
    levels: dict[str, np.ndarray] = {}
    codes = allocate((learned.num_kept, len(plan.groups)), np.int32) if plan.groups else None
    place = 0
    for at, group in enumerate(plan.groups):
        assert codes is not None
        found, codes[:, at] = combined(group, learned.labels, learned.codes)
        levels[group.name], count = found, len(found)
        if len(set(found.tolist())) < count:
            raise FormulaError(
                f"{plan.call}: labels of `{group.name}` have colons of their own, so that two pairs would both be "
                f"called {_repeated(found)!r}; rename them."
            )
        terms.append(Term(group.name, at, None, count))
        for slope in group.slopes:
            terms.append(Term(f"{group.name}:{slope.name}", at, place, count))
            assert slopes is not None
            if not slopes[:, place].any():
                raise FormulaError(f"{plan.call}: the slope of `{slope.name}` is of a feature that is 0 in every row.")
            place += 1
    return Coded(codes, slopes, tuple(terms), levels)


def _repeated(labels: np.ndarray) -> str:
    """Return a label that is there twice."""
    held = sorted(labels.tolist())
    return next(a for a, b in itertools.pairwise(held) if a == b)


def _model(
    plan: Plan,
    given: Any,
    arrays: dict[str, Any],
    names: tuple[str, ...],
    coded: Coded,
    prior: Prior | None,
    spec: Spec,
) -> Regression:
    factor = plan.outcome.factor
    levels = levels_of(plan.call, plan.outcome, spec.labels[factor.column]) if factor else None
    family = with_levels(plan.call, given, levels)
    made = Design({"x": arrays.pop("x"), "y": arrays.pop("y")}, names)
    return from_design("fit", family, made, coded, arrays, prior=prior, intercept=plan.has_intercept)


def _in_words(plan: Plan, error: Exception) -> FormulaError:
    """Return an error about arrays in the words of the formula."""
    if isinstance(error, FormulaError):
        return error
    said = str(error).replace("`fit(y=...)`", f"the outcome `{plan.outcome.text}`")
    said = said.replace("`fit(weights=...)`", f"`weights={plan.weights!r}`").replace("`fit(groups=...)`: ", "")
    return FormulaError(f"{plan.call}: {said}")


def _words(plan: Plan, spec: Spec, dropped: int) -> tuple[str, ...]:
    """Say what the formula does not say itself."""
    said, outcome = [], plan.outcome
    if outcome.factor is not None:
        levels = levels_of(plan.call, outcome, spec.labels[outcome.factor.column]).values
        if outcome.takes == "labels":
            said.append(f"{outcome.text} counts as 1 where it is {levels[1]!r}, as 0 where it is {levels[0]!r}.")
        else:
            order = "in this order" if outcome.takes == "ranks" else "the first is compared with"
            said.append(f"{outcome.text} has the levels {', '.join(map(str, levels))}; {order}.")
    compared = {each for product in plan.products for each, is_reduced in product if is_reduced}
    for at, part in enumerate(plan.parts):
        if isinstance(part, Factor) and part.contrast == "treatment" and at in compared:
            first = part.ordered(plan.call, spec.labels[part.column]).values[0]
            reference = first if part.reference is None else part.reference
            said.append(f"Levels of {part.column} are compared with {reference!r}.")
    for group in plan.groups:
        if group.slopes:
            slopes = ", ".join(slope.name for slope in group.slopes)
            said.append(f"Intercepts and slopes of {slopes} by {group.name} are independent of each other.")
    if dropped:
        said.append(f"{dropped:,} rows were left out, since values were missing.")
    return tuple(said)
