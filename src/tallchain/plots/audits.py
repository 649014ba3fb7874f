"""Pictures of an audit: chances to accept, errors of decisions, and the drift of the draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.checking import Audit
from tallchain.plots.style import BELOW, BLACK, BLUE, ORANGE, VERMILION, elided, own_axes, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_DRIFTS = 12


def acceptance_curves(audit: Audit, axes: Axes | None = None) -> Axes:
    """Draw how often each audited decision was accepted, against its exact log ratio.

    The line is what the same test would do on all rows. A test that approximates none has no line: then only the ratio
    of the two directions matters, which `audit` draws.

    Args:
        audit: what `tallchain.audit` returns.
        axes: where to draw; None makes a figure.
    """
    axes = own_axes(axes, (5.2, 3.6))
    decisions, near = audit.decisions, audit.decisions.is_near
    x = np.concatenate([decisions.log_ratio[near], -decisions.log_ratio[near]])
    y = np.concatenate([decisions.forward[near], decisions.backward[near]])
    reach = np.concatenate([decisions.forward_se[near], decisions.backward_se[near]])
    alpha = _faintness(len(x))
    axes.errorbar(x, y, 1.96 * reach, fmt="none", ecolor=BLUE, elinewidth=1, alpha=alpha)
    axes.plot(x, y, color=BLUE, marker="o", ms=3, lw=0, alpha=max(alpha, 0.4), label="a decision, either way")
    exact = (decisions.forward - decisions.probability_error)[near]
    if np.isfinite(exact).any():
        order = np.argsort(decisions.log_ratio[near])
        axes.plot(decisions.log_ratio[near][order], exact[order], color=BLACK, lw=1.2, label="the test on all rows")
    axes.set(xlabel="exact log ratio", ylabel="chance to accept", ylim=(-0.03, 1.03), title="Chances to accept")
    axes.legend(**BELOW | {"bbox_to_anchor": (0.5, -0.18)})
    return axes


def audit(audit: Audit, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draw the error of each decision against its log ratio, and the estimated drift of each parameter.

    Args:
        audit: what `tallchain.audit` returns.
        axes: two, where to draw; None makes a figure.
    """
    if axes is None:
        figure, [axes] = panels((11.5, 5.2), 1, 2, dpi=140, width_ratios=(3, 2))
        figure.suptitle(f"Audit of {audit.test}, N = {audit.num_rows:,}\n{audit.verdict}", fontsize="medium")
    errors, drift = axes
    _draw_errors(errors, audit)
    _draw_drift(drift, audit)
    return axes


def _faintness(count: int) -> float:
    """Many error bars would hide each other: the more there are, the fainter they get."""
    return float(np.clip(60 / max(count, 1), 0.15, 0.6))


def _draw_errors(axes: Axes, audit: Audit) -> None:
    decisions, near = audit.decisions, audit.decisions.is_near
    x, y, reach = (values[near] for values in (decisions.log_ratio, decisions.log_odds_error, decisions.log_odds_se))
    axes.errorbar(x, y, 1.96 * reach, fmt="none", ecolor=BLUE, elinewidth=1, alpha=_faintness(len(x)))
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
    axes.set_yticks(range(len(shown)), [elided(audit.drift[i].name) for i in shown])
    axes.set(ylim=(len(shown) - 0.5, -0.5), xlabel="estimate with 95 % interval")
    axes.locator_params(axis="x", nbins=6)
    if len(shown) < len(audit.drift):
        axes.set_title(f"Estimated drift of the draws: the {len(shown)} largest of {len(audit.drift)}")
    axes.legend(**BELOW | {"ncols": 1})
