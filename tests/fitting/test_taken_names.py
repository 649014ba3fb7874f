"""Names that the draws would have twice, and rows by the numbers that they have in the table."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import tallchain as tc
from conftest import SEED
from tallchain.models import Regression, families
from tallchain.validation import RowError

pd = pytest.importorskip("pandas")
pytest.importorskip("formulaic")

N = 300
FIT_MODULE = importlib.import_module("tallchain.fitting.fit")


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("the work was begun")

    monkeypatch.setattr(FIT_MODULE, "prepare", work)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(
    ("family", "terms", "words"),
    [
        ("gaussian", "(1 | noise_sd)", "a parameter of the family is called 'noise_sd' too; rename the group."),
        ("gaussian", "noise_sd", "'noise_sd' too; rename the column, or write `I(noise_sd)` in a formula."),
        ("gamma", "x + shape", "'shape' too; rename the column, or write `I(shape)`"),
        ("student_t", "(1 | nu)", "a parameter of the family is called 'nu' too"),
        ("gaussian", "(1 | g) + (1 | `sd(g)`)", "the standard deviation of effects is called 'sd(g)' too"),
        ("gaussian", "`sd(g)` + (1 | g)", "is called 'sd(g)' too; rename the column."),
        ("gaussian", "(1 | coefficients)", "two parts of a position would be called 'coefficients'"),
        ("gaussian", "(1 | log_noise_sd)", "two parts of a position would be called 'log_noise_sd'"),
    ],
)
def test_a_name_of_the_model_is_refused(family: str, terms: str, words: str) -> None:
    random = np.random.default_rng(SEED)
    names = ("noise_sd", "shape", "nu", "sd(g)", "g", "coefficients", "log_noise_sd")
    frame = pd.DataFrame({name: random.integers(1, 5, N) for name in names})
    frame["x"], frame["y"] = random.normal(size=N), random.gamma(2, size=N)
    with pytest.raises(ValueError, match="fit") as caught:
        tc.fit(f"y ~ {terms}", frame, family=family, progress=False)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("no_work")
def test_a_group_of_a_regression_is_refused_too() -> None:
    random = np.random.default_rng(SEED)
    groups = {"shape": random.integers(0, 5, N)}
    model = Regression(families.Gamma(), y=random.gamma(2, size=N), x=random.normal(size=(N, 1)), groups=groups)
    with pytest.raises(ValueError, match=r"`fit\(model\)`: .* is called 'shape' too; rename the group\."):
        tc.fit(model, progress=False)


def test_other_families_have_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """`shape` is a plain name where the family has none."""

    class BegunError(Exception):
        pass

    def begin(*_: object, **__: object) -> None:
        raise BegunError

    monkeypatch.setattr(FIT_MODULE, "prepare", begin)
    frame = pd.DataFrame({"y": np.arange(N) % 2, "shape": np.arange(N) % 7})
    with pytest.raises(BegunError):
        tc.fit("y ~ shape", frame, family="bernoulli", progress=False)


def test_rows_are_those_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although some are left out, and the others are in random order."""

    def refuse(*_: object, **__: object) -> None:
        raise RowError("the log ratio of row ", 4, " is not finite.")

    monkeypatch.setattr(FIT_MODULE, "prepare", refuse)
    frame = pd.DataFrame({"y": np.arange(N) % 2, "x": np.arange(N) / N})
    frame.loc[[0, 3], "x"] = np.nan
    with pytest.raises(ValueError, match="the log ratio of row 6 is not finite"):
        tc.fit("y ~ x", frame, family="bernoulli", missing="drop", progress=False)
