"""Packed files and designs: what goes in comes out, in random order; and what cannot go in is refused in a line."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallchain as tc
from conftest import SEED
from tallchain.packs import designs, open_design
from tallchain.sources import Packed
from tallchain.sources.manifest import Manifest, PackError

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("formulaic")

ROWS, FORMULA = 3000, "y ~ x + k + (1 | g)"


def frame() -> Any:
    random = np.random.default_rng(SEED)
    group, x = random.integers(0, 12, ROWS), random.normal(size=ROWS)
    y = random.random(ROWS) < 1 / (1 + np.exp(-0.5 * x - random.normal(size=12)[group] / 2))
    labels = random.choice(["b", "a", "c"], ROWS)
    found = pd.DataFrame({"y": y.astype(int), "x": x, "k": labels, "g": [f"g{each:02}" for each in group]})
    return found.sort_values(["g", "x"], ignore_index=True)


def columns(folder: Path) -> dict[str, np.ndarray]:
    shards = Manifest.read(folder).shards
    return {
        name: np.concatenate([np.load(folder / shard.folder / f"{name}.npy") for shard in shards])
        for name in Manifest.read(folder).columns
    }


def written(table: Any, path: Path) -> Path:
    {".csv": table.to_csv, ".parquet": table.to_parquet}[path.suffix](path, index=False)
    return path


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_labels_are_numbers_and_rows_stay_together(tmp_path: Path, ending: str) -> None:
    table = frame()
    path = written(table, tmp_path / f"rows{ending}")
    manifest = tc.pack(path, tmp_path / "packed", shards=3, progress=False)
    assert manifest.num_rows == ROWS
    assert manifest.columns["k"].levels == ("a", "b", "c")
    found = columns(tmp_path / "packed")
    levels = {name: np.array(of.levels) for name, of in manifest.columns.items() if of.levels}
    back = pd.DataFrame({name: levels[name][of] if name in levels else of for name, of in found.items()})
    assert not np.all(np.diff(found["g"]) >= 0)  # sorted no more
    back = back.sort_values(["g", "x"], ignore_index=True)
    np.testing.assert_allclose(back["x"], table["x"].astype(np.float32))
    assert list(back["k"]) == list(table["k"])
    np.testing.assert_array_equal(back["y"], table["y"])


def test_files_of_arrays_and_arrays(tmp_path: Path) -> None:
    x, y = np.arange(2000.0).reshape(1000, 2), np.arange(1000)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "both.npz", x=x, y=y)
    np.savez_compressed(tmp_path / "small.npz", x=x, y=y)
    for number, given in enumerate(
        (tmp_path / "x.npy", tmp_path / "both.npz", tmp_path / "small.npz", {"x": x, "y": y}, x)
    ):
        tc.pack(given, tmp_path / f"p{number}", progress=False)
        found = columns(tmp_path / f"p{number}")
        held = found["x" if "x" in found else "data"]
        assert held.dtype == np.float32
        np.testing.assert_array_equal(held[np.argsort(held[:, 0])], x)
        if "y" in found:
            np.testing.assert_array_equal(found["y"], held[:, 0] / 2)
    tc.pack(tmp_path / "both.npz", tmp_path / "one", columns="y", progress=False)
    assert set(columns(tmp_path / "one")) == {"y"}


def test_rows_that_lack_a_value_are_refused_or_dropped(tmp_path: Path) -> None:
    table = frame()
    table.loc[17, "x"] = np.nan
    table.loc[40, "k"] = None
    arrays = {"x": table["x"].to_numpy()}
    for given, row in ((table, "column 'x' lacks a value in row 17"), (arrays, "column 'x' lacks a value in row 17")):
        with pytest.raises(PackError, match=row):
            tc.pack(given, tmp_path / "refused", progress=False)
    assert tc.pack(table, tmp_path / "a", missing="drop", progress=False).num_rows == ROWS - 2
    assert tc.pack(arrays, tmp_path / "b", missing="drop", progress=False).num_rows == ROWS - 1
    assert not (tmp_path / "refused").exists()


@pytest.mark.slow
def test_a_fit_of_a_packed_design_is_that_of_its_table(tmp_path: Path) -> None:
    table, options = frame(), {"family": "bernoulli", "num_draws": 400, "progress": False}
    tc.pack(table, tmp_path / "packed", formula=FORMULA, family="bernoulli", progress=False)
    design = open_design(tmp_path / "packed")
    x = design.manifest.columns["x"]
    assert x.shape == (4,)
    size = ROWS * Packed(tmp_path / "packed").held.row_bytes
    packed = tc.fit(FORMULA, tmp_path / "packed", memory=size, **options)
    plain = tc.fit(FORMULA, table, **options)
    assert packed.prepared is not None
    assert packed.prepared.source.num_parts == 4
    assert packed.facts.num_rows == ROWS
    assert f"over {ROWS:,} rows" in packed.facts.words
    assert packed.trace.num_draws % 4 == 0
    for mine, its in zip(packed.facts.parameters, plain.facts.parameters, strict=True):
        assert mine.name == its.name
        assert abs(mine.mean - its.mean) < 5 * np.hypot(mine.mcse, its.mcse) + 0.05 * its.sd
    assert packed.facts.trust.part_error
    assert "rows in parts" in str(packed)
    assert "random part of the rows" in packed.report(tmp_path / "report.html").read_text()
    np.testing.assert_allclose(packed.predict(table[:3]).mean, plain.predict(table[:3]).mean, atol=0.03)
    packed.save(tmp_path / "fit")
    assert tc.Fit.load(tmp_path / "fit").facts.trust.part_error == packed.facts.trust.part_error


def test_a_call_that_does_not_go_with_what_was_packed_is_refused(tmp_path: Path) -> None:
    table = frame()
    tc.pack(table, tmp_path / "packed", formula=FORMULA, family="bernoulli", progress=False)
    tc.pack(table, tmp_path / "plain", progress=False)
    for formula, folder, options, words in (
        ("y ~ x", "packed", {}, "has the design of"),
        (FORMULA, "packed", {"family": "poisson"}, "was packed for Bernoulli"),
        (FORMULA, "packed", {"weights": "x"}, "weights=None"),
        (FORMULA, "plain", {}, "has columns, and no design"),
    ):
        with pytest.raises(PackError, match=words):
            tc.fit(formula, tmp_path / folder, **{"family": "bernoulli"} | options)


def test_bad_input_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    table = frame()
    (tmp_path / "text.npy").write_text("no numbers")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    np.save(tmp_path / "cut.npy", np.zeros(1000))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:-9])
    np.savez(tmp_path / "objects.npz", x=np.array([{}, {}], object))
    np.savez_compressed(tmp_path / "broken.npz", x=np.arange(4000.0))
    held = bytearray((tmp_path / "broken.npz").read_bytes())
    held[1000:1100] = bytes(100)
    (tmp_path / "broken.npz").write_bytes(held)
    os.mkfifo(tmp_path / "pipe.npy")
    for given, options, words in (
        (tmp_path / "none.npy", {}, "no such file"),
        (tmp_path / "text.npy", {}, "not a whole file of plain arrays"),
        (tmp_path / "cut.npy", {}, "cut short"),
        (tmp_path / "objects.npz", {}, "not a whole file of plain arrays"),
        (table, {"columns": ["x", "z"]}, "no column 'z'"),
        (table, {"columns": []}, "must name columns"),
        (table, {"family": "poisson"}, "goes with a formula"),
        (table, {"formula": FORMULA}, "say what the outcomes are"),
        (table, {"formula": FORMULA, "family": "bernoulli", "columns": ["x"]}, "leave `columns` out"),
        (table, {"missing": "fill"}, "must be"),
        (table, {"shards": 0}, "whole number"),
        (table, {"memory": "much"}, "4GB"),
        ({"x": np.full(3, 1e300)}, {}, "too large for float32"),
        ({"x": np.zeros(3), "y": np.zeros(4)}, {}, "as many rows"),
        ({"x": np.zeros(0)}, {}, "rows along its first axis"),
        ({1: np.zeros(3), "1": np.ones(3)}, {}, "the same name"),
        ({"": np.zeros(3)}, {}, "Rename it"),
        (np.ma.masked_equal([1.0, 2.0], 2.0), {}, "has masked values"),
        (pd.DataFrame({"k": pd.cut(np.arange(9.0), 3)}), {}, "the labels of 'k' must be text"),
        (tmp_path / "pipe.npy", {}, "no such file"),
        (tmp_path / "broken.npz", {}, "not a whole file of plain arrays"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            tc.pack(given, tmp_path / "out", progress=False, **options)
    with pytest.raises(PackError, match="exists already"):
        tc.pack(table, tmp_path / "full", progress=False)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"text.npy", "full", "cut.npy", "objects.npz", "broken.npz", "pipe.npy"}


def test_a_design_for_which_there_is_no_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written to mapped memory, which ends the process once the disk is full."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(designs.os, "posix_fallocate", full)
    with pytest.raises(PackError, match="No space left"):
        tc.pack(frame(), tmp_path / "packed", formula=FORMULA, family="bernoulli", progress=False)
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("typer")
    from tallchain.cli import build_app

    path = written(frame(), tmp_path / "rows.parquet")
    arguments = ["pack", str(path), str(tmp_path / "packed"), "--no-progress"]
    build_app()([*arguments, "--columns", "x, k", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["num_rows"] == ROWS
    with pytest.raises(SystemExit) as ended:
        build_app()(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("Error: `pack(output=...)`")
    assert said.count("\n") == 1
