"""A fit of arrays: names, summary, prediction; and the folder it is saved in, whole, cut short or tampered with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tallchain as tc
from commands import made_up_trace
from conftest import SEED
from tallchain.fitting.saving import DRAWS, FACTS, SavedFitError, write_draws
from tallchain.models import Group, Regression, families

pd = pytest.importorskip("pandas")
N, GROUPS = 4_000, 12


@pytest.fixture(scope="module")
def model() -> Regression:
    random = np.random.default_rng(SEED)
    x = pd.DataFrame({"age": random.normal(size=N), "dose": random.normal(size=N)})
    clinic = np.array([f"c/{k:02d}" for k in random.integers(0, GROUPS, N)])
    effects = dict(zip(np.unique(clinic), random.normal(0, 0.7, GROUPS), strict=True))
    y = 1 + 0.5 * x["age"] - 0.2 * x["dose"] + np.array([effects[label] for label in clinic])
    noise = random.normal(0, 2, N)
    return Regression(
        families.Gaussian(), y=y + noise, x=x, groups={"clinic": Group(clinic, {"age": x["age"].to_numpy()})}
    )


@pytest.fixture(scope="module")
def fit(model: Regression) -> tc.Fit:
    return tc.fit(model, num_draws=300, num_chains=4, check=False, progress=False)


@pytest.fixture(scope="module")
def folder(fit: tc.Fit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit.save(tmp_path_factory.mktemp("fits") / "fit")


def test_the_summary_is_a_frame_by_name(fit: tc.Fit) -> None:
    table = fit.summary()
    names = ["(intercept)", "age", "dose", "noise_sd", "sd(clinic)", "sd(clinic:age)"]
    assert list(table.index) == names  # more than 20 effects are not listed
    assert isinstance(table, pd.DataFrame)
    assert abs(table.loc["noise_sd", "mean"] - 2) < 0.2
    assert abs(table.loc["age", "mean"] - 0.5) < 0.5
    assert type(table[table["mean"] > 0]) is pd.DataFrame
    whole = fit.summary(effects=True)
    assert "clinic[c/03]" in whole.index
    assert "clinic:age[c/03]" in whole.index
    assert len(whole) == 6 + 2 * GROUPS
    text = str(table)
    assert all(name in text for name in (*names, "12 effects of clinic are not listed", "trust", "rows"))
    assert str(fit) == text


def test_draws_and_tree_have_names(fit: tc.Fit) -> None:
    draws = fit.draws
    np.testing.assert_array_equal(draws["sd(clinic)"], np.exp(fit.trace.position["log_sd(clinic)"]))
    posterior = fit.to_datatree()["posterior"]
    assert list(posterior["coefficient"].values) == ["(intercept)", "age", "dose"]
    assert posterior["clinic"].dims == ("chain", "draw", "clinic_level")
    assert "c/03" in posterior["clinic_level"].values
    assert posterior.attrs["inference_library"] == "tallchain"


def test_the_tree_has_outcomes_of_some_rows(fit: tc.Fit, model: Regression) -> None:
    tree = fit.to_datatree(predictive=400)
    rows = tree["observed_data"]["row"].values
    assert (len(rows), rows[0], rows[-1]) == (400, 0, N - 1)
    observed, drawn = tree["observed_data"]["y"].values, tree["posterior_predictive"]["y"]
    np.testing.assert_array_equal(observed, model.data["y"][rows])
    np.testing.assert_array_equal(drawn["row"], rows)
    assert drawn.dims == ("chain", "draw", "row")
    mean, sd = drawn.mean(("chain", "draw")).values, drawn.std(("chain", "draw")).values
    tolerance = 4.5 * np.sqrt(2 / 400)  # of the mean of squares of standard normals
    assert abs(np.mean(((observed - mean) / sd) ** 2) - 1) < tolerance
    assert abs(np.mean(((observed[::-1] - mean) / sd) ** 2) - 1) > tolerance  # outcomes of other rows
    assert set(fit.to_datatree(predictive=0).children) == {"posterior", "sample_stats"}


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_the_tree_comes_back_from_files(fit: tc.Fit, tmp_path: Path, kind: str) -> None:
    xarray = pytest.importorskip("xarray")
    engine = "h5netcdf" if kind == "netcdf" else "zarr"
    pytest.importorskip(engine)
    tree = fit.to_datatree(predictive=5, dims={"coefficients": ["column"]}, coords={"column": ["a", "b", "c"]})
    assert tree["posterior"]["coefficients"].sel(column="b").dims == ("chain", "draw")
    path = tmp_path / "draws"
    if kind == "netcdf":
        tree.to_netcdf(path, engine=engine)
    else:
        tree.to_zarr(path)
    with xarray.open_datatree(path, engine=engine) as again:
        xarray.testing.assert_identical(again.load(), tree.load())


def test_dimensions_of_no_parameter_are_refused(fit: tc.Fit) -> None:
    with pytest.raises(ValueError, match=r"of parameters: .*coefficients, .*; got 'cofficients'"):
        fit.to_datatree(predictive=0, dims={"cofficients": ["column"]})


def test_a_loaded_fit_says_and_predicts_the_same(fit: tc.Fit, folder: Path, model: Regression) -> None:
    again = tc.Fit.load(folder)
    assert str(again) == str(fit)
    assert again.facts == fit.facts
    for name, draws in fit.draws.items():
        np.testing.assert_array_equal(again.draws[name], draws)
    new = {"x": pd.DataFrame({"age": [0.0, 2.0], "dose": [1.0, 0.0]})}
    new |= {"groups": {"clinic": Group(np.array(["c/01", "c/07"]), {"age": np.array([0.0, 2.0])})}}
    first, second = fit.predict(**new), again.predict(**new)
    np.testing.assert_array_equal(first.mean, second.mean)
    pd.testing.assert_frame_equal(first.to_pandas(), second.to_pandas())
    assert set(first.to_pandas()) == {"mean", "lower", "upper", "outcome_lower", "outcome_upper"}
    own = model.predict(fit.trace, **new)
    np.testing.assert_allclose(first.mean, own.mean)
    assert sorted(path.name for path in folder.iterdir()) == [DRAWS, FACTS, "report.html", "summary.csv"]
    table = pd.read_csv(folder / "summary.csv", index_col="parameter")
    np.testing.assert_allclose(table["mean"], fit.summary(effects=True)["mean"], rtol=1e-12)


def test_a_loaded_fit_has_no_rows(folder: Path) -> None:
    again = tc.Fit.load(folder)
    with pytest.raises(ValueError, match="does not keep the rows"):
        again.predict()
    with pytest.raises(ValueError, match="has no rows"):
        again.audit()


# ---- broken folders ----------------------------------------------------------------------------


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    there = tmp_path / "copy"
    there.mkdir()
    for path in folder.iterdir():
        (there / path.name).write_bytes(path.read_bytes())
    return there


def change(folder: Path, **fields: object) -> None:
    found = json.loads((folder / FACTS).read_text())
    (folder / FACTS).write_text(json.dumps(found | fields))


def test_no_fit_at_all(tmp_path: Path) -> None:
    with pytest.raises(SavedFitError, match=r"has no fit\.json"):
        tc.Fit.load(tmp_path)


def test_files_that_were_cut_short_are_refused(copy: Path) -> None:
    draws = (copy / DRAWS).read_bytes()
    (copy / DRAWS).write_bytes(draws[: len(draws) // 2])
    with pytest.raises(SavedFitError, match="cut short"):
        tc.Fit.load(copy)
    (copy / DRAWS).write_bytes(draws)
    (copy / FACTS).write_text((copy / FACTS).read_text()[:-100])
    with pytest.raises(SavedFitError, match="cannot be read"):
        tc.Fit.load(copy)


def test_another_format_or_model_is_refused(copy: Path) -> None:
    change(copy, format=99)
    with pytest.raises(SavedFitError, match="must have format 1; got 99"):
        tc.Fit.load(copy)
    change(copy, format=1, model={"family": {"name": "os.system"}})
    with pytest.raises(SavedFitError, match="was changed"):
        tc.Fit.load(copy)


def test_draws_of_another_model_are_refused(copy: Path) -> None:
    model = json.loads((copy / FACTS).read_text())["model"]
    change(copy, model=model | {"num_features": 7, "names": None})
    with pytest.raises(SavedFitError, match="do not fit the model"):
        tc.Fit.load(copy)


def test_a_fit_that_could_not_be_written_is_none(fit: tc.Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of it, and a fit that was there stays."""

    def fail(*_: object) -> str:
        raise OSError("No space left on device")

    monkeypatch.setattr("tallchain.fitting.saving.write_report", fail)
    with pytest.raises(OSError, match="No space"):
        fit.save(tmp_path / "fit")
    assert not list(tmp_path.iterdir())


# ---- own posteriors, and bad calls -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["draw", "a/b"])  # which a file has to call otherwise
def test_an_own_posterior_keeps_its_names(tmp_path: Path, name: str) -> None:
    data = np.random.default_rng(SEED).normal(3.0, 1.0, (3_000, 2)).astype(np.float32)
    posterior = tc.Posterior(
        lambda t: -0.5 * (t[name] ** 2).sum() / 100, lambda t, x: -0.5 * ((x - t[name]) ** 2).sum()
    )
    start = {name: np.zeros(2, np.float32)}
    found = tc.fit(posterior, data, initial=start, num_draws=300, num_chains=4, progress=False)
    assert list(found.summary().index) == [f"{name}[0]", f"{name}[1]"]
    assert np.all(np.abs(found.summary()["mean"] - data.mean(0)) < 0.02)
    again = tc.Fit.load(found.save(tmp_path / "own"))
    np.testing.assert_array_equal(again.draws[name], found.draws[name])
    with pytest.raises(ValueError, match="own functions"):
        again.predict()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_draws": 0}, "num_draws=.*at least 1; got 0"),
        ({"num_draws": 2.5}, "num_draws=.*whole number"),
        ({"max_seconds": -1}, "max_seconds=.*positive"),
        ({"num_chains": 0}, "num_chains=.*at least 1"),
        ({"seed": -1}, "seed=.*at least 0"),
        ({"check": "yes"}, "check="),
    ],
)
def test_bad_numbers(model: Regression, options: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        tc.fit(model, **options)


def test_bad_models(model: Regression) -> None:
    with pytest.raises(TypeError, match="must be a formula, a Regression, a Posterior or a Prepared; got 3"):
        tc.fit(3)
    with pytest.raises(TypeError, match="goes with a formula"):
        tc.fit(model, family="poisson")
    with pytest.raises(TypeError, match="give the table"):
        tc.fit("y ~ x")
    with pytest.raises(TypeError, match="say what the outcomes are"):
        tc.fit("y ~ x", pd.DataFrame({"y": [1.0], "x": [1.0]}))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_is_an_error_and_not_the_end_of_the_process() -> None:
    with pytest.raises(OSError, match="No space left on device"):
        write_draws(made_up_trace().to_datatree(), Path("/dev/full"))
