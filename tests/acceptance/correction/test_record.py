"""The correction tables that ship: their invariants, and their errors by independent routes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from tables import SHIPPED, SIGMAS, assert_same, log_odds_error, tail_by_sum
from tallchain.acceptance.correction import (
    Correction,
    minimax,
    ridge,
    ridge_printed_error,
    store,
)

pytestmark = pytest.mark.usefixtures("table_cache")


@pytest.mark.usefixtures("no_solving")
@pytest.mark.parametrize(("method", "arguments"), SHIPPED)
def test_shipped_tables_are_symmetric_distributions(method, arguments) -> None:
    table = method(*arguments)
    assert table.sigma == arguments[0]
    assert table.method == method.__name__
    assert table.atoms.dtype == table.weights.dtype == np.float64
    assert np.all(np.diff(table.atoms) > 0)
    assert np.array_equal(table.atoms, -table.atoms[::-1])
    assert np.array_equal(table.weights, table.weights[::-1])
    assert np.all(table.weights >= 0)
    assert math.isclose(math.fsum(table.weights), 1.0, abs_tol=1e-14)
    assert table.reach == (20.0 if method is minimax else 10.0)


def test_shipped_file_is_small() -> None:
    assert store.SHIPPED.stat().st_size < 300_000


@pytest.mark.parametrize("sigma", SIGMAS)
def test_recorded_minimax_errors_are_the_true_ones(sigma: float) -> None:
    """On a grid that shares no point with the one used for measuring."""
    table = minimax(sigma)
    x = np.arange(0.0, 20.0, 0.00137)
    tail = tail_by_sum(table, x)
    # 1e-13 for what the subtraction of numbers near 1/2 and logarithms near 20 leave.
    assert np.abs(tail - stats.logistic.sf(x)).max() == pytest.approx(table.cdf_error, rel=1e-2, abs=1e-13)
    assert log_odds_error(tail, x) == pytest.approx(table.log_odds_error, rel=2e-2, abs=1e-13)
    assert log_odds_error(tail, x) <= table.log_odds_error * (1 + 1e-3) + 1e-13


@pytest.mark.parametrize(("arguments", "on_5", "on_10"), [((1.0,), 0.063, 1.3), ((0.9, 2000, 10.0), None, None)])
def test_recorded_ridge_errors_are_the_true_ones(arguments, on_5, on_10) -> None:
    table = ridge(*arguments)
    x = np.linspace(0.0, 10.0, 201)
    tail = tail_by_sum(table, x)
    assert np.abs(tail - stats.logistic.sf(x)).max() == pytest.approx(table.cdf_error, rel=1e-2)
    assert log_odds_error(tail, x) == pytest.approx(table.log_odds_error, rel=5e-2)
    if on_5:
        assert log_odds_error(tail[x <= 5], x[x <= 5]) == pytest.approx(on_5, rel=2e-2)
        assert table.log_odds_error == pytest.approx(on_10, rel=5e-2)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.2, 1.6])
def test_sum_is_logistic_by_quadrature(sigma: float) -> None:
    """P(sum > x) as the integral of the normal density against the tail of the atoms, at a few points."""
    table = minimax(sigma)
    beyond = np.append(np.cumsum(table.weights[::-1])[::-1], 0.0)
    for x in (0.0, 0.7, 2.5, 6.0):
        # Between two neighbouring values of x - atom the integrand is a constant times the normal density.
        edges = np.clip(np.sort(x - table.atoms), -9 * sigma, 9 * sigma)
        edges = np.unique(np.concatenate([[-9 * sigma], edges, [9 * sigma]]))
        tail = 0.0
        for low, high in itertools.pairwise(edges):
            mass = beyond[np.searchsorted(table.atoms, x - (low + high) / 2, side="right")]
            tail += mass * integrate.quad(stats.norm(scale=sigma).pdf, low, high, epsabs=1e-13)[0]
        assert tail == pytest.approx(float(table.upper_tail(x)), rel=1e-9)
        assert abs(tail - 1 / (1 + math.exp(x))) <= table.cdf_error * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize(
    ("sigma", "log_odds", "cdf"), [(1.0, 1e-6, 3e-7), (1.2, 3e-4, 1e-4), (0.9, 1e-8, 3e-9), (1.6, 0.045, 8e-3)]
)
def test_minimax_meets_its_targets(sigma: float, log_odds: float, cdf: float) -> None:
    table = minimax(sigma)
    assert table.log_odds_error <= log_odds
    assert table.cdf_error <= cdf


# ---- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0, 0.0, -1.0, 1.61, 2, math.nan, math.inf, "1.0", None, True, 1j, [1.0, 1.2]])
@pytest.mark.parametrize("method", [minimax, ridge])
def test_sigma_is_refused(method, sigma) -> None:
    with pytest.raises(ValueError, match=r"0 < sigma <= 1\.6") as caught:
        method(sigma)
    message = str(caught.value)
    assert f"`{method.__name__}(sigma={sigma!r}" in message
    assert "pi/sqrt(3) = 1.814" in message
    assert "Choose a smaller sigma" in message


@pytest.mark.parametrize(
    ("arguments", "what"),
    [({"n": n}, "whole number n >= 10") for n in (9, 0, -5, 2000.0, "2000", None, True)]
    + [({"ridge": value}, "ridge > 0") for value in (0, -1.0, math.nan, math.inf, "10", None)]
    + [({"reach": value}, "0 < reach <= 20") for value in (0, -1.0, 20.5, math.nan, None)],
)
def test_ridge_refuses(arguments, what: str) -> None:
    (value,) = arguments.values()
    with pytest.raises(ValueError, match=what) as caught:
        ridge(1.0, **arguments)
    assert f"got {next(iter(arguments))} = {value!r}" in str(caught.value)


@pytest.mark.parametrize("reach", [0, -1.0, 101, math.nan, math.inf, "20"])
def test_minimax_refuses_a_reach(reach) -> None:
    with pytest.raises(ValueError, match="0 < reach <= 100"):
        minimax(1.0, reach)


def test_printed_error_refuses() -> None:
    with pytest.raises(ValueError, match="ridge_printed_error"):
        ridge_printed_error(1.0, 2000, [10.0, 0.0])


@pytest.mark.parametrize(
    ("atoms", "weights"),
    [
        ([-1.0, 1.0], [0.5, 0.6]),
        ([-1.0, 2.0], [0.5, 0.5]),
        ([-1.0, 1.0], [0.4, 0.6]),
        ([-1.0, 0.0, 1.0], [-0.1, 1.2, -0.1]),
        ([1.0, -1.0], [0.5, 0.5]),
        ([-1.0, 1.0], [math.nan, math.nan]),
        ([], []),
    ],
)
def test_correction_refuses_what_is_no_symmetric_distribution(atoms, weights) -> None:
    with pytest.raises(ValueError, match="symmetric"):
        Correction(1.0, np.array(atoms), np.array(weights), 0.0, 0.0, 20.0, "mine")


def test_numpy_numbers_are_numbers() -> None:
    assert_same(minimax(np.float64(1.0), np.int64(20)), minimax(1.0))
    assert ridge_printed_error(np.float64(1.0), np.int64(20), np.array([10.0])).shape == (1,)


def test_arrays_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        minimax(1.0).weights[0] = 1.0
