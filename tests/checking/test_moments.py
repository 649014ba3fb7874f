"""Moments, quantiles and errors that are gathered chunk by chunk, against the same of all draws by NumPy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from conftest import SEED
from records import chunks_of
from tallchain.checking.convergence import Parameter, parameters_of
from tallchain.checking.moments import Bins, Gatherer, Moments

# Tests with the same chains, slots and coordinates share their programs.
CHAINS, LENGTH, SLOTS = 4, 1500, 64


def gathered(draws: Any, num_warmup: int = 0, slots: int = SLOTS, **options: Any) -> Moments:
    leaf = jax.tree.leaves(draws)[0]
    gatherer = Gatherer(leaf.shape[0], leaf.shape[1] - num_warmup, num_warmup)
    for i, (before, after, chunk) in enumerate(chunks_of(draws, slots, **options)):
        if i == 0:
            gatherer.compile(chunk)
        gatherer.add(chunk, before, after)()
    return gatherer.moments()


def normal(chains: int = CHAINS, length: int = LENGTH, size: int = 3, phi: float = 0.0) -> np.ndarray:
    """Independent coordinates of unit variance, AR(1) with this autocorrelation."""
    random = np.random.default_rng(SEED)
    noise = random.normal(size=(chains, length, size))
    draws = noise.copy()
    for i in range(1, length):
        draws[:, i] = phi * draws[:, i - 1] + np.sqrt(1 - phi**2) * noise[:, i]
    return draws.astype(np.float32)


def check_against(draws: np.ndarray, found: Moments, digits: float = 1e-5) -> None:
    """Compare with all draws (chain, draw, coordinate)."""
    flat = draws.reshape(-1, draws.shape[2]).astype(np.float64)
    spread = flat.std(0)
    assert found.num_draws == len(flat)
    assert found.counts.sum(1).tolist() == [len(flat)] * flat.shape[1]
    np.testing.assert_allclose((found.mean - flat.mean(0)) / spread, 0, atol=digits)
    np.testing.assert_allclose(found.sd / spread, 1, atol=digits)
    assert found.covariance is not None
    scale = np.outer(spread, spread)
    np.testing.assert_allclose((found.covariance - np.cov(flat.T, bias=True)) / scale, 0, atol=digits)
    for share in (0.0, 0.05, 0.5, 0.95, 1.0):
        quantiles = found.quantile(share)
        exact = np.quantile(flat, share, axis=0, method="inverted_cdf")
        assert (np.abs(quantiles.value - exact) <= 1.001 * quantiles.resolution).all(), share


def summary_of(found: Moments) -> list[Parameter]:
    return found.parameters([str(i) for i in range(len(found.mean))])


# ---- the same as of all draws --------------------------------------------------------------------


@pytest.mark.parametrize(("place", "scale"), [(0, 1), (1e6, 30), (-3, 1e-30), (0, 1e-30), (0, 1e30), (1e30, 1e28)])
def test_moments_are_those_of_all_draws(place: float, scale: float) -> None:
    draws = normal() @ np.array([[1, 0.5, 0], [0, 1, 0], [0, 0.2, 3]])
    draws = (place + scale * draws).astype(np.float32)
    if place == -3:  # the spread is lost in float32
        found = gathered(draws)
        assert found.mean.tolist() == [-3] * 3
        assert found.sd.tolist() == [0] * 3
        np.testing.assert_allclose(found.quantile(0.5).value, -3, rtol=1e-6)
        assert np.isnan(found.ess).all()
    else:
        check_against(draws, gathered(draws))


def test_chains_at_their_own_pace_with_a_warm_up_in_two_groups() -> None:
    """The warm-up is elsewhere, and ends in the middle of a chunk, for each chain in another."""
    draws = normal(length=1523)
    warm = draws.copy()
    warm[:, :23] += 1e4
    found = gathered(warm, 23, steps=np.random.default_rng(1), groups=2)
    check_against(draws[:, 23:], found)
    assert np.abs(gathered(warm).mean - draws.mean((0, 1))).min() > 1, "a warm-up that counts must show"


@pytest.mark.parametrize("slots", [1, 7, 300])
def test_chunks_of_any_size_give_the_same(slots: int) -> None:
    draws = normal(length=200)
    one, other = gathered(draws, slots=slots), gathered(draws)
    check_against(draws, one)
    np.testing.assert_array_equal(one.count, other.count)
    for of in ("mean", "sd", "covariance", "ess", "means", "scatter"):
        np.testing.assert_allclose(getattr(one, of), getattr(other, of), rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize(("chains", "length"), [(1, 1), (1, 3), (4, 1), (4, 65), (1, 130), (300, 5), (300, 9)])
def test_few_draws_and_many_chains(chains: int, length: int) -> None:
    draws = normal(chains, length, 1) if chains * length > 1 else np.full((1, 1, 1), 7, np.float32)
    found = gathered(draws, slots=16)
    assert found.count.sum(1).tolist() == [length] * chains
    np.testing.assert_allclose(found.mean, draws.mean((0, 1), np.float64), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.sd, draws.std((0, 1), dtype=np.float64), rtol=1e-4, atol=1e-6)
    (parameter,) = summary_of(found)
    assert np.isnan(parameter.ess_bulk) == (chains * length < 4)
    assert parameter.r_hat_chance > 1e-6


def test_the_batches_are_those_of_the_draws() -> None:
    draws = normal(length=200)
    found = gathered(draws, steps=np.random.default_rng(2))
    assert found.size == 4
    assert found.count.tolist() == [[4] * 50 + [0] * 14] * CHAINS
    batches = draws.reshape(CHAINS, 50, 4, 3).astype(np.float64)
    np.testing.assert_allclose(found.means[:, :50], batches.mean(2), atol=1e-5)
    np.testing.assert_allclose(found.scatter[:, :50], 4 * batches.var(2), atol=1e-5)


def test_more_coordinates_than_covariances_are_kept_for() -> None:
    draws = normal(2, 20, 1025) * np.linspace(1, 9, 1025, dtype=np.float32)
    found = gathered(draws, slots=16)
    assert found.covariance is None
    assert found.means.shape == (2, 64, 1025)
    np.testing.assert_allclose(found.sd, draws.std((0, 1)), rtol=1e-4)
    check_against(draws[:, :, :1024], gathered(draws[:, :, :1024], slots=16), 1e-4)


def test_positions_in_float64_keep_their_digits() -> None:
    with jax.enable_x64(True):
        draws = 1e9 + normal(length=100).astype(np.float64)
        found = gathered({"b": draws[..., 1:], "a": draws[..., 0].astype(np.float32)}, slots=16)
    check_against(
        np.concatenate([draws[..., :1].astype(np.float32), draws[..., 1:]], 2)[..., 1:], _without_first(found)
    )


def _without_first(found: Moments) -> Moments:
    assert found.covariance is not None
    values = (found.means[..., 1:], found.scatter[..., 1:], found.size, found.covariance[1:, 1:])
    return Moments(found.count, *values, found.middle[1:], found.width[1:], found.counts[1:])


# ---- errors, and chains that disagree ------------------------------------------------------------


@pytest.mark.parametrize(
    ("chains", "length", "phi"), [(4, 6000, 0.9), (4, 6000, -0.5), (16, 150, 0.8), (300, 150, 0.8)]
)
def test_effective_draws_of_an_autoregression(chains: int, length: int, phi: float) -> None:
    """Long batches, short ones that are correlated themselves, and few of them."""
    found = gathered(normal(chains, length, 3, phi), slots=256)
    truth = chains * length * (1 - phi) / (1 + phi)
    np.testing.assert_allclose(found.ess.mean(), truth, rtol=0.25)
    squares = (1 + phi**2) / (1 - phi**2)  # the autocorrelation time of the squares
    errors = {"mcse_mean": np.sqrt(1 / truth), "mcse_sd": np.sqrt(squares / 2 / (chains * length))}
    for name, error in errors.items():
        assert np.mean([getattr(of, name) for of in summary_of(found)]) == pytest.approx(error, rel=0.35), name


def test_errors_are_those_that_arviz_finds() -> None:
    draws = normal(phi=0.7)
    labels = ["0", "1", "2"]
    found, theirs = gathered(draws).parameters(labels), parameters_of(labels, draws)
    for name, rel in {"mcse_mean": 0.25, "ess_bulk": 0.3, "r_hat": 0.01}.items():
        means = (np.mean([getattr(parameter, name) for parameter in of]) for of in (found, theirs))
        assert next(means) == pytest.approx(next(means), rel=rel), name
    assert np.isnan([parameter.ess_tail for parameter in found]).all()


def test_the_error_of_a_quantile() -> None:
    """sqrt(p (1 - p) / n) over the density."""
    quantiles = gathered(normal()).quantile(0.05)
    error = np.sqrt(0.05 * 0.95 / (CHAINS * LENGTH)) / 0.1031
    assert quantiles.error.mean() == pytest.approx(error, rel=0.4)


@pytest.mark.parametrize(("chains", "length"), [(4, LENGTH), (1, 2000), (300, 30)])
def test_chains_that_disagree_are_told_from_others(chains: int, length: int) -> None:
    """One coordinate is elsewhere in half of a chain; the others agree."""
    draws = normal(chains, length, 3, 0.5)
    draws[0, length // 2 :, 0] += 3 * np.sqrt(chains)
    away, *others = summary_of(gathered(draws))
    assert away.r_hat > 1.01
    assert away.r_hat_chance < 1e-6
    assert min(other.r_hat_chance for other in others) > 1e-3


def test_chances_of_chains_that_agree_are_not_small() -> None:
    """Short chains, for which R-hat is high by chance."""
    for chains, phi in ((4, 0.9), (64, 0.8)):
        found = gathered(normal(chains, 200, 40, phi))
        chances = found._chance()
        assert (found._r_hat() > 1.01).any()
        assert np.mean(chances < 0.05) < 0.25
        assert chances.min() > 1e-5


def test_chains_that_never_move() -> None:
    draws = np.broadcast_to(np.float32([0, 5, 1e-20]), (4, 50, 3)).copy()
    draws[1, :, 0] = 1
    found = gathered(draws)
    apart, *stuck = summary_of(found)
    assert apart.r_hat == np.inf
    assert apart.r_hat_chance == 0
    for parameter, value in zip(stuck, (5, 1e-20), strict=True):
        assert parameter.sd == 0
        for quantile in (parameter.mean, parameter.q5, parameter.median, parameter.q95):
            assert quantile == pytest.approx(value, rel=1e-6)
        assert np.isnan([parameter.ess_bulk, parameter.r_hat, parameter.mcse_mean]).all()


# ---- numbers that are none -----------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("first", [0, 700])
def test_what_is_not_finite_spoils_its_own_coordinate_alone(bad: float, first: int) -> None:
    draws = normal()
    draws[1, first : first + 100, 1] = bad
    found = gathered(draws)
    assert np.isnan([found.mean[1], found.sd[1], found.ess[1], found.quantile(0.5).value[1]]).all()
    clean = gathered(normal())
    for of in ("mean", "sd", "ess", "width"):
        np.testing.assert_allclose(getattr(found, of)[[0, 2]], getattr(clean, of)[[0, 2]], rtol=1e-4)
    assert len(summary_of(found)) == 3


# ---- bins ----------------------------------------------------------------------------------------


def test_bins_widen_when_draws_fall_beyond_them() -> None:
    """Each chunk has draws ten times as far out as the one before."""
    draws = normal()
    draws *= (10.0 ** (np.arange(LENGTH) // 250)).astype(np.float32)[None, :, None]
    found = gathered(draws)
    check_against(draws, found)
    used = np.array([np.ptp(np.flatnonzero(row)) + 1 for row in found.counts])
    assert (used > found.counts.shape[1] // 8).all()
    assert found.is_coarse.all() == (found.quantile(0.95).value[0] < 5 * found.width[0])


def test_bins_that_a_few_draws_have_made_wide_are_told() -> None:
    draws = normal()
    draws[2, 800, 1] = 1e4
    assert gathered(draws).is_coarse.tolist() == [False, True, False]


def test_bins_over_the_first_draws_only() -> None:
    """A start that nothing has moved away from has bins as narrow as can be: they widen by many powers of 2."""
    bins = Bins(np.zeros(2, np.float32), np.zeros(2, np.float32))
    bins.counts[:, bins.counts.shape[1] // 2] = 5
    bins.widen(np.float32([-1e-30, -1e38]), np.float32([1e-30, 1e38]))
    assert bins.counts[:, bins.counts.shape[1] // 2].tolist() == [5, 5]
    reach = bins.width.astype(np.float64) * bins.counts.shape[1] / 2
    assert (reach >= [1e-30, 1e38]).all()
    assert (reach < [2.01e-30, 2.01e38]).all()


def test_no_count_is_lost_when_bins_widen() -> None:
    random = np.random.default_rng(SEED)
    bins = Bins(np.float32([-1]), np.float32([1]))
    draws = random.uniform(-3.9, 3.9, 5000)

    def places(width: float) -> np.ndarray:
        size = bins.counts.shape[1]
        return np.bincount((np.floor(draws / width) + size // 2).astype(int), minlength=size)

    bins.counts[0] = places(bins.width[0])
    bins.widen(np.float32([-30]), np.float32([2]))
    np.testing.assert_array_equal(bins.counts[0], places(bins.width[0]))
