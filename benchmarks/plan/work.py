"""The work that is measured and planned: a logistic regression on a packed table, and how it is run."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tallchain as tc
from tallchain.checking.convergence import convergence_of

FEATURES, CHAINS = 20, 32
"""Columns of the table beside the outcome; chains in each part."""
COLUMNS = {"x": "x", "y": "y"}


def pack(folder: Path, num_rows: int) -> float:
    """Write a table; return the seconds that packing it took."""
    random = np.random.default_rng(3)
    x = random.standard_normal((num_rows, FEATURES), np.float32)
    beta = random.normal(0, 0.3, FEATURES)
    y = (random.random(num_rows) < 1 / (1 + np.exp(-x @ beta))).astype(np.float32)
    began = time.perf_counter()
    tc.pack({"x": x, "y": y}, folder, progress=False)
    return time.perf_counter() - began


@cache
def posterior() -> tc.Posterior:
    """With a normal prior; one object, so that programs are compiled once."""

    def log_likelihood(beta: Any, row: Any) -> Any:
        z = row["x"] @ beta
        return row["y"] * z - jax.nn.softplus(z)

    return tc.Posterior(lambda beta: -0.5 * (beta @ beta) / 2.5**2, log_likelihood)


def prepare(source: Any) -> tc.Prepared:
    """Find the mode, expand there, score the rows."""
    return tc.prepare(posterior(), source, np.zeros(FEATURES, np.float32), progress=False)


def sample(prepared: tc.Prepared, source: Any, draws: int, scan: int = 0, **options: Any) -> tc.Trace:
    """Make whole tours of at least so many draws of each chain."""
    chains = CHAINS * source.num_parts
    starts = prepared.starts(jax.random.key(0), chains)
    options = {"num_chains": chains, "scan": scan, "progress": False} | options
    return tc.sample(jax.random.key(1), prepared.kernel(), starts, draws, **options)


def effective(trace: tc.Trace) -> float:
    """Return how many effective draws of the worst coefficient a draw is worth."""
    draws = np.asarray(trace.position)
    return float(np.min(convergence_of([draws]).ess)) / (draws.shape[0] * draws.shape[1])
