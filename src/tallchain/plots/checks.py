"""The picture of a posterior predictive check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.checking.predictive import Panel, PredictiveCheck
from tallchain.plots.style import BELOW, BLACK, GREEN, VERMILION, elided, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def predictive_check(check: PredictiveCheck, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draw observed outcomes as points, and intervals of drawn ones as bars, panel by panel.

    Points outside their interval are diamonds in another colour.

    Args:
        check: what `checking.predictive_check` returns.
        axes: where to draw, one for each of `check.panels`; None makes a figure.
    """
    count = len(check.panels)
    axes = list(panels((5.2, 3.3 * count), count, 1, grid=True)[1][:, 0]) if axes is None else axes
    if len(axes) != count:
        raise ValueError(f"`predictive_check(axes=...)` must be {count} axes; got {len(axes)}.")
    for each, panel in zip(axes, check.panels, strict=True):
        _draw(each, panel, check)
    axes[-1].legend(**BELOW | {"bbox_to_anchor": (0.5, -0.2), "fontsize": "small"})
    return axes


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
        axes.set_xticks(place, [elided(label, 12) for label in panel.labels])
        if max(map(len, panel.labels)) * panel.size > 55:
            axes.tick_params(axis="x", rotation=60)
