"""Labels as codes: every kind of column, and blocks that do not agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from formula_rows import built, rows

from tallchain.formulas import FormulaError
from tallchain.formulas.labels import MISSING, UNKNOWN, Coder, Labels
from tallchain.tables import open_table

pytestmark = pytest.mark.usefixtures("small_blocks")

DAYS = pd.to_datetime(["2020-01-02", "2020-01-01", "2020-01-02"])

CASES: dict[str, tuple[Any, list[Any]]] = {
    "text": (["b", "a", "b"], ["a", "b"]),
    "whole numbers": ([3, 1, 3], [1, 3]),
    "floats": ([0.5, 0.25, 0.5], [0.25, 0.5]),
    "floats that are whole": ([3.0, 1.0, 3.0], [1, 3]),
    "truth values": ([True, False, True], [False, True]),
    "times": (DAYS, ["2020-01-01", "2020-01-02"]),
    "moments": (DAYS + pd.Timedelta("1h"), ["2020-01-01 01:00:00", "2020-01-02 01:00:00"]),
    "categories": (pd.Categorical(["b", "a", "b"], ["c", "b", "a"]), ["b", "a"]),
    "categories of numbers": (pd.Categorical([3, 1, 3], [3, 2, 1]), [3, 1]),
    "categories of times": (pd.Categorical(DAYS), ["2020-01-01", "2020-01-02"]),
    "nullable": (pd.array([3, 1, 3], dtype="Int64"), [1, 3]),
    "dictionary": (pa.array(["b", "a", "b"]).dictionary_encode(), ["a", "b"]),
    "dates": (pa.array([2, 1, 2], pa.date32()), ["1970-01-02", "1970-01-03"]),
}


@pytest.mark.parametrize("name", CASES)
def test_labels_are_found_in_order_and_known_again(name: str) -> None:
    values, expected = CASES[name]
    given = pa.table({"g": values}) if isinstance(values, pa.Array) else pd.DataFrame({"g": values})
    opened = open_table(given)
    kind = opened.columns["g"]
    (block,) = opened.blocks(["g"])
    coder = Coder(kind)
    assert not coder.add(block["g"]).any()
    labels, codes = coder.finish(None)
    assert list(labels.values) == expected
    assert [type(value) for value in labels.values] == [type(value) for value in expected]
    assert codes.dtype == np.int8
    places = [expected.index(labels.values[code]) for code in codes]
    assert places == codes.tolist()
    assert codes[0] == codes[2] != codes[1]
    np.testing.assert_array_equal(labels.codes(block["g"], kind), codes)


def test_missing_and_unknown_labels() -> None:
    labels = Labels(("a", "b"))
    column = pd.Series(["b", None, "c", "a"])
    assert labels.codes(column, "text").tolist() == [1, MISSING, UNKNOWN, 0]
    assert labels.codes(column.astype("category"), "category").tolist() == [1, MISSING, UNKNOWN, 0]


def test_orders_that_differ_between_blocks_are_not_meant() -> None:
    coder = Coder("category")
    for categories in (["b", "a"], ["a", "b"]):
        coder.add(pd.Series(pd.Categorical(["a", "b"], categories, ordered=True)))
    labels, codes = coder.finish(None)
    assert labels.values == ("a", "b")
    assert codes.tolist() == [0, 1, 0, 1]


def test_many_labels_take_wider_codes() -> None:
    coder = Coder("number")
    for start in range(0, 40_000, 100):
        coder.add(pd.Series(np.arange(start, start + 100)))
    labels, codes = coder.finish(np.arange(40_000) % 2 == 0)
    assert labels.values[:3] == (0, 2, 4)
    assert codes.dtype == np.int16
    np.testing.assert_array_equal(labels.array()[codes], np.arange(0, 40_000, 2))


def test_a_text_among_numbers_is_quoted() -> None:
    numbers = [f"{value:.6f}" for value in np.random.default_rng(0).normal(size=2500)]
    frame = rows(size=2500).assign(x1=["n/a?", *numbers[1:]])
    with pytest.raises(FormulaError, match=r"column 'x1' has more than 2,000 levels.*text such as 'n/a\?'\."):
        built("y ~ x1", frame)
