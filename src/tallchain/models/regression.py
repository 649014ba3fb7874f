"""Ready-made regressions: logistic, probit, Poisson and linear."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallchain.functions import shared
from tallchain.models.design import Design, counts, design, labels, numbers, prior
from tallchain.models.likelihoods import (
    LinearLogLikelihood,
    LinearLogPrior,
    linear_log_likelihood,
    logistic_log_likelihood,
    poisson_log_likelihood,
    probit_log_likelihood,
)
from tallchain.models.posterior import Posterior
from tallchain.models.range_bound import RangeBound
from tallchain.types import PyTree
from tallchain.validation import check_switch, is_positive


class Regression(NamedTuple):
    """A ready-made posterior with its data."""

    posterior: Posterior
    data: dict[str, np.ndarray]
    """{"x": features, float32 (N, d); "y": outcomes, float32 (N,)}, for a source. Float32 arrays are not copied."""
    bound: RangeBound | None
    """For `MetropolisHastings(bound=...)`: f(position, candidate), an upper bound on the range of the log ratios."""
    rows_swept: int
    """Rows read to make the bound: N for every sweep."""
    start: PyTree
    """A position to start from, for `prepare` and `find_reference`: coefficients of 0."""
    names: tuple[str, ...] | None
    """Names of the coefficients, if the features are a frame: its columns, after "(intercept)" if there is one."""


def _regression(
    made: Design,
    log_prior: Any,
    log_likelihood: Any,
    temperature: float,
    *,
    bound: RangeBound | None = None,
    start: PyTree = None,
) -> Regression:
    x, names = made.data["x"], made.names or ()
    start = np.zeros(x.shape[1], np.float32) if start is None else start
    labels = {"coefficients": names} if names and isinstance(start, dict) else names
    # The functions read only their arguments, so a second data set compiles nothing.
    posterior = Posterior(shared(log_prior), shared(log_likelihood), temperature, labels)
    return Regression(posterior, made.data, bound, RangeBound.PASSES * len(x) if bound else 0, start, made.names)


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
    return _regression(made, prior(call, prior_sd), logistic_log_likelihood, temperature, bound=limit)


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
    return _regression(made, prior(call, prior_sd), probit_log_likelihood, temperature)


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
    return _regression(made, prior(call, prior_sd), poisson_log_likelihood, temperature)


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
    log_prior = prior(call, prior_sd)
    if noise_sd is not None:
        return _regression(made, log_prior, LinearLogLikelihood(float(noise_sd)), temperature)
    y = made.data["y"]
    sd, size = float(np.std(y, dtype=np.float64)), math.sqrt(np.mean(np.square(y, dtype=np.float64)))
    if sd == 0:
        raise ValueError(
            f"`{call}(outcomes=...)` must differ for the noise to be estimated; got {y[0]:g} for every row. Give "
            "`noise_sd` if you know it."
        )
    start = {
        "coefficients": np.zeros(made.data["x"].shape[1], np.float32),
        "log_noise_sd": np.float32(math.log(size)),  # the best noise for coefficients of 0
    }
    return _regression(made, LinearLogPrior(log_prior, math.log(sd)), linear_log_likelihood, temperature, start=start)
