"""docs/time-to-answer.png: how long a person waits, by method and table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallchain.plots.style import BLUE, GREY, VERMILION, panels, shared_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {"cold": "o", "cached": "D", "again": "s"}
LABELS = {"cold": "nothing cached", "cached": "second process", "again": "second call"}


def figure(tables: list[dict[str, Any]]) -> Figure:
    """Draw seconds, one panel a table and one line a method; a posterior's colour differs from a point's."""
    drawn, axes = panels(
        (3.2 * len(tables) + 1.8, 3.4), columns=len(tables), dpi=120, grid=True, sharex=True, sharey=True
    )
    methods = list(dict.fromkeys(name for table in tables for name in table["methods"]))[::-1]
    for panel, table in zip(axes[0], tables, strict=True):
        for place, method in enumerate(methods):
            seconds = table["methods"].get(method, {}).get("seconds", {})
            color = BLUE if method == "tallchain" else VERMILION if "again" not in seconds else GREY
            for kind, marker in KINDS.items():
                if kind in seconds:
                    panel.plot(
                        seconds[kind], place, marker, color=color, ms=6, mfc=color if kind == "cold" else "white"
                    )
        panel.set(xscale="log", xlabel="seconds", ylim=(-0.6, len(methods) - 0.4))
        panel.set_title(f"{table['target']}, N = {table['rows']:,}", fontsize=9)
    axes[0][0].set_yticks(range(len(methods)), methods, fontsize=8)
    for kind, marker in KINDS.items():
        axes[0][0].plot(
            [], [], marker, color="black", ms=6, mfc="black" if kind == "cold" else "white", label=LABELS[kind]
        )
    shared_legend(drawn, axes, fontsize=8)
    return drawn
