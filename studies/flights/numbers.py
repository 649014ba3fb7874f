"""The numbers of the pictures, from the variables of the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

HOURS = np.arange(5, 24)
DATES = {"July": (7, 10), "September": (9, 18)}
"""Two Wednesdays."""
_NEWTON = 40
_DIGITS = 5


def about_flights(frame: Any) -> dict[str, Any]:
    """How many flights there are, and how few some groups have."""
    routes, rare = frame["route"].value_counts(), frame.loc[frame["carrier"] == "OO", "route"].value_counts()
    return {
        "rows": len(frame),
        "late": float(frame["late"].mean()),
        "carriers": int(frame["carrier"].nunique()),
        "routes": len(routes),
        "small": int((routes < 20).sum()),
        "rare": int(rare.sum()),
        "rare_on": str(rare.index[0]),
        "rare_on_one": int(rare.iloc[0]),
    }


def coefficients(model: Any, trace: Any) -> dict[str, list[float]]:
    """Mean and interval of each coefficient, by name."""
    position = trace.position
    draws = position["coefficients"] if isinstance(position, dict) else position
    return {name: _interval(draws[..., at]) for at, name in enumerate(model.names)}


def spreads(model: Any, trace: Any) -> dict[str, list[float]]:
    """Mean and interval of the standard deviation of the effects, by factor."""
    return {term.name: _interval(np.exp(trace.position[term.log_sd])) for term in model.layout.terms}


def expected_by_hour(features: Callable[[Any], Any], model: Any, trace: Any) -> dict[str, dict[str, list[float]]]:
    """What is expected of flights over 1000 miles, by hour, on two days."""
    from pandas import DataFrame

    found = {}
    for name, (month, day) in DATES.items():
        new = DataFrame({"year": 2013, "month": month, "day": day, "hour": HOURS, "minute": 0, "distance": 1000})
        expected = model.predict(trace, x=features(new))
        found[name] = {
            "mean": _few(expected.mean),
            "low": _few(expected.interval.lower),
            "high": _few(expected.interval.upper),
        }
    return found


def routes(model: Any, trace: Any) -> dict[str, list[Any]]:
    """For each route: its flights, the log-odds of its share, what its rows alone would give, and its effect."""
    at: dict[str, Any] = {name: np.mean(draws, (0, 1), dtype=np.float64) for name, draws in trace.position.items()}
    late, (carrier, route) = model.data["y"], model.data["groups"].T
    offset = model.data["x"] @ at["coefficients"] + at["carrier"][carrier]
    size = len(at["route"])
    count, hits = np.bincount(route, minlength=size), np.bincount(route, late, size)
    effects = [_interval(trace.position["route"][..., k]) for k in range(size)]
    mean, low, high = np.array(effects).T
    raw = np.log((hits + 0.5) / (count - hits + 0.5)) - np.log(late.sum() / (len(late) - late.sum()))
    return {
        "name": model.levels["route"].tolist(),
        "rows": count.tolist(),
        "late": hits.astype(int).tolist(),
        "raw": _few(raw),
        "alone": _few(_alone(offset, late, route, size)),
        **{"mean": mean.tolist(), "low": low.tolist(), "high": high.tolist()},
    }


def _alone(offset: np.ndarray, late: np.ndarray, group: np.ndarray, size: int) -> np.ndarray:
    """The best effects given the other parameters, without a prior; far off where there is none."""
    effects = np.zeros(size)
    for _ in range(_NEWTON):
        chance = 1 / (1 + np.exp(-offset - effects[group]))
        slope = np.bincount(group, late - chance, size)
        curve = np.bincount(group, chance * (1 - chance), size)
        effects = np.clip(effects + np.clip(slope / np.maximum(curve, 1e-12), -1, 1), -20, 20)
    return effects


def checks(names: dict[str, Any]) -> dict[str, dict[str, list[Any]]]:
    """Observed shares and intervals of drawn ones by hour, carrier and day, with the page's own function."""
    found = {}
    for factor in ("hour", "carrier", "day"):
        shares = names["check"](names["drawn"], factor)
        found[factor] = {
            "name": shares.index.tolist(),
            "rows": names["frame"][factor].value_counts().loc[shares.index].tolist(),
            "observed": _few(shares["observed"]),
            "low": _few(shares[0.05]),
            "high": _few(shares[0.95]),
        }
    return found


def _interval(draws: Any) -> list[float]:
    values = np.asarray(draws, np.float64).ravel()
    return _few([values.mean(), *np.quantile(values, [0.05, 0.95])])


def _few(values: Any) -> list[float]:
    return np.asarray(values, np.float64).round(_DIGITS).tolist()
