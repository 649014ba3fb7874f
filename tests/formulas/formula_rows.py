"""Rows for tests of formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tallchain.formulas import Built, build
from tallchain.tables import open_table

SIZE = 500


def rows(seed: int = 0, size: int = SIZE) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": random.normal(size=size),
            "late": random.random(size) < 0.4,
            "x1": random.normal(size=size),
            "x2": random.normal(size=size),
            "hour": random.integers(0, 4, size),
            "z": random.normal(size=size),
            "w": random.gamma(2, size=size),
            "e": random.normal(size=size),
            "carrier": random.choice(["UA", "AA", "EV"], size),
            "airport": random.choice(["JFK", "LGA"], size),
            "a b": random.normal(size=size),
            "answer": random.choice(["no", "yes"], size),
            "grade": pd.Categorical(random.choice(["low", "mid", "high"], size), ["low", "mid", "high"]),
            "hits": random.integers(0, 5, size),
            "tries": random.integers(5, 9, size),
            "day": pd.to_datetime("2020-01-01") + pd.to_timedelta(random.integers(0, 3, size), "D"),
        }
    )


def built(formula: str, frame: Any = None, family: Any = "gaussian", **settings: Any) -> Built:
    return build(formula, open_table(rows() if frame is None else frame), family, **settings)
