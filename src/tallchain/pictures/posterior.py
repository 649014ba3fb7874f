"""The exact posterior of the mixture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tallchain.models.gaussian_mixture import Grid
from tallchain.plots.style import BLACK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REGIONS = (0.99, 0.9, 0.5)
"""Shares of the posterior."""


def draw_regions(axes: Axes, grid: Grid) -> None:
    """Draw lines around the regions that hold 50, 90 and 99 % of the posterior."""
    # The grid is (theta_1, theta_2); contour wants its rows along y.
    axes.contour(
        grid.theta_1, grid.theta_2, grid.log_density.T, levels(grid), colors=BLACK, linewidths=1.3, linestyles="solid"
    )


def levels(grid: Grid) -> list[float]:
    """Return the log densities at the edges of the smallest regions with given shares of the posterior, ascending."""
    log_density = np.sort(grid.log_density.ravel())[::-1]
    mass = np.cumsum(np.exp(log_density - log_density[0]))
    return [float(log_density[np.searchsorted(mass, share * mass[-1])]) for share in REGIONS]
