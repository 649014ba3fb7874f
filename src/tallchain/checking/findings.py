"""What an audit finds, and its text: the draws first, then the decisions, the cost, and the verdict."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from tallchain.checking.drift import DECISIONS_PER_FEATURE
from tallchain.checking.records import Bound, Cost, Decisions, Drift, Estimate, Size
from tallchain.settings import Settings

FALSE_ALARMS = 1e-3
"""About how often an error is found in a test that has none."""
_NAMES = 21  # columns of the names in front of the lines


@dataclasses.dataclass(frozen=True)
class Audit:
    """What an audit found, for people (`print`, `plots.audit`) and for programs (the fields, `to_json`)."""

    test: str
    settings: Settings
    """Of the kernel."""
    num_rows: int
    num_decisions: int
    num_trials: int
    """Repeats of every decision, each way."""
    is_integrated: bool
    """Whether repeats report the test's chance to accept (its noise integrated out) rather than its decision."""
    max_log_ratio: float
    """The largest |Delta| averaged over: as asked for, or as far as counted decisions reach."""
    tolerance: float
    drift_tolerance: float
    decisions: Decisions
    num_far: int
    """Decisions beyond `max_log_ratio`."""
    num_zero: int
    """Decisions that no repeat accepted in one direction."""
    num_invalid: int
    """Decisions whose Delta is not finite: impossible candidates, or NaN."""
    log_odds: Size
    """|error in log-odds|."""
    log_odds_mean: Estimate
    """Error in log-odds, with its sign."""
    log_odds_worst: Estimate
    """The largest error in log-odds; its interval accounts for the choice of the largest."""
    share_beyond_noise: float
    """Share of decisions whose 95 per cent interval excludes 0; 0.05 by chance alone."""
    probability: Size | None
    """|error in probability|; None if the test does not approximate a test on all rows."""
    drift: tuple[Drift, ...]
    """By parameter; empty where there are too few decisions for the number of parameters."""
    features: str
    """The functions of the position that the drift was estimated with."""
    bound: Bound | None
    """None if the test does not approximate a test on all rows, or the trace is thinned or too short to show its
    autocorrelation."""
    error_p_value: float
    """P-value of the errors, if there were none."""
    drift_p_value: float
    """P-value of the drift, if there were no errors."""
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
        return _verdict(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, for JSON; values that are not finite become None."""
        derived = {name: getattr(self, name) for name in ("is_sound", "is_error_found", "is_drift_found", "verdict")}
        return _plain(dataclasses.asdict(self) | derived)

    def __str__(self) -> str:
        return _report(self)


# ---- in words ----------------------------------------------------------------------------------


def _report(audit: Audit) -> str:
    """Return the text of an audit, with the verdict at the end."""
    lines = [*_head(audit), *_drift(audit), *_decisions(audit), _cost(audit), *_bound(audit), _verdict(audit)]
    return "\n".join(lines)


def _verdict(audit: Audit) -> str:
    """Return what was found, a line for each finding."""
    size = audit.log_odds
    if not math.isfinite(size.value):
        return (
            f"NOTHING AUDITED: fewer than two decisions have |Delta| <= {audit.max_log_ratio:g} and are accepted both "
            "ways. Raise num_decisions or num_trials, or shorten the steps."
        )
    found = []
    if audit.is_error_found:
        found.append(
            f"ERROR FOUND: the log-odds are off by {size.value:.2g} on average ({_p_value(audit.error_p_value)}, "
            f"tolerance {audit.tolerance:g})."
        )
    if audit.is_drift_found:
        found.append(
            f"DRIFT FOUND: a mean or variance of the draws is off by {audit.largest_drift:.2g} "
            f"({_p_value(audit.drift_p_value)}, tolerance {audit.drift_tolerance:g})."
        )
    if found:
        return "\n".join(
            [*found, "Read more rows a decision (a larger batch, a smaller sigma or max_sd), or report it."]
        )
    limit = f"at most {size.upper:.2g} on average (95 %)"
    if min(audit.error_p_value, audit.drift_p_value) < FALSE_ALARMS / 2:
        return (
            f"NO ERROR BEYOND THE TOLERANCE: there is one, but the log-odds are off by about {size.value:.2g}, {limit}."
        )
    return f"NO ERROR FOUND: the log-odds are off by {limit}."


def _head(audit: Audit) -> list[str]:
    interrupted = " (INTERRUPTED: fewer repeats than asked for)" if audit.is_interrupted else ""
    lines = [f"Audit of {audit.test}, N = {audit.num_rows:,} rows{interrupted}"]
    if audit.settings.is_tempered:
        lines.append(
            f"temperature          {audit.settings.temperature:,.10g}   tempered: NOT the posterior; compared with "
            "the exact distribution at this temperature"
        )
    return lines


def _drift(audit: Audit) -> list[str]:
    if not audit.drift:
        return [f"draws                no estimate: it needs {DECISIONS_PER_FEATURE} decisions for each parameter"]
    means = _largest([d.mean for d in audit.drift])
    sds = _largest([d.sd for d in audit.drift])
    spread = (
        f"the sds by at most {sds:.2g} %"
        if math.isfinite(sds)
        else "the sds by an unknown amount (audit more decisions)"
    )
    width = max([9, *(len(d.name) for d in audit.drift)])
    return [
        f"draws                the means are off by at most {means:.2g} sd, {spread}",
        f"{'':<{_NAMES}}(95 % limits for each one alone; to first order, from {audit.features} of the position)",
        f"{'':<{width}}{'mean, in posterior sd':>34}{'sd, in %':>30}",
        *(f"{d.name:<{width}}{_estimate(d.mean, 4):>34}{_estimate(d.sd, 2):>30}" for d in audit.drift),
    ]


def _decisions(audit: Audit) -> list[str]:
    how = "with its noise integrated out" if audit.is_integrated else "counting what it decides"
    worst = audit.log_odds_worst
    lines = [
        f"decisions            {audit.num_decisions:,}, each repeated {audit.num_trials:,} times each way, {how}",
        f"  log-odds           {_size(audit.log_odds)}; the worst by {_estimate(worst, 4)}",
        f"  with their sign    {_estimate(audit.log_odds_mean, 4)} on average",
    ]
    if audit.probability is not None:
        lines.append(f"  probabilities      {_size(audit.probability)}")
    left_out = {"beyond": audit.num_far, "never accepted one way": audit.num_zero, "impossible": audit.num_invalid}
    others = ", ".join(f"{count} {why}" for why, count in left_out.items() if count)
    return [
        *lines,
        f"  beyond their noise {100 * audit.share_beyond_noise:.0f} % of these errors; 5 % by chance alone",
        f"  over               {int(audit.decisions.is_near.sum()):,} decisions with |Delta| <= "
        + f"{audit.max_log_ratio:.2g}"
        + (f"; left out: {others}" if others else ""),
    ]


def _cost(audit: Audit) -> str:
    cost = audit.cost
    return (
        f"cost                 {cost.passes:,.0f} sweeps over all rows in {cost.seconds:.1f} s: {cost.rows_exact:,} "
        f"rows for exact log ratios, {cost.rows_trials:,} by repeated decisions"
    )


def _bound(audit: Audit) -> list[str]:
    """Return the bound, unless it is vacuous."""
    bound = audit.bound
    if bound is None or bound.value >= 1:
        return []
    return [
        f"worst case           total variation at most {bound.value:.2g}, if all errors worked together: the "
        f"largest error in probability, {bound.epsilon:.2g}, over 1 - {bound.contraction:.4f}, the contraction "
        "of the slowest parameter. This is far above the actual error of the draws; report the drift"
    ]


def _largest(estimates: list[Estimate]) -> float:
    """The largest end of an interval; NaN where no estimate is known."""
    ends = [abs(end) for e in estimates if math.isfinite(e.value) for end in (e.low, e.high)]
    return max(ends, default=math.nan)


def _p_value(value: float) -> str:
    return f"p = {value:.1g}" if value >= 1e-9 else "p < 1e-9"


def _size(size: Size) -> str:
    return f"off by {size.value:.4f} on average, at most {size.upper:.4f} (95 %)"


def _estimate(estimate: Estimate, digits: int) -> str:
    if not math.isfinite(estimate.value):
        return "-"
    return f"{estimate.value:+.{digits}f} ({estimate.low:+.{digits}f} to {estimate.high:+.{digits}f})"


def _plain(value: Any) -> Any:
    """Return lists, dicts and numbers as JSON has them."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
