"""Tables read in blocks: the same rows from every kind of file, and kinds of columns."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather
from pyarrow import parquet as pq

from tallchain.tables import Table, open_table, table

SIZE = 1000
KINDS = {"i": "number", "f": "number", "t": "text", "c": "category", "b": "truth", "d": "time"}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "BLOCK", 300)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    random = np.random.default_rng(0)
    text = random.choice(["a", "b", "c"], SIZE).astype(object)
    text[7] = None
    return pd.DataFrame(
        {
            "i": random.integers(0, 9, SIZE),
            "f": np.where(random.random(SIZE) < 0.1, np.nan, random.normal(size=SIZE)),
            "t": text,
            "c": pd.Categorical(random.choice(["u", "v"], SIZE), categories=["v", "u"]),
            "b": random.random(SIZE) < 0.5,
            "d": pd.to_datetime("2020-01-01") + pd.to_timedelta(random.integers(0, 9, SIZE), "D"),
        }
    )


def written(frame: pd.DataFrame, kind: str, folder: Path) -> Any:
    path = folder / f"rows.{kind}"
    if kind == "frame":
        return frame
    if kind == "dict":
        return {name: frame[name] for name in frame}
    if kind == "table":
        return pa.Table.from_pandas(frame)
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    elif kind == "parquet":
        frame.to_parquet(path, row_group_size=70)
    elif kind == "folder":
        path.mkdir()
        for at in range(0, SIZE, 400):
            frame[at : at + 400].to_parquet(path / f"part-{at:04d}.parquet")
    else:
        feather.write_feather(frame, path)
    return path


def whole(opened: Table, columns: list[str]) -> pd.DataFrame:
    return pd.concat(list(opened.blocks(columns)), ignore_index=True)


@pytest.mark.parametrize("kind", ["frame", "dict", "table", "csv", "csv.gz", "parquet", "folder", "arrow", "feather"])
def test_every_kind_of_table_has_the_same_rows(frame: pd.DataFrame, kind: str, tmp_path: Path) -> None:
    opened = open_table(written(frame, kind, tmp_path))
    of_text = {"c": "text"} if kind.startswith("csv") else {}
    assert opened.columns == KINDS | of_text
    assert list(opened.columns) == list(KINDS)
    assert opened.num_rows in (SIZE, None if kind.startswith("csv") else SIZE)
    seen: list[int] = []
    blocks = list(opened.blocks(["f", "t", "i", "c", "b", "d"], seen.append))
    assert list(blocks[0].columns) == ["f", "t", "i", "c", "b", "d"]
    assert max(map(len, blocks)) <= 300
    assert len(blocks) > 3
    assert seen == np.cumsum([len(block) for block in blocks]).tolist()
    found = pd.concat(blocks, ignore_index=True)
    for name in ("i", "f", "b"):
        np.testing.assert_allclose(found[name].to_numpy(float), frame[name].to_numpy(float))
    assert (found["t"].fillna("-") == frame["t"].fillna("-")).all()
    assert (found["c"].astype(str) == frame["c"].astype(str)).all()
    assert (found["d"] == frame["d"]).all()


def test_the_order_of_a_frame_is_meant_and_that_of_a_dictionary_is_not(frame: pd.DataFrame, tmp_path: Path) -> None:
    for kind, is_meant in (("frame", True), ("arrow", False)):
        column = next(open_table(written(frame, kind, tmp_path)).blocks(["c"]))["c"]
        assert (list(column.cat.categories), column.cat.ordered) == (["v", "u"], is_meant)


def test_nullable_numbers_and_truth_values_have_nan() -> None:
    frame = pd.DataFrame({"n": pd.array([1, None], "Int64"), "b": pd.array([None, True], "boolean")})
    frame["o"] = np.array([2, None], object)
    for given in (frame, pa.table({"n": [1, None], "b": [None, True], "o": [2.0, None]})):
        opened = open_table(given)
        assert opened.columns == {"n": "number", "b": "truth", "o": "number"}
        np.testing.assert_array_equal(whole(opened, ["n", "b", "o"]), [[1, np.nan, 2], [np.nan, 1, np.nan]])


def test_whole_nullable_values_stay_what_they_are() -> None:
    frame = pd.DataFrame({"n": pd.array([1, 2], "Int64"), "b": pd.array([False, True], "boolean"), "o": [1, 2]})
    frame["o"] = frame["o"].astype(object)
    found = next(open_table(frame).blocks(["n", "b", "o"]))
    assert [found[name].dtype.kind for name in "nbo"] == ["i", "b", "f"]


def test_decimals_dates_and_nulls_of_arrow() -> None:
    decimals = pa.array([1, 2], pa.int32()).cast(pa.decimal128(12, 2))
    held = pa.table({"m": decimals, "d": pa.array([0, 1], pa.date32()), "z": pa.nulls(2), "l": [[1], [2]]})
    opened = open_table(held)
    assert opened.columns == {"m": "number", "d": "time", "z": "text", "l": "other"}
    found = next(opened.blocks(["m", "d", "z"]))
    assert found["m"].tolist() == [1.0, 2.0]
    assert found["d"].dtype.kind == "M"
    assert found["z"].isna().all()


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.arange(4), s=np.array(["a", "b", "a", "b"]))
    opened = open_table(tmp_path / "rows.npz")
    assert opened.columns == {"x": "number", "s": "text"}
    assert whole(opened, ["s"])["s"].tolist() == ["a", "b", "a", "b"]


def test_folders_by_key(tmp_path: Path) -> None:
    for at, key in enumerate(("k=a", "k=b")):
        (tmp_path / key).mkdir()
        pq.write_table(pa.table({"x": [at, at + 1]}), tmp_path / key / "0.parquet")
    found = whole(open_table(tmp_path), ["k", "x"])
    assert found["x"].tolist() == [0, 1, 1, 2]
    assert found["k"].tolist() == ["a", "a", "b", "b"]


def test_later_fractions_of_whole_numbers_in_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallchain.tables.text._FIRST", 1000)
    (tmp_path / "rows.csv").write_text("a,b\n" + "1,x\n" * 1000 + "2.5,x\n")
    assert whole(open_table(tmp_path / "rows.csv"), ["a"])["a"].iloc[-1] == 2.5


def test_checksums_depend_on_the_content_alone(frame: pd.DataFrame, tmp_path: Path) -> None:
    first = open_table(frame).checksum()
    assert first.startswith("blake2b:")
    assert open_table(frame.copy()).checksum() == first
    other = frame.assign(f=frame["f"].where(frame.index != 999, 1.0))
    assert open_table(other).checksum() != first
    assert open_table(frame.rename(columns={"i": "j"})).checksum() != first
    path = written(frame, "parquet", tmp_path)
    of_file = open_table(path).checksum()
    path.rename(tmp_path / "b.parquet")
    assert open_table(tmp_path / "b.parquet").checksum() == of_file


def test_polars() -> None:
    polars = pytest.importorskip("polars")
    opened = open_table(polars.DataFrame({"x": [1, None, 3], "s": ["a", "b", None]}))
    assert opened.columns == {"x": "number", "s": "text"}
    assert whole(opened, ["x"])["x"].isna().tolist() == [False, True, False]
