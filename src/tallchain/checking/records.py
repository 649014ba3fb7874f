"""What an audit finds."""

from __future__ import annotations

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number with its 95 per cent interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Size:
    """The mean absolute value of errors that are measured with noise.

    Noise makes |error| larger on average. If errors are spread as N(m, v) and measured with standard errors s_i, the
    mean |measured error| is too large by the factor mean_i F(m, v + s_i^2) / F(m, v), F(m, v) the mean absolute value
    of N(m, v). `value` is the mean |measured error| divided by this factor, with m and v from the moments: the shape of
    the spread matters only if the noise does.
    """

    value: float
    low: float
    """End of a 95 per cent interval; 0 where nothing is beyond noise.

    By bootstrap over decisions, widened by half of what the noise adds, to allow for the shape of the spread.
    """
    high: float
    """Its other end."""
    with_noise: float
    """Mean |measured error|: too large on average."""
    upper: float
    """95 per cent upper limit that assumes no shape.

    The smaller of two limits of 97.5 per cent, each too large on average: that of the mean |measured error|, and the
    root of that of the mean square minus the mean square of the noise.
    """


@dataclasses.dataclass(frozen=True)
class Decisions:
    """The decisions audited, one entry in each array; standard errors are those over the repeats."""

    log_ratio: np.ndarray
    """Delta from all rows."""
    forward: np.ndarray
    """a(t, t')."""
    forward_se: np.ndarray
    backward: np.ndarray
    """a(t', t)."""
    backward_se: np.ndarray
    log_odds_error: np.ndarray
    """eta = log a(t, t') - log a(t', t) - Delta; NaN if Delta is not finite or no repeat accepted in one direction."""
    log_odds_se: np.ndarray
    probability_error: np.ndarray
    """a(t, t') - a_exact(Delta); NaN if the test does not approximate a test on all rows."""
    probability_se: np.ndarray
    is_near: np.ndarray
    """Whether |Delta| is within `max_log_ratio` and eta is known; averages are over these."""


@dataclasses.dataclass(frozen=True)
class Drift:
    """How far the draws of one parameter are from the posterior: an ESTIMATE, to first order in the errors.

    Its interval covers the noise of the repeats, the choice of decisions, and the Monte Carlo error of the trace.
    """

    name: str
    mean: Estimate
    """Of its mean, in posterior standard deviations."""
    variance: Estimate
    """Of its variance: the ratio to the exact one, minus 1."""

    @property
    def sd(self) -> Estimate:
        """Of its standard deviation, in per cent."""
        ends = (self.variance.value, self.variance.low, self.variance.high)
        return Estimate(*(100 * (math.sqrt(max(1 + end, 0.0)) - 1) if math.isfinite(end) else math.nan for end in ends))


@dataclasses.dataclass(frozen=True)
class Bound:
    """Total variation <= epsilon/(1 - contraction) (Korattikara et al. 2014, theorem 1), with ESTIMATED ingredients."""

    epsilon: float
    """Largest error in probability over all pairs: the 95 per cent upper limit over the pairs audited."""
    autocorrelation_time: float
    """tau of the slowest coordinate of the trace."""
    contraction: float
    """(tau - 1)/(tau + 1), as for an autoregression with that tau."""
    value: float
    """Of the total variation distance between draws and posterior; it is vacuous at 1 or more."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """What the audit read."""

    rows_exact: int
    """For Delta: all rows, once for each decision."""
    rows_trials: int
    """By the repeats, rows scanned included."""
    passes: float
    """Both together, in sweeps over all rows."""
    seconds: float
