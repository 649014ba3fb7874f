"""Histograms of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from tallchain.plots.style import BLUE, GREEN, VERMILION, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = (BLUE, VERMILION, GREEN)


def ranks_figure(results: dict[str, Any]) -> Figure:
    """Draw the histograms of ranks: a row for each model, and one of broken samplers."""
    sound = results["sound"]
    records = [*sound, *(record for record in results["broken"] if record["model"] == sound[0]["model"])]
    columns = len({record["test"] for record in sound})
    rows = -(-len(records) // columns)
    figure, grid = panels((11, 2.2 * rows + 0.3), rows, columns, dpi=120, sharex=True, sharey=True)
    for axes, record in zip(grid.flat, records, strict=False):
        _draw_ranks(axes, record)
    for axes in grid[-1]:
        axes.set_xlabel("rank of the truth")
    for axes in grid[:, 0]:
        axes.set_ylabel("count / expected")
    return figure


def _draw_ranks(axes: Axes, record: dict[str, Any]) -> None:
    """One line per parameter, over the range in which 95 of 100 bins of uniform ranks fall."""
    ranks = np.arange(len(record["counts"][0]))
    expected = record["sets"] / len(ranks)
    low, high = stats.binom.interval(0.95, record["sets"], 1 / len(ranks))
    axes.axhspan(low / expected, high / expected, color="#dddddd", lw=0)
    for column, color in zip(record["counts"], COLORS, strict=False):
        axes.stairs(np.array(column) / expected, np.arange(len(ranks) + 1) - 0.5, color=color, lw=1.5)
    label = record["test"] if record["broken"] is None else record["broken"]
    axes.set_title(f"{record['model']}\n{label}: p = {record['p_value']:.2g}", fontsize=8.5)
    axes.set(xticks=ranks[::3], ylim=(0, 1.7))
