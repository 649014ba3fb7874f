"""What an audit finds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from tallchain.settings import Settings

FALSE_ALARMS = 1e-3
"""How often, about, a test without any error is found to have one."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number with its 95 per cent interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Size:
    """The mean absolute value of errors that are themselves known with noise only.

    Noise makes |error| larger on average. If errors are spread as N(m, v) and measured with standard errors s_i, the
    mean |measured error| is too large by the factor mean_i F(m, v + s_i^2) / F(m, v), F(m, v) the mean absolute value
    of N(m, v). `value` is the mean |measured error| divided by this factor, with m and v from the moments: the shape
    of the spread matters only as far as the noise does.
    """

    value: float
    low: float
    """End of a 95 per cent interval; 0 where nothing is beyond noise.

    By bootstrap over decisions, and wider by half of what the noise adds, for the shape of the spread.
    """
    high: float
    """Its other end."""
    with_noise: float
    """Mean |measured error|: too large on average."""
    upper: float
    """95 per cent upper limit that assumes no shape.

    The smaller of two limits of 97.5 per cent, each too large on average: that of the mean |measured error|, and the
    root of that of the mean square less the mean square of the noise.
    """


@dataclasses.dataclass(frozen=True)
class Decisions:
    """The decisions audited, an entry of each array for each; standard errors are those of the trials."""

    log_ratio: np.ndarray
    """Delta from all rows."""
    forward: np.ndarray
    """a(t, t')."""
    forward_se: np.ndarray
    backward: np.ndarray
    """a(t', t)."""
    backward_se: np.ndarray
    log_odds_error: np.ndarray
    """eta = log a(t, t') - log a(t', t) - Delta; NaN where Delta is not finite or no trial accepted one way."""
    log_odds_se: np.ndarray
    probability_error: np.ndarray
    """a(t, t') - a_exact(Delta); NaN where the test approximates no test on all rows."""
    probability_se: np.ndarray
    is_near: np.ndarray
    """Whether |Delta| is within `max_log_ratio` and eta is known: what the averages are over."""


@dataclasses.dataclass(frozen=True)
class Drift:
    """How far the draws of one parameter are from the posterior: an ESTIMATE, to first order in the errors.

    Its interval is for the noise of the trials, the choice of decisions, and the Monte Carlo error of the trace.
    """

    name: str
    mean: Estimate
    """Of its mean, in posterior standard deviations."""
    variance: Estimate
    """Of its variance: the ratio to the exact one, less 1."""

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
    """(tau - 1)/(tau + 1), as of an autoregression with that tau."""
    value: float
    """Of the total variation distance between draws and posterior; from 1 on it is vacuous."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """What the audit read."""

    rows_exact: int
    """For Delta: all rows, once for each decision."""
    rows_trials: int
    """By the trials, scanned ones included."""
    passes: float
    """Both together in passes over all rows."""
    seconds: float


@dataclasses.dataclass(frozen=True)
class Audit:
    """What an audit found, for people (`print`, `figures.audit_figure`) and for programs (the fields, `to_json`)."""

    test: str
    settings: Settings
    """Of the kernel."""
    population: int
    num_decisions: int
    num_trials: int
    """Of every decision, each way."""
    is_integrated: bool
    """Whether trials report the test's chance to accept (its noise integrated out) rather than whether it did."""
    max_log_ratio: float
    """The largest |Delta| averaged over: as asked for, or as far as counted decisions reach."""
    tolerance: float
    drift_tolerance: float
    decisions: Decisions
    num_far: int
    """Decisions beyond `max_log_ratio`."""
    num_zero: int
    """Decisions that no trial accepted one way."""
    num_invalid: int
    """Decisions whose Delta is not finite: impossible candidates, or NaN."""
    log_odds: Size
    """|error in log-odds|."""
    log_odds_mean: Estimate
    """Error in log-odds, with its sign."""
    log_odds_worst: Estimate
    """The largest error in log-odds; its interval allows for its being the largest."""
    share_beyond_noise: float
    """Decisions whose 95 per cent interval excludes 0; 0.05 of them would by chance alone."""
    probability: Size | None
    """|error in probability|; None where the test approximates no test on all rows."""
    drift: tuple[Drift, ...]
    """By parameter; empty where there are too few decisions for so many parameters."""
    features: str
    """The functions of the position among which the drift was sought."""
    bound: Bound | None
    """None where the test approximates no test on all rows, or the trace is too short for its autocorrelation."""
    error_p_value: float
    """Of the errors, if there were none."""
    drift_p_value: float
    """Of the drift, if there were no errors."""
    cost: Cost
    is_interrupted: bool

    @property
    def is_error_found(self) -> bool:
        """Whether the errors are beyond chance (half of `FALSE_ALARMS`) and their mean size beyond `tolerance`."""
        return self.error_p_value < FALSE_ALARMS / 2 and self.log_odds.value > self.tolerance

    @property
    def is_drift_found(self) -> bool:
        """Whether the drift is beyond chance (half of `FALSE_ALARMS`) and the largest beyond `drift_tolerance`."""
        return self.drift_p_value < FALSE_ALARMS / 2 and self.largest_drift > self.drift_tolerance

    @property
    def largest_drift(self) -> float:
        """The largest |drift|, of a mean (in standard deviations) or of a variance (as a share)."""
        values = [abs(estimate.value) for d in self.drift for estimate in (d.mean, d.variance)]
        return float(np.nanmax([0.0, *values]))

    @property
    def is_sound(self) -> bool:
        """Whether something was audited, and neither errors nor a drift were found."""
        return math.isfinite(self.log_odds.value) and not (self.is_error_found or self.is_drift_found)

    @property
    def verdict(self) -> str:
        """What was found, in words."""
        from tallchain.auditing.text import verdict

        return verdict(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, for JSON; what is not finite becomes None."""
        derived = {name: getattr(self, name) for name in ("is_sound", "is_error_found", "is_drift_found", "verdict")}
        return _plain(dataclasses.asdict(self) | derived)

    def __str__(self) -> str:
        from tallchain.auditing.text import report

        return report(self)


def _plain(value: Any) -> Any:
    """Return lists, dicts and numbers that JSON has."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
