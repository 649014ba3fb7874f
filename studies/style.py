"""What the pictures of the studies have in common."""

from __future__ import annotations

from typing import Any

import numpy as np


def panels(size: tuple[float, float], *shape: int, **shared: Any) -> tuple[Any, Any]:
    """Return a figure and its panels, with a grid and without a frame."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=130, layout="constrained")
    axes = figure.subplots(*shape, **shared)
    for each in np.ravel(axes):
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.25)
    return figure, axes


def shared_legend(figure: Any, axes: Any, columns: int) -> None:
    """Put one legend for all panels below them."""
    entries = [pair for each in np.ravel(axes) for pair in zip(*each.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in reversed(entries)}
    labels = list(dict.fromkeys(label for _, label in entries))
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
    figure.legend([handles[label] for label in labels], labels, **place)
