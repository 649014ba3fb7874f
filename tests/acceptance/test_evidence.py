"""Moments: one window, many windows merged in any split, and what becomes of the variance of their mean."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import SEED
from tallchain.acceptance.evidence import Moments, add_rows, has_read_all, variance_of_mean, whole_rows
from tallchain.acceptance.stopping.rows import rows_for
from tallchain.types import Population

WIDTH = 512
SPREAD = 4.0  # 64 times the distance of neighbouring floats at 10^6

of = jax.jit(Moments.of)
merge = jax.jit(Moments.merge)


def window(values: np.ndarray) -> Moments:
    """The moments of up to WIDTH values, among others that do not count."""
    is_valid = np.zeros(WIDTH, bool)
    is_valid[np.random.default_rng(len(values)).permutation(WIDTH)[: len(values)]] = True
    padded = np.full(WIDTH, np.nan, np.float32)
    padded[is_valid] = values
    return of(padded, is_valid)


def merged(parts: list[np.ndarray]) -> Moments:
    moments = Moments.empty()
    for each in parts:
        moments = merge(moments, window(each))
    return moments


def assert_moments(moments: Moments, values: np.ndarray, rtol: float = 2e-5) -> None:
    """Compare with NumPy in 64 bits; the mean in units of the standard deviation."""
    values = values.astype(np.float64)
    assert moments.count == len(values)
    assert moments.count.dtype == jnp.int32
    assert abs(float(moments.mean) - values.mean()) < rtol * values.std() + 3e-7 * abs(values.mean())
    np.testing.assert_allclose(moments.squares, len(values) * values.var(), rtol=rtol)


def random_parts(random: np.random.Generator, values: np.ndarray) -> list[np.ndarray]:
    """The values in windows of random sizes, some of them empty and some of one row."""
    cuts = random.integers(0, len(values) + 1, 30)
    cuts = np.unique(np.concatenate([cuts, np.arange(0, len(values), WIDTH), cuts[:3] + 1]))
    parts = np.split(values, cuts[cuts < len(values)])
    return [*parts, values[:0]]


# ---- against NumPy -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 100, WIDTH])
def test_moments_of_one_window(count: int) -> None:
    values = np.random.default_rng(SEED).normal(3, 2, count).astype(np.float32)
    assert_moments(window(values), values)


@pytest.mark.parametrize("seed", range(5))
def test_any_split_merges_to_the_whole(seed: int) -> None:
    random = np.random.default_rng([SEED, seed])
    values = random.standard_t(4, 3000).astype(np.float32)
    parts = random_parts(random, values)
    assert min(map(len, parts)) == 0
    assert_moments(merged(parts), values)


def test_the_order_of_merging_does_not_matter() -> None:
    random = np.random.default_rng(SEED)
    a, b, c = (window(random.normal(i, 1 + i, 100 * (i + 1))) for i in range(3))
    left, right, swapped = merge(merge(a, b), c), merge(a, merge(b, c)), merge(merge(c, a), b)
    for other in (right, swapped):
        np.testing.assert_allclose(np.array(other), np.array(left), rtol=1e-5)


def test_empty_windows_change_nothing() -> None:
    nothing = window(np.zeros(0))
    some = window(np.arange(10.0))
    np.testing.assert_array_equal(np.array(nothing), np.zeros(3))
    np.testing.assert_array_equal(np.array(merge(nothing, Moments.empty())), np.zeros(3))
    for both in (merge(some, nothing), merge(nothing, some)):
        np.testing.assert_array_equal(np.array(both), np.array(some))


@pytest.mark.parametrize("offset", [-1e6, 1e4, 1e6])
@pytest.mark.parametrize("width", [32, 100, WIDTH])
def test_a_large_mean_does_not_swallow_a_small_variance(width: int, offset: float) -> None:
    values = (offset + np.random.default_rng(SEED).normal(0, SPREAD, 2048)).astype(np.float32)
    assert_moments(merged(np.split(values, range(width, 2048, width))), values, rtol=0.01)


def test_a_sum_of_squares_would_have_swallowed_it() -> None:
    values = (1e6 + np.random.default_rng(SEED).normal(0, SPREAD, 2048)).astype(np.float32)
    naive = np.sum(values * values) - np.sum(values) ** 2 / len(values)
    assert abs(naive / (len(values) * values.var(dtype=float)) - 1) > 0.5


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_mean_is_not_finite_if_a_value_was_not(bad: float) -> None:
    with_bad = window(np.array([1.0, bad, 2.0]))
    np.testing.assert_equal(float(with_bad.mean), bad)
    for both in (merge(window(np.arange(5.0)), with_bad), merge(Moments.empty(), with_bad)):
        np.testing.assert_equal(float(both.mean), bad)


# ---- very many rows ----------------------------------------------------------------------------


@pytest.mark.parametrize("before", [2**24, 2**24 + 1, 10**9, 2**31 - 2])
def test_counts_beyond_what_a_float_can_count(before: int) -> None:
    moments = Moments(jnp.int32(before), jnp.float32(1.0), jnp.float32(before))
    assert merge(moments, window(np.ones(1))).count == before + 1


def test_the_mean_follows_where_counts_are_large() -> None:
    """Two halves of 2^30 rows each: counts, their sum and products stay within reach."""
    low, high = (Moments(jnp.int32(2**30 - i), jnp.float32(i), jnp.float32(2.0**30)) for i in (0, 1))
    both = merge(low, high)
    assert both.count == 2**31 - 1
    np.testing.assert_allclose(both.mean, 0.5, rtol=1e-6)
    np.testing.assert_allclose(both.squares, 2.0**31 + 2.0**29, rtol=1e-6)


# ---- the variance of the mean ------------------------------------------------------------------


def population(num_rows: int, *, repeats: bool = False) -> Population:
    return Population(num_rows, batch_size=1, repeats=repeats)


@pytest.mark.parametrize("count", [2, 50, 100])
def test_variance_of_the_mean(count: int) -> None:
    values = np.random.default_rng(SEED).normal(size=count).astype(np.float32)
    plain = values.var(ddof=1, dtype=float) / count
    moments = window(values)
    np.testing.assert_allclose(variance_of_mean(moments, population(101, repeats=True)), plain, rtol=1e-5)
    np.testing.assert_allclose(variance_of_mean(moments, population(100)), plain * (1 - count / 100), rtol=1e-5)


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("count", [0, 1])
def test_nothing_is_known_of_the_variance_below_two_rows(count: int, repeats: bool) -> None:
    assert variance_of_mean(window(np.ones(count)), population(100, repeats=repeats)) == np.inf


@pytest.mark.parametrize("left", [0, 1, 100])
def test_the_factor_is_exact_where_hardly_a_row_is_left(left: int) -> None:
    num_rows = 2**31 - 1
    count = num_rows - left
    moments = Moments(jnp.int32(count), jnp.float32(0.0), jnp.float32(count))  # variance 1
    expected = left / num_rows / num_rows
    np.testing.assert_allclose(float(variance_of_mean(moments, population(num_rows))), expected, rtol=1e-5)


@pytest.mark.parametrize(("count", "expected"), [(99, False), (100, True)])
def test_n_rows_are_all_rows(count: int, expected: bool) -> None:
    assert bool(has_read_all(window(np.ones(count)), population(100))) is expected


def test_squares_that_overflow_ask_for_all_rows() -> None:
    large = window(np.array([1e30, -1e30, 3e29], np.float32))
    assert not np.isfinite(large.squares)
    assert int(add_rows(10, large, population(100)).rows) == 97
    ask = add_rows(10, large, population(100, repeats=True))
    assert (int(ask.rows), bool(ask.census), bool(ask.fresh)) == (100, True, True)
    assert float(variance_of_mean(large, population(3))) == 0  # all rows were read


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize(
    ("rows", "expected"),
    [(2.1, 3), (99.5, 100), (1e6, 100), (np.inf, 100), (np.nan, 100)],
)
def test_wanted_rows_are_whole_and_at_most_all(rows: float, expected: int, repeats: bool) -> None:
    assert int(whole_rows(jnp.float32(rows), population(100, repeats=repeats))) == expected


def test_rows_to_ask_for_fit_32_bits() -> None:
    most = 2**31 - 20_000
    assert int(whole_rows(jnp.float32(np.inf), population(most))) == most
    assert int(rows_for(jnp.float32(np.inf), 1.0, population(most))) == most
