"""Growth shifts Delta* where rows are skewed, and fresh rows do not."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import SEED
from studies.pairs import DELTAS, kernel_of, measure
from tallchain.acceptance import MinibatchBarker

_TRIALS = 6_000


@pytest.fixture(scope="module")
def exponential() -> np.ndarray:
    rows = np.random.default_rng(SEED).standard_exponential(200_000)
    return (rows - rows.mean()) / rows.std()


def test_growth_shifts_the_estimate_and_fresh_rows_do_not(exponential: np.ndarray) -> None:
    """E Delta* - Delta is about -gamma sqrt(s2/b) with growth: the negative control of the rules that have none."""
    gamma = float(np.mean(exponential**3))
    grown = measure(kernel_of(exponential, 150.0, MinibatchBarker(stopping="growth")), _TRIALS)
    predicted = -gamma * grown["mean_root_inverse_b"]
    assert grown["shift"] < -10 * grown["shift_error"]
    assert 0.6 < grown["shift"] / predicted < 1.1  # coarse steps make it smaller
    fresh = measure(kernel_of(exponential, 150.0, MinibatchBarker()), _TRIALS)
    assert abs(fresh["shift"]) < 4.5 * fresh["shift_error"]
    # the log-odds at Delta = -1, 0 and 1: a pilot of 50 rows of skewness 2 leaves an error of order 1/b
    at = [DELTAS.index(delta) for delta in (-1.0, 0.0, 1.0)]
    assert np.all(
        np.abs(np.asarray(fresh["log_odds_error"])[at]) < 0.02 + 4.5 * np.asarray(fresh["standard_error"])[at]
    )
    assert np.all(np.asarray(grown["log_odds_error"])[at] < -0.06)
