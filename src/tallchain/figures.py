"""Pictures (needs `matplotlib`); drawn without pyplot, so that no backend or global state is touched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from tallchain.checking.trace import Trace
from tallchain.experiments import worst_case
from tallchain.models.gaussian_mixture import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tallchain.checking import Audit

# Okabe and Ito's colours, told apart by colour-blind readers too.
BLUE, VERMILION, BLACK = "#0072B2", "#D55E00", "#000000"
ORANGE, SKY, GREEN, PURPLE = "#E69F00", "#56B4E9", "#009E73", "#CC79A7"
_REGIONS = (0.99, 0.9, 0.5)
_POINTS = 20_000
_BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncols": 2, "frameon": False}


def formats() -> list[str]:
    """Return the file name extensions a picture can have, without the dot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    return sorted(FigureCanvasAgg.get_supported_filetypes())


def demo_figure(trace: Trace, grid: Grid, path: Path | str, *, temperature: float, test: str) -> None:
    """Draw the draws over the true posterior, and the rows per decision, to a file.

    Args:
        trace: draws of the mixture's two parameters.
        grid: the true posterior.
        path: of the picture; its extension says the format.
        temperature: K, for the title.
        test: what decided, for the title.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.9), dpi=140, layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_posterior(left, _points(trace), grid)
    _draw_rows(right, trace)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"Mixture of two Gaussians, N = {trace.population:,}, K = {temperature:,.10g}, {test}: "
        f"{trace.num_rows.mean():,.0f} rows per decision on average"
    )
    figure.savefig(path)


def _points(trace: Trace) -> np.ndarray:
    """Return the draws of all chains (draw, parameter), evenly thinned."""
    leaves = [np.reshape(leaf, (trace.is_accepted.size, -1)) for leaf in jax.tree.leaves(trace.position)]
    points = np.concatenate(leaves, axis=1)
    return points[:: -(-len(points) // _POINTS)]


def _draw_posterior(axes: Axes, points: np.ndarray, grid: Grid) -> None:
    from matplotlib.lines import Line2D

    # Where there are many, faint points show the density; the legend needs a full one to be seen.
    alpha = float(np.clip(1000 / len(points), 0.15, 1))
    axes.scatter(*points.T, s=3, alpha=alpha, color=BLUE, linewidths=0, rasterized=True)
    draw_regions(axes, grid)
    # Frame the draws and the outermost contour, not the whole grid.
    inside = np.nonzero(grid.log_density >= _levels(grid)[0])
    axes.set_xlim(_frame(grid.theta_1[inside[0]], points[:, 0]))
    axes.set_ylim(_frame(grid.theta_2[inside[1]], points[:, 1]))
    axes.set(xlabel=r"$\theta_1$", ylabel=r"$\theta_2$", title="Draws and the true posterior")
    percents = ", ".join(f"{100 * share:.0f}" for share in reversed(_REGIONS))
    handles = [
        Line2D([], [], color=BLACK, lw=1.3, label=f"true posterior: regions of {percents} %"),
        Line2D([], [], color=BLUE, lw=0, marker="o", ms=5, label=f"draws ({len(points):,} shown)"),
    ]
    axes.legend(handles=handles, **_BELOW)


def draw_regions(axes: Axes, grid: Grid) -> None:
    """Draw lines around the regions that hold 50, 90 and 99 % of the posterior."""
    # The grid is (theta_1, theta_2); contour wants its rows along y.
    axes.contour(
        grid.theta_1, grid.theta_2, grid.log_density.T, _levels(grid), colors=BLACK, linewidths=1.3, linestyles="solid"
    )


def _levels(grid: Grid) -> list[float]:
    """Return the log densities around the smallest regions that hold given shares of the posterior, rising."""
    log_density = np.sort(grid.log_density.ravel())[::-1]
    mass = np.cumsum(np.exp(log_density - log_density[0]))
    return [float(log_density[np.searchsorted(mass, share * mass[-1])]) for share in _REGIONS]


def _frame(*values: np.ndarray) -> tuple[float, float]:
    """Return an interval around all values, with a margin."""
    least, most = (float(end(np.concatenate(values))) for end in (np.min, np.max))
    margin = 0.05 * (most - least)
    return least - margin, most + margin


def _draw_rows(axes: Axes, trace: Trace) -> None:
    rows, population = trace.num_rows, trace.population
    least, mean = rows.min(), rows.mean()
    # The rows are multiples of `least`, and a bar holds 2^k to 2^(k+1) - 1 of them; no multiple lies on an edge.
    edges = least * (2.0 ** np.arange(np.floor(np.log2(rows.max() / least + 0.5)) + 2) - 0.5)
    shares = np.histogram(rows, edges)[0] / rows.size
    axes.bar(edges[:-1], shares, np.diff(edges), align="edge", color=BLUE, edgecolor="white")
    axes.axvline(mean, color=VERMILION, lw=2, label=f"mean: {mean:,.0f} rows")
    axes.axvline(population, color=BLACK, lw=2, ls="--", label=f"all N = {population:,} rows")
    # At least two decades each way: over less, the labels of a log axis overlap.
    left, bottom = min(least / 4, population / 100), min(shares[shares > 0].min() / 10, 0.01)
    axes.set(xscale="log", yscale="log", xlim=(left, population * 4), ylim=(bottom, 2))
    axes.set(xlabel="rows read for one decision", ylabel="share of decisions", title="Rows per decision")
    axes.legend(**_BELOW)


# ---- the worst case --------------------------------------------------------------------------

# Penalty's line lies on MinibatchBarker's, and that of a scan for the range on the other of MHSubLhd: small on large.
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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14.5, 5.6), dpi=140, layout="constrained")
    full, mean, study = figure.subplots(1, 3)
    _draw_full(full, result)
    _draw_mean(mean, result)
    _draw_study(study, result)
    for axes in (full, mean, study):
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = mean.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("The worst case: mean of N Gaussian rows, temperature 1, steps as wide as the posterior")
    return figure


def _draw_full(axes: Axes, result: worst_case.Result) -> None:
    """Share of decisions that read every row; where there was none, an arrow down from its upper limit."""
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
        if series != "step":  # its formula is that of the temperature
            axes.plot(factors, [point.expected_mean for point in points], color=BLACK, lw=1, zorder=0)
    axes.plot([], [], color=BLACK, lw=1, label="formula")
    least = worst_case.BATCH / result.config.study_rows
    axes.axhline(least, color=BLACK, lw=1, ls=":", label="one batch, m/N")
    # The lower part is for the legend: nothing can be below one batch.
    axes.set(xscale="log", yscale="log", ylim=(least / 60, 1), xlabel="factor", ylabel="mean of rows read / N")
    axes.set_title(f"MinibatchBarker, N = {result.config.study_rows:,}")
    axes.legend(frameon=False, loc="lower left")


# ---- audits ----------------------------------------------------------------------------------

_MOST_DRIFTS = 12


def audit_figure(audit: Audit, path: Path | str) -> None:
    """Draw an audit to a file: the error of each decision against its log ratio, and the drift of each parameter."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 5.2), dpi=140, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_errors(left, audit)
    _draw_drift(right, audit)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"Audit of {audit.test}, N = {audit.population:,}\n{audit.verdict}", fontsize="medium")
    figure.savefig(path)


def _draw_errors(axes: Axes, audit: Audit) -> None:
    decisions, near = audit.decisions, audit.decisions.is_near
    x, y, reach = (values[near] for values in (decisions.log_ratio, decisions.log_odds_error, decisions.log_odds_se))
    # Many error bars on top of each other are a wall: the more there are, the fainter.
    alpha = float(np.clip(60 / max(len(x), 1), 0.15, 0.6))
    axes.errorbar(x, y, 1.96 * reach, fmt="none", ecolor=BLUE, elinewidth=1, alpha=alpha)
    axes.plot(x, y, color=BLUE, marker="o", ms=3.5, lw=0, label="a decision, with its 95 % interval")
    axes.axhline(0, color=BLACK, lw=1.2, label="no error")
    label = f"tolerance for the mean |error|, {audit.tolerance:g}"
    axes.axhspan(-audit.tolerance, audit.tolerance, color=ORANGE, alpha=0.35, lw=0, label=label, zorder=0)
    axes.set(xlabel=r"exact log ratio $\Delta$", ylabel="error in log-odds")
    size = audit.log_odds
    axes.set_title(f"Decisions: mean |error| {size.value:.2g}, at most {size.upper:.2g} (95 %)")
    axes.legend(**_BELOW)


def _draw_drift(axes: Axes, audit: Audit) -> None:
    axes.set_title("Estimated drift of the draws")
    if not audit.drift:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no estimate: too few decisions\nfor so many parameters", ha="center", va="center")
        return
    size = [np.nanmax(np.abs([drift.mean.value, drift.variance.value, 0.0])) for drift in audit.drift]
    shown = sorted(np.argsort(size)[::-1][:_MOST_DRIFTS])
    for name, label, shift, color, marker in (
        ("mean", "mean, in posterior standard deviations", -0.12, BLUE, "o"),
        ("variance", "variance, ratio to the exact one less 1", 0.12, VERMILION, "s"),
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
    axes.legend(**_BELOW | {"ncols": 1})
