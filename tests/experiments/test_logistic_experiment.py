"""The paper's regression on MNIST at a tiny size."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from conftest import SEED
from tallchain.datasets import Digits, mnist_1_7
from tallchain.experiments import logistic_regression as experiment
from tallchain.pictures import logistic as pictures

TINY = experiment.Config(
    dataclasses.replace(experiment.SMALL, draws=60, slow_draws=60, trials=2),
    dataclasses.replace(experiment.LARGE, further=500, draws=60, slow_draws=60, trials=2),
    dataclasses.replace(experiment.REPEATED, further=0, draws=60, slow_draws=60, trials=2),
    cooling_draws=450,
    cooling_trials=2,
    study_draws=60,
    seed=SEED,
)
_FEW = 2000


def _fewer(digits: Digits) -> Digits:
    return digits._replace(train_images=digits.train_images[:_FEW], train_is_seven=digits.train_is_seven[:_FEW])


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> experiment.Result:
    """2000 images, and two of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "mnist_1_7", lambda: _fewer(mnist_1_7()))
        patch.setattr(experiment, "infinite_mnist_style", lambda further, seed: _fewer(mnist_1_7()))
        patch.setattr(experiment, "METHODS", tuple(m for m in experiment.METHODS if m.name in _TESTED))
        return experiment.run(TINY, folder=tmp_path_factory.mktemp("trials"))


_TESTED = ("MinibatchBarker.paper()", "Confidence()")


def test_rows_and_accuracy(result: experiment.Result) -> None:
    paper, confidence = (result.of("MNIST-13k", name) for name in _TESTED)
    assert 100 <= paper.rows.mean < confidence.rows.mean <= _FEW
    assert confidence.rows.scanned == _FEW
    assert paper.rows.scanned == 0
    assert paper.printed == (125.4, 9.2)
    assert paper.accuracy.shape == (2, 60)
    assert 0.5 < np.mean(paper.final) <= 1  # better than chance after 60 draws
    assert result.study[0.05].rows.mean >= result.study[0.005].rows.mean
    json.dumps(result.to_json())


def test_rows_to_an_accuracy_by_hand(result: experiment.Result) -> None:
    found = dataclasses.replace(
        result.of("MNIST-13k", _TESTED[0]),
        accuracy=np.array([[0.5, 0.96, 0.9, 0.98], [0.96, 0.5, 0.5, 0.5], [0.5, 0.5, 0.96, 0.5]]),
        read=np.array([[100, 200, 300, 400], [10, 20, 30, 40], [1, 2, 3, 4]]),
    )
    assert found.rows_to_accuracy == {0.95: 10.0, 0.97: np.inf}  # of 300, 10, 6; of 1000, never, never
    assert found.over_first == {}
    assert result.of("MNIST-13k", _TESTED[0]).over_first == {}


def test_images_several_times(result: experiment.Result) -> None:
    data, digits = experiment.Data(dataclasses.replace(TINY.repeated, further=500), SEED), mnist_1_7()
    x, y = data.model.data["x"], data.model.data["y"]
    assert len(x) == len(digits.train_images) + 500
    np.testing.assert_array_equal(np.asarray(x[-500:]), np.asarray(x[:500]))
    np.testing.assert_array_equal(np.asarray(y[-500:]), digits.train_is_seven[:500])
    assert {each.name for each in result.repeated} == set(_TESTED)


def test_accuracy_is_the_share_told_right(result: experiment.Result) -> None:
    data = experiment.Data(TINY.small, SEED)
    digits = mnist_1_7()
    assert data.accuracy(np.zeros((1, 784), np.float32))[0] == pytest.approx(1 - digits.test_is_seven.mean())
    slope = digits.features()[0][digits.train_is_seven].mean(0) - digits.features()[0][~digits.train_is_seven].mean(0)
    by_hand = np.mean([(image.ravel() / 255 @ slope > 0) == seven for image, seven in zip(*digits[2:], strict=True)])
    assert data.accuracy(slope[None])[0] == pytest.approx(by_hand)


def test_pictures_are_drawn(result: experiment.Result, tmp_path: Path) -> None:
    figures = {
        "curves": pictures.accuracy_curves(result),
        "study": pictures.step_study(result),
        "digits": pictures.deformed_digits(mnist_1_7().train_images[:10], mnist_1_7().train_images[10:20]),
    }
    for name, figure in figures.items():
        figure.savefig(tmp_path / f"{name}.png")
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in figures["curves"].axes)


def test_the_paper_s_settings() -> None:
    """Table 4 of the appendix; a quick run has fewer draws, and nothing else."""
    quick, paper = experiment.Config.quick(), experiment.Config.paper()
    assert dataclasses.astuple(paper.small) == ("MNIST-13k", 0, 0.05, 5000, 5000, 10, 100, 450, 0.05, True)
    assert dataclasses.astuple(paper.large) == ("MNIST-100k", 87_000, 0.01, 3000, 3000, 5, 100, 300, 0.1, True)
    for name in ("small", "large"):
        mine, its = getattr(quick, name), getattr(paper, name)
        assert dataclasses.replace(mine, draws=its.draws, slow_draws=its.slow_draws) == its


@pytest.mark.slow
def test_every_test_runs_on_all_images(tmp_path: Path) -> None:
    config = dataclasses.replace(TINY, cooling_draws=420)
    result = experiment.run(config, folder=tmp_path)
    names = [method.name for method in experiment.METHODS]
    rows = {name: result.of("MNIST-13k", name).rows for name in names}
    assert rows["MinibatchBarker()"].mean < rows["Austere.nonconservative()"].mean < rows["Confidence()"].mean
    assert rows["Austere.nonconservative()"].scanned == 13_007
    assert result.study[0.05].rows.mean > 2 * result.study[0.005].rows.mean
    figure = pictures.logistic_rows(result, "MNIST-13k")
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
