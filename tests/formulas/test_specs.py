"""What is kept for new rows: the same design, remembered states, plain JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from formula_rows import built, rows
from formulaic import Formula

from tallchain.formulas import FormulaError, Spec
from tallchain.tables import open_table

FORMULA = (
    "late ~ x1 * C(hour, Treatment(2)) + poly(z, 2) + bs(w, df=5) + cs(x2, df=4) + scale(e) + grade + offset(log(w)) "
    "+ (1 + x1 | airport) + (1 | carrier:airport) + (1 | day)"
)

pytestmark = pytest.mark.usefixtures("small_blocks")
SPLINES = "late ~ cs(x2, df=4, constraints='center') * airport + cc(z, df=5) + bs(e, df=6, extrapolation='extend')"


def reread(spec: Spec) -> Spec:
    text = spec.to_json()
    assert json.loads(text)["version"] == 1
    return Spec.from_json(text)


@pytest.mark.parametrize("formula", [FORMULA, "late ~ 1", "late ~ 0 + carrier:x1", "late ~ (1 | hour)", SPLINES])
def test_the_rows_of_the_fit_have_their_design_again(formula: str) -> None:
    frame = rows()
    made = built(formula, frame, "bernoulli", weights="tries")
    spec = reread(made.spec)
    assert spec == made.spec
    assert spec.names == made.model.names
    found = spec.new_rows(open_table(frame[sorted(frame, reverse=True)].drop(columns=["late", "tries"])))
    if "x" in found:
        np.testing.assert_array_equal(found["x"], made.model.data["x"][:, spec.plan.has_intercept :])
    if "offset" in made.model.data:
        np.testing.assert_array_equal(found["offset"], made.model.data["offset"])
    for at, (name, labels) in enumerate(made.model.levels.items()):
        np.testing.assert_array_equal(found["groups"][name].index, labels[made.model.data["groups"][:, at]])


def test_states_are_those_of_the_fit() -> None:
    frame, new = rows(), rows(seed=1, size=50)
    terms = "scale(x1) + poly(z, 3) + center(log(w)) + bs(e, df=4, lower_bound=-9, upper_bound=9)"
    found = reread(built(f"y ~ {terms}", frame).spec).new_rows(open_table(new))
    expected = Formula(terms).get_model_matrix(frame).model_spec.get_model_matrix(new).to_numpy(float)
    np.testing.assert_allclose(found["x"], expected[:, 1:], rtol=1e-5, atol=1e-6)


def test_predictions_of_new_rows() -> None:
    frame = rows()
    made = built("late ~ x1 + carrier + offset(e) + (1 + x1 | airport) + (1 | carrier:airport)", frame, "bernoulli")
    spec, model = reread(made.spec), made.model
    own = model.predict(model.start, rows=np.arange(20))
    new = model.predict(model.start, **spec.new_rows(open_table(frame[:20])))
    np.testing.assert_allclose(new.mean, own.mean, rtol=1e-6)


def test_an_intercept_alone_predicts_as_many_rows_as_there_are() -> None:
    made = built("y ~ 1")
    arguments = made.spec.new_rows(open_table({"other": np.arange(7)}))
    assert list(arguments) == ["offset"]
    assert made.model.predict(made.model.start, **arguments).mean.shape == (7,)


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_files_of_new_rows(kind: str, tmp_path: Path) -> None:
    frame, path = rows().drop(columns="grade"), tmp_path / f"rows.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_feather(path)
    assert built("y ~ 1", frame).spec.new_rows(open_table(path))["offset"].shape == (len(frame),)
    made = built("y ~ C(hour) + (x1 | carrier:airport) + (1 | hits) + (1 | late)", frame)
    found = made.spec.new_rows(open_table(path))
    np.testing.assert_array_equal(found["x"], made.model.data["x"][:, 1:])
    for at, (name, labels) in enumerate(made.model.levels.items()):
        assert found["groups"][name].index.tolist() == labels[made.model.data["groups"][:, at]].tolist()


def test_numbers_of_trials_are_there_if_their_column_is() -> None:
    frame = rows()
    spec = built("p(hits, tries) ~ x1", frame, "binomial").spec
    assert "size" not in spec.new_rows(open_table(frame[["x1"]]))
    np.testing.assert_array_equal(spec.new_rows(open_table(frame))["size"], frame["tries"])


def test_other_types_of_the_same_values() -> None:
    frame = rows()
    made = built("y ~ tries + C(hour) + grade + (1 | carrier) + (1 | hits)", frame)
    new = frame.assign(
        tries=frame["tries"].astype("Int64"),
        hour=frame["hour"].astype(float),
        grade=frame["grade"].astype(str),
        carrier=frame["carrier"].astype("category"),
        hits=frame["hits"].astype("Float64"),
    )
    found = made.spec.new_rows(open_table(new))
    np.testing.assert_array_equal(found["x"], made.model.data["x"][:, 1:])
    for name in ("carrier", "hits"):
        assert found["groups"][name].index.tolist() == frame[name].tolist()


def test_labels_of_groups_may_be_new() -> None:
    frame = rows()
    made = built("y ~ x1 + (1 | carrier) + (1 | carrier:airport) + (1 | hits)", frame)
    new = frame[:3].assign(carrier=["UA", "ZZ", "AA"], airport="JFK", hits=[1, 99, 2])
    found = made.spec.new_rows(open_table(new))["groups"]
    assert found["carrier"].index.tolist() == ["UA", "ZZ", "AA"]
    assert found["carrier:airport"].index.tolist() == ["UA:JFK", "ZZ:JFK", "AA:JFK"]
    assert found["hits"].index.tolist() == [1, 99, 2]
    with pytest.raises(ValueError, match="'ZZ'"):
        made.model.predict(made.model.start, **made.spec.new_rows(open_table(new)))


def test_labels_of_fixed_factors_may_not() -> None:
    frame = rows()
    spec = built("y ~ carrier + C(hour)", frame).spec
    with pytest.raises(FormulaError, match=r"'carrier' has levels .*: 'Ua'; the nearest: 'UA'"):
        spec.new_rows(open_table(frame[:2].assign(carrier=["Ua", "AA"])))
    with pytest.raises(
        FormulaError, match="column 'hour' has levels that the regression does not have: '7'; there are '0'"
    ):
        spec.new_rows(open_table(frame[:2].assign(hour=[7, 1])))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"x1": None}, r"'x1' 2 \(the first in row 0\)"),
    ({"x1": ["a", "b"]}, "column 'x1' of the frame holds text, and held numbers in the rows of the fit"),
    ({"carrier": [1, 2]}, "column 'carrier' of the frame holds numbers, and held text"),
    ({"w": [1.0, 0.0]}, r"`log\(w\)` is -inf in row 1"),
    ({"z": [0.0, 99.0]}, r'`bs\(z, df=4\)` cannot be computed: .*; add extrapolation="extend"'),
]


@pytest.mark.parametrize(("columns", "said"), REFUSED)
def test_refusals(columns: dict[str, Any], said: str) -> None:
    frame = rows()
    spec = built("y ~ x1 + log(w) + bs(z, df=4) + (1 | carrier)", frame).spec
    with pytest.raises(FormulaError, match=said):
        spec.new_rows(open_table(frame[:2].assign(**{k: np.nan if v is None else v for k, v in columns.items()})))


def test_a_column_that_is_not_there_names_the_nearest() -> None:
    frame = rows()
    spec = built("y ~ x1 + carrier", frame).spec
    with pytest.raises(FormulaError, match="the frame has no column 'carrier'; the nearest: 'carriers'"):
        spec.new_rows(open_table(frame.rename(columns={"carrier": "carriers"})))


def test_all_other_columns_are_those_of_the_fit() -> None:
    frame = rows()[["y", "x1", "w", "carrier"]]
    made = built("y ~ . + (1 | carrier)", frame)
    found = reread(made.spec).new_rows(open_table(frame.assign(more=1.0)))
    np.testing.assert_array_equal(found["x"], made.model.data["x"][:, 1:])


def test_json_has_all_digits_and_nothing_but_plain_values() -> None:
    spec = built("y ~ poly(z, 2) + scale(x1) + C(hour) + late:x1 + (1 | late)").spec
    held = json.loads(spec.to_json())
    assert held["levels"] == {"hour": [0, 1, 2, 3], "late": [False, True]}
    again = Spec.from_json(spec.to_json())
    assert again.states == spec.states
    assert type(again.levels["late"][0]) is bool


@pytest.mark.parametrize(
    "change",
    [
        {"formula": "y ~ __import__('os').getcwd()"},
        {"formula": "y ~ poly(z, 2) + x1.__class__"},
        {"version": 2},
        {"formula": "y ~ z2"},
    ],
)
def test_json_of_a_stranger_is_checked(change: dict[str, Any]) -> None:
    held = json.loads(built("y ~ poly(z, 2) + x1").spec.to_json())
    with pytest.raises(FormulaError):
        Spec.from_json(json.dumps(held | change))


def test_the_design_does_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = rows()
    first = built(FORMULA, frame, "bernoulli").model
    monkeypatch.setattr("tallchain.tables.table.BLOCK", 10_000)
    second = built(FORMULA, frame, "bernoulli").model
    for name, values in first.data.items():
        np.testing.assert_array_equal(values, second.data[name])
    assert jnp.shape(first.data["x"]) == (len(frame), len(first.names or ()))


def test_a_frame_as_rows_is_enough_for_one_row() -> None:
    spec = built("y ~ C(hour) * x1 + scale(z)").spec
    one = pd.DataFrame({"hour": [3], "x1": [2.0], "z": [0.0]})
    found = spec.new_rows(open_table(one))["x"][0]
    assert found[:4].tolist() == [0.0, 0.0, 1.0, 2.0]
    assert found[-3:].tolist() == [0.0, 0.0, 2.0]
