"""A small regression with groups, and draws that look like those of its posterior."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallchain.checking import Trace
from tallchain.models import Regression, families

CARRIERS = ("AA", "B6", "DL", "EV", "UA")
EFFECTS = np.array([0.6, -0.4, 0.1, -0.1, -0.2])
COLUMNS = ("distance", "a name of a column that is much longer than any name should be", "hour")


def trace_of(
    position: Any, names: dict[str, tuple[str, ...]] | None = None, rows_read: Any = 40, num_rows: int = 5000
) -> Trace:
    """Make a trace of draws (chain, draw, ...)."""
    first = next(iter(position.values())) if isinstance(position, dict) else position
    shape = np.shape(first)[:2]
    return Trace(
        position=position,
        is_accepted=np.ones(shape, bool),
        rows_read=np.broadcast_to(np.asarray(rows_read, np.int32), shape).copy(),
        rows_scanned=np.zeros(shape, np.int32),
        log_ratio=np.zeros(shape, np.float32),
        is_invalid=np.zeros(shape, bool),
        num_rows=num_rows,
        names=names or {},
    )


def grouped_trace(chains: int = 4, draws: int = 200) -> Trace:
    """Draws of a regression on three columns and five carriers."""
    random = np.random.default_rng(0)
    around = lambda mean, sd: np.asarray(mean) + sd * random.normal(size=(chains, draws, *np.shape(mean)))  # noqa: E731
    position = {
        "coefficients": around([-1.5, 0.4, -0.1, 0.02], 0.05),
        "carrier": around(EFFECTS, 0.08),
        "log_sd(carrier)": around(-0.9, 0.2),
    }
    return trace_of(position, {"coefficients": ("(intercept)", *COLUMNS), "carrier": CARRIERS})


def grouped_model(num_rows: int = 600) -> Regression:
    """The regression, with rows."""
    random = np.random.default_rng(1)
    x = random.normal(size=(num_rows, 3)).astype(np.float32)
    carrier = random.choice(5, num_rows, p=[0.02, 0.3, 0.3, 0.3, 0.08])
    z = -1.5 + x @ np.array([0.4, -0.1, 0.02]) + EFFECTS[carrier]
    y = random.random(num_rows) < 1 / (1 + np.exp(-z))
    return Regression(families.Bernoulli(), y=y, x=x, groups={"carrier": np.array(CARRIERS)[carrier]})
