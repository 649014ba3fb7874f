"""Regressions: any family of outcomes, features, groups, offsets, weights and priors; and four ready-made ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tallchain import frames
from tallchain.functions import shared
from tallchain.models.collinear import check_columns
from tallchain.models.design import Design, counts, design, finite, labels, numbers, row_weights
from tallchain.models.families import Bernoulli, Family, Gaussian, Poisson
from tallchain.models.groups import Coded, code_groups
from tallchain.models.layout import COEFFICIENTS, Layout
from tallchain.models.likelihood import RegressionLogLikelihood
from tallchain.models.posterior import Posterior
from tallchain.models.priors import (
    LOG_GLOBAL,
    LOG_LOCAL,
    LOG_SLAB,
    Flat,
    Horseshoe,
    Normal,
    Prior,
    RegressionLogPrior,
)
from tallchain.models.range_bound import RangeBound
from tallchain.types import PyTree
from tallchain.validation import brief, check_switch, is_positive

_FIRST_SD = 0.5  # of group effects, to start from, in units of the predictor


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
        intercept: put a column of ones before the features.
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
        intercept: bool = True,
        temperature: float = 1.0,
        data: Any = None,
    ) -> None:
        call = "Regression"
        if isinstance(family, type) or not isinstance(family, Family):
            raise TypeError(f"`{call}(family=...)` must be a family such as families.Bernoulli(); got {brief(family)}.")
        if not (prior is None or isinstance(prior, Prior)):
            raise TypeError(f"`{call}(prior=...)` must be a Prior(...) or None; got {brief(prior)}.")
        outcomes = family.outcomes(call, _named(call, "y", y, data))
        made = design(call, _features(call, x, data, len(outcomes)), outcomes, intercept, words=("x", "y"))
        num_rows = len(made.data["x"])
        coded = code_groups(call, groups, num_rows, data)
        if family.num_linear > 1 and coded.terms:
            raise ValueError(
                f"`{call}(groups=...)` needs a family with one linear predictor; {family!r} has {family.num_linear}."
            )
        extra = {
            name: of(call, _named(call, argument, values, data), num_rows)
            for name, argument, values, of in (
                ("offset", "offset", offset, _offset),
                ("weight", "weights", weights, row_weights),
            )
            if values is not None
        }
        prior = (prior or Prior()).scaled(family.unit(outcomes))
        if isinstance(prior.coefficients, Flat) and made.data["x"].shape[1]:
            check_columns(call, made.data["x"], made.names)
        _fill(self, family, made, coded, extra, prior, intercept=bool(intercept), temperature=temperature)


def _fill(
    model: Regression,
    family: Family,
    made: Design,
    coded: Coded,
    extra: dict[str, np.ndarray],
    prior: Prior,
    *,
    intercept: bool,
    temperature: float,
    bound: RangeBound | None = None,
    start: np.ndarray | None = None,
) -> Regression:
    """Put a regression together from what has been checked; `start` are predictors."""
    data = made.data | extra
    for name, values in (("groups", coded.groups), ("slopes", coded.slopes)):
        if values is not None:
            data[name] = values
    num_features = data["x"].shape[1]
    hyper = (LOG_LOCAL, LOG_GLOBAL, LOG_SLAB) if isinstance(prior.coefficients, Horseshoe) else ()
    layout = Layout(num_features, family.num_linear, family.shared, coded.terms, hyper, has_intercept=intercept)
    best = family.start(data["y"])
    centres = tuple(float(value) for value in best[family.num_linear :])
    # The functions read only their arguments, so a second data set compiles nothing.
    log_prior = shared(RegressionLogPrior(prior, layout, centres))
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
        "bound": bound,
        "rows_swept": RangeBound.PASSES * len(data["x"]) if bound else 0,
    }
    for name, value in values.items():
        object.__setattr__(model, name, value)
    return model


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
        start |= {LOG_LOCAL: np.zeros(shape, np.float32), LOG_GLOBAL: np.float32(math.log(prior.coefficients.scale))}
        start[LOG_SLAB] = np.float32(math.log(prior.coefficients.slab_scale))
    return start


def _labels(layout: Layout, names: tuple[str, ...] | None, levels: dict[str, np.ndarray]) -> Any:
    if layout.is_vector:
        return names or ()
    labels: dict[str, tuple[str, ...]] = {}
    if names and layout.num_linear == 1:
        labels[COEFFICIENTS] = names
    for term in layout.terms:
        factor = term.name if term.slope is None else term.name.rsplit(":", 1)[0]
        labels[term.name] = tuple(map(str, levels[factor].tolist()))
    return labels


def _named(call: str, argument: str, values: Any, frame: Any) -> Any:
    """Return a column of the frame, if that is what a name says."""
    if isinstance(values, tuple | list) and values and all(isinstance(name, str) for name in values):
        return tuple(_named(call, argument, name, frame) for name in values)
    if not isinstance(values, str):
        return values
    if not frames.is_frame(frame):
        raise TypeError(f"`{call}({argument}={values!r})` names a column: give the frame as `data=`.")
    if values not in list(frame.columns):
        some = ", ".join(map(repr, list(frame.columns)[:8]))
        raise ValueError(f"`{call}({argument}={values!r})`: the frame has no such column; it has {some}.")
    return frame[values]


def _features(call: str, x: Any, frame: Any, num_rows: int) -> Any:
    if x is None:
        return np.zeros((num_rows, 0), np.float32)
    if isinstance(x, str):
        x = [x]
    if isinstance(x, list | tuple) and x and all(isinstance(name, str) for name in x):
        for name in x:
            _named(call, "x", name, frame)
        return frame[list(x)]
    return x


def _offset(call: str, values: Any, num_rows: int) -> np.ndarray:
    found = finite(f"`{call}(offset=...)`", values)
    if found.shape != (num_rows,):
        raise ValueError(
            f"`{call}(offset=...)` must be one number for each of {num_rows:,} rows; got shape {found.shape}."
        )
    return found


# ---- ready-made ---------------------------------------------------------------------------------


def _ready(
    family: Family,
    made: Design,
    call: str,
    prior_sd: float | None,
    temperature: float,
    *,
    intercept: bool,
    bound: RangeBound | None = None,
    start: np.ndarray | None = None,
) -> Regression:
    if prior_sd is not None and not is_positive(prior_sd):
        raise ValueError(
            f"`{call}(prior_sd=...)` must be a positive number, or None for a flat prior; got {prior_sd!r}."
        )
    of = Flat() if prior_sd is None else Normal(float(prior_sd))
    start = np.zeros(family.num_predictors) if start is None else start
    rest: dict[str, Any] = {"intercept": bool(intercept), "temperature": temperature, "bound": bound, "start": start}
    return _fill(object.__new__(Regression), family, made, Coded(None, None, (), {}), {}, Prior(of, of, 1.0), **rest)


def logistic_regression(
    features: Any,
    outcomes: Any,
    *,
    prior_sd: float | None = 1.0,
    temperature: float = 1.0,
    intercept: bool = False,
    bound: bool = True,
) -> Regression:
    """P(y = 1) = 1 / (1 + exp(-x.t)), with the `RangeBound` of its log ratios.

    Args:
        features: x, an array (N, d) or a frame.
        outcomes: y, N values of 0 and 1, or False and True.
        prior_sd: t ~ N(0, prior_sd^2 I); None for a flat prior.
        temperature: K; the likelihood is raised to the power 1/K.
        intercept: put a column of ones before the features; its coefficient, t[0], has the same prior.
        bound: make the range bound, which costs two sweeps over the rows and d^2 numbers.
    """
    call = "logistic_regression"
    made = design(call, features, labels(call, outcomes), intercept)
    limit = RangeBound.of(made.data["x"]) if check_switch(call, "bound", bound) else None
    return _ready(Bernoulli(), made, call, prior_sd, temperature, intercept=intercept, bound=limit)


def probit_regression(
    features: Any,
    outcomes: Any,
    *,
    prior_sd: float | None = 1.0,
    temperature: float = 1.0,
    intercept: bool = False,
) -> Regression:
    """P(y = 1) = Phi(x.t). No range bound: the slope of log Phi is unbounded.

    Args:
        features: x, an array (N, d) or a frame.
        outcomes: y, N values of 0 and 1, or False and True.
        prior_sd: t ~ N(0, prior_sd^2 I); None for a flat prior.
        temperature: K; the likelihood is raised to the power 1/K.
        intercept: put a column of ones before the features; its coefficient, t[0], has the same prior.
    """
    call = "probit_regression"
    made = design(call, features, labels(call, outcomes), intercept)
    return _ready(Bernoulli("probit"), made, call, prior_sd, temperature, intercept=intercept)


def poisson_regression(
    features: Any,
    outcomes: Any,
    *,
    prior_sd: float | None = 1.0,
    temperature: float = 1.0,
    intercept: bool = False,
) -> Regression:
    """y ~ Poisson(exp(x.t)). No range bound: the rate is unbounded.

    Args:
        features: x, an array (N, d) or a frame.
        outcomes: y, N counts: whole numbers, at least 0.
        prior_sd: t ~ N(0, prior_sd^2 I); None for a flat prior.
        temperature: K; the likelihood is raised to the power 1/K.
        intercept: put a column of ones before the features; its coefficient, t[0], has the same prior.
    """
    call = "poisson_regression"
    made = design(call, features, counts(call, outcomes), intercept)
    return _ready(Poisson(), made, call, prior_sd, temperature, intercept=intercept)


def linear_regression(
    features: Any,
    outcomes: Any,
    *,
    noise_sd: float | None = None,
    prior_sd: float | None = 1.0,
    temperature: float = 1.0,
    intercept: bool = False,
) -> Regression:
    """y ~ N(x.t, noise_sd^2). No range bound: the log ratios are quadratic in y - x.t.

    Where the noise is estimated, a position is {"coefficients": t, "log_noise_sd": the log of noise_sd}, and the prior
    of the latter is N(log sd(y), 3^2): weak, since one standard deviation is a factor of 20.

    Args:
        features: x, an array (N, d) or a frame.
        outcomes: y, N numbers.
        noise_sd: standard deviation of y about x.t, if you know it; a position is then t alone. None estimates it.
        prior_sd: t ~ N(0, prior_sd^2 I); None for a flat prior.
        temperature: K; the likelihood is raised to the power 1/K.
        intercept: put a column of ones before the features; its coefficient, t[0], has the same prior.
    """
    call = "linear_regression"
    if not (noise_sd is None or is_positive(noise_sd)):
        raise ValueError(
            f"`{call}(noise_sd=...)` must be a positive number, the standard deviation of an outcome about its "
            f"prediction, or None to estimate it; got {noise_sd!r}."
        )
    made = design(call, features, numbers(call, outcomes), intercept)
    if noise_sd is not None:
        return _ready(Gaussian(float(noise_sd)), made, call, prior_sd, temperature, intercept=intercept)
    y = made.data["y"]
    sd, size = float(np.std(y, dtype=np.float64)), math.sqrt(np.mean(np.square(y, dtype=np.float64)))
    if sd == 0:
        raise ValueError(
            f"`{call}(outcomes=...)` must differ for the noise to be estimated; got {y[0]:g} for every row. Give "
            "`noise_sd` if you know it."
        )
    start = np.array([0.0, math.log(size)])  # coefficients of 0
    return _ready(Gaussian(), made, call, prior_sd, temperature, intercept=intercept, start=start)
