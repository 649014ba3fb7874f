"""Fits of formulas: names that collide, few draws, Ctrl-C after the sampling, what a formula does not say itself."""

from __future__ import annotations

import dataclasses
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallchain as tc
from conftest import SEED
from tallchain.fitting import running
from tallchain.fitting.gathering import parameters_of_fit
from tallchain.formulas import build
from tallchain.surrogates.no_reference import NoReferenceError
from tallchain.tables import open_table

pd = pytest.importorskip("pandas")
pytest.importorskip("formulaic")

N = 1_500
QUICK = {"num_draws": 200, "num_chains": 4, "progress": False}
FIT_MODULE = sys.modules["tallchain.fitting.fit"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    random = np.random.default_rng(SEED)
    made = pd.DataFrame({name: random.normal(size=N) for name in ("x", "z")})
    made["hue"] = random.choice(["blue", "green", "red"], N)
    made["answer"] = np.where(random.random(N) < 1 / (1 + np.exp(-made["x"])), "yes", "no")
    made["tiny"] = 1e-12 * random.normal(size=N)
    made.loc[[3, 5], "z"] = np.nan
    return made


@pytest.fixture(scope="module")
def fit(frame: pd.DataFrame) -> tc.Fit:
    return tc.fit("answer ~ x + z + tiny", frame, family="bernoulli", missing="drop", **QUICK)


def test_what_the_formula_does_not_say(fit: tc.Fit, tmp_path: Path) -> None:
    said = "answer counts as 1 where it is 'yes', as 0 where it is 'no'."
    assert fit.facts.coding[0] == said
    assert said in str(fit)
    assert "answer counts as 1 where it is" in fit.report(tmp_path / "report.html").read_text()


def test_rows_left_out_are_counted_by_column(fit: tc.Fit) -> None:
    assert fit.facts.num_dropped == 2
    assert fit.facts.dropped == {"z": 2}
    (advice,) = (each for each in fit.facts.advice if each.code == "dropped-rows")
    assert "for missing values in z." in advice.what


def test_a_coefficient_that_is_its_prior_is_named(fit: tc.Fit) -> None:
    (advice,) = (each for each in fit.facts.advice if each.code == "prior-alone")
    assert advice.what.startswith("The data say next to nothing about tiny:")


@pytest.mark.slow
def test_several_predictors_have_names_in_the_page_and_in_pictures(frame: pd.DataFrame, tmp_path: Path) -> None:
    found = tc.fit("hue ~ x", frame, family="categorical", **QUICK)
    again = tc.Fit.load(found.save(tmp_path / "fit"))
    assert list(again.summary().index) == ["green: (intercept)", "green: x", "red: (intercept)", "red: x"]
    labels = [label.get_text() for label in found.plot().get_yticklabels()]
    assert "red: x" in labels


@pytest.mark.parametrize(
    "limits", [pytest.param({"max_draws": 5, "num_chains": 1}, marks=pytest.mark.slow), {"max_draws": 1}]
)
def test_few_draws_are_kept_and_not_checked(frame: pd.DataFrame, limits: dict[str, int], tmp_path: Path) -> None:
    found = tc.fit("answer ~ x", frame, family="bernoulli", **(QUICK | limits))
    assert found.facts.predictive is None
    codes = {each.code for each in found.facts.advice}
    assert ("too-few-draws" in codes) == (found.trace.num_draws < 4)
    assert "limit-reached" in {each.code for each in found.facts.advice}
    assert str(tc.Fit.load(found.save(tmp_path / "fit"))) == str(found)


@pytest.mark.parametrize(
    "stage", ["facts_of", *(pytest.param(of, marks=pytest.mark.slow) for of in ("predictive_check", "advice_of"))]
)
def test_ctrl_c_after_the_sampling_keeps_the_draws(
    frame: pd.DataFrame, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(FIT_MODULE, stage)

    def interrupted(*arguments: object) -> object:
        signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(FIT_MODULE, stage, interrupted)
    found = tc.fit("answer ~ x", frame, family="bernoulli", **QUICK)
    assert found.trace.num_draws >= 250
    assert (found.facts.predictive is None) == (stage == "facts_of")


@pytest.mark.slow
def test_ctrl_c_in_the_scan_is_said(frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = running.scanned

    def interrupted(*arguments: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return real(*arguments, **options)

    monkeypatch.setattr(running, "scanned", interrupted)
    found = tc.fit("answer ~ x", frame, family="bernoulli", acceptance=tc.Penalty(), **QUICK)
    codes = [each.code for each in found.facts.advice]
    assert "scan-interrupted" in codes
    assert "not-checked" not in codes
    assert "Ctrl-C came before the scan of all rows was done" in found.report(tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_a_limit_of_time_leaves_the_scan_on(frame: pd.DataFrame) -> None:
    found = tc.fit("answer ~ x", frame, family="bernoulli", acceptance=tc.Penalty(), max_seconds=1e-3, **QUICK)
    codes = [each.code for each in found.facts.advice]
    assert found.trace.scan is not None
    assert "not-checked" not in codes
    assert ("limit-reached" in codes) == ("low-ess" in codes or "r-hat" in codes)


# ---- names -------------------------------------------------------------------------------------


ODD_NAMES = ["chain", "coefficient", "accepted", "log_ratio", ".", "a/b", "x_level", "h_level", "<b>"]


@pytest.mark.parametrize("name", ["draw", 'a"[b]', *(pytest.param(name, marks=pytest.mark.slow) for name in ODD_NAMES)])
def test_a_factor_may_have_any_name(fit: tc.Fit, frame: pd.DataFrame, name: str, tmp_path: Path) -> None:
    """Those of dimensions and statistics of the file too."""
    random = np.random.default_rng(SEED)
    rows = frame.assign(**{name: frame["hue"]}, h=random.choice(["a", "b"], N))
    built = build(f"answer ~ x + (1 | `{name}`) + (1 | h)", open_table(rows), "bernoulli")
    shapes = built.model.layout.shapes()
    some = {key: getattr(fit.trace, key)[:, :50] for key in ("is_accepted", "rows_read", "rows_scanned", "log_ratio")}
    trace = dataclasses.replace(
        fit.trace,
        position={key: random.normal(size=(4, 50, *shape)).astype(np.float32) for key, shape in shapes.items()},
        names=dict(built.model.posterior.names),
        is_invalid=fit.trace.is_invalid[:, :50],
        extras={key: values[:, :50] for key, values in fit.trace.extras.items()},
        scan=None,
        **some,
    )
    facts = dataclasses.replace(fit.facts, parameters=parameters_of_fit(built.model, trace), predictive=None)
    found = tc.Fit(built.model, trace, facts, built.spec)
    again = tc.Fit.load(found.save(tmp_path / "fit"))
    assert list(again.draws) == list(found.draws)
    for key, draws in found.draws.items():
        np.testing.assert_array_equal(again.draws[key], draws)
    assert "<b>[" not in (tmp_path / "fit" / "report.html").read_text()


def test_slopes_of_products_are_named(frame: pd.DataFrame) -> None:
    built = build("answer ~ x + (x:x2 | hue)", open_table(frame.assign(x2=1 + frame["x"])), "bernoulli")
    from tallchain.fitting.describing import equation, model_words

    assert "a slope of x:x2 for each of 3 levels of hue" in model_words(built.model, "answer")
    assert "w[hue_i]·x:x2_i" in equation(built.model, "answer")[1]


def test_pairs_of_labels_that_read_alike_are_refused(frame: pd.DataFrame) -> None:
    random = np.random.default_rng(SEED)
    rows = frame.assign(a=random.choice(["p", "p:q"], N), b=random.choice(["q:r", "r"], N))
    with pytest.raises(ValueError, match=r"two pairs would both be called 'p:q:r'; rename them"):
        build("answer ~ x + (1 | a:b)", open_table(rows), "bernoulli")


def test_a_constant_column_is_named(frame: pd.DataFrame) -> None:
    with pytest.raises(NoReferenceError, match=r"the intercept, column 'c'\. Leave one of them out"):
        tc.fit(
            "y ~ x + c", frame.assign(c=7.0, y=frame["x"] + frame["x"].shift(1).fillna(0)), family="gaussian", **QUICK
        )


@pytest.mark.parametrize("name", ["1", "0", ".", "~"])
def test_a_column_called_as_a_number_or_an_operator_is_refused(frame: pd.DataFrame, name: str) -> None:
    """Not taken for the intercept, or for none."""
    with pytest.raises(ValueError, match=f"`{name}` would not be read as a name; rename the column"):
        build(f"answer ~ x + `{name}`", open_table(frame.assign(**{name: frame["x"]})), "bernoulli")
