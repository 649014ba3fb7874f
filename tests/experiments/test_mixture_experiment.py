"""The paper's mixture at a tiny size, and its distances against independent computation."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from conftest import SEED
from tallchain.experiments import gaussian_mixture as experiment
from tallchain.experiments import trials
from tallchain.models.gaussian_mixture import Grid
from tallchain.pictures import mixture as pictures

TINY = experiment.Config(rows=1000, draws=40, slow_draws=30, trials=2, seed=SEED)
MEAN, SD = np.array([0.5, 0.2]), np.array([0.4, 0.6])


@pytest.fixture(scope="module")
def normal_grid() -> Grid:
    """Two independent normals, whose bins scipy knows."""
    axes = [np.linspace(-2.5, 3.5, 201), np.linspace(-4, 4, 201)]
    parts = [stats.norm.logpdf(axis, mean, sd) for axis, mean, sd in zip(axes, MEAN, SD, strict=True)]
    return Grid(axes[0], axes[1], parts[0][:, None] + parts[1][None, :], MEAN, np.diag(SD**2))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trials")


@pytest.fixture(scope="module")
def result(kept: Path) -> experiment.Result:
    return experiment.run(TINY, folder=kept)


def test_rows_are_counted_as_table_1_counts_them(result: experiment.Result) -> None:
    rows = {found.method.name: found.rows for found in result.found}
    assert rows["Barker()"].mean == TINY.rows
    assert 50 <= rows["MinibatchBarker.paper()"].mean < rows["Austere(0.005)"].mean < TINY.rows
    assert rows["Confidence()"].scanned == TINY.rows
    assert rows["MinibatchBarker()"].scanned == 0
    of = rows["Austere(0.005)"]
    assert of.mean == pytest.approx(np.mean(of.trials))
    assert of.sd == pytest.approx(abs(of.trials[0] - of.trials[1]) / 2**0.5)
    assert all(0 < found.acceptance < 1 for found in result.found)
    assert all(0 < each.total_variation < 1 for found in result.found for each in found.distances)
    numbers = json.loads(json.dumps(result.to_json()))
    assert numbers["methods"]["Austere(0.005)"]["printed"]["rows"] == [13540.5, 1521.4]
    assert numbers["config"]["rows"] == TINY.rows


def test_finished_trials_are_not_run_again(
    result: experiment.Result, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(trials, "sample")
    again = experiment.run(TINY, folder=kept)
    assert again.to_json() == result.to_json()


def test_pictures_are_drawn(result: experiment.Result, tmp_path: Path) -> None:
    for name in ("mixture_scatter", "mixture_rows"):
        figure = getattr(pictures, name)(result)
        figure.savefig(tmp_path / f"{name}.png")
        assert all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)


# ---- distances ---------------------------------------------------------------------------------


def normal_chances() -> np.ndarray:
    parts = [
        np.diff(stats.norm.cdf(edges, mean, sd)) for edges, mean, sd in zip(experiment.EDGES, MEAN, SD, strict=True)
    ]
    return np.outer(*parts)


def test_chances_of_bins(normal_grid: Grid) -> None:
    np.testing.assert_allclose(experiment.bin_chances(normal_grid), normal_chances(), atol=2e-6)


def test_draws_of_the_posterior_are_near_it(normal_grid: Grid) -> None:
    draws = normal_grid.draw(np.random.default_rng(SEED), 4000)
    chances = normal_chances()
    near = experiment.soundness(draws.reshape(4, 1000, 2), chances)
    assert min(near.effective, near.of_bins) > 3000
    assert near.chi_squared == pytest.approx(1, abs=0.3)
    shifted = draws + np.array([0.1, 0.0])  # a quarter of a standard deviation
    far = experiment.soundness(shifted.reshape(4, 1000, 2), chances)
    assert far.chi_squared is not None
    assert far.chi_squared > 1.5
    assert far.poisson < near.poisson
    once, other = experiment.distances(draws, chances), experiment.distances(shifted, chances)
    assert other.total_variation > once.total_variation
    # Five times the same draws are worth no more than once: the printed chi-squared takes them for five.
    repeated = np.repeat(draws[:800], 5, axis=0)
    stuck = experiment.soundness(repeated.reshape(4, 1000, 2), chances)
    assert max(stuck.effective, stuck.of_bins) < 1500
    assert stuck.chi_squared == pytest.approx(1, abs=0.5)
    assert experiment.distances(repeated, chances).chi_squared > 2 * once.chi_squared


def test_chi_squared_of_correlated_draws() -> None:
    """One coordinate forgets slowly, the other at once: on average over data sets the ratio is still about 1."""
    random = np.random.default_rng(SEED)
    chances, memory = normal_chances(), np.array([0.9, 0.0])

    def ratio(shift: float) -> float:
        state = random.standard_normal((10, 2))
        draws = np.empty((10, 600, 2))
        for index in range(600):
            state = memory * state + np.sqrt(1 - memory**2) * random.standard_normal((10, 2))
            draws[:, index] = state
        found = experiment.soundness(MEAN + SD * draws + [shift, 0.0], chances)
        assert found.effective < found.of_bins < 6000
        assert found.chi_squared is not None
        return found.chi_squared

    ratios = [ratio(0.0) for _ in range(20)]
    assert np.mean(ratios) == pytest.approx(1, abs=0.35)
    assert ratio(0.2) > 5


def test_too_few_draws_have_no_chi_squared(normal_grid: Grid) -> None:
    draws = normal_grid.draw(np.random.default_rng(SEED), 16).reshape(2, 8, 2)
    assert experiment.soundness(draws, normal_chances()).chi_squared is None


def test_every_pool_expects_enough_draws() -> None:
    chances = normal_chances()
    expected = 500 * np.append(chances.ravel(), 1 - chances.sum())
    by_pool = np.bincount(experiment._pools(expected), weights=expected)
    assert by_pool.sum() == pytest.approx(500)
    assert by_pool.min() >= 5
    assert len(by_pool) > 50


def test_bins_of_draws() -> None:
    draws = np.array([[-1.45, -2.45], [-1.45, -2.35], [2.45, 2.95], [-2.0, 0.0], [0.0, 3.5]])
    assert experiment._bin_of(draws).tolist() == [0, 1, 40 * 55 - 1, 40 * 55, 40 * 55]


@pytest.mark.slow
def test_the_authors_distances_are_from_the_posterior_with_its_prior(result: experiment.Result) -> None:
    found = result.of("MinibatchBarker.as_published_code()")
    targets = [experiment.Target(TINY.rows, TINY.batch, TINY.seed, is_flat) for is_flat in (False, True)]
    with_prior, flat = (experiment.distances(found.example["position"], target.chances) for target in targets)
    assert found.distances[0].chi_squared == with_prior.chi_squared
    assert found.distances[0].total_variation == flat.total_variation


def test_total_variation_by_hand() -> None:
    chances = np.zeros((40, 55))
    chances[20, 30], chances[21, 30] = 0.5, 0.5
    middle = np.array([experiment.EDGES[0][20] + 0.05, experiment.EDGES[1][30] + 0.05])
    draws = np.tile(middle, (100, 1)) + np.random.default_rng(SEED).uniform(-0.04, 0.04, (100, 2))
    assert experiment.distances(draws, chances).total_variation == pytest.approx(0.5)


def test_published_distances_by_hand() -> None:
    counts = np.array([[6.0, 3.0], [1.0, 0.0]])
    chances = np.array([[0.5, 0.3], [1e-4, 0.2]])
    observed, expected = np.array([3000.0, 1500.0]), np.array([2500.0, 1500.0])
    poisson, chi_squared = experiment.published_distances(counts, chances)
    assert chi_squared == pytest.approx(np.sum((observed - expected) ** 2 / expected))
    assert poisson == pytest.approx(stats.poisson.logpmf(observed, expected).sum())
