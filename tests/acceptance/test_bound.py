"""The paper's error bound: its moments against NumPy, what `delta` does, what the trace says, and its bootstrap."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import tallchain as tc
from conftest import SEED
from scenarios import kernel_of
from tallchain.acceptance import Combined
from tallchain.acceptance.bound import BoundMoments, error_bound, rows_for_bound
from tallchain.types import Population

POPULATION = Population(10_000, 100, repeats=True)
ROWS = np.random.default_rng(2).standard_exponential(20_000).astype(np.float32)
WEIGHT = 10.0


def absorbed(parts: list[np.ndarray], width: int = 128) -> BoundMoments:
    seen = BoundMoments.empty()
    for each in parts:
        values = np.full(width, np.nan, np.float32)
        values[: len(each)] = each
        seen = seen.merge(seen.of(jnp.asarray(values), jnp.arange(width) < len(each)))
    return seen


def test_absolute_moments_are_about_the_mean_of_the_first_window() -> None:
    parts = np.split(ROWS[:200], [50, 60, 60, 124])
    seen = absorbed(parts)
    centre = parts[0].mean(dtype=np.float64)
    deviations = np.abs(ROWS[:200].astype(np.float64) - centre)
    assert float(seen.centre) == pytest.approx(centre, rel=1e-6)
    assert float(seen.absolute) == pytest.approx(deviations.sum(), rel=1e-5)
    assert float(seen.absolute_cubes) == pytest.approx((deviations**3).sum(), rel=1e-5)
    sd = ROWS[:200].astype(np.float64).std()
    expected = (6.4 * (deviations**3).mean() / sd**3 + 2 * deviations.mean() / sd) / math.sqrt(200)
    assert float(error_bound(seen, POPULATION)) == pytest.approx(expected, rel=1e-4)


def test_bound_of_normal_rows() -> None:
    """(6.4 * 1.596 + 2 * 0.798)/sqrt(b), the absolute moments of a normal, whatever its mean and scale."""
    first, third = (
        integrate.quad(lambda x, k=k: abs(x) ** k * math.exp(-x * x / 2) / math.sqrt(2 * math.pi), -12, 12)[0]
        for k in (1, 3)
    )
    rows = (7 + 0.01 * np.random.default_rng(SEED).standard_normal(40_000)).astype(np.float32)
    seen = absorbed([rows[:500], rows[500:]], 40_000)
    many = POPULATION._replace(num_rows=10**6)
    assert float(error_bound(seen, many)) == pytest.approx((6.4 * third + 2 * first) / 200, rel=0.03)
    assert 11.5 < 6.4 * third + 2 * first < 12.0


def test_no_bound_where_all_rows_are_read_or_the_same() -> None:
    seen = absorbed([ROWS[:60]])
    assert float(error_bound(seen, Population(60, 20, repeats=False))) == 0
    assert float(error_bound(seen, Population(61, 20, repeats=False))) > 0.5
    assert float(error_bound(absorbed([np.full(40, 3.5)]), POPULATION)) == 0


def test_rows_for_the_bound() -> None:
    seen = absorbed([ROWS[:64]])
    rows = int(rows_for_bound(seen, 0.5, POPULATION))
    assert rows == math.ceil(64 * (float(error_bound(seen, POPULATION)) / 0.5) ** 2)


# ---- the test with a delta ---------------------------------------------------------------------


def walk(**options: Any) -> tc.MetropolisHastings:
    acceptance = tc.MinibatchBarker(**options)
    return kernel_of(ROWS, acceptance, temperature=len(ROWS) / WEIGHT, scale=0.4)


def run(kernel: tc.MetropolisHastings, key: jax.Array, chains: int = 64) -> tc.Trace:
    mean, sd = ROWS.mean() * WEIGHT / (WEIGHT + 0.25), 1 / math.sqrt(WEIGHT + 0.25)
    starts = mean + sd * np.random.default_rng(SEED).standard_normal(chains)
    return tc.sample(key, kernel, starts.astype(np.float32), 40, num_chains=chains, scan=0, progress=False)


@pytest.mark.parametrize("stopping", ["fresh", "growth", pytest.param("pilot", marks=pytest.mark.slow)])
def test_rows_are_read_until_the_bound_is_met(stopping: str, key: jax.Array) -> None:
    trace = run(walk(stopping=stopping, skew=False, delta=0.5), key)
    assert trace.extras["error_bound"].shape == trace.is_accepted.shape
    assert trace.extras["error_bound"].max() <= 0.5
    assert trace.rows_read.mean() > 600  # 12 to 22 over 0.5, squared
    assert "error_bound" in trace.to_datatree()["sample_stats"]


def test_infinite_delta_records_and_changes_nothing(key: jax.Array) -> None:
    recorded, plain = run(walk(delta=math.inf), key), run(walk(), key)
    np.testing.assert_array_equal(recorded.position, plain.position)
    np.testing.assert_array_equal(recorded.rows_read, plain.rows_read)
    assert plain.extras == {}
    bound = recorded.extras["error_bound"]
    assert np.all(bound > 0.3)
    few = recorded.rows_read == recorded.rows_read.min()
    assert bound[few].mean() > bound[~few].mean()  # the more rows, the smaller


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tc.MinibatchBarker(delta=0.0), "must be positive"),
        (lambda: tc.MinibatchBarker(delta="a"), "must be positive"),
        (lambda: tc.MinibatchBarker(delta=0.1, stopping="stein"), "Stein's scheme fixes"),
        (lambda: Combined(barker=tc.MinibatchBarker(delta=0.1)), "no bound on its error"),
    ],
)
def test_refuses(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# ---- bootstrap ---------------------------------------------------------------------------------


def test_bootstrap_limits_hold_the_true_moments(key: jax.Array) -> None:
    """E|X| = 2/e and E|X|^3 = 12/e - 2 for exponential rows; Lambda_i is linear in them here."""
    kernel = walk()
    trace = run(kernel, key)
    found = tc.checking.bound_limits(kernel, trace, num_proposals=20, rows_stored=2000, num_resamples=200)
    first, third = 2 / math.e, 12 / math.e - 2
    centred = np.abs(ROWS - ROWS.mean(dtype=np.float64)) / ROWS.std(dtype=np.float64)
    assert centred.mean() == pytest.approx(first, rel=0.02)
    assert (centred**3).mean() == pytest.approx(third, rel=0.05)
    covered = [p.first.low <= centred.mean() <= p.first.high for p in found.proposals]
    assert sum(covered) >= 15
    covered = [p.third.low <= (centred**3).mean() <= p.third.high for p in found.proposals]
    assert sum(covered) >= 13
    one = found.proposals[0]
    assert one.epsilon.value == pytest.approx((6.4 * one.third.value + 2 * one.first.value) / math.sqrt(found.batch))
    assert "95 % bootstrap limits" in str(found)
    with pytest.raises(ValueError, match="rows_stored"):
        tc.checking.bound_limits(kernel, trace, rows_stored=3)
