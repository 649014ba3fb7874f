"""The trace: names, ArviZ, and a summary that is right."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest

import tallchain as tc
from scenarios import normal_vector
from tallchain import settings
from tallchain.models.likelihoods import NormalLogPrior


@pytest.fixture(scope="module")
def trace() -> tc.Trace:
    target = normal_vector()
    source = tc.Shuffled(target.data, 100)
    kernel = tc.MetropolisHastings(target.posterior, source, proposal=target.proposal)
    return tc.sample(
        jax.random.key(0), kernel, {"a": 0.0, "b": 0.0}, 100, num_chains=4, num_warmup=10, scan=0, progress=False
    )


def test_datatree(trace: tc.Trace) -> None:
    tree = trace.to_datatree()
    assert tree["posterior"]["a"].dims == ("chain", "draw")
    np.testing.assert_array_equal(tree["sample_stats"]["rows_read"].values, trace.rows_read)
    assert set(tree["sample_stats"].data_vars) >= {"accepted", "rows_read", "log_ratio"}


def test_arviz_summary_and_a_netcdf_file(trace: tc.Trace, tmp_path: Path) -> None:
    """What the extra `all` promises."""
    pytest.importorskip("xarray_einstats")
    pytest.importorskip("h5netcdf")
    import arviz_stats
    import xarray

    tree = trace.to_datatree()
    table = arviz_stats.summary(tree)
    assert list(table.index) == ["a", "b"]
    tree.to_netcdf(tmp_path / "trace.nc")
    with xarray.open_datatree(tmp_path / "trace.nc") as again:
        np.testing.assert_array_equal(again["posterior"]["a"].values, trace.position["a"])
        assert again["posterior"].attrs["temperature"] == 2000


def test_the_extra_has_what_datatrees_need() -> None:
    """Neither ArviZ nor xarray asks for them."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    extra = tomllib.loads(text)["project"]["optional-dependencies"]["all"]
    assert {"xarray-einstats", "h5netcdf", "h5py"} <= {re.split("[<>=]", name)[0] for name in extra}


def test_summary_against_numpy(trace: tc.Trace) -> None:
    summary = trace.summary()
    assert [p.name for p in summary.parameters] == ["a", "b"]
    np.testing.assert_allclose(summary.parameters[1].mean, trace.position["b"].mean(dtype=float))
    assert summary.rows.mean == trace.rows_read.mean()
    assert summary.rows.max == trace.rows_read.max()
    assert summary.rows.total == trace.rows_read.sum() + trace.warmup.rows_read
    assert summary.rows.share == pytest.approx(trace.rows_read.mean() / 20_000)
    assert 0.9 < summary.parameters[0].r_hat < 1.5
    json.dumps(summary.to_dict())


def test_summary_is_printable(trace: tc.Trace) -> None:
    text = str(trace.summary())
    for word in ("acceptance", "rows per decision", "99th percentile", "r_hat", "share of the data", "scanned"):
        assert word in text


def test_names_of_vectors_and_records(trace: tc.Trace) -> None:
    vector = dataclasses.replace(trace, position=np.stack([trace.position["a"]] * 3, -1))
    assert list(vector.variables()) == ["position"]
    assert [p.name for p in vector.summary().parameters] == ["position[0]", "position[1]", "position[2]"]
    assert "4 chains x 100 draws of position[3]" in repr(vector)
    nested = dataclasses.replace(trace, position={"w": {"bias": trace.position["a"]}})
    assert list(nested.variables()) == ["w.bias"]


ORDER = ["slope", "effects.b", "effects.a", "cut"]


def out_of_order() -> tc.Trace:
    """Draws of parameters that the alphabet would put elsewhere."""
    posterior = tc.Posterior(
        lambda t: -(t["slope"] ** 2) - t["effects"]["b"] ** 2 - t["effects"]["a"] ** 2 - t["cut"] ** 2,
        lambda t, x: -((x - t["slope"]) ** 2),
        1000.0,
    )
    source = tc.Shuffled(np.zeros(1000, np.float32), 100)
    kernel = tc.MetropolisHastings(posterior, source, proposal=tc.RandomWalk(0.3))
    start = {"slope": 0.0, "effects": {"b": 1.0, "a": 2.0}, "cut": 3.0}
    return tc.sample(jax.random.key(0), kernel, start, 8, num_chains=2, scan=0, progress=False)


def test_parameters_come_in_the_order_of_the_initial_position() -> None:
    trace = out_of_order()
    assert list(trace.variables()) == ORDER
    summary = trace.summary()
    assert [p.name for p in summary.parameters] == ORDER
    assert np.abs(trace.position["cut"][:, 0] - 3).max() < 2
    table = summary.to_pandas()
    assert list(table.index) == ORDER
    assert table.loc["cut", "median"] == summary.parameters[3].median


@pytest.mark.slow
def test_the_audit_lists_parameters_in_that_order() -> None:
    trace = out_of_order()
    found = tc.audit(trace.kernel, trace, num_decisions=40, num_trials=2, progress=False)
    assert [d.name for d in found.drift] == ORDER


def test_labels_of_the_entries_of_a_vector(trace: tc.Trace) -> None:
    vector = np.stack([trace.position["a"]] * 2, -1)
    named = dataclasses.replace(trace, position={"w": vector, "s": trace.position["a"]}, names={"w": ("age", "height")})
    assert [p.name for p in named.summary().parameters] == ["w[age]", "w[height]", "s"]
    tree = named.to_datatree()
    assert tree["posterior"]["w"].coords["w_dim_0"].values.tolist() == ["age", "height"]
    tree = named.to_datatree(dims={"w": ["feature"]})
    assert tree["posterior"]["w"].sel(feature="height").dims == ("chain", "draw")
    tree = named.to_datatree(dims={"w": ["feature"]}, coords={"feature": ["x", "y"]})
    assert tree["posterior"]["w"].coords["feature"].values.tolist() == ["x", "y"]
    single = dataclasses.replace(trace, position=vector, names={"position": ("age", "height")})
    assert [p.name for p in single.summary().parameters] == ["age", "height"]
    wrong = dataclasses.replace(single, names={"position": ("age",)})
    assert [p.name for p in wrong.summary().parameters] == ["position[0]", "position[1]"]


def test_summary_and_datatree_state_what_was_sampled(trace: tc.Trace) -> None:
    text = str(trace.summary())
    for line in (
        r"test                 MinibatchBarker\(sigma=1.0, .*stopping=Fresh\(least_rows=20, far_off=2.0\), skew=True\)",
        r"proposal             RandomWalk\(scale=2 x 2 matrix\)",
        r"prior                lambda in scenarios.py, line \d+",
        r"temperature          2,000   tempered: NOT the posterior",
        r"time                 \d+\.\d s in all: \d+\.\d compiling and checking, \d+\.\d sampling \([\d,]+ draws/s\)",
        r"             mean         sd        5 %       50 %       95 %  mcse_mean",
    ):
        assert re.search(line, text), line
    attributes = trace.to_datatree()["posterior"].attrs
    assert attributes["temperature"] == 2000
    assert attributes["tempered"] == "NOT the posterior"
    assert attributes["test"].startswith("MinibatchBarker(")


def named_prior(t: float) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (named_prior, "named_prior"),
        (functools.partial(named_prior, 1), "named_prior (partial)"),
        (NormalLogPrior(1.0), "NormalLogPrior(sd=1.0)"),
    ],
)
def test_names_of_functions(function, name: str) -> None:
    assert settings.name_of(function) == name


def test_few_draws_have_no_effective_sample_size(trace: tc.Trace) -> None:
    short = dataclasses.replace(
        trace,
        **{
            name: getattr(trace, name)[:, :2]
            for name in ("is_accepted", "rows_read", "rows_scanned", "log_ratio", "is_invalid")
        },
        position=jax.tree.map(lambda leaf: leaf[:, :2], trace.position),
    )
    assert np.isnan(short.summary().parameters[0].ess_bulk)


def test_names_that_arviz_has_taken_are_refused() -> None:
    zeros = np.zeros((2, 3))
    no = zeros > 0
    trace = tc.Trace({"draw": zeros, "b": zeros}, no, no + 50, no * 0, zeros, no, num_rows=1000)
    with pytest.raises(ValueError, match=r"`trace.to_datatree\(\)`: a parameter is named 'draw'"):
        trace.to_datatree()
