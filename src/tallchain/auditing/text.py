"""An audit in words."""

from __future__ import annotations

import math

from tallchain.auditing.drift import DECISIONS_PER_FEATURE
from tallchain.auditing.records import FALSE_ALARMS, Audit, Estimate, Size

_WIDTH = 37  # of the names in front of the numbers


def report(audit: Audit) -> str:
    """Return the table of an audit, with the verdict at the end."""
    lines = [_head(audit), *_errors(audit), *_drift(audit), *_bound(audit), _cost(audit), verdict(audit)]
    return "\n".join(lines)


def verdict(audit: Audit) -> str:
    """Say what was found; a line for each finding."""
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
        return "\n".join(found)
    limit = f"at most {size.upper:.2g} on average (95 %)"
    if min(audit.error_p_value, audit.drift_p_value) < FALSE_ALARMS / 2:
        return (
            f"NO ERROR BEYOND THE TOLERANCE: there is one, but the log-odds are off by about {size.value:.2g}, {limit}."
        )
    return f"NO ERROR FOUND: the log-odds are off by {limit}."


def _head(audit: Audit) -> str:
    how = "its noise integrated out" if audit.is_integrated else "counting what it decides"
    interrupted = " (INTERRUPTED: fewer trials than asked for)" if audit.is_interrupted else ""
    return (
        f"{audit.test}, N = {audit.population:,} rows: {audit.num_decisions:,} decisions x {audit.num_trials:,} trials "
        f"each way, {how}{interrupted}"
    )


def _errors(audit: Audit) -> list[str]:
    lines = [
        f"{'':<{_WIDTH}}{'estimate':>9}  95 % interval",
        _size("mean |error in log-odds|", audit.log_odds),
        f"{'mean error in log-odds':<{_WIDTH}}{_estimate(audit.log_odds_mean)}",
        f"{'worst error in log-odds':<{_WIDTH}}{_estimate(audit.log_odds_worst)}",
    ]
    if audit.probability is not None:
        lines.append(_size("mean |error in probability|", audit.probability))
    return [
        *lines,
        f"{'errors beyond their noise':<{_WIDTH}}{100 * audit.share_beyond_noise:>7.0f} %  (5 % by chance alone)",
        f"over {int(audit.decisions.is_near.sum()):,} decisions with |Delta| <= {audit.max_log_ratio:g}; left out: "
        f"{audit.num_far} beyond, {audit.num_zero} never accepted one way, {audit.num_invalid} without a finite Delta",
    ]


def _drift(audit: Audit) -> list[str]:
    if not audit.drift:
        return [f"drift of the draws: no estimate, which takes {DECISIONS_PER_FEATURE} decisions for each parameter"]
    width = max([9, *(len(d.name) for d in audit.drift)])
    return [
        f"drift of the draws: ESTIMATE to first order, among {audit.features} of the position",
        f"{'':<{width}}{'mean, in posterior sd':>32}{'variance, ratio less 1':>32}",
        *(f"{d.name:<{width}}{_estimate(d.mean):>32}{_estimate(d.variance):>32}" for d in audit.drift),
    ]


def _bound(audit: Audit) -> list[str]:
    bound = audit.bound
    if bound is None:
        return []
    says = "(vacuous)" if bound.value >= 1 else ""
    return [
        f"{'total variation, BOUND':<{_WIDTH}}{bound.value:>9.4f}  {says}",
        f"  = {bound.epsilon:.4f}/(1 - {bound.contraction:.4f}): the largest error in probability and the contraction, "
        f"both estimated (autocorrelation time {bound.autocorrelation_time:,.0f})",
    ]


def _cost(audit: Audit) -> str:
    cost = audit.cost
    return (
        f"cost: {cost.passes:,.0f} full passes: {cost.rows_exact:,} rows read for Delta and {cost.rows_trials:,} by "
        f"trials, in {cost.seconds:.1f} s"
    )


def _p_value(value: float) -> str:
    return f"p = {value:.1g}" if value >= 1e-9 else "p < 1e-9"


def _size(name: str, size: Size) -> str:
    return (
        f"{name:<{_WIDTH}}{size.value:>9.4f}  {size.low:.4f} to {size.high:.4f}, at most {size.upper:.4f}; "
        f"{size.with_noise:.4f} with the noise of the trials"
    )


def _estimate(estimate: Estimate) -> str:
    if not math.isfinite(estimate.value):
        return "-"
    return f"{estimate.value:>+9.4f}  {estimate.low:+.4f} to {estimate.high:+.4f}"
