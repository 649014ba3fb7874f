"""Coefficients, and effects of the levels of a factor, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.checking import Trace
from tallchain.models.alone import own_estimates
from tallchain.models.layout import COEFFICIENTS
from tallchain.models.regression import Regression
from tallchain.plots.draws import Line, coordinates_of, is_intercept, line, picked
from tallchain.plots.style import BELOW, BLACK, BLUE, GREY, ORANGE, elided, own_axes
from tallchain.validation import brief, is_positive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES = 40
"""Coefficients or levels that a picture shows."""
_LINE, _MARGIN, _LEAST = 0.26, 1.1, 2.2  # inches


def coefficients(
    trace: Trace,
    names: Sequence[str] | str | None = None,
    interval: float = 0.9,
    axes: Axes | None = None,
    *,
    intercept: bool = True,
) -> Axes:
    """Draw the mean and the interval of each coefficient, in their order, and the intercept last.

    Args:
        trace: of a regression, or any other: then of all its coordinates.
        names: which to show, as the summary or the columns of the frame name them; None shows the coefficients, and of
            more than 40 the largest: those whose mean is furthest from 0.
        interval: probability between the ends of the intervals.
        axes: where to draw; None makes a figure.
        intercept: whether to show the intercept, which is often much larger than the others.
    """
    call = "coefficients"
    _check_interval(call, interval)
    only = COEFFICIENTS if names is None and COEFFICIENTS in trace.variables() else names
    found = picked(call, trace, only)
    shown = [name for name in found if not is_intercept(name)]
    chosen = _largest([float(np.mean(found[name])) for name in shown])
    lines = [line(shown[at], found[shown[at]], interval) for at in chosen]
    lines += [line(name, draws, interval) for name, draws in found.items() if intercept and is_intercept(name)]
    if not lines:
        raise ValueError(f"`{call}(names=...)`: there is no coefficient to show; got {brief(names)}.")
    axes = own_axes(axes, _size(len(lines)))
    _draw(axes, lines, BLUE, 0.0, f"mean and {100 * interval:g} % interval")
    if len(chosen) < len(shown):
        axes.set_title(f"The {len(chosen)} largest of {len(shown):,} coefficients", fontsize="medium")
    axes.set_xlabel(f"coefficient: mean and {100 * interval:g} % interval")
    return axes


def group_effects(
    trace: Trace, term: str, model: Regression | None = None, *, interval: float = 0.9, axes: Axes | None = None
) -> Axes:
    """Draw the effects of the levels of a factor in order, with their intervals.

    Args:
        trace: of a regression with groups.
        term: name of the effects, such as "carrier", or "carrier:distance" for slopes.
        model: the regression: then what the rows of each level alone would give is beside its effect. The distance
            between the two is the shrinkage: effects of few rows are drawn towards 0. It takes a pass over all rows.
        interval: probability between the ends of the intervals.
        axes: where to draw; None makes a figure.
    """
    call = "group_effects"
    _check_interval(call, interval)
    if term not in trace.variables() or f"log_sd({term})" not in trace.variables():
        there = [name for name in trace.variables() if f"log_sd({name})" in trace.variables()]
        has = f"it has {', '.join(map(repr, there))}" if there else "it has no groups"
        raise ValueError(f"`{call}(term={term!r})`: the trace has no such effects; {has}.")
    found = coordinates_of(trace, term)
    means = [float(np.mean(draws)) for draws in found.values()]
    chosen = sorted(_largest(means), key=lambda at: -means[at])
    names = list(found)
    lines = [line(names[at], found[names[at]], interval)._replace(name=_level(names[at], term)) for at in chosen]
    axes = own_axes(axes, _size(len(lines)))
    if model is not None:
        own = own_estimates(model, trace, term)[chosen]
        _draw_own(axes, own, lines)
    _draw(axes, lines, BLUE, 0.0, f"effect: mean and {100 * interval:g} % interval")
    many = f"the {len(chosen)} largest of {len(found):,}" if len(chosen) < len(found) else f"{len(found):,} levels"
    axes.set_title(f"{elided(term, 40)}: {many}", fontsize="medium")
    axes.set_xlabel("effect")
    if model is not None:
        axes.legend(**BELOW | {"ncols": 1, "bbox_to_anchor": (0.5, -0.75 / _size(len(lines))[1])})
    return axes


def _check_interval(call: str, interval: float) -> None:
    if not (is_positive(interval) and interval < 1):
        raise ValueError(f"`{call}(interval=...)` must be a probability, between 0 and 1; got {brief(interval)}.")


def _size(lines: int) -> tuple[float, float]:
    return 5.2, max(_LEAST, _MARGIN + _LINE * lines)


def _largest(means: list[float]) -> list[int]:
    """Numbers of the largest, in their order."""
    order = np.argsort(-np.abs(means), kind="stable")[:MOST_LINES]
    return sorted(int(at) for at in order)


def _level(name: str, term: str) -> str:
    return name[len(term) + 1 : -1]


def _draw(axes: Axes, lines: list[Line], colour: str, shift: float, label: str) -> None:
    """Draw intervals from the top down, and a line at 0."""
    places = np.arange(len(lines)) + shift
    mean = np.array([each.mean for each in lines])
    reach = np.array([[each.mean - each.low, each.high - each.mean] for each in lines]).T
    axes.axvline(0, color=GREY, lw=1, zorder=0)
    axes.errorbar(mean, places, xerr=np.maximum(reach, 0), fmt="o", ms=4, lw=1.8, color=colour, label=label, zorder=3)
    axes.set_yticks(range(len(lines)), [elided(each.name) for each in lines])
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=6)


def _draw_own(axes: Axes, own: np.ndarray, lines: list[Line]) -> None:
    """Draw what each level alone would give; those beyond twice the range of the effects at the edge."""
    least = min(0.0, *(each.low for each in lines))
    most = max(0.0, *(each.high for each in lines))
    room = 0.5 * (most - least)
    is_in = (own >= least - room) & (own <= most + room)
    places = np.arange(len(lines))
    axes.hlines(places[is_in], own[is_in], [lines[at].mean for at in np.flatnonzero(is_in)], color=ORANGE, lw=1)
    style: dict[str, Any] = {"facecolor": "white", "edgecolor": ORANGE, "linewidths": 1.4, "zorder": 2}
    axes.scatter(own[is_in], places[is_in], 26, label="from its own rows alone", **style)
    for sign, marker, edge in ((1, ">", most + room), (-1, "<", least - room)):
        is_out = ~is_in & (own * sign > 0)
        if is_out.any():
            axes.scatter(np.full(is_out.sum(), edge), places[is_out], 26, color=ORANGE, marker=marker, zorder=2)
    if (~is_in & np.isfinite(own)).any():
        axes.scatter([], [], 26, color=BLACK, marker="", label="(an arrow: beyond the edge)")
