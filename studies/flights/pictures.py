"""Coefficients, expected shares, effects of routes, and checks against the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from studies.flights.numbers import HOURS
from tallchain.plots.style import BLACK, BLUE, GREEN, GREY, VERMILION, panels, shared_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
COLOURS = {"no groups": GREY, "carrier, route": BLUE, "carrier, route, hour, day": VERMILION}
NAMED = {"LGA-PHL": (7, 0), "EWR-CAE": (7, 0), "LGA-FLL": (-40, 6)}
"""Routes whose names are shown, and where."""
_EDGE = 1.6  # of the log-odds of routes that are shown
_LENGTHS = np.cumsum([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def flights_figure(found: dict[str, Any]) -> Figure:
    """Coefficients of the model without groups, and the chance to be late by hour."""
    figure, [[left, right]] = panels((10, 4.6), 1, 2, grid=True, width_ratios=[1, 1.15])
    _forest(left, found["coefficients"], ("no groups",), BLACK)
    for (name, of), colour in zip(found["hours"].items(), (VERMILION, BLUE), strict=True):
        right.fill_between(HOURS, of["low"], of["high"], color=colour, alpha=0.3, lw=0)
        right.plot(HOURS, of["mean"], color=colour, label=name)
    right.set(xlabel="scheduled hour of departure", ylabel="chance to arrive more than 15 minutes late", ylim=(0, None))
    right.set_xticks(range(6, 24, 3))
    right.legend(frameon=False, loc="upper left")
    return figure


def models_figure(found: dict[str, Any]) -> Figure:
    """Coefficients of the three models."""
    figure, [[axes]] = panels((8, 6.2), grid=True)
    _forest(axes, found["coefficients"], tuple(COLOURS))
    shared_legend(figure, axes, 3)
    return figure


def _forest(axes: Any, coefficients: dict[str, Any], models: tuple[str, ...], colour: str | None = None) -> None:
    """Intervals of all coefficients but the intercept, one line each."""
    names = [name for name in coefficients[models[0]] if name != "(intercept)"]
    lines = np.arange(len(names))
    axes.axvline(0, color=GREY, lw=0.8)
    for at, model in enumerate(models):
        mean, low, high = np.array([coefficients[model].get(name, [np.nan] * 3) for name in names]).T
        shift = 0.22 * (at - (len(models) - 1) / 2)
        bars = {"xerr": [mean - low, high - mean], "fmt": "o", "ms": 3.5, "lw": 1.6}
        axes.errorbar(mean, lines + shift, **bars, color=colour or COLOURS[model], label=model)
    axes.set_yticks(lines, [_label(name) for name in names])
    axes.set(xlabel="coefficient and 90 % interval (log-odds)", ylim=(len(names) - 0.4, -0.6))


def _label(name: str) -> str:
    if name.startswith("month_"):
        return f"{MONTHS[int(name.removeprefix('month_')) - 1]} - Jan"
    return name


def routes_figure(found: dict[str, Any]) -> Figure:
    """Effects of routes, against raw log-odds and against what their rows alone would give."""
    of = {name: np.array(values) for name, values in found["routes"].items()}
    figure, [axes] = panels((10, 4.9), 1, 2, grid=True, sharey=True)
    sizes = 4 + of["rows"] / 60
    has_both = (of["late"] > 0) & (of["late"] < of["rows"])
    for each, x, says in (
        (axes[0], of["raw"], "log-odds of its share of late flights,\nminus those of all flights"),
        (axes[1], of["alone"], "the best effect for its own flights,\ngiven the other parameters"),
    ):
        is_in = (np.abs(x) < _EDGE) & (has_both | (each is axes[0]))
        shown = np.where(is_in, x, np.copysign(_EDGE, x))
        each.plot([-1, 1], [-1, 1], color=GREY, lw=0.8, zorder=0)
        each.axhline(0, color=GREY, lw=0.8, zorder=0)
        bars = [of["mean"] - of["low"], of["high"] - of["mean"]]
        each.errorbar(shown, of["mean"], bars, fmt="none", ecolor=BLUE, elinewidth=0.6, alpha=0.35, zorder=1)
        each.scatter(shown[is_in], of["mean"][is_in], sizes[is_in], color=BLUE, alpha=0.75, lw=0, zorder=2)
        for sign, marker in ((1, ">"), (-1, "<")):
            out = ~is_in & (shown * sign > 0)
            each.scatter(shown[out], of["mean"][out], 22, color=VERMILION, marker=marker, lw=0, zorder=3)
        each.set(xlabel=says, xlim=(-_EDGE - 0.1, _EDGE + 0.1), ylim=(-0.95, 0.95))
    for name, shift in NAMED.items():
        at = list(of["name"]).index(name)
        place = {"textcoords": "offset points", "va": "center", "fontsize": 8}
        axes[1].annotate(name, (of["alone"][at], of["mean"][at]), shift, **place)
    axes[0].set_ylabel("effect of the route, posterior mean\nand 90 % interval (log-odds)")
    for rows in (10, 1000, 10_000):
        axes[0].scatter([], [], 4 + rows / 60, color=BLUE, alpha=0.75, lw=0, label=f"{rows:,} flights")
    axes[0].plot([], [], color=GREY, lw=0.8, label="equal")
    axes[0].scatter([], [], 22, color=VERMILION, marker=">", lw=0, label="beyond the edge")
    shared_legend(figure, axes, 5, fontsize=9)
    return figure


def check_figure(found: dict[str, Any]) -> Figure:
    """Observed shares of late flights, and intervals of those drawn from the posterior."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.4), dpi=130, layout="constrained")
    places = figure.subplot_mosaic([["hour", "carrier"], ["day", "day"]])
    for name, axes in places.items():
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        _check(axes, name, {key: np.array(values) for key, values in found["checks"][name].items()})
    places["hour"].set(xlabel="scheduled hour of departure", ylabel="share of late flights", ylim=(0, None))
    places["hour"].set_xticks(range(6, 24, 3))
    places["carrier"].set(xlabel="carrier, from most to fewest flights", ylim=(0, None))
    places["day"].set(xlabel="day of 2013", ylabel="share of late flights", ylim=(0, None))
    places["day"].set_xticks(_LENGTHS[:-1] + 15, MONTHS, minor=False)
    places["day"].set_xlim(-2, 366)
    shared_legend(figure, [places["hour"], places["day"]], 3, fontsize=9)
    return figure


def _check(axes: Any, name: str, of: dict[str, np.ndarray]) -> None:
    """Intervals as bars, observed shares as points: in another colour where they are outside."""
    order = np.argsort(-of["rows"]) if name == "carrier" else np.arange(len(of["rows"]))
    low, high, observed = (of[key][order] for key in ("low", "high", "observed"))
    at = of["name"][order].astype(float) if name == "hour" else np.arange(len(order))
    is_in, size = (low <= observed) & (observed <= high), 5 if name == "day" else 20
    axes.vlines(at, low, high, color=GREEN, lw=1.1 if name == "day" else 6, alpha=0.45, label="90 % of draws")
    axes.scatter(at[is_in], observed[is_in], size, color=BLACK, zorder=3, label="observed, in the interval")
    axes.scatter(at[~is_in], observed[~is_in], size, color=VERMILION, zorder=3, label="observed, outside")
    axes.set_title(f"{name}: {is_in.sum()} of {len(at)} in the interval", fontsize=10)
    if name == "carrier":
        axes.set_xticks(at, of["name"][order])
