"""The picture of `tallchain demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np

from tallchain.checking.trace import Trace
from tallchain.models.gaussian_mixture import Grid
from tallchain.pictures.posterior import REGIONS, draw_regions, levels
from tallchain.plots import rows_per_decision
from tallchain.plots.style import BELOW, BLACK, BLUE, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS = 20_000


def demo_figure(trace: Trace, grid: Grid, *, temperature: float, test: str) -> Figure:
    """Draw the draws over the true posterior, and the rows per decision.

    Args:
        trace: draws of the mixture's two parameters.
        grid: the true posterior.
        temperature: K, for the title.
        test: what decided, for the title.
    """
    figure, [[left, right]] = panels((10.5, 4.9), 1, 2, dpi=140)
    _draw_posterior(left, _points(trace), grid)
    rows_per_decision(trace, right)
    figure.suptitle(
        f"Mixture of two Gaussians, N = {trace.num_rows:,}, K = {temperature:,.10g}, {test}: "
        f"{trace.rows_read.mean():,.0f} rows per decision on average"
    )
    return figure


def _points(trace: Trace) -> np.ndarray:
    """Return the draws of all chains (draw, parameter), evenly thinned."""
    leaves = [np.reshape(leaf, (trace.is_accepted.size, -1)) for leaf in jax.tree.leaves(trace.position)]
    points = np.concatenate(leaves, axis=1)
    return points[:: -(-len(points) // _POINTS)]


def _draw_posterior(axes: Axes, points: np.ndarray, grid: Grid) -> None:
    from matplotlib.lines import Line2D

    # If there are many, faint points show the density; the legend needs a solid point.
    alpha = float(np.clip(1000 / len(points), 0.15, 1))
    axes.scatter(*points.T, s=3, alpha=alpha, color=BLUE, linewidths=0, rasterized=True)
    draw_regions(axes, grid)
    # Frame the draws and the outermost contour, not the whole grid.
    inside = np.nonzero(grid.log_density >= levels(grid)[0])
    axes.set_xlim(_frame(grid.theta_1[inside[0]], points[:, 0]))
    axes.set_ylim(_frame(grid.theta_2[inside[1]], points[:, 1]))
    axes.set(xlabel=r"$\theta_1$", ylabel=r"$\theta_2$", title="Draws and the true posterior")
    percents = ", ".join(f"{100 * share:.0f}" for share in reversed(REGIONS))
    handles = [
        Line2D([], [], color=BLACK, lw=1.3, label=f"true posterior: regions of {percents} %"),
        Line2D([], [], color=BLUE, lw=0, marker="o", ms=5, label=f"draws ({len(points):,} shown)"),
    ]
    axes.legend(handles=handles, **BELOW)


def _frame(*values: np.ndarray) -> tuple[float, float]:
    """Return an interval around all values, with a margin."""
    least, most = (float(end(np.concatenate(values))) for end in (np.min, np.max))
    margin = 0.05 * (most - least)
    return least - margin, most + margin
