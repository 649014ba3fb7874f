"""Gradient proposals and stochastic gradients at a tiny size; what is measured against independent computation."""

import dataclasses
import itertools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats

from conftest import SEED
from tallchain.experiments import gaussian_mixture, gradients, trials
from tallchain.experiments.gradients import measures, ranking
from tallchain.experiments.gradients.config import draws_within
from tallchain.experiments.gradients.entries import Cost, DigitsEntry, MixtureEntry, Ratio
from tallchain.experiments.logistic_regression import Found
from tallchain.pictures import gradients as pictures

pytest.importorskip("blackjax")

TINY = gradients.Config(
    gradients.MixtureConfig(
        rows=3000,
        repetitions=2,
        chains=4,
        budget=2000,
        steps={"Langevin": (0.05, 0.15), "SGLD": (0.05, 0.15)},
    ),
    gradients.DigitsConfig(repetitions=2, budget=2000, steps={"SGLD": (0.05,)}),
    seed=SEED,
)
MEAN, COVARIANCE = np.array([0.5, 0.0]), np.array([[0.16, -0.1], [-0.1, 0.25]])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trials")


@pytest.fixture(scope="module")
def result(kept: Path) -> gradients.Result:
    return gradients.run(TINY, folder=kept)


def test_rows_of_the_test_and_gradients_of_rows_are_counted(result: gradients.Result) -> None:
    langevin, sgld = result.of("Langevin"), result.of("SGLD")
    assert all(entry.cost.gradients == 2 * gradients.MINIBATCH for entry in langevin)  # forward and backward
    assert all(entry.cost.test >= TINY.mixture.batch for entry in langevin)
    assert all(entry.cost == Cost(0, gradients.MINIBATCH) for entry in sgld)
    assert sgld[0].draws == TINY.mixture.budget // gradients.MINIBATCH
    assert sgld[0].rows[-1] == TINY.mixture.chains * TINY.mixture.budget
    assert [entry.acceptance for entry in sgld] == [1, 1]
    assert 0 < langevin[1].acceptance < 1
    (digits,) = result.digits
    np.testing.assert_array_equal(digits.found.read, np.full((2, 20), 100))
    assert digits.found.rows_to_accuracy[0.95] <= 2000


def test_gradients_are_counted_by_sampler() -> None:
    """Rows of a minibatch times the gradients of each; a walk has none, and no test reads no rows."""
    reading = {"rows_read": np.array([[100, 50]]), "rows_scanned": np.array([[100, 0]])}
    expected = {
        "RandomWalk": ([100, 50], [0, 0]),
        "Langevin": ([100, 50], [200, 0]),
        "Hamiltonian": ([100, 50], [400, 0]),
        "Amagold": ([100, 50], [100, 0]),
        "SGLD": ([0, 0], [100, 50]),
        "SGHMC": ([0, 0], [1000, 500]),
        "SGNHT": ([0, 0], [100, 50]),
        "SGFS": ([0, 0], [100, 50]),
    }
    for name in gradients.CONTENDERS:
        test, slopes = measures.rows_by_draw(name, 0.05, "mixture", reading)
        assert (test[0].tolist(), slopes[0].tolist()) == expected[name], name


def test_finished_draws_are_not_made_again(
    result: gradients.Result, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(trials, "sample")
    assert gradients.run(TINY, folder=kept).to_json() == result.to_json()


def test_another_step_compiles_nothing(result: gradients.Result) -> None:
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **facts: compiled.append(str(facts.get("fun_name"))) if "backend_compile" in event else None
    )
    steps = {"Langevin": (0.08, 0.12), "SGLD": (0.08, 0.12)}
    gradients.run(dataclasses.replace(TINY, mixture=dataclasses.replace(TINY.mixture, steps=steps)))
    assert not compiled


def test_what_is_found_is_told_drawn_and_saved(result: gradients.Result, tmp_path: Path) -> None:
    numbers = json.loads(json.dumps(result.to_json()))
    assert [entry["step"] for entry in numbers["mixture"] if entry["name"] == "SGLD"] == [0.05, 0.15]
    assert numbers["config"]["digits"]["steps"] == {"SGLD": [0.05]}
    mixture, digits = result.to_tables()
    assert [row[0] for row in mixture.rows] == ["Langevin", "Langevin", "SGLD", "SGLD"]
    assert all(len(row) == len(table.header) for table in (mixture, digits) for row in table.rows)
    found = result.findings()
    assert found[0].startswith("SGLD's variance in the narrow direction")
    assert len(found) == 4  # one pair is left out
    pictures.gradients_figure(result).savefig(tmp_path / "picture.png")
    for name in ("gradients_figure", "rows_figure", "bias_figure"):
        figure = getattr(pictures, name)(result)
        assert all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)


# ---- what is measured ----------------------------------------------------------------------------


def normal_draws(scale: float = 1.0) -> np.ndarray:
    random = np.random.default_rng(SEED)
    return MEAN + scale * random.multivariate_normal(np.zeros(2), COVARIANCE, (16, 500))


def normal_chances() -> np.ndarray:
    """Of every bin, by the distribution function at its corners."""
    corners = np.stack(np.meshgrid(*gaussian_mixture.EDGES, indexing="ij"), -1)
    below = stats.multivariate_normal(MEAN, COVARIANCE).cdf(corners)
    return np.diff(np.diff(below, axis=0), axis=1)


def test_variances_are_over_the_exact_ones_by_direction() -> None:
    values, directions = np.linalg.eigh(COVARIANCE)
    stretched = MEAN + (normal_draws() - MEAN) @ directions * [2**0.5, 3**0.5] @ directions.T
    narrow, wide = measures.variance_ratios(stretched, MEAN, COVARIANCE)
    assert values[0] < values[1]
    for ratio, expected in ((narrow, 2), (wide, 3)):
        assert abs(ratio.value - expected) < 4 * ratio.error
        # The variance of n independent draws has a relative error of sqrt(2/n).
        assert ratio.error == pytest.approx(expected * (2 / 8000) ** 0.5, rel=0.5)
    assert narrow.away == pytest.approx((narrow.value - 1) / narrow.error)
    assert min(narrow.away, wide.away) > 10


def test_total_variation_by_chance_and_by_bias() -> None:
    chances = normal_chances()
    total, by_chance = measures.total_variation(normal_draws(), chances)
    assert total == pytest.approx(by_chance, rel=0.15)
    of_all = gaussian_mixture.distances(normal_draws().reshape(-1, 2), chances).total_variation
    assert total == pytest.approx(of_all)
    biased, chance_then = measures.total_variation(normal_draws(1.5), chances)
    assert biased > 1.5 * chance_then


def test_total_variation_on_the_way() -> None:
    draws, chances = normal_draws(), normal_chances()
    reading = np.random.default_rng(SEED).integers(50, 500, draws.shape[:2]).astype(float)
    rows, curve = measures.total_variation_curve(draws, reading, 4, chances)
    assert curve.shape == (4, len(rows))
    assert rows[0] == pytest.approx(reading[:, 0].sum() / 4)
    assert rows[-1] == pytest.approx(reading.sum() / 4)
    for repetition in range(4):
        pooled = draws[4 * repetition : 4 * (repetition + 1)]
        for point, count in ((0, 1), (-1, 500)):
            by_hand = gaussian_mixture.distances(pooled[:, :count].reshape(-1, 2), chances).total_variation
            assert curve[repetition, point] == pytest.approx(by_hand)


def entry(name: str, step: float, narrow: float, curve: tuple[float, ...]) -> MixtureEntry:
    return MixtureEntry(
        *(name, step, 10, 0.5, Cost(100, 200), Ratio(narrow, 0.01), None, Ratio(1.0, 0.05), curve[-1], 0.1),
        np.array([10.0, 100.0]),
        np.array([curve, curve]),
    )


def test_findings_tell_an_error_that_grows_from_one_that_does_not() -> None:
    wrong = [entry("SGLD", 0.1, 1.1, (0.5, 0.2)), entry("SGLD", 0.2, 2.5, (0.4, 0.3))]
    right = [entry("Langevin", 0.1, 1.01, (0.5, 0.25)), entry("Langevin", 0.2, 0.98, (0.4, 0.21))]
    read, accuracy = np.full((1, 3), 100.0), np.array([[0.5, 0.96, 0.98]])
    digits = DigitsEntry(
        "SGLD", 0.1, Cost(0, 100), Found("SGLD", None, trials.Rows(100.0, 0.0, 0.0, [100.0]), 1.0, accuracy, read)
    )
    found = gradients.Result(
        TINY,
        (*wrong, *right),
        (digits,),
        1.0,
        {},
    )
    bias, corrected, nearest, accurate = found.findings()
    assert "1.100 ± 0.010 times the exact one at step 0.1 and 2.500 ± 0.010 times at step 0.2" in bias
    assert "0.980 to 1.010, at most 2.0 Monte Carlo errors from 1: no visible error" in bias
    assert "0 of 2 runs with a test, 2 of 2 without (SGLD at 0.1, SGLD at 0.2)" in corrected
    assert "SGLD 0.200 ± 0.000 (step 0.1), Langevin 0.210" in nearest
    assert "SGLD 300 (then 0.980 at the end)" in accurate
    assert ranking.best_on_mixture(found.mixture)["Langevin"].step == 0.2
    worse = gradients.Result(TINY, (*wrong, entry("Langevin", 0.1, 1.05, (0.5, 0.2))), found.digits, 1.0, {})
    assert "5.0 Monte Carlo errors from 1: a visible error" in worse.findings()[0]


def test_a_budget_of_rows_makes_draws() -> None:
    assert draws_within(10_000, "SGLD", "mixture") == 100
    assert draws_within(10, "SGHMC", "mixture") == 8


def test_sgfs_is_refused_on_images() -> None:
    with pytest.raises(ValueError, match=r"DigitsConfig\(steps=...\)` must name some of"):
        gradients.Config(digits=gradients.DigitsConfig(steps={"SGFS": (0.1,)}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"chains": 0}, r"MixtureConfig\(chains=...\)"),
        ({"steps": {"SGD": (0.1,)}}, "must name some of RandomWalk, Langevin"),
        ({"steps": {}}, "must name some of"),
        ({"steps": {"SGLD": (0.1, -1.0)}}, "positive numbers"),
        ({"steps": {"SGLD": ()}}, "positive numbers"),
    ],
)
def test_wrong_sizes_are_refused(options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        gradients.Config(gradients.MixtureConfig(**options))


@pytest.mark.slow
def test_the_error_grows_with_the_step_only_without_a_test() -> None:
    """SGLD's as the formula for a normal posterior has it; Langevin steps under the test stay with the exact one."""
    steps = (0.07, 0.1, 0.14, 0.17)
    config = gradients.Config(
        gradients.MixtureConfig(
            rows=100_000, repetitions=2, chains=64, budget=150_000, steps={"Langevin": steps, "SGLD": steps}
        ),
        gradients.DigitsConfig(repetitions=1, budget=800, steps={"SGLD": (0.05,)}),
        seed=SEED,
    )
    result = gradients.run(config)
    ratios = [found.narrow for found in result.of("SGLD")]
    for shorter, longer in itertools.pairwise(ratios):
        assert longer.value - shorter.value > 4 * np.hypot(longer.error, shorter.error)
    target = gaussian_mixture.target_of(100_000, 50, SEED, False)
    precision = 1 / np.linalg.eigvalsh(target.grid.covariance)[0]
    for step, ratio in zip(steps, ratios, strict=True):
        half = 0.25 * step**2 * precision  # eps P/2; the noise of a hundred rows is as large as P where N/K = 100
        assert ratio.value == pytest.approx((1 + half) / (1 - half), rel=0.08)
        assert ratio.away > 4
    for found in result.of("Langevin"):
        assert max(found.narrow.away, found.wide.away) < 4
