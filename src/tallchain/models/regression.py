"""Regressions: any family of outcomes, with features, groups, offsets, weights and priors."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from tallchain.functions import shared
from tallchain.models import prediction
from tallchain.models.agreement import check_counted, check_parts, hyper_of, intercept_of
from tallchain.models.design import Design, check_frame, design, named, named_features, row_offset, row_weights
from tallchain.models.families import Family
from tallchain.models.groups import Coded, as_groups, code_groups
from tallchain.models.layout import COEFFICIENTS, Layout
from tallchain.models.likelihood import RegressionLogLikelihood
from tallchain.models.new_rows import Columns
from tallchain.models.posterior import Posterior
from tallchain.models.prediction import Ask, Prediction
from tallchain.models.priors import (
    LOG_GLOBAL,
    LOG_LOCAL,
    LOG_SLAB,
    Horseshoe,
    Prior,
    RegressionLogPrior,
)
from tallchain.models.range_bound import RangeBound
from tallchain.types import Array, PyTree
from tallchain.validation import brief

_FIRST_SD = 0.5  # of group effects, to start from, in units of the predictor
_MOST_REPEATED = 1_000_000  # outcomes that stand for weighted ones, where a start and a unit are found


@dataclasses.dataclass(frozen=True, eq=False)
class Regression:
    """A regression with its rows: `prepare(model)` needs nothing else.

        y_i ~ family(z_i),   z_i = offset_i + x_i.beta + sum over groups of u[g_i] (and slopes per group)

    A position is a dict: "coefficients", what the family estimates beside them (such as "log_noise_sd"), for every
    group the effects by its name and the log of their standard deviation, as "log_sd(name)"; without any of these it is
    the vector of coefficients.

    Args:
        family: of the outcomes, e.g. `families.Bernoulli()`.
        y: outcomes: an array, or the name of a column of `data`. Pairs for some families: see there.
        x: features: an array (N, p), a frame, or names of columns of `data`; None for the intercept alone.
        groups: factors by name: `Group(index, slopes)`, labels of the rows, or the name of a column of `data`.
        offset: added to the (first) linear predictor of each row.
        weights: how often each row counts, at least 0: identical rows may be given once, with their count.
        prior: of the parameters; see `Prior`.
        intercept: put a column of ones before the features; None does so unless the family has something in its place,
            as `Ordinal` has cutpoints.
        temperature: K; the likelihood is raised to the power 1/K.
        data: a frame, for names of columns.
    """

    family: Family
    layout: Layout
    posterior: Posterior
    data: dict[str, np.ndarray]
    """Rows for a source: "x", "y", and "groups", "slopes", "offset", "weight" if there are any. Not copied."""
    start: PyTree
    """A position to start from, for `prepare` and `find_reference`."""
    names: tuple[str, ...] | None
    """Names of the coefficients, if the features are a frame: its columns, after "(intercept)" if there is one."""
    levels: dict[str, np.ndarray]
    """Labels of the groups, by factor."""
    columns: Columns
    """Columns of `data` that rows were taken from by name, for `predict(data=...)`."""
    bound: RangeBound | None = None
    """For `MetropolisHastings(bound=...)`: f(position, candidate), an upper bound on the range of the log ratios."""
    rows_swept: int = 0
    """Rows read to make the bound: N for every sweep."""

    def __init__(
        self,
        family: Family,
        *,
        y: Any,
        x: Any = None,
        groups: Mapping[str, Any] | None = None,
        offset: Any = None,
        weights: Any = None,
        prior: Prior | None = None,
        intercept: bool | None = None,
        temperature: float = 1.0,
        data: Any = None,
    ) -> None:
        call = "Regression"
        if isinstance(family, type) or not isinstance(family, Family):
            raise TypeError(f"`{call}(family=...)` must be a family such as families.Bernoulli(); got {brief(family)}.")
        if not (prior is None or isinstance(prior, Prior)):
            raise TypeError(f"`{call}(prior=...)` must be a Prior(...) or None; got {brief(prior)}.")
        check_frame(call, data)
        intercept = intercept_of(call, family, intercept, x)
        outcomes = family.outcomes(call, named(call, "y", y, data))
        features = np.zeros((len(outcomes), 0), np.float32) if x is None else named_features(call, x, data)
        made = design(call, features, outcomes, intercept, words=("x", "y"))
        num_rows = len(made.data["x"])
        extra = {
            name: of(call, named(call, argument, values, data), num_rows)
            for name, argument, values, of in (
                ("offset", "offset", offset, row_offset),
                ("weight", "weights", weights, row_weights),
            )
            if values is not None
        }
        coded = code_groups(call, groups, num_rows, data)
        columns = Columns.of(family, y, as_groups(call, groups), offset)
        _complete(self, call, family, made, coded, extra, prior, columns, intercept=intercept, temperature=temperature)

    def predict(
        self,
        trace: Any,
        x: Any = None,
        groups: Mapping[str, Any] | None = None,
        offset: Any = None,
        data: Any = None,
        *,
        rows: Any = None,
        size: Any = None,
        key: Array | None = None,
        draws: bool = False,
        interval: float = 0.9,
        max_draws: int = 400,
        new_levels: Literal["refuse", "draw"] = "refuse",
    ) -> Prediction:
        """Return what is expected of rows, given draws from the posterior; with a key, outcomes as well.

        Args:
            trace: a trace, or positions (chain, draw, ...) or (draw, ...), or one position.
            x: features of new rows, as above and without the intercept; columns of a frame are taken by name. Without
                `x`, `groups`, `offset` and `data`: the rows of the regression itself.
            groups: labels of new rows, by factor, as above.
            offset: of new rows, or one number for all.
            data: a frame, for names of columns. What was named above, and is not given here, is taken from it.
            rows: some rows of the regression itself: their numbers, a mask or a slice.
            size: numbers of trials, or one for all: to draw outcomes of new rows, for `families.Binomial`.
            key: to draw outcomes, for `outcome_interval`, and effects of new levels.
            draws: keep the outcomes drawn, one for every draw and row.
            interval: probability between the ends of the intervals.
            max_draws: of the trace to use, evenly spaced.
            new_levels: "refuse" labels that the regression does not have, or "draw" their effects from N(0, sd^2).
        """
        ask = Ask(x, groups, offset, data, rows, size, new_levels)
        return prediction.predict(self, trace, ask, key=key, draws=draws, interval=interval, max_draws=max_draws)

    def prior_predict(
        self,
        key: Array,
        count: int = 100,
        x: Any = None,
        groups: Mapping[str, Any] | None = None,
        offset: Any = None,
        data: Any = None,
        *,
        rows: Any = None,
        size: Any = None,
        draws: bool = True,
        interval: float = 0.9,
        new_levels: Literal["refuse", "draw"] = "refuse",
    ) -> Prediction:
        """Return what the prior expects of rows, and outcomes: `count` positions are drawn from it, as `position`.

        The other arguments are those of `predict`. Of many rows, pick some by `rows`, or give `draws=False`.
        """
        ask = Ask(x, groups, offset, data, rows, size, new_levels)
        return prediction.prior_predict(self, key, count, ask, draws=draws, interval=interval)


def from_design(
    call: str,
    family: Family,
    made: Design,
    coded: Coded,
    extra: dict[str, np.ndarray],
    *,
    prior: Prior | None = None,
    intercept: bool | None = None,
    temperature: float = 1.0,
) -> Regression:
    """Return a regression of rows that are arrays already; none of them is copied.

    Args:
        call: to quote.
        family: of the outcomes.
        made: features in float32, after a column of ones if there is an intercept; and what `family.outcomes` takes.
        coded: groups.
        extra: "offset" and "weight", as they were given, if there are any.
        prior: of the parameters.
        intercept: whether the features begin with a column of ones; None says what suits the family.
        temperature: K.
    """
    x = made.data["x"]
    intercept = intercept_of(call, family, intercept, x)
    if not x.shape[1]:
        raise ValueError(f"`{call}(x=...)`: without an intercept there must be a feature.")
    made = Design({"x": x, "y": family.outcomes(call, made.data["y"])}, made.names)
    checks = {"offset": row_offset, "weight": row_weights}
    extra = {name: checks[name](call, values, len(x)) for name, values in extra.items()}
    rest: dict[str, Any] = {"intercept": intercept, "temperature": temperature}
    return _complete(object.__new__(Regression), call, family, made, coded, extra, prior, Columns({}), **rest)


def scaled_by(model: Regression) -> tuple[np.ndarray, float]:
    """Return predictors to start from, and the unit by which default priors are scaled: from the outcomes."""
    return _scaled_by(model.family, model.data["y"], model.data.get("weight"))


def _scaled_by(family: Family, outcomes: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, float]:
    counted = _repeated(outcomes, weight)
    return np.asarray(family.start(counted)), float(family.unit(counted))


def with_rows(model: Regression, data: dict[str, np.ndarray]) -> Regression:
    """Return the same regression with other arrays for its rows, such as the same rows in another order."""
    found = copy.copy(model)
    object.__setattr__(found, "data", data)
    return found


def _complete(
    model: Regression,
    call: str,
    family: Family,
    made: Design,
    coded: Coded,
    extra: dict[str, np.ndarray],
    prior: Prior | None,
    columns: Columns,
    *,
    intercept: bool,
    temperature: float,
) -> Regression:
    """Check whether the parts go together, and put them together."""
    outcomes, weight = made.data["y"], extra.get("weight")
    check_counted(call, family, outcomes, weight)
    best, unit = _scaled_by(family, outcomes, weight)
    prior = (prior or Prior()).scaled(unit, float(best[0]) if family.num_linear == 1 else 0.0)
    check_parts(call, family, made, coded, weight, prior, intercept)
    rest: dict[str, Any] = {"intercept": intercept, "temperature": temperature, "columns": columns}
    return assemble(model, family, made, coded, extra, prior, best, **rest)


def assemble(
    model: Regression,
    family: Family,
    made: Design,
    coded: Coded,
    extra: dict[str, np.ndarray],
    prior: Prior,
    best: np.ndarray,
    *,
    intercept: bool,
    temperature: float,
    bound: RangeBound | None = None,
    start: np.ndarray | None = None,
    columns: Columns | None = None,
) -> Regression:
    """Put a regression together from what has been checked; `best` are `family.start(...)`, `start` others to use."""
    data = made.data | extra
    for name, values in (("groups", coded.groups), ("slopes", coded.slopes)):
        if values is not None:
            data[name] = values
    num_features = data["x"].shape[1]
    layout = Layout(
        num_features, family.num_linear, family.shared, coded.terms, hyper_of(prior), has_intercept=intercept
    )
    centres = tuple(float(value) for value in best[family.num_linear :])
    # The functions read only their arguments, so a second data set compiles nothing.
    log_prior = RegressionLogPrior(prior, layout, centres)
    log_likelihood = shared(RegressionLogLikelihood(family, layout))
    at = _start(layout, best if start is None else start, prior)
    values = {
        "family": family,
        "layout": layout,
        "posterior": Posterior(log_prior, log_likelihood, temperature, _labels(layout, made.names, coded.levels)),
        "data": data,
        "start": at,
        "names": made.names,
        "levels": coded.levels,
        "columns": columns or Columns({}),
        "bound": bound,
        "rows_swept": RangeBound.PASSES * len(data["x"]) if bound else 0,
    }
    for name, value in values.items():
        object.__setattr__(model, name, value)
    return model


def _repeated(y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return each outcome as often as its weight says, up to a common factor if the weights are not counts."""
    if weight is None:
        return y
    ends = np.cumsum(weight, dtype=np.float64)
    is_whole = ends[-1] <= max(len(y), _MOST_REPEATED) and bool(np.all(weight == np.floor(weight)))
    count = int(ends[-1]) if is_whole else min(max(len(y), int(ends[-1])), _MOST_REPEATED)
    return y[np.searchsorted(ends, (np.arange(count) + 0.5) * (ends[-1] / count), side="right")]


def _start(layout: Layout, predictors: np.ndarray, prior: Prior) -> PyTree:
    """Coefficients of 0, but for the intercept; group effects of 0."""
    coefficients = np.zeros((layout.num_linear, layout.num_features), np.float32)
    if layout.has_intercept:
        coefficients[:, 0] = predictors[: layout.num_linear]
    if layout.is_vector:
        return coefficients[0]
    start = {COEFFICIENTS: coefficients[0] if layout.num_linear == 1 else coefficients}
    start |= {
        name: np.float32(value) for name, value in zip(layout.shared, predictors[layout.num_linear :], strict=True)
    }
    for term in layout.terms:
        start[term.name] = np.zeros(term.num_levels, np.float32)
        start[term.log_sd] = np.float32(math.log(_FIRST_SD * (prior.group_sd or 1.0)))
    if layout.hyper:
        assert isinstance(prior.coefficients, Horseshoe)
        shape = layout.shapes()[LOG_LOCAL]
        log_global = np.float32(math.log(prior.coefficients.scale))
        start |= {LOG_LOCAL: np.full(shape, -log_global), LOG_GLOBAL: log_global}  # together 1: they hardly shrink
        start[LOG_SLAB] = np.float32(math.log(prior.coefficients.slab_scale))
    return start


def _labels(layout: Layout, names: tuple[str, ...] | None, levels: dict[str, np.ndarray]) -> Any:
    if layout.is_vector:
        return names or ()
    labels: dict[str, tuple[str, ...]] = {}
    if names and layout.num_linear == 1:
        labels[COEFFICIENTS] = names
    by_factor = list(levels.values())
    for term in layout.terms:
        labels[term.name] = tuple(map(str, by_factor[term.factor].tolist()))
    return labels
