"""The methods of the paper's experiments: their colours, and histograms of the rows they read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tallchain.plots.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "MinibatchBarker()": GREEN,
    "MinibatchBarker.paper()": BLUE,
    "MinibatchBarker.as_published_code()": SKY,
    "Austere(0.005)": VERMILION,
    "Austere(0.01)": VERMILION,
    "Austere.nonconservative()": ORANGE,
    "Confidence()": PURPLE,
    "Barker()": BLACK,
}
_BINS = 40


def histograms(axes: Sequence[Axes], of: Sequence[tuple[str, np.ndarray, float | None]], most: int) -> None:
    """Draw histograms of (name, rows, printed mean), with the same axes everywhere."""
    edges = np.geomspace(min(float(rows.min()) for _, rows, _ in of) * 0.9, most * 1.1, _BINS)
    tallest = 1.0
    for each, (name, rows, printed) in zip(axes, of, strict=True):
        counts, *_ = each.hist(rows, edges.tolist(), color=COLOURS.get(name, BLUE))
        tallest = max(tallest, float(np.max(counts)))
        each.axvline(rows.mean(), color="black", lw=1, label=f"mean {rows.mean():,.0f}")
        if printed is not None:
            each.axvline(printed, color="black", lw=1, ls="--", label=f"paper {printed:,.0f}")
        each.set_title(name, fontsize=9)
        each.legend(frameon=False, fontsize=7)
    for each in axes:
        each.set(xscale="log", yscale="log", ylim=(0.8, 1.5 * tallest), xlabel="rows", ylabel="decisions")
