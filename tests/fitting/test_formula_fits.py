"""Fits of formulas: names, levels, transforms that remember, missing values, advice, and the audit of a saved fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tallchain as tc
from conftest import SEED
from tallchain.fitting.checking import checked

pd = pytest.importorskip("pandas")
pytest.importorskip("formulaic")
N = 6_000
FORMULA = "better ~ scale(age) * C(sex) + (1 | site)"


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    random = np.random.default_rng(SEED)
    age, sex = random.normal(50, 10, N), random.choice(["f", "m"], N)
    site = random.choice(["north", "south", "east", "west", "mid"], N)
    effects = {"north": 0.6, "south": -0.5, "east": 0.2, "west": -0.3, "mid": 0.0}
    z = 0.5 * (age - 50) / 10 - 0.7 * (sex == "m") + np.array([effects[each] for each in site])
    better = np.where(random.random(N) < 1 / (1 + np.exp(-z)), "yes", "no")
    return pd.DataFrame({"better": better, "age": age, "sex": sex, "site": site})


@pytest.fixture(scope="module")
def path(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("rows") / "rows.parquet"
    frame.to_parquet(at)
    return at


@pytest.fixture(scope="module")
def fit(path: Path) -> tc.Fit:
    return tc.fit(FORMULA, path, family="bernoulli", num_draws=400, num_chains=8, progress=False)


def test_names_are_those_of_the_frame(fit: tc.Fit) -> None:
    names = list(fit.summary().index)
    assert names[:5] == ["(intercept)", "scale(age)", "sex[m]", "scale(age):sex[m]", "sd(site)"]
    assert names[5:] == [f"site[{level}]" for level in ("east", "mid", "north", "south", "west")]
    table = fit.summary()
    assert abs(table.loc["scale(age)", "mean"] - 0.5) < 5 * table.loc["scale(age)", "sd"]
    assert abs(table.loc["sex[m]", "mean"] + 0.7) < 5 * table.loc["sex[m]", "sd"]
    facts = fit.facts
    assert facts.formula == FORMULA
    assert facts.outcome == "better"
    assert "'yes'" in facts.words
    assert facts.predictive is not None
    assert not facts.predictive.is_suspect
    assert facts.call is not None
    assert "family='bernoulli'" in facts.call
    assert facts.checksum


def test_predictions_remember_what_functions_learned(fit: tc.Fit, frame: pd.DataFrame, path: Path) -> None:
    new = pd.DataFrame({"site": ["mid", "north"], "sex": ["m", "f"], "age": [40.0, 70.0]})
    found = fit.predict(new)
    draws = fit.draws
    scaled = (new["age"].to_numpy() - frame["age"].mean()) / frame["age"].std()
    levels = ["east", "mid", "north", "south", "west"]
    for row, (site, is_male) in enumerate(zip(new["site"], [1, 0], strict=True)):
        x = np.array([1, scaled[row], is_male, scaled[row] * is_male])
        z = draws["coefficients"] @ x + draws["site"][..., levels.index(site)]
        assert found.mean[row] == pytest.approx(np.mean(1 / (1 + np.exp(-z))), abs=0.01)
    assert list(found.to_pandas()) == ["mean", "lower", "upper", "outcome_lower", "outcome_upper"]
    np.testing.assert_allclose(fit.predict(path).mean[:5], fit.predict(frame.head(5)).mean, rtol=1e-5)


def test_new_levels(fit: tc.Fit) -> None:
    new = pd.DataFrame({"site": ["overseas"], "sex": ["m"], "age": [40.0]})
    with pytest.raises(ValueError, match="overseas"):
        fit.predict(new)
    wide, narrow = fit.predict(new, new_levels="draw"), fit.predict(new.assign(site="mid"))
    assert np.ptp(wide.interval) > np.ptp(narrow.interval)
    assert (wide.new_levels, narrow.new_levels) == ({"site": ("overseas",)}, {})
    with pytest.raises(ValueError, match="'x'"):
        fit.predict(new.assign(site="mid", sex="x"))


@pytest.mark.slow
def test_missing_values_are_refused_or_dropped_and_counted(frame: pd.DataFrame) -> None:
    holes = frame.copy()
    holes.loc[[3, 7], "age"] = np.nan
    with pytest.raises(ValueError, match=r"'age' 2 \(the first in row 3\)"):
        tc.fit(FORMULA, holes, family="bernoulli", progress=False)
    options = {"num_draws": 50, "num_chains": 4, "check": False, "progress": False}
    found = tc.fit("better ~ age", holes, family="bernoulli", missing="drop", **options)
    assert found.facts.num_rows == N - 2
    assert found.facts.num_dropped == 2
    assert "dropped-rows" in [each.code for each in found.facts.advice]


@pytest.mark.slow
def test_a_saved_fit_is_audited(fit: tc.Fit, path: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    saved = tc.Fit.load(fit.save(tmp_path / "fit"))
    again, audit = checked(saved, path, num_decisions=8, progress=False)
    assert again.facts.trust.audited_error == audit.log_odds.upper
    assert audit.num_decisions == 8
    other = tmp_path / "other.parquet"
    frame.assign(age=1.0).to_parquet(other)
    with pytest.raises(ValueError, match="is not the table that was fitted"):
        checked(saved, other, progress=False)
    with pytest.raises(ValueError, match="give that test"):
        checked(saved, path, acceptance=tc.Metropolis(), progress=False)


@pytest.mark.slow
def test_the_same_call_gives_the_same_fit(fit: tc.Fit, path: Path) -> None:
    again = tc.fit(FORMULA, path, family="bernoulli", num_draws=400, num_chains=8, check=False, progress=False)
    np.testing.assert_array_equal(again.draws["site"], fit.draws["site"])


@pytest.mark.slow
def test_separated_and_collinear_columns_are_advised_on() -> None:
    random = np.random.default_rng(SEED)
    x = random.normal(size=3_000)
    rows = pd.DataFrame({"y": (x > 0).astype(int), "x": x, "z": x + 1e-3 * random.normal(size=3_000)})
    options = {"num_draws": 50, "num_chains": 4, "max_draws": 4_000, "check": False, "progress": False}
    found = tc.fit("y ~ x + z", rows, family="bernoulli", **options)
    assert {"collinear", "separation"} & {each.code for each in found.facts.advice}
