"""Where the sum of autocorrelations is cut."""

from __future__ import annotations

import numpy as np

from tallchain.checking.autocorrelation import autocovariance_sums, initial_sequence


def test_sums_of_products_by_lag() -> None:
    draws = np.random.default_rng(3).standard_normal((2, 7))
    direct = [np.mean([chain[: 7 - lag] @ chain[lag:] for chain in draws]) for lag in range(7)]
    np.testing.assert_allclose(autocovariance_sums(draws), direct, atol=1e-12)


def test_the_sequence_ends_before_the_first_pair_that_is_not_positive() -> None:
    found = initial_sequence(np.array([1.0, 0.5, 0.3, -0.1, -0.4, 0.1, 5.0, 5.0, 9.0]))
    np.testing.assert_allclose(found.sums, [1.5, 0.2])
    assert found.is_cut
    all_positive = initial_sequence(np.array([1.0, 0.5, 0.3]))
    np.testing.assert_allclose(all_positive.sums, [1.5])
    assert not all_positive.is_cut
    assert initial_sequence(np.array([1.0, -2.0])).sums.size == 0
