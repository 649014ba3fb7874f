"""Missing values: refused with counts by column, or left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from formula_rows import SIZE, built, rows

from tallchain.formulas import FormulaError

pytestmark = pytest.mark.usefixtures("small_blocks")

FORMULA = "y ~ x1 + carrier + scale(z) + (1 | airport)"


def with_gaps() -> pd.DataFrame:
    frame = rows()
    frame.loc[[150, 200], "x1"] = np.nan
    frame.loc[[300], "carrier"] = None
    frame.loc[[10, 11, 300], "airport"] = None
    frame.loc[[7], "z"] = np.nan
    frame.loc[[5], "x2"] = np.nan  # not used
    return frame


@pytest.mark.parametrize("columns", [["x1"], ["carrier"], ["z"], ["airport"], ["x1", "carrier", "z", "airport"]])
def test_all_gaps_are_counted_whichever_is_found_first(columns: list[str]) -> None:
    frame = rows().assign(**{name: with_gaps()[name] for name in columns})
    said = {"x1": "'x1' 2 (the first in row 150)", "carrier": "'carrier' 1 (the first in row 300)"}
    said |= {"z": "'z' 1 (the first in row 7)", "airport": "'airport' 3 (the first in row 10)"}
    with pytest.raises(FormulaError) as caught:
        built(FORMULA, frame)
    message = str(caught.value)
    assert f"missing values in {len(columns)} of the 5 columns that it uses" in message
    for name, text in said.items():
        assert (text in message) == (name in columns)
    assert 'missing="drop"' in message


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_rows_are_left_out(kind: str, tmp_path: Path) -> None:
    frame = with_gaps()
    kept = frame.dropna(subset=["x1", "carrier", "z", "airport"])
    expected = built(FORMULA, kept)
    path = tmp_path / f"rows.{kind}"
    if kind != "frame":
        frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    made = built(FORMULA, frame if kind == "frame" else path, missing="drop")
    assert (made.num_rows, made.num_dropped) == (SIZE, SIZE - len(kept))
    assert made.words[-1] == "6 rows were left out, since values were missing."
    assert made.spec.levels == expected.spec.levels
    for name, values in expected.model.data.items():
        np.testing.assert_allclose(made.model.data[name], values, rtol=1e-6, atol=1e-7)


def test_levels_that_are_left_out_are_gone() -> None:
    frame = rows()
    frame.loc[frame["carrier"] == "UA", "x1"] = np.nan
    made = built("y ~ x1 + carrier + (1 | carrier:airport)", frame, missing="drop").model
    assert made.names == ("(intercept)", "x1", "carrier[EV]")
    assert len(made.levels["carrier:airport"]) == 4


def test_nothing_is_left() -> None:
    with pytest.raises(FormulaError, match="every row lacks a value in one of the columns"):
        built("y ~ x1", rows().assign(x1=np.nan), missing="drop")
    with pytest.raises(FormulaError, match=r'`missing` must be "refuse" or "drop"; got \'omit\''):
        built("y ~ x1", missing="omit")


def test_values_that_are_not_finite_name_their_row() -> None:
    frame = rows()
    frame.loc[[3], "x1"] = np.nan
    frame.loc[[200], "w"] = 0.0
    with pytest.raises(FormulaError, match=r"`log\(w\)` is -inf in row 200, where 'w' is 0.0"):
        built("y ~ log(w) + x1", frame, missing="drop")
    with pytest.raises(FormulaError, match=r"`x2` is 1e\+39 in row 0"):
        built("y ~ x2", frame.assign(x2=1e39))
    with pytest.raises(FormulaError, match="`x2:z` is too large for float32 in row 0"):
        built("y ~ x2:z", frame.assign(x2=1e30, z=1e30))
    with pytest.raises(FormulaError, match="`x2:z` is too large for float32 in row 0"):
        built("y ~ (x2:z | hour)", frame.assign(x2=1e30, z=1e30))


def test_weights_and_offsets_count_too() -> None:
    frame = rows().assign(k=1.0)
    frame.loc[[9], "k"] = np.nan
    for settings in ({"weights": "k"}, {"offset": "k"}):
        with pytest.raises(FormulaError, match=r"'k' 1 \(the first in row 9\)"):
            built("y ~ x1", frame, **settings)


def test_rows_are_those_of_the_table_although_some_are_left_out() -> None:
    frame = rows().assign(hits=1, w=1.0)
    frame.loc[[0, 2, 5], "x1"] = np.nan
    frame.loc[7, "hits"] = -1
    with pytest.raises(FormulaError, match=r"the outcome `hits` must be counts: .*; got -1 at row 7\."):
        built("hits ~ x1", frame, "poisson", missing="drop")
    frame.loc[7, "hits"], frame.loc[9, "w"] = 1, -2
    with pytest.raises(FormulaError, match=r"`weights='w'` must be at least 0; got -2 for row 9\."):
        built("hits ~ x1", frame, "poisson", missing="drop", weights="w")
