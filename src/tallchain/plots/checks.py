"""The picture of a posterior predictive check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.checking.predictive import Panel, PredictiveCheck
from tallchain.plots.style import BLACK, GREEN, VERMILION, elided, figure_of, panels, shared_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LABELS = 13


def predictive_check(check: PredictiveCheck, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draw observed outcomes as points, and intervals of drawn ones as bars, panel by panel.

    Points outside their interval are diamonds in another colour.

    Args:
        check: what `checking.predictive_check` returns.
        axes: where to draw, one for each of `check.panels`; None makes a figure.
    """
    count, is_own = len(check.panels), axes is None
    axes = _own_axes(count) if axes is None else axes
    if len(axes) != count:
        raise ValueError(f"`predictive_check(axes=...)` must be {count} axes; got {len(axes)}.")
    for each, panel in zip(axes, check.panels, strict=True):
        _draw(each, panel, check)
    if is_own:
        shared_legend(figure_of(axes[0]), axes, fontsize="small")
    else:
        axes[0].legend(frameon=False, fontsize="small")
    return axes


def _own_axes(count: int) -> list[Axes]:
    """One below the other, or two in a line if there are many."""
    columns = 1 if count <= 2 else 2
    lines = -(-count // columns)
    figure, grid = panels((5.2 if columns == 1 else 8.6, 3.0 * lines + 0.3), lines, columns, grid=True)
    for spare in grid.flat[count:]:
        figure.delaxes(spare)
    return list(grid.flat[:count])


def _draw(axes: Axes, panel: Panel, check: PredictiveCheck) -> None:
    place, observed, low, high = (np.asarray(values) for values in (panel.place, panel.observed, panel.low, panel.high))
    is_in = (low <= observed) & (observed <= high)
    share = f"{100 * check.interval:g} % of draws"
    width = float(np.clip(110 / panel.size, 1.5, 9))
    axes.vlines(place, low, high, color=GREEN, lw=width, alpha=0.45, label=share)
    axes.scatter(place[is_in], observed[is_in], 22, color=BLACK, zorder=3, label="observed")
    style: dict[str, Any] = {"color": VERMILION, "marker": "D", "zorder": 3}
    axes.scatter(place[~is_in], observed[~is_in], 24, label="observed, outside", **style)
    axes.set(xlabel=panel.across, ylabel=panel.along)
    title = f"{panel.title}:\n{panel.num_within} of {panel.size} within, {check.interval * panel.size:.1f} expected"
    axes.set_title(title, fontsize="medium")
    if panel.labels:
        step = -(-panel.size // _MOST_LABELS)
        axes.set_xticks(place[::step], [elided(label, 8) for label in panel.labels[::step]])
    if panel.is_log:
        axes.set_xscale("log")
