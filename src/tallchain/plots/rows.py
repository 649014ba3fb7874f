"""How many rows decisions read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tallchain.checking import Trace
from tallchain.plots.style import BELOW, BLACK, BLUE, VERMILION, own_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def rows_per_decision(trace: Trace, axes: Axes | None = None) -> Axes:
    """Draw how many decisions read how many rows, beside all rows.

    Args:
        trace: of any sampler.
        axes: where to draw; None makes a figure.
    """
    axes = own_axes(axes, (5.2, 3.6), grid=False)
    rows, num_rows = trace.rows_read, trace.num_rows
    least, mean = max(int(rows.min()), 1), rows.mean()
    # The rows are often multiples of `least`, and a bar holds 2^k to 2^(k+1) - 1 of them; no multiple lies on an edge.
    edges = least * (2.0 ** np.arange(np.floor(np.log2(max(rows.max() / least, 1) + 0.5)) + 2) - 0.5)
    shares = np.histogram(np.maximum(rows, least), edges)[0] / rows.size
    axes.bar(edges[:-1], shares, np.diff(edges), align="edge", color=BLUE, edgecolor="white")
    axes.axvline(
        mean, color=VERMILION, lw=2, label=f"mean: {mean:,.0f} rows" if mean >= 10 else f"mean: {mean:.2g} rows"
    )
    axes.axvline(num_rows, color=BLACK, lw=2, ls="--", label=f"all N = {num_rows:,} rows")
    # At least two decades each way: over less, the labels of a log axis overlap.
    left, bottom = min(least / 4, num_rows / 100), min(shares[shares > 0].min() / 10, 0.01)
    axes.set(xscale="log", yscale="log", xlim=(left, num_rows * 4), ylim=(bottom, 2))
    axes.set(xlabel="rows read for one decision", ylabel="share of decisions", title="Rows per decision")
    axes.legend(**BELOW | {"bbox_to_anchor": (0.5, -0.18)})
    return axes
