"""Correction tables: which ship, and their errors by an independent route."""

from __future__ import annotations

import numpy as np
from scipy import stats

from tallchain.acceptance.correction import (
    Correction,
    minimax,
    ridge,
)

SIGMAS = [sigma / 10 for sigma in range(5, 17)]
SHIPPED = [*((minimax, (sigma,)) for sigma in SIGMAS), (ridge, (1.0,)), (ridge, (0.9, 2000, 10.0))]


def tail_by_sum(table: Correction, x: np.ndarray) -> np.ndarray:
    """P(X_norm + X_corr > x), term by term with scipy.stats."""
    terms = zip(table.atoms, table.weights, strict=True)
    return sum((weight * stats.norm.sf(x, loc=atom, scale=table.sigma) for atom, weight in terms), np.zeros_like(x))


def log_odds_error(tail: np.ndarray, x: np.ndarray) -> float:
    """The worst |logit P(accept | Delta = -x) + x|."""
    return float(np.abs(np.log(tail / (1 - tail)) + x).max())


def assert_same(one: Correction, other: Correction) -> None:
    for name in ("sigma", "cdf_error", "log_odds_error", "reach", "method"):
        assert getattr(one, name) == getattr(other, name)
    assert np.array_equal(one.atoms, other.atoms)
    assert np.array_equal(one.weights, other.weights)
