"""What all pictures share: colours, panels without a frame, legends below them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can distinguish too.
BLUE, VERMILION, BLACK = "#0072B2", "#D55E00", "#000000"
ORANGE, SKY, GREEN, PURPLE = "#E69F00", "#56B4E9", "#009E73", "#CC79A7"
GREY = "#999999"
SERIES = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK, GREY)
"""Colours of chains, or of groups of them."""
BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncols": 2, "frameon": False}
"""Options of a legend below a single panel."""


def formats() -> list[str]:
    """Return the file name extensions a picture can have, without the dot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    return sorted(FigureCanvasAgg.get_supported_filetypes())


def panels(
    size: tuple[float, float], rows: int = 1, columns: int = 1, *, dpi: int = 130, grid: bool = False, **options: Any
) -> tuple[Figure, np.ndarray]:
    """Return a figure and its panels (row, column).

    Args:
        size: width and height of the figure in inches.
        rows: of panels.
        columns: of panels.
        dpi: dots per inch.
        grid: whether to draw faint grid lines.
        options: of matplotlib's `subplots`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=dpi, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for each in axes.flat:
        each.spines[["top", "right"]].set_visible(False)
        if grid:
            each.grid(alpha=0.25)
    return figure, axes


def own_axes(axes: Axes | None, size: tuple[float, float], *, grid: bool = True) -> Axes:
    """Return the axes given, or those of a figure of this size in inches."""
    return panels(size, grid=grid)[1][0, 0] if axes is None else axes


def figure_of(axes: Axes) -> Figure:
    """Return the whole figure that axes are in."""
    from matplotlib.figure import Figure

    figure = axes.figure
    while not isinstance(figure, Figure):
        figure = figure.figure
    return figure


def elided(name: str, most: int = 30) -> str:
    """Return a name as matplotlib shows it letter by letter; its two ends if it is longer than `most` characters."""
    name = " ".join(name.split())
    if len(name) > most:
        tail = (most - 1) // 2
        name = f"{name[: most - 1 - tail]}…{name[-tail:]}"
    return name.replace("$", r"\$")  # two of them would be a formula


def shared_legend(figure: Figure, axes: Any, columns: int | None = None, **options: Any) -> None:
    """Put one legend for some panels below the figure, in one line unless `columns` is given.

    Entries that several panels share appear once. The options are those of matplotlib's `legend`.
    """
    entries = [pair for each in np.ravel(axes) for pair in zip(*each.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in reversed(entries)}
    labels = list(dict.fromkeys(label for _, label in entries))
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns or len(labels), "frameon": False}
    figure.legend([handles[label] for label in labels], labels, **place | options)
