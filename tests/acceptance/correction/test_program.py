"""The linear program behind the correction: solutions, laws that are not normal, small sigma."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from conftest import SEED
from tables import assert_same, log_odds_error, tail_by_sum
from tallchain.acceptance import correction
from tallchain.acceptance.correction import (
    Law,
    minimax,
    minimax_for,
    program,
)
from tallchain.acceptance.tables import KAPPA3, NU, PRINTED, shipped_laws

pytestmark = pytest.mark.usefixtures("table_cache")


def test_solver_agrees_with_what_ships() -> None:
    fresh, shipped = program.compute_minimax(1.1, 20.0), minimax(1.1)
    assert fresh.log_odds_error == pytest.approx(shipped.log_odds_error, rel=0.02)


@pytest.mark.parametrize(
    ("sigma", "error"),
    [(0.9, 8.6e-9), (1.0, 6.6e-7), (1.1, 1.7e-5), (1.2, 1.93e-4), (1.3, 1.3e-3), (1.4, 5.4e-3), (1.5, 1.7e-2)],
)
def test_minimax_is_the_best_approximation(sigma: float, error: float) -> None:
    """It reaches the known optimum, and its error equioscillates, as a best approximation's does.

    Atoms on neighbouring places of the grid stand for one between them; each such atom is a weight and a place.
    """
    table = minimax(sigma, 10.0)
    assert table.log_odds_error <= 1.01 * error
    x = np.arange(0.0, 10.0, 0.01)
    tail = tail_by_sum(table, x)
    relative = (np.log(tail / (1 - tail)) + x) / table.log_odds_error
    signs = np.sign(relative[np.abs(relative) > 0.9])
    alternations = np.count_nonzero(np.diff(signs))
    half = table.atoms[table.atoms >= 0]
    places = 1 + np.count_nonzero(np.diff(half) > 0.07)
    assert alternations >= places


@pytest.mark.parametrize("sigma", [0.45, 0.3, 0.1, 0.02])
def test_small_sigma(sigma: float) -> None:
    """Below 0.5 the table is made from that of 0.8, with the same law of the sum."""
    table = minimax(sigma)
    assert table.log_odds_error < 2e-9
    x = np.random.default_rng(SEED).uniform(0, 20, 500)
    tail = stats.norm.sf((x[:, None] - table.atoms) / sigma) @ table.weights
    assert log_odds_error(tail, x) <= table.log_odds_error * (1 + 1e-3)


def test_tiny_sigma_is_a_staircase_and_says_so() -> None:
    table = minimax(1e-7)
    step = table.atoms[1] - table.atoms[0]
    beyond = np.append(np.cumsum(table.weights[::-1])[::-1], 0.0)
    x = table.atoms[(table.atoms > 0) & (table.atoms < 20)] + step / 1000
    tail = beyond[np.searchsorted(table.atoms, x)]
    assert log_odds_error(tail, x) == pytest.approx(table.log_odds_error, rel=1e-2)
    assert table.log_odds_error < 6e-4


def test_short_reach_claims_no_more() -> None:
    """Within the reach it is better than a table of long reach; beyond it is measured in the CDF alone."""
    short, long = minimax(1.2, 2.0), minimax(1.2)
    assert short.log_odds_error < long.log_odds_error / 5
    x = np.arange(0.0, 30.0, 0.01)
    assert np.abs(tail_by_sum(short, x) - stats.logistic.sf(x)).max() == pytest.approx(short.cdf_error, rel=1e-2)


def test_solver_that_returns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_solve", lambda *_, **__: None)
    with pytest.raises(RuntimeError, match=r"`minimax\(sigma=1\.17, reach=20\.0\)`.*6 attempts"):
        minimax(1.17)


def test_second_attempt_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that fails at first, as HiGHS does at about one setting in thirty."""
    solve, attempts = program._solve, []

    def fail_at_first(sigma, reach, effort):
        attempts.append(effort)
        return None if len(attempts) == 1 else solve(sigma, reach, effort)

    monkeypatch.setattr(program, "_solve", fail_at_first)
    assert minimax(1.3, 10.0).log_odds_error == pytest.approx(1.3e-3, rel=0.05)
    assert len(set(attempts)) == len(attempts) == 2


# ---- noise of other laws -----------------------------------------------------------------------


def law_by_hand(law: Law, x: np.ndarray) -> np.ndarray:
    """P(noise > x) with scipy.stats, derivatives by finite differences."""
    noise = stats.norm(scale=law.sigma) if math.isinf(law.nu) else stats.t(law.nu, scale=law.sigma)
    h = 1e-3
    second = (noise.pdf(x + h) - 2 * noise.pdf(x) + noise.pdf(x - h)) / h**2
    t = x / law.sigma
    return noise.sf(x) + law.kappa3 / 6 * second - law.printed * (2 * t**2 + 1) * noise.pdf(x) * law.sigma


@pytest.mark.parametrize("law", [Law(1.2, 49.0, 0.25), Law(1.0, kappa3=0.5), Law(0.9, printed=0.06), Law(1.0, 19.0)])
def test_law_is_what_it_says(law: Law) -> None:
    x = np.linspace(-6, 6, 121)
    assert law.upper(x) == pytest.approx(law_by_hand(law, x), abs=1e-6)
    assert law.lower(x) == pytest.approx(1 - law_by_hand(law, x), abs=1e-6)


@pytest.mark.usefixtures("no_solving")
def test_every_law_ships_and_its_table_makes_the_noise_logistic() -> None:
    """The worst error in log-odds over |Delta| <= 10, both signs, by scipy.stats."""
    delta = np.linspace(-10, 10, 21)
    for law in shipped_laws():
        table = minimax_for(law)
        accept = sum(
            (w * law_by_hand(law, -delta - y) for y, w in zip(table.atoms, table.weights, strict=True)),
            np.zeros_like(delta),
        )
        # finite differences and 1 - p near 1 limit what can be seen here
        visible = np.minimum(accept, 1 - accept) > 1e-4
        error = np.abs(np.log(accept / (1 - accept)) - delta)[visible].max()
        assert error < table.log_odds_error + 2e-3, law
        assert table.is_skewed == law.is_skewed


@pytest.mark.usefixtures("no_solving")
def test_errors_of_the_laws_in_use() -> None:
    """No law with an estimated scale or a third cumulant is harder than the normal one at the same sigma."""
    for sigma in (1.0, 1.2):
        worst = max(minimax_for(Law(sigma, nu, kappa3)).log_odds_error for nu in NU for kappa3 in KAPPA3)
        assert worst < 1.2 * max(minimax(sigma).log_odds_error, program._LAW_ERROR_FLOOR)
    assert minimax_for(Law(1.0, printed=PRINTED[1])).log_odds_error < 2e-6


def test_law_is_computed_and_kept(table_cache: Path) -> None:
    law = Law(1.3, kappa3=0.2)
    computed = minimax_for(law, 8.0)
    assert computed.log_odds_error < 2e-3
    assert [file.stem for file in table_cache.iterdir()] == [correction.law_key(law, 8.0)]
    assert_same(minimax_for(law, 8.0), computed)


def test_a_table_of_another_law_would_be_wrong() -> None:
    """The negative control: the plain table under skewed noise is off by kappa3/6 in the tails."""
    plain = minimax(1.0)
    _, error = program.measure_law(Law(1.0, kappa3=0.25), plain.atoms, plain.weights, 4.0)
    assert error > 0.02
