"""The errors against b, and the paper's error bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from studies.orders.powers import select
from studies.orders.quadrature import KNOWN_VARIANCE
from studies.pairs import mean_error
from tallchain.plots.style import BLACK, BLUE, GREEN, GREY, PURPLE, VERMILION, panels, shared_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES: dict[str, dict[str, Any]] = {
    "printed": {"color": VERMILION, "marker": "s", "label": "A.5 as printed"},
    "none": {"color": BLACK, "marker": "o", "label": "no correction"},
    "skew": {"color": BLUE, "marker": "^", "label": "skew correction"},
    "skew, own table": {"color": GREEN, "marker": "v", "label": "the same, a table made for each b"},
    "skew, true skewness": {"color": PURPLE, "marker": "D", "label": "the same, with the true skewness"},
}
METHODS = {"quadrature": "variance and skewness known", "simulation": "estimated from the same rows"}
GUIDES = {"none": (-0.5, "#D9D9D9", r"$b^{-1/2}$"), "skew": (-1.0, "#BBD7EC", r"$b^{-1}$")}
BOUNDED = ("exponential", "paper's mixture")


def batches(results: dict[str, Any]) -> np.ndarray:
    """Return the values of b."""
    return np.array(sorted({entry["b"] for entry in results["quadrature"]}))


def orders_figure(results: dict[str, Any]) -> Figure:
    """Mean error against b: a column for each kind of rows, a row for each method."""
    kinds = [entry["rows"] for entry in results["moments"]]
    figure, grid = panels((14, 6.6), len(METHODS), len(kinds), grid=True, sharex=True, sharey="row")
    b = batches(results)
    for line, method in zip(grid, METHODS, strict=True):
        for axes, kind in zip(line, kinds, strict=True):
            for rule, style in STYLES.items():
                series = select(results[method], kind, rule)
                if not series:
                    continue
                bars = [2 * entry.get("standard_error_of_mean", 0.0) for entry in series]
                errors = [mean_error(entry) for entry in series]
                axes.errorbar([entry["b"] for entry in series], errors, bars, ms=4, lw=1.4, **style)
                if rule in GUIDES:
                    _guide(axes, rule, b, errors[0])
            axes.set(xscale="log", yscale="log", xticks=b[::2], xticklabels=[str(value) for value in b[::2]])
            axes.minorticks_off()
        line[0].set_ylabel(f"mean |log-odds error|\n{METHODS[method]}")
    for axes, entry in zip(grid[0], results["moments"], strict=True):
        axes.set_title(f"{entry['rows']}\n(skewness {entry['skewness']:.2g})", fontsize=10)
    for axes in grid[-1]:
        axes.set_xlabel("rows b")
    shared_legend(figure, grid, 7, fontsize=9)
    return figure


def _guide(axes: Any, rule: str, b: np.ndarray, start: float) -> None:
    """A power of b as a band behind the data, through the first point."""
    power, color, name = GUIDES[rule]
    ends = b[[0, -1]]
    axes.plot(ends, start * (ends / ends[0]) ** power, color=color, lw=7, zorder=0, label=name)


def bound_figure(results: dict[str, Any]) -> Figure:
    """The paper's error bound, the estimate by skewness, and the error itself against b."""
    entries = [entry for entry in results["moments"] if entry["rows"] in BOUNDED]
    figure, grid = panels((9.6, 4.4), 1, len(entries), grid=True, sharey=True)
    b = batches(results)
    for axes, entry in zip(grid[0], entries, strict=True):
        axes.axhline(1, color=GREY, ls=":", label="1: a bound above it says nothing")
        axes.plot(b, bound(entry, b), color=VERMILION, marker="s", ms=4, label="the paper's error bound")
        estimate = np.abs(entry["skewness"]) * KNOWN_VARIANCE**1.5 / np.sqrt(b) / 6
        axes.plot(b, estimate, color=GREEN, ls="--", label=r"$|\kappa_3|/6$ (log-odds)")
        for rule in ("none", "skew"):
            series = select(results["quadrature"], entry["rows"], rule)
            style = STYLES[rule] | {"label": f"error of P(accept), {STYLES[rule]['label']}"}
            axes.plot(b, [found["chance_error"] for found in series], ms=4, **style)
        axes.set(xscale="log", yscale="log", xlabel="rows b", title=entry["rows"])
        axes.set_xticks(b[::2], [str(value) for value in b[::2]])
        axes.minorticks_off()
    grid[0][0].set_ylabel("error")
    shared_legend(figure, grid, 3, fontsize=9)
    return figure


def bound(entry: dict[str, Any], b: Any) -> Any:
    """The paper's error bound, on the distance of the studentised mean's CDF from the normal one; standardised rows."""
    return (6.4 * entry["third_absolute_moment"] + 2 * entry["first_absolute_moment"]) / np.sqrt(b)
