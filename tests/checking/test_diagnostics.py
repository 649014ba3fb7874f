"""ESS, R-hat and Monte Carlo errors against ArviZ."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from conftest import SEED
from tallchain.checking.diagnostics import diagnostics

arviz = pytest.importorskip("arviz_stats")


def autoregressive(chains: int, draws: int, r: float) -> np.ndarray:
    random = np.random.default_rng(SEED)
    x = random.normal(size=(chains, draws, 3))
    for t in range(1, draws):
        x[:, t] = r * x[:, t - 1] + np.sqrt(1 - r**2) * x[:, t]
    return x * [1.0, 1e-3, 1e6] + [0.0, 5.0, -1e7]


def of_arviz(draws: np.ndarray) -> list[np.ndarray]:
    stats, axes = arviz.base.array_stats, {"chain_axis": 0, "draw_axis": 1}
    with warnings.catch_warnings():  # of a coordinate that never moved
        warnings.simplefilter("ignore", RuntimeWarning)
        return [
            stats.mcse(draws, method="mean", **axes),
            stats.mcse(draws, method="sd", **axes),
            stats.ess(draws, method="bulk", **axes),
            stats.ess(draws, method="tail", prob=(0.05, 0.95), **axes),
            stats.rhat(draws, **axes),
        ]


@pytest.mark.parametrize("r", [-0.5, 0.0, 0.3, 0.9, 0.99])
@pytest.mark.parametrize(("chains", "draws"), [(2, 5), (4, 4), (2, 9), (4, 100), (8, 501), (64, 40)])
def test_they_are_those_of_arviz(chains: int, draws: int, r: float) -> None:
    x = autoregressive(chains, draws, r)
    for ours, theirs in zip(diagnostics(x), of_arviz(x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_draws_that_repeat_share_their_rank() -> None:
    random = np.random.default_rng(SEED)
    x = np.repeat(random.normal(size=(4, 50, 2)), 4, axis=1)
    for ours, theirs in zip(diagnostics(x), of_arviz(x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_chains_that_differ_or_never_move() -> None:
    x = autoregressive(4, 200, 0.0)
    x[0, :, 0] += 10
    x[..., 1] = 3.0
    ours, theirs = diagnostics(x), of_arviz(x)
    assert ours.r_hat[0] > 1.5
    assert np.isnan(ours.r_hat[1])
    np.testing.assert_allclose(ours.r_hat, theirs[-1], rtol=1e-6)
    np.testing.assert_allclose(ours.ess_bulk, theirs[2], rtol=1e-6)
