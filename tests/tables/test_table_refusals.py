"""What is no table is refused in one line that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather
from pyarrow import parquet as pq

from tallchain.tables import TableError, nearest, open_table

CSV = {
    "empty.csv": ("", "is empty"),
    "blank.csv": ("\n\n", "is empty"),
    "header.csv": ("a,b\n", "has a line of names, and no rows"),
    "uneven.csv": ("a,b\n1,2\n1,2,3\n", "Expected 2 columns, got 3.*as many fields as the line of names"),
    "twice.csv": ("a,b,a\n1,2,3\n", "every column needs a name of its own; .* has two of 'a'"),
    "rows.txt": ("a\n1\n", r"must end in one of \.csv"),
}


def read(given: Any) -> None:
    opened = open_table(given)
    for _ in opened.blocks(opened.columns):
        pass


def refused(given: Any) -> str:
    with pytest.raises(TableError) as caught:
        read(given)
    message = str(caught.value)
    assert message.startswith("`fit(data=...)`: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", CSV)
def test_broken_text(name: str, tmp_path: Path) -> None:
    text, said = CSV[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(TableError, match=said):
        open_table(tmp_path / name)
    refused(tmp_path / name)


def test_text_among_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallchain.tables.text._FIRST", 1000)
    (tmp_path / "rows.csv").write_text("a,b\n" + "1,x\n" * 1000 + "one,x\n")
    assert "the first lines have another kind of value" in refused(tmp_path / "rows.csv")


def test_truncated_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "a.parquet")
    feather.write_feather(pd.DataFrame({"x": [1, 2, 3]}), tmp_path / "a.arrow")
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    for name in ("a.parquet", "a.arrow", "a.npz"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-20])
        assert f"{path} is not a whole" in refused(path)


def test_one_truncated_file_of_a_folder(tmp_path: Path) -> None:
    for name in ("1.parquet", "2.parquet"):
        pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / name)
    (tmp_path / "2.parquet").write_bytes(b"PAR1")
    assert "2.parquet is not a whole Parquet file" in refused(tmp_path)


def test_objects_in_npz_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{}, {}], object))
    assert "plain arrays" in refused(tmp_path / "a.npz")


def test_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "flights.parquet").write_text("")
    assert refused(tmp_path / "flight.parquet").endswith(f"in {tmp_path}; the nearest: 'flights.parquet'.")
    assert "which does not exist" in refused(tmp_path / "no" / "rows.csv")
    assert "flights.parquet is empty" in refused(tmp_path / "flights.parquet")
    (tmp_path / "folder").mkdir()
    assert "has no file that ends in .parquet" in refused(tmp_path / "folder")


def test_no_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    for given in (tmp_path / "a.parquet", pd.DataFrame({"x": []}), {"x": []}, pa.table({"x": pa.array([], pa.int8())})):
        assert "has no rows" in refused(given)


def test_shapes_of_arrays() -> None:
    assert "must have as many rows; those of the dict have: 'a' 1, 'b' 2" in refused({"a": [1], "b": [1, 2]})
    assert "'a' of the dict has shape (1, 1)" in refused({"a": [[1]]})
    assert "the dict has no columns" in refused({})


def test_what_is_no_table() -> None:
    with pytest.raises(TypeError, match=r"`fit\(data=\.\.\.\)` must be a frame of pandas or polars, .*; got 3"):
        open_table(3)
    with pytest.raises(TypeError, match=r"^`check\(data=...\)`"):
        open_table(None, "check(data=...)")


def test_missing_columns_name_the_nearest() -> None:
    opened = open_table(pd.DataFrame({"distance": [1], "Hour": [2]}))
    with pytest.raises(TableError, match=r"the frame has no column 'distnce'; the nearest: 'distance'"):
        next(iter(opened.blocks(["distnce"])))
    with pytest.raises(TableError, match=r"no column 'hour'; the nearest: 'Hour'"):
        next(iter(opened.blocks(["hour"])))
    assert nearest("qqq", ["a", "b"]) == "there are 'a', 'b'"
