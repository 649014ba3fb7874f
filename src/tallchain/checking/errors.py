"""From repeated decisions to their errors, each with its noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy

from tallchain.checking.records import Decisions, Estimate, Size
from tallchain.kernel import MetropolisHastings
from tallchain.types import ApproximateTest

DELTA_ERROR = 1e-4
"""Standard error allowed for rounding in the sum for Delta: what a test sees in float32 differs by less."""
Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""

_RESAMPLES = 500
_ACCEPTANCES = 10  # in the rarer direction, for a log-odds from counts
_UNKNOWN = Estimate(math.nan, math.nan, math.nan)


class Outcomes(NamedTuple):
    """Acceptance probabilities by pair with their standard errors, backward pairs after forward ones."""

    mean: np.ndarray
    error: np.ndarray
    num_trials: int


def outcomes_of(chances: np.ndarray, num_pairs: int, *, is_integrated: bool) -> Outcomes:
    """Average the chances of the repeats, by pair (see `trials.repeat` for their order)."""
    lanes, draws = chances.shape
    pair = (np.arange(lanes)[:, None] + np.arange(draws)) % num_pairs
    count = lanes * draws // num_pairs
    mean = np.bincount(pair.ravel(), chances.ravel(), num_pairs) / count
    if is_integrated:
        squares = (chances - mean[pair]) ** 2
        variance = np.bincount(pair.ravel(), squares.ravel(), num_pairs) / max(count - 1, 1)
    else:  # add half an acceptance and half a rejection, so that repeats that all agree still leave some doubt
        share = (mean * count + 0.5) / (count + 1)
        variance = share * (1 - share)
    return Outcomes(mean, np.sqrt(variance / count), count)


def reach_of(max_log_ratio: float, num_trials: int, *, is_integrated: bool) -> float:
    """The largest |Delta| to average over: if acceptances are counted, ten are expected in the rarer direction."""
    if is_integrated:
        return float(max_log_ratio)
    return max(min(float(max_log_ratio), math.log(num_trials / _ACCEPTANCES)), 0.0)


def decisions_of(kernel: MetropolisHastings, log_ratio: np.ndarray, outcomes: Outcomes, reach: float) -> Decisions:
    """Compare the acceptance probabilities with the exact log ratios."""
    forward, backward = np.split(outcomes.mean, 2)
    forward_se, backward_se = np.split(outcomes.error, 2)
    exact, low, high = (_exact_chance(kernel, log_ratio + shift) for shift in (0.0, -DELTA_ERROR, DELTA_ERROR))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = forward_se / forward, backward_se / backward
        # The log of a mean is too low on average by half its relative variance.
        error = np.log(forward / backward) - log_ratio + (relative[0] ** 2 - relative[1] ** 2) / 2
        log_odds_se = np.sqrt(relative[0] ** 2 + relative[1] ** 2 + DELTA_ERROR**2)
    is_known = np.isfinite(log_ratio) & (forward > 0) & (backward > 0)
    return Decisions(
        log_ratio=log_ratio,
        forward=forward,
        forward_se=forward_se,
        backward=backward,
        backward_se=backward_se,
        log_odds_error=np.where(is_known, error, np.nan),
        log_odds_se=np.where(is_known, log_odds_se, np.nan),
        probability_error=forward - exact,
        probability_se=np.maximum(np.hypot(forward_se, (high - low) / 2), np.finfo(np.float32).eps),
        is_near=is_known & (np.abs(log_ratio) <= reach),
    )


def _exact_chance(kernel: MetropolisHastings, log_ratio: np.ndarray) -> np.ndarray:
    if not isinstance(kernel.acceptance, ApproximateTest):
        return np.full_like(log_ratio, np.nan)
    return np.asarray(kernel.acceptance.exact_chance(jnp.asarray(log_ratio, jnp.result_type(float))), np.float64)


# ---- averages ----------------------------------------------------------------------------------


def interval(value: float, error: float, freedom: float) -> Estimate:
    """Return an estimate with Student's interval."""
    reach = float(scipy.special.stdtrit(max(freedom, 1), 0.975)) * float(error)
    return Estimate(float(value), float(value) - reach, float(value) + reach)


def mean_of(values: np.ndarray) -> Estimate:
    """Mean over decisions; the interval is for more decisions of the same chain."""
    count = len(values)
    return interval(values.mean(), values.std(ddof=1) / math.sqrt(count), count - 1) if count > 1 else _UNKNOWN


def worst_of(values: np.ndarray, errors: np.ndarray) -> Estimate:
    """The largest, with an interval that holds for all values at once (Bonferroni)."""
    if not len(values):
        return _UNKNOWN
    at = int(np.argmax(np.abs(values)))
    value, reach = float(values[at]), bonferroni(len(values)) * float(errors[at])
    return Estimate(value, value - reach, value + reach)


def bonferroni(count: int) -> float:
    """Normal quantile for intervals that all hold at once with a probability of 95 per cent."""
    return float(-scipy.special.ndtri(0.025 / count))


def size_of(values: np.ndarray, errors: np.ndarray) -> Size:
    """Mean absolute value, corrected for the noise of the values: see `Size`."""
    count = len(values)
    if count < 2:
        return Size(math.nan, math.nan, math.nan, math.nan, math.nan)
    again = np.random.default_rng(0).integers(0, count, (_RESAMPLES, count))
    low, high = np.quantile(_without_noise(values[again], errors[again]), [0.025, 0.975])
    value = float(_without_noise(values, errors))
    absolute, squares = np.abs(values), values**2 - errors**2
    absolute_reach, squares_reach = (Z * sample.std(ddof=1) / math.sqrt(count) for sample in (absolute, squares))
    is_noise = np.sum((values / errors) ** 2) < scipy.special.chdtri(count, 0.05)
    upper = min(absolute.mean() + absolute_reach, math.sqrt(max(squares.mean(), 0.0) + squares_reach))
    half_noise = abs(absolute.mean() - value) / 2  # what to allow for the shape of the spread
    return Size(
        value=value,
        low=0.0 if is_noise else max(float(low) - half_noise, 0.0),
        high=float(high) + half_noise,
        with_noise=float(absolute.mean()),
        upper=max(float(upper), value),
    )


def _without_noise(values: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Mean |value| along the last axis, divided by the factor by which the noise inflates it."""
    mean = values.mean(-1, keepdims=True)
    # From moments: a likelihood would trust values with little noise, which are small where noise grows with size.
    variance = np.maximum(values.var(-1, ddof=1, keepdims=True) - (errors**2).mean(-1, keepdims=True), 0)
    noisy = _mean_absolute_normal(mean, variance + errors**2).mean(-1)
    clean = _mean_absolute_normal(mean, variance)[..., 0]
    return np.abs(values).mean(-1) * clean / np.maximum(noisy, np.finfo(float).tiny)


def _mean_absolute_normal(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E |X| for X ~ N(mean, variance)."""
    sd = np.sqrt(np.maximum(variance, np.finfo(float).tiny))
    ratio = np.minimum(np.abs(mean) / sd, 40)  # beyond, |X| is X
    return sd * math.sqrt(2 / math.pi) * np.exp(-(ratio**2) / 2) + np.abs(mean) * (1 - 2 * scipy.special.ndtr(-ratio))
