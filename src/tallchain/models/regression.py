"""Ready regressions: logistic, probit, Poisson, and linear with known noise. Positions are vectors of coefficients."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr

from tallchain.functions import Function, shared
from tallchain.models.posterior import Posterior
from tallchain.types import Array, PyTree, dot, is_positive

_PART = 2**15  # rows held in float64 at a time
_LEAST_EIGENVALUE = 1e-6  # of the second moments, as a share of their mean
_ROUNDING = 1 + 1e-5  # the bound is computed in float32
_TAIL = 5.0  # below minus this, log Phi is a continued fraction
_TERMS = 8  # of it: the relative error is below 1e-8
_STEEPEST = 40.0  # largest exponent of a Poisson rate relative to its count


class Regression(NamedTuple):
    """A ready posterior with its data."""

    posterior: Posterior
    data: dict[str, np.ndarray]
    """{"x": features, float32 (N, d); "y": outcomes, float32 (N,)}, for a source."""
    bound: RangeBound | None
    """For `MetropolisHastings(bound=...)`: f(position, candidate), at least the range over rows of the log ratio."""
    rows_read: int
    """Rows read to make the bound: N for every pass over the data."""


# ---- the four models ---------------------------------------------------------------------------


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
        features: x, an array (N, d).
        outcomes: y, N values of 0 and 1, or False and True.
        prior_sd: t ~ N(0, prior_sd^2 I); None for a flat prior.
        temperature: K; the likelihood is raised to the power 1/K.
        intercept: put a column of ones before the features; the prior holds for its coefficient, t[0], as well.
        bound: make the bound, at the price of two passes over the rows and of d^2 numbers.
    """
    call = "logistic_regression"
    data = _data(call, features, _labels(call, outcomes), intercept)
    posterior = Posterior(_prior(call, prior_sd), shared(logistic_log_likelihood), temperature)
    if not _switch(call, "bound", bound):
        return Regression(posterior, data, None, 0)
    return Regression(posterior, data, RangeBound.of(data["x"]), RangeBound.PASSES * len(data["x"]))


def probit_regression(
    features: Any,
    outcomes: Any,
    *,
    prior_sd: float | None = 1.0,
    temperature: float = 1.0,
    intercept: bool = False,
) -> Regression:
    """P(y = 1) = Phi(x.t). No bound: the slope of log Phi has none.

    Args:
        features: x, an array (N, d).
        outcomes: y, N values of 0 and 1, or False and True.
        prior_sd: t ~ N(0, prior_sd^2 I); None for a flat prior.
        temperature: K; the likelihood is raised to the power 1/K.
        intercept: put a column of ones before the features; the prior holds for its coefficient, t[0], as well.
    """
    call = "probit_regression"
    data = _data(call, features, _labels(call, outcomes), intercept)
    return Regression(Posterior(_prior(call, prior_sd), shared(probit_log_likelihood), temperature), data, None, 0)


def poisson_regression(
    features: Any,
    outcomes: Any,
    *,
    prior_sd: float | None = 1.0,
    temperature: float = 1.0,
    intercept: bool = False,
) -> Regression:
    """y ~ Poisson(exp(x.t)). No bound: the rate grows without one.

    Args:
        features: x, an array (N, d).
        outcomes: y, N counts: whole numbers from 0 on.
        prior_sd: t ~ N(0, prior_sd^2 I); None for a flat prior.
        temperature: K; the likelihood is raised to the power 1/K.
        intercept: put a column of ones before the features; the prior holds for its coefficient, t[0], as well.
    """
    call = "poisson_regression"
    data = _data(call, features, _counts(call, outcomes), intercept)
    return Regression(Posterior(_prior(call, prior_sd), shared(poisson_log_likelihood), temperature), data, None, 0)


def linear_regression(
    features: Any,
    outcomes: Any,
    *,
    noise_sd: float = 1.0,
    prior_sd: float | None = 1.0,
    temperature: float = 1.0,
    intercept: bool = False,
) -> Regression:
    """y ~ N(x.t, noise_sd^2). No bound: the log ratios are quadratic in the residuals.

    Args:
        features: x, an array (N, d).
        outcomes: y, N numbers.
        noise_sd: known standard deviation of y about x.t.
        prior_sd: t ~ N(0, prior_sd^2 I); None for a flat prior.
        temperature: K; the likelihood is raised to the power 1/K.
        intercept: put a column of ones before the features; the prior holds for its coefficient, t[0], as well.
    """
    call = "linear_regression"
    if not is_positive(noise_sd):
        raise ValueError(
            f"`{call}(noise_sd=...)` must be a positive number, the standard deviation of an outcome about its "
            f"prediction; got {noise_sd!r}."
        )
    data = _data(call, features, _numbers(call, "outcomes", outcomes), intercept)
    log_likelihood = shared(LinearLogLikelihood(float(noise_sd)))
    return Regression(Posterior(_prior(call, prior_sd), log_likelihood, temperature), data, None, 0)


# ---- log likelihoods of one row, up to a constant in the position -------------------------------
# Compiled functions are looked up by these: one for all data sets, so that a second one compiles nothing again.


def logistic_log_likelihood(position: Array, row: PyTree) -> Array:
    """-log(1 + exp(-s)), s = x.t for y = 1 and -x.t for y = 0."""
    return jax.nn.log_sigmoid(_signed_predictor(position, row))


def probit_log_likelihood(position: Array, row: PyTree) -> Array:
    """log Phi(s), s = x.t for y = 1 and -x.t for y = 0."""
    return log_normal_cdf(_signed_predictor(position, row))


def poisson_log_likelihood(position: Array, row: PyTree) -> Array:
    """y x.t - exp(x.t), less its value at exp(x.t) = y, the best rate for the row.

    With d = x.t - log y that is y d - y (exp(d) - 1). The two terms of the plain formula are of the size of y log y,
    and float32 would keep nothing of the log ratio of a row with a large count. Rows with y = 0 have 1 - exp(x.t).

    exp(d) goes on as a parabola from d = 40: a rate of 10^17 times the count is impossible, not infinite.
    """
    scale = jnp.maximum(row["y"], 1)
    excess = _predictor(position, row) - jnp.log(scale)
    within = jnp.where(excess > _STEEPEST, _STEEPEST, excess)
    # Not `excess - within`, whose derivative is 0 as a difference of two ones: exp(40) times that is not 0 in float32.
    beyond = jnp.where(excess > _STEEPEST, excess - _STEEPEST, 0.0)
    growth = jnp.expm1(within) + math.exp(_STEEPEST) * (beyond + 0.5 * beyond**2)
    return row["y"] * excess - scale * growth


@dataclasses.dataclass(frozen=True)
class LinearLogLikelihood:
    """-(y - x.t)^2 / (2 noise_sd^2)."""

    noise_sd: float

    def __call__(self, position: Array, row: PyTree) -> Array:
        """Return the log likelihood of one row."""
        return -0.5 * ((row["y"] - _predictor(position, row)) / self.noise_sd) ** 2


@dataclasses.dataclass(frozen=True)
class NormalLogPrior:
    """-|t|^2 / (2 sd^2), or 0 without an sd."""

    sd: float | None

    def __call__(self, position: Array) -> Array:
        """Return the log prior, up to a constant."""
        if self.sd is None:
            return jnp.zeros((), position.dtype)
        return -0.5 * jnp.sum((position / self.sd) ** 2)


def log_normal_cdf(x: Array) -> Array:
    """log Phi(x), with derivatives that stay right far out in float32.

    Below -5, by the continued fraction of Mills' ratio: phi(x)/Phi(x) = t + 1/(t + 2/(t + 3/(t + ...))), t = -x.
    Second derivatives of `jax.scipy.special.log_ndtr` cancel there: at -100 it has 1.9 where -1 is right.
    """
    is_tail = x < -_TAIL
    # Both branches are evaluated and differentiated: each gets an argument where it is finite.
    t = jnp.where(is_tail, -x, _TAIL)
    fraction = t
    for k in range(_TERMS, 0, -1):
        fraction = t + k / fraction
    tail = -0.5 * t**2 - 0.5 * math.log(2 * math.pi) - jnp.log(fraction)
    return jnp.where(is_tail, tail, log_ndtr(jnp.where(is_tail, 0.0, x)))


def _predictor(position: Array, row: PyTree) -> Array:
    """x.t."""
    features = row["x"]
    if jnp.shape(position) != jnp.shape(features):
        raise ValueError(
            f"A position of this regression is a vector of {features.shape[-1]} coefficients, one per feature (and one "
            f"for the intercept, if any, first); got shape {jnp.shape(position)}."
        )
    return dot(features, position)


def _signed_predictor(position: Array, row: PyTree) -> Array:
    return (2 * row["y"] - 1) * _predictor(position, row)


# ---- the bound ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class RangeBound:
    """At least the range over rows of log p(y_i | t') - log p(y_i | t) for the logistic model.

    The slope of log(1/(1 + exp(-s))) is between 0 and 1, so the log ratio of row i is between 0 and +-x_i.(t' - t), and
    the range at most 2 max_i |x_i.(t' - t)|. No row needs to be read for two bounds on that:

        by_norm       2 max_i |x_i| |t' - t|                        (Bardenet, Doucet, Holmes 2014)
        by_ellipsoid  2 max_i |A^-1/2 x_i| |A^1/2 (t' - t)|         (Cauchy-Schwarz, for every positive definite A)

    With S the second moments of the features, sum_i x_i x_i' / N, here A = S^1/2: it minimises tr(A) tr(A^-1 S), the
    product of the two mean squares for steps alike in all directions. That pays where features are correlated or of
    unequal size; where they are neither, both bounds are the same. Calling gives the smaller of the two.
    """

    radius: float
    """max |x_i|."""
    axes: np.ndarray
    """max |A^-1/2 x_i| A^1/2, (d, d)."""

    PASSES = 2
    """Over the rows, to make it."""

    @classmethod
    def of(cls, features: np.ndarray) -> RangeBound:
        """Make the bound from the features (N, d)."""
        moments = sum(rows.T @ rows for rows in _parts(features)) / len(features)
        eigenvalues, vectors = np.linalg.eigh(moments)
        # A floor for features that are constant or repeat one another; 1 where there is nothing but zeros.
        floor = _LEAST_EIGENVALUE * eigenvalues.mean() or 1.0
        root = np.maximum(eigenvalues, floor) ** 0.25
        norms = [(_largest_norm(rows), _largest_norm(rows @ vectors / root)) for rows in _parts(features)]
        radius, stretched = np.max(norms, axis=0)
        return cls(float(radius), (stretched * root * vectors).T.astype(np.float32))

    def by_norm(self, position: Array, candidate: Array) -> Array:
        """2 max |x_i| |t' - t|."""
        return 2 * _ROUNDING * self.radius * jnp.linalg.norm(candidate - position)

    def by_ellipsoid(self, position: Array, candidate: Array) -> Array:
        """2 max |A^-1/2 x_i| |A^1/2 (t' - t)|."""
        return 2 * _ROUNDING * jnp.linalg.norm(dot(jnp.asarray(self.axes), candidate - position))

    def __call__(self, position: Array, candidate: Array) -> Array:
        """Return the smaller of the two."""
        return jnp.minimum(self.by_norm(position, candidate), self.by_ellipsoid(position, candidate))


def _parts(features: np.ndarray) -> Iterator[np.ndarray]:
    return (features[start : start + _PART].astype(np.float64) for start in range(0, len(features), _PART))


def _largest_norm(rows: np.ndarray) -> float:
    return float(np.sqrt(np.max(np.einsum("ij,ij->i", rows, rows))))


# ---- checks ------------------------------------------------------------------------------------


def _data(call: str, features: Any, outcomes: np.ndarray, intercept: bool) -> dict[str, np.ndarray]:
    """Return the rows for a source, or say why features and outcomes do not make rows."""
    x = _numbers(call, "features", features)
    if x.ndim != 2:
        hint = " Write `features[:, None]` for a single feature." if x.ndim == 1 else ""
        raise ValueError(f"`{call}(features=...)` must be an array (rows, features); got shape {x.shape}.{hint}")
    if _switch(call, "intercept", intercept):
        x = np.concatenate([np.ones((len(x), 1), np.float32), x], axis=1)
    if 0 in x.shape:
        raise ValueError(f"`{call}(features=...)` must have at least one row and one feature; got shape {x.shape}.")
    if outcomes.shape != (len(x),):
        raise ValueError(
            f"`{call}(outcomes=...)` must be one number for each row of the features, shape ({len(x)},); got shape "
            f"{outcomes.shape}."
        )
    return {"x": x, "y": outcomes}


def _labels(call: str, outcomes: Any) -> np.ndarray:
    y = _numbers(call, "outcomes", outcomes)
    if not np.all((y == 0) | (y == 1)):
        raise ValueError(
            f"`{call}(outcomes=...)` must be 0 or 1, or False or True; got {_some(y)}. Write `outcomes > 0` for labels "
            "of -1 and 1, `outcomes == label` to tell one label from the others."
        )
    return y


def _counts(call: str, outcomes: Any) -> np.ndarray:
    y = _numbers(call, "outcomes", outcomes)
    if not np.all((y >= 0) & (y == np.floor(y))):
        wrong = y[(y < 0) | (y != np.floor(y))]
        raise ValueError(
            f"`{call}(outcomes=...)` must be counts: 0, 1, 2 and so on; got {_some(wrong)}. For outcomes that are not "
            "counts there is `linear_regression`."
        )
    return y


def _numbers(call: str, name: str, values: Any) -> np.ndarray:
    """Return finite float32 values, or say what is wrong with them."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"`{call}({name}=...)` must hold numbers; got {array.dtype}. Encode text as numbers first.")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused
        array = array.astype(np.float32, copy=False)
    if not np.all(np.isfinite(array)):
        at = tuple(int(index[0]) for index in np.nonzero(~np.isfinite(array)))
        raise ValueError(
            f"`{call}({name}=...)` must be finite, in float32 as well; got {array[at]} at index {at}. Fill in or drop "
            "missing values first, and rescale what is too large."
        )
    return array


def _prior(call: str, prior_sd: float | None) -> Function:
    if prior_sd is not None and not is_positive(prior_sd):
        raise ValueError(
            f"`{call}(prior_sd=...)` must be a positive number, or None for a flat prior; got {prior_sd!r}."
        )
    return shared(NormalLogPrior(None if prior_sd is None else float(prior_sd)))


def _switch(call: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"`{call}({name}=...)` must be True or False; got {value!r}.")
    return value


def _some(values: np.ndarray) -> str:
    """Quote a few of the different values."""
    different = np.unique(values)
    return ", ".join(f"{value:g}" for value in different[:5]) + (", ..." if len(different) > 5 else "")
