"""Pictures of the experiment with the mixture of Gaussians."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallchain.experiments import gaussian_mixture
from tallchain.pictures.methods import COLOURS, histograms
from tallchain.pictures.posterior import draw_regions
from tallchain.plots.style import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def mixture_scatter(result: gaussian_mixture.Result) -> Figure:
    """Draws of the first repetition of every method on contours of the exact posterior: the paper's first figure."""
    figure, grid = panels((10.2, 6.8), 2, 3)
    for each, found in zip(grid.flat, result.found, strict=True):
        theta = found.example["position"]
        each.plot(theta[:, 0], theta[:, 1], ".", ms=2, alpha=0.35, color=COLOURS[found.method.name])
        draw_regions(each, found.grid)
        each.set(xlim=(-1.5, 2.5), ylim=(-2.5, 3), xlabel="theta_1", ylabel="theta_2")
        each.set_title(f"{found.method.name}, {len(theta):,} draws", fontsize=9)
    figure.suptitle("Draws of one repetition, on contours with 50, 90 and 99 % of the posterior")
    return figure


def mixture_rows(result: gaussian_mixture.Result) -> Figure:
    """Rows per decision in one repetition, log-log and on equal axes: the paper's second figure."""
    found = [each for each in result.found if each.method.name != "Barker()"]
    figure, [axes] = panels((2.8 * len(found), 3.4), 1, len(found))
    histograms(
        axes,
        [(each.method.name, each.example["rows_read"], each.method.one_trial) for each in found],
        result.config.rows,
    )
    figure.suptitle("Rows per decision, one repetition; the dashed line is the paper's mean for one repetition")
    return figure
