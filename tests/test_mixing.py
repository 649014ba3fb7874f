"""Effective draws of a round by its lags: on chains whose autocorrelation is known."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import SEED
from tallchain.mixing import Moves


def autoregression(rho: float, chains: int = 200, draws: int = 60, d: int = 3) -> np.ndarray:
    """Stationary normal chains of variance 4 with autocorrelation rho^lag."""
    rng, found = np.random.default_rng(SEED), []
    x = rng.normal(size=(chains, d))
    for _ in range(draws):
        x = rho * x + (1 - rho**2) ** 0.5 * rng.normal(size=x.shape)
        found.append(2 * x)
    return np.stack(found, 1)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 0.98])
def test_chains_of_known_autocorrelation(rho: float) -> None:
    """The worst of six coordinates and squares, so a little less than of one."""
    moves = Moves.of(autoregression(rho))
    assert moves is not None
    found, error = moves.log_effective(np.full(6, 4.0) ** np.array([1, 1, 1, 2, 2, 2]) * np.array([1, 1, 1, 2, 2, 2]))
    assert found == pytest.approx(np.log((1 - rho) / (1 + rho)), abs=5 * error + 0.1)
    assert 0 < error < 0.2


def test_the_slowest_coordinate_counts_and_what_is_slow_at_long_lags() -> None:
    fast, slow = autoregression(0.0), autoregression(0.95)
    both = Moves.of(np.concatenate([fast, slow], 2))
    summed = Moves.of(3 * fast + slow)  # lag 1 alone would say that it mixes
    assert both is not None
    assert summed is not None
    assert both.log_effective(both.variance)[0] == pytest.approx(np.log(0.05 / 1.95), abs=0.3)
    assert np.exp(summed.log_effective(summed.variance)[0]) < 0.85


def test_half_turns_do_not_count_as_mixing() -> None:
    """Chains that jump from x to -x: their means are perfect, their squares never change."""
    x = np.random.default_rng(SEED).normal(size=(100, 1, 2)) * (-1.0) ** np.arange(40)[:, None]
    moves = Moves.of(x)
    assert moves is not None
    assert moves.log_effective(moves.variance)[0] < np.log(1e-6)
    assert moves.turn(1.0, moves.variance) == pytest.approx(np.pi, abs=0.15)


@pytest.mark.parametrize("angle", [0.2, 1.0, 2.0])
def test_the_angle_of_a_turn(angle: float) -> None:
    """Rotations of (x, p) with a new p every time, of which seven tenths are accepted."""
    rng, found = np.random.default_rng(SEED), []
    x = rng.normal(size=(500, 4))
    for _ in range(50):
        turned = x * np.cos(angle) + rng.normal(size=x.shape) * np.sin(angle)
        x = np.where(rng.random((500, 1)) < 0.7, turned, x)
        found.append(x)
    moves = Moves.of(np.stack(found, 1))
    assert moves is not None
    assert moves.turn(0.7, moves.variance) == pytest.approx(angle, abs=0.05)


@pytest.mark.parametrize("shape", [(7, 100, 2), (100, 3, 2)])
def test_few_chains_or_draws_say_nothing(shape: tuple[int, int, int]) -> None:
    assert Moves.of(np.random.default_rng(0).normal(size=shape)) is None


def test_chains_that_do_not_move() -> None:
    moves = Moves.of(np.zeros((20, 10, 2)))
    assert moves is not None
    assert moves.log_effective(moves.variance)[0] == -np.inf
    assert moves.turn(0.5, moves.variance) == 0
