"""The paper's own least squares for the correction, against its printed table and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from conftest import SEED
from tallchain.acceptance.correction import (
    Correction,
    minimax,
    ridge,
    ridge_printed_error,
)
from tallchain.experiments import correction as experiment

pytestmark = pytest.mark.usefixtures("table_cache")


def direct_solution(sigma: float, n: int, value: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The paper's M, v and clipped u with the matrices written out."""
    X, Y = np.arange(-2 * n, 2 * n + 1) * 20 / n, np.arange(-n, n + 1) * 20 / n
    M, v = stats.norm.cdf((X[:, None] - Y) / sigma), stats.logistic.cdf(X)
    u = np.linalg.solve(M.T @ M + value * np.eye(2 * n + 1), M.T @ v)
    return M, v, np.maximum(u, 0)


@pytest.mark.parametrize(("sigma", "n", "value"), [(1.0, 150, 10.0), (0.6, 100, 0.1), (1.6, 37, 1.0), (0.9, 10, 100.0)])
def test_ridge_against_the_matrices_written_out(sigma: float, n: int, value: float) -> None:
    M, v, u = direct_solution(sigma, n, value)
    assert ridge_printed_error(sigma, n, [value]) == pytest.approx(np.abs(M @ u - v).max(), rel=1e-7)
    table = ridge(sigma, n, value)
    assert table.atoms == pytest.approx(np.arange(-n, n + 1) * 20 / n, abs=1e-13)
    assert table.weights == pytest.approx((u + u[::-1]) / (2 * u.sum()), abs=1e-8)


@pytest.mark.parametrize("sigma", [1.0, *(pytest.param(sigma, marks=pytest.mark.slow) for sigma in (0.8, 0.9, 1.1))])
def test_appendix_small_grid(sigma: float) -> None:
    for entry in experiment._entries(2000, sigma, experiment.RIDGES):
        assert entry.is_within, entry


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.8, 0.9, 1.0, 1.1])
def test_appendix_large_grid(sigma: float) -> None:
    for entry in experiment._entries(4000, sigma, experiment.RIDGES):
        assert entry.is_within != entry.is_known_to_differ, entry


@pytest.mark.parametrize("table", [minimax(1.0), minimax(1.2), minimax(0.5)], ids=["1.0", "1.2", "0.5"])
def test_simulated_sum_is_logistic_and_is_not_without_the_correction(table: Correction) -> None:
    rng = np.random.default_rng(SEED)
    normal = table.sigma * rng.standard_normal(100_000)
    total = normal + rng.choice(table.atoms, normal.size, p=table.weights)
    assert stats.kstest(total, stats.logistic.cdf).pvalue > 1e-4
    assert stats.kstest(normal, stats.logistic.cdf).pvalue < 1e-12
