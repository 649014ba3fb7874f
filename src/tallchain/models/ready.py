"""Ready-made regressions: features and outcomes alone, one prior for all coefficients, no groups."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tallchain.models.design import Design, counts, design, labels, numbers
from tallchain.models.families import Bernoulli, Family, Gaussian, Poisson
from tallchain.models.groups import Coded
from tallchain.models.priors import Flat, Normal, Prior
from tallchain.models.range_bound import RangeBound
from tallchain.models.regression import Regression, assemble
from tallchain.validation import check_switch, is_positive


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
    best = family.start(made.data["y"])
    start = np.zeros(family.num_predictors) if start is None else start
    rest: dict[str, Any] = {"intercept": bool(intercept), "temperature": temperature, "bound": bound, "start": start}
    none = Coded(None, None, (), {})
    return assemble(object.__new__(Regression), family, made, none, {}, Prior(of, of, 1.0), best, **rest)


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
