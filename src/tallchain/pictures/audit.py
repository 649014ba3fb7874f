"""The picture of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.pictures.style import BELOW, BLACK, BLUE, ORANGE, VERMILION, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tallchain.checking import Audit

_MOST_DRIFTS = 12


def audit_figure(audit: Audit) -> Figure:
    """Draw an audit: the error of each decision against its log ratio, and the drift of each parameter."""
    figure, [[left, right]] = panels((11.5, 5.2), 1, 2, dpi=140, width_ratios=(3, 2))
    _draw_errors(left, audit)
    _draw_drift(right, audit)
    figure.suptitle(f"Audit of {audit.test}, N = {audit.num_rows:,}\n{audit.verdict}", fontsize="medium")
    return figure


def _draw_errors(axes: Axes, audit: Audit) -> None:
    decisions, near = audit.decisions, audit.decisions.is_near
    x, y, reach = (values[near] for values in (decisions.log_ratio, decisions.log_odds_error, decisions.log_odds_se))
    # Many error bars would hide each other: the more there are, the fainter they get.
    alpha = float(np.clip(60 / max(len(x), 1), 0.15, 0.6))
    axes.errorbar(x, y, 1.96 * reach, fmt="none", ecolor=BLUE, elinewidth=1, alpha=alpha)
    axes.plot(x, y, color=BLUE, marker="o", ms=3.5, lw=0, label="a decision, with its 95 % interval")
    axes.axhline(0, color=BLACK, lw=1.2, label="no error")
    label = f"tolerance for the mean |error|, {audit.tolerance:g}"
    axes.axhspan(-audit.tolerance, audit.tolerance, color=ORANGE, alpha=0.35, lw=0, label=label, zorder=0)
    axes.set(xlabel=r"exact log ratio $\Delta$", ylabel="error in log-odds")
    size = audit.log_odds
    axes.set_title(f"Decisions: mean |error| {size.value:.2g}, at most {size.upper:.2g} (95 %)")
    axes.legend(**BELOW)


def _draw_drift(axes: Axes, audit: Audit) -> None:
    axes.set_title("Estimated drift of the draws")
    if not audit.drift:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no estimate: too few decisions\nfor this many parameters", ha="center", va="center")
        return
    size = [np.nanmax(np.abs([drift.mean.value, drift.variance.value, 0.0])) for drift in audit.drift]
    shown = sorted(np.argsort(size)[::-1][:_MOST_DRIFTS])
    for name, label, shift, color, marker in (
        ("mean", "mean, in posterior standard deviations", -0.12, BLUE, "o"),
        ("variance", "variance, ratio to the exact one minus 1", 0.12, VERMILION, "s"),
    ):
        estimates = [getattr(audit.drift[i], name) for i in shown]
        values = np.array([estimate.value for estimate in estimates])
        reach = np.array([[e.value - e.low, e.high - e.value] for e in estimates]).T
        places = np.arange(len(shown)) + shift
        style: dict[str, Any] = {"color": color, "marker": marker, "ms": 6, "lw": 0, "elinewidth": 1.8, "capsize": 4}
        axes.errorbar(values, places, xerr=reach, label=label, **style)
    axes.axvline(0, color=BLACK, lw=1.2)
    axes.set_yticks(range(len(shown)), [audit.drift[i].name for i in shown])
    axes.set(ylim=(len(shown) - 0.5, -0.5), xlabel="estimate with 95 % interval")
    axes.locator_params(axis="x", nbins=6)
    if len(shown) < len(audit.drift):
        axes.set_title(f"Estimated drift of the draws: the {len(shown)} largest of {len(audit.drift)}")
    axes.legend(**BELOW | {"ncols": 1})
