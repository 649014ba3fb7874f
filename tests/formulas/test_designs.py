"""Designs made block by block, against formulaic on the whole frame and against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from formula_rows import SIZE, built, rows
from formulaic import Formula

pytestmark = pytest.mark.usefixtures("small_blocks")

FORMULAS = [
    "x1 + x2",
    "1",
    "x1 * carrier",
    "0 + carrier",
    "carrier - 1 + x1",
    "carrier:airport",
    "carrier * airport * x1",
    "C(hour) * x2 + poly(z, 2) + log(w)",
    "C(hour, Treatment(2)) + C(carrier, contr.treatment(base='UA'))",
    "C(carrier, contr.sum) * x1 + C(hour, contr.helmert)",
    "C(hour, contr.poly) + C(airport, contr.diff)",
    "C(carrier, levels=['EV', 'AA', 'UA'])",
    "grade + grade:x1",
    "`a b` * x1 + np.log(`a b` ** 2)",
    "center(x1) + scale(x2) + standardize(z) + center(log(w))",
    "bs(z, df=5) * airport + cs(x1, df=4)",
    "cc(z, df=4) + cr(x2, df=3)",
    "poly(x1, 3):carrier",
    "I(x1 ** 2) + {x1 + x2} + exp(-w) + I(x1 > 0)",
    "(x1 + x2 + z) ** 2",
    "x1 / carrier + x2",
    "late + late:x1",
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_against_formulaic(formula: str) -> None:
    frame = rows()
    expected = Formula(formula).get_model_matrix(frame.assign(late=frame["late"].astype(float)))
    made = built(f"y ~ {formula}", frame).model
    assert made.data["x"].dtype == np.float32
    assert made.names is not None
    assert len(made.names) == made.data["x"].shape[1]
    np.testing.assert_allclose(made.data["x"], expected.to_numpy(float), rtol=2e-6, atol=1e-6)
    np.testing.assert_array_equal(made.data["y"], frame["y"].to_numpy(np.float32))


def test_factors_and_interactions_by_hand() -> None:
    frame = rows()
    made = built("y ~ x1 + C(hour, Treatment(1)):x1 + carrier", frame).model
    carrier, hour, x1 = (frame[name].to_numpy() for name in ("carrier", "hour", "x1"))
    ones = np.ones(SIZE)
    columns = [ones, x1, carrier == "EV", carrier == "UA", *(x1 * (hour == level) for level in (0, 2, 3))]
    np.testing.assert_array_equal(made.data["x"], np.stack(columns, 1).astype(np.float32))
    assert made.names == ("(intercept)", "x1", "carrier[EV]", "carrier[UA]", "hour[0]:x1", "hour[2]:x1", "hour[3]:x1")


def test_states_are_those_of_all_rows_by_hand() -> None:
    frame = rows()
    made = built("y ~ scale(x1) + poly(z, 2) + center(w)", frame).model.data["x"].astype(float)
    x1, z, w = (frame[name].to_numpy() for name in ("x1", "z", "w"))
    np.testing.assert_allclose(made[:, 1], (x1 - x1.mean()) / x1.std(ddof=1), atol=1e-5)
    powers = np.linalg.qr(np.stack([np.ones(SIZE), z, z**2], 1))[0][:, 1:]
    np.testing.assert_allclose(np.abs(made[:, 2:4]), np.abs(powers), atol=1e-6)
    np.testing.assert_allclose(made[:, 4], w - w.mean(), atol=1e-5)


def test_splines_of_many_rows_learn_from_a_part_in_order_of_size(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = rows(size=5000)
    formula = "y ~ bs(z, df=6) + cs(x1, df=4)"
    exact = built(formula, frame)
    monkeypatch.setattr("tallchain.formulas.functions._ENOUGH", 1000)
    made = built(formula, frame)
    assert made.model.data["x"].shape == exact.model.data["x"].shape
    (state,), (expected,) = (each.spec.states["bs(z, df=6)"].values() for each in (made, exact))
    assert state["lower_bound"] == frame["z"].min()
    assert state["upper_bound"] == frame["z"].max()
    assert state["knots"] != expected["knots"]
    np.testing.assert_allclose(state["knots"], expected["knots"], atol=0.005)


def test_names_are_plain() -> None:
    names = built("y ~ C(hour) * x1 + poly(z, 2) + `a b` + grade + answer").model.names
    assert names == (
        *("(intercept)", "hour[1]", "hour[2]", "hour[3]", "x1", "poly(z, 2)[1]", "poly(z, 2)[2]", "a b"),
        *("grade[mid]", "grade[high]", "answer[yes]", "hour[1]:x1", "hour[2]:x1", "hour[3]:x1"),
    )


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_files_give_the_same_design(kind: str, tmp_path: Path) -> None:
    frame = rows().drop(columns=["grade"])
    path = tmp_path / f"rows.{kind}"
    {"csv": lambda: frame.to_csv(path, index=False), "parquet": lambda: frame.to_parquet(path, row_group_size=60)}.get(
        kind, lambda: frame.to_feather(path)
    )()
    formula = "y ~ C(hour) * x1 + poly(z, 2) + late + (1 + x2 | carrier) + (1 | day)"
    expected, made = built(formula, frame).model, built(formula, path).model
    assert made.names == expected.names
    for name in expected.data:
        np.testing.assert_allclose(made.data[name], expected.data[name], rtol=1e-6, atol=1e-7)
    assert made.levels["day"].tolist() == ["2020-01-01", "2020-01-02", "2020-01-03"]


def test_csv_without_labels_is_counted_first(tmp_path: Path) -> None:
    rows().to_csv(tmp_path / "rows.csv", index=False)
    made = built("y ~ x1", tmp_path / "rows.csv")
    assert (made.num_rows, made.model.data["x"].shape) == (SIZE, (SIZE, 2))


def test_categories_that_differ_between_parts_of_a_file(tmp_path: Path) -> None:
    frame = rows()
    (tmp_path / "rows").mkdir()
    for at, part in enumerate((frame[:200].query("carrier != 'AA'"), frame[200:].query("carrier != 'UA'"))):
        part.astype({"carrier": "category"}).to_parquet(tmp_path / "rows" / f"{at}.parquet")
    kept = pd.concat([frame[:200].query("carrier != 'AA'"), frame[200:].query("carrier != 'UA'")])
    made, expected = built("y ~ carrier", tmp_path / "rows").model, built("y ~ carrier", kept).model
    assert made.names == expected.names == ("(intercept)", "carrier[EV]", "carrier[UA]")
    np.testing.assert_array_equal(made.data["x"], expected.data["x"])


def test_all_other_columns() -> None:
    frame = rows()[["y", "x1", "carrier", "w", "airport", "day"]]
    made = built("y ~ . - w + (1 | airport)", frame, weights="w").model
    assert made.names == ("(intercept)", "x1", "carrier[EV]", "carrier[UA]")
    assert built("y ~ .:x1", frame[["y", "x1", "w"]]).model.names == ("(intercept)", "x1", "w:x1")


def test_offsets_add_up_and_weights_are_kept() -> None:
    frame = rows()
    made = built("y ~ x1 + offset(log(w)) + offset(e)", frame, offset="x2", weights="tries").model
    expected = np.log(frame["w"]) + frame["e"] + frame["x2"]
    np.testing.assert_allclose(made.data["offset"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(made.data["weight"], frame["tries"])


def test_reference_levels_are_said_in_words() -> None:
    words = built("y ~ C(hour, Treatment(2)) + carrier + (x1 | airport)").words
    assert words == (
        "Levels of hour are compared with 2.",
        "Levels of carrier are compared with 'AA'.",
        "Intercepts and slopes of x1 by airport are independent of each other.",
    )
    assert built("y ~ 0 + carrier").words == ()


def test_labels_of_a_large_factor_take_no_matrix() -> None:
    """The peak is that of the design and of codes, a small part of rows times groups."""
    import tracemalloc

    size, groups = 20_000, 2000
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"y": random.normal(size=size), "g": random.integers(0, groups, size)})
    for k in range(10):
        frame[f"x{k}"] = random.normal(size=size)
    built("y ~ . - g + (1 | g)", frame[:100])  # imports
    tracemalloc.start()
    made = built("y ~ . - g + (1 | g)", frame).model
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert made.data["groups"].shape == (size, 1)
    assert peak < 3 * made.data["x"].nbytes + 2_000_000
    assert peak < size * groups / 10


def test_the_design_is_allocated_once() -> None:
    seen: list[np.ndarray] = []
    empty = np.empty

    def noted(*arguments: object, **settings: object) -> np.ndarray:
        seen.append(empty(*arguments, **settings))  # type: ignore[arg-type]
        return seen[-1]

    made = built("y ~ x1 + x2 + carrier", allocate=noted).model
    assert sum(each is made.data["x"] for each in seen) == 1
    assert any(each is made.data["y"] for each in seen)


def test_a_power_as_in_r() -> None:
    """It binds as Python's does."""
    frame = rows()
    found, same = (built(f"y ~ I(x1{sign}2 + 1) + I(-x2 {sign} 2)", frame).model for sign in ("^", "**"))
    np.testing.assert_array_equal(found.data["x"], same.data["x"])
    np.testing.assert_allclose(found.data["x"][:, 1], frame["x1"] ** 2 + 1, rtol=1e-5)
