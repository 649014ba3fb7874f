"""Traces as DataTrees: groups of the warm-up, attributes, and files that bring back what was written."""

from __future__ import annotations

import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

import tallchain as tc
from conftest import SEED

xarray = pytest.importorskip("xarray")
DATA = np.random.default_rng(SEED).normal(size=2000).astype(np.float32)
POSTERIOR = tc.Posterior(
    lambda t: -0.5 * t["a"] @ t["a"], lambda t, x: -0.5 * (x - t["a"][0]) ** 2, names={"a": ("x", "y")}
)
KERNEL = tc.MetropolisHastings(POSTERIOR, tc.Shuffled(DATA, 50), proposal=tc.RandomWalk(0.05))


@pytest.fixture(scope="module")
def traces() -> tuple[tc.Trace, tc.Trace]:
    """With the warm-up, and without."""
    options = {"num_chains": 4, "num_warmup": 7, "scan": 0, "progress": False}
    key, start = jax.random.key(SEED), {"a": np.zeros(2, np.float32)}
    with_it = tc.sample(key, KERNEL, start, 20, keep_warmup=True, **options)
    return with_it, tc.sample(key, KERNEL, start, 20, **options)


def test_the_warmup_is_kept_apart(traces: tuple[tc.Trace, tc.Trace]) -> None:
    trace, without = traces
    np.testing.assert_array_equal(trace.position["a"], without.position["a"])
    np.testing.assert_array_equal(trace.rows_read, without.rows_read)
    assert trace.decisions == without.decisions
    assert trace.warmup == without.warmup
    assert without.before is None
    assert trace.before is not None
    assert trace.before.position["a"].shape == (4, 7, 2)
    assert trace.before.rows_read.sum() == trace.warmup.rows_read
    moved = np.any(trace.position["a"][:, 0] != trace.before.position["a"][:, -1], 1)
    np.testing.assert_array_equal(moved, trace.is_accepted[:, 0])  # one goes on from the other
    tree = trace.to_datatree()
    assert set(tree.children) == {"posterior", "sample_stats", "warmup_posterior", "warmup_sample_stats"}
    assert tree["warmup_posterior"]["a"].sizes == {"chain": 4, "draw": 7, "a_dim_0": 2}
    assert tree["warmup_posterior"]["a_dim_0"].values.tolist() == ["x", "y"]


def test_attributes(traces: tuple[tc.Trace, tc.Trace]) -> None:
    tree = traces[0].to_datatree()
    found = tree["posterior"].attrs
    assert found["inference_library"] == tree.attrs["inference_library"] == "tallchain"
    assert found["inference_library_version"] == tc.__version__
    assert found["num_rows"] == 2000
    total = traces[0].decisions + traces[0].warmup
    assert found["rows_read_in_all"] == total.rows_read
    assert found["exact"] == 0
    assert found["test"].startswith("MinibatchBarker")
    assert found["sampling_time"] == traces[0].seconds
    np.testing.assert_array_equal(tree["sample_stats"]["acceptance_rate"].values, traces[0].is_accepted)


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_files_bring_back_what_was_written(traces: tuple[tc.Trace, tc.Trace], tmp_path: Path, kind: str) -> None:
    pytest.importorskip("h5netcdf" if kind == "netcdf" else "zarr")
    tree = traces[0].to_datatree()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have a Zarr V3 specification")
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        if kind == "netcdf":
            tree.to_netcdf(tmp_path / "draws.nc", engine="h5netcdf")
            again = xarray.open_datatree(tmp_path / "draws.nc", engine="h5netcdf")
        else:
            tree.to_zarr(tmp_path / "draws.zarr")
            again = xarray.open_datatree(tmp_path / "draws.zarr", engine="zarr")
        with again:
            xarray.testing.assert_identical(again.load(), tree.load())


def test_what_cannot_be_kept_is_refused() -> None:
    with pytest.raises(ValueError, match="keeps every draw"):
        tc.sample(jax.random.key(0), KERNEL, {"a": np.zeros(2)}, 20, keep_warmup=True, thin=2)
    with pytest.raises(TypeError, match="keep_warmup"):
        tc.sample(jax.random.key(0), KERNEL, {"a": np.zeros(2)}, 20, keep_warmup="yes")  # ty: ignore
