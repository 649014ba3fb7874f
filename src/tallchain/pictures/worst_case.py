"""The picture of the worst case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.experiments import worst_case
from tallchain.plots.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, panels, shared_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Penalty's line coincides with MinibatchBarker's, and MHSubLhd's two lines with each other: small on large.
_STYLES: dict[str, dict[str, Any]] = {
    "minibatch": {"color": BLUE, "marker": "o", "ms": 9},
    "minibatch-default": {"color": BLACK, "marker": "v", "ms": 6},
    "penalty": {"color": SKY, "marker": "o", "ms": 4.5},
    "austere": {"color": VERMILION, "marker": "s", "ms": 6},
    "austere-designed": {"color": ORANGE, "marker": "D", "ms": 6},
    "austere-repeats": {"color": PURPLE, "marker": "^", "ms": 7},
    "confidence": {"color": GREEN, "marker": "P", "ms": 8},
}
_SERIES_STYLES: dict[str, dict[str, Any]] = {
    "temperature": {"color": VERMILION, "marker": "s", "ms": 8, "mfc": "none"},
    "step": {"color": BLUE, "marker": "o", "ms": 4.5},
    "both": {"color": GREEN, "marker": "D", "ms": 6},
}
_SERIES_LABELS = {
    "temperature": "higher temperature: K = factor, step 1/√N",
    "step": "shorter step: K = 1, step 1/(factor √N)",
    "both": "both: K = factor, step √(K/N)",
}


def worst_case_figure(result: worst_case.Result) -> Figure:
    """Draw the shares of full reads and of rows against N, and the minibatch test's against temperature and step."""
    figure, [[full, mean, study]] = panels((14.5, 5.6), 1, 3, dpi=140)
    _draw_full(full, result)
    _draw_mean(mean, result)
    _draw_study(study, result)
    shared_legend(figure, mean, 3)
    figure.suptitle("The worst case: mean of N Gaussian rows, temperature 1, steps as wide as the posterior")
    return figure


def _draw_full(axes: Axes, result: worst_case.Result) -> None:
    """Share of decisions that read every row; if there were none, an arrow down from its upper limit."""
    floor = 1.0
    for test, style in _present(result):
        entries = result.of(test)
        limits = np.array([entry.full_share_limits for entry in entries])
        floor = min(floor, limits[limits > 0].min())
        seen = [entry for entry in entries if entry.num_full]
        shares = np.array([entry.full_share for entry in seen])
        errors = np.abs(np.array([entry.full_share_limits for entry in seen]).reshape(-1, 2).T - shares)
        axes.errorbar([entry.num_rows for entry in seen], shares, errors, lw=1.5, capsize=3, **style)
        unseen = [(entry.num_rows, entry.full_share_limits[1]) for entry in entries if not entry.num_full]
        if unseen:
            x, y = np.transpose(unseen)
            # A little to the left, clear of the error bars of others at the same N.
            axes.plot(0.85 * x, y, color=style["color"], marker="$\\downarrow$", ms=1.6 * style["ms"], lw=0)
    axes.axhline(worst_case.LEMMA, color=BLACK, lw=1.5, ls="--")
    axes.set(xscale="log", yscale="log", ylim=(floor / 4, 1.5), xlabel="rows of data, N")
    axes.set(ylabel="share of decisions", title="Decisions that read all N rows")
    if any(entry.num_full == 0 for entry in result.entries):
        axes.text(0.02, 0.02, "↓  none: upper limit", transform=axes.transAxes)


def _draw_mean(axes: Axes, result: worst_case.Result) -> None:
    for test, style in _present(result):
        entries = result.of(test)
        axes.errorbar(
            [entry.num_rows for entry in entries],
            [entry.mean_share for entry in entries],
            [1.96 * entry.mean_share_error for entry in entries],
            lw=1.5,
            capsize=3,
            label=worst_case.CONTENDERS[test].description,
            **style,
        )
    lemma = f"the lemma's bound for AustereMH and MHSubLhd, {worst_case.LEMMA:.4f}"
    axes.axhline(worst_case.LEMMA, color=BLACK, lw=1.5, ls="--", label=lemma)
    axes.set(xscale="log", ylim=(0, 1.02), xlabel="rows of data, N", ylabel="mean of rows read / N")
    axes.set_title("Rows read for one decision")


def _present(result: worst_case.Result) -> list[tuple[str, dict[str, Any]]]:
    return [(test, style) for test, style in _STYLES.items() if test in result.config.tests]


def _draw_study(axes: Axes, result: worst_case.Result) -> None:
    for series, style in _SERIES_STYLES.items():
        points = [point for point in result.study if point.series == series]
        factors = [point.factor for point in points]
        axes.errorbar(
            factors,
            [point.mean_share for point in points],
            [1.96 * point.mean_share_error for point in points],
            lw=0,
            elinewidth=1.5,
            capsize=3,
            label=_SERIES_LABELS[series],
            **style,
        )
        if series != "step":  # its formula is the same as for temperature
            axes.plot(factors, [point.expected_mean for point in points], color=BLACK, lw=1, zorder=0)
    axes.plot([], [], color=BLACK, lw=1, label="formula")
    least = worst_case.BATCH / result.config.study_rows
    axes.axhline(least, color=BLACK, lw=1, ls=":", label="one batch, m/N")
    # The lower part is for the legend: nothing can be below one batch.
    axes.set(xscale="log", yscale="log", ylim=(least / 60, 1), xlabel="factor", ylabel="mean of rows read / N")
    axes.set_title(f"MinibatchBarker, N = {result.config.study_rows:,}")
    axes.legend(frameon=False, loc="lower left")
