"""Frames of pandas and polars, wherever data are taken: columns by name, missing values, text."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

import tallchain as tc
from tallchain.models import linear_regression, logistic_regression, poisson_regression
from tallchain.surrogates import Taylor, find_reference, influence
from tallchain.tables import open_table

pd = pytest.importorskip("pandas")

NUM_ROWS = 500
RANDOM = np.random.default_rng(3)
COLUMNS = {
    "y": RANDOM.normal(size=NUM_ROWS),
    "age": RANDOM.integers(20, 80, NUM_ROWS),
    "is_new": RANDOM.random(NUM_ROWS) < 0.3,
}
POSTERIOR = tc.Posterior(
    lambda t: -0.5 * jnp.sum(t**2), lambda t, row: -0.5 * (row["y"] - t[0] - t[1] * row["is_new"]) ** 2
)
START = np.zeros(2, np.float32)


@pytest.fixture(params=["pandas", "pandas nullable", "polars"])
def frame(request: pytest.FixtureRequest) -> Any:
    """A frame of floats, integers and truths."""
    if request.param == "polars":
        return pytest.importorskip("polars").DataFrame(COLUMNS)
    made = pd.DataFrame(COLUMNS)
    return made.convert_dtypes() if request.param == "pandas nullable" else made


def refuse(call: Any, error: Any, *fragments: str) -> None:
    with pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, fragments))):
        call()


@pytest.mark.parametrize("source", [tc.Shuffled, tc.WithReplacement])
def test_a_row_is_a_dict_by_column(source: Any, frame: Any) -> None:
    taken, plain = source(frame, 10).data, source(COLUMNS, 10).data
    assert {name: leaf.dtype for name, leaf in taken.items()} == {"y": "float32", "age": "int32", "is_new": "bool"}
    jax.tree.map(np.testing.assert_array_equal, taken, plain)


def test_a_frame_may_be_a_leaf() -> None:
    frame = pd.DataFrame(COLUMNS)
    taken = tc.WithReplacement({"x": frame[["age", "is_new"]], "y": frame["y"].astype("Float64")}, 10).data
    np.testing.assert_array_equal(taken["x"]["age"], COLUMNS["age"])
    np.testing.assert_array_equal(taken["y"], COLUMNS["y"].astype(np.float32))


def test_everything_from_the_mode_to_draws(frame: Any) -> None:
    reference = find_reference(POSTERIOR, frame, START, progress=False)
    surrogate = Taylor(POSTERIOR, frame, reference.position)
    np.testing.assert_allclose(surrogate.hessian, reference.likelihood_hessian, rtol=1e-4)
    scores = influence(POSTERIOR, frame, None, reference.laplace).scores
    np.testing.assert_allclose(scores, influence(POSTERIOR, COLUMNS, None, reference.laplace).scores, rtol=1e-4)
    prepared = tc.prepare(POSTERIOR, frame, START, progress=False)
    trace = tc.sample(jr.key(0), prepared.kernel(), prepared.starts(jr.key(1), 2), 3, num_chains=2, progress=False)
    assert trace.position.shape == (2, 3, 2)


@pytest.mark.parametrize("make", [logistic_regression, poisson_regression, linear_regression])
def test_features_are_a_matrix_in_the_order_of_the_columns(make: Any, frame: Any) -> None:
    features = frame[["age", "y", "is_new"]]
    model = make(features, frame["is_new"], intercept=True)
    columns = [np.ones(NUM_ROWS), COLUMNS["age"], COLUMNS["y"], COLUMNS["is_new"]]
    np.testing.assert_array_equal(model.data["x"], np.stack(columns, 1).astype(np.float32))
    np.testing.assert_array_equal(model.data["y"], COLUMNS["is_new"])
    assert model.names == ("(intercept)", "age", "y", "is_new")
    assert make(features, frame[["is_new"]]).names == ("age", "y", "is_new")
    assert make(model.data["x"], COLUMNS["is_new"]).names is None


def test_dummies() -> None:
    """Truths beside floats, as `get_dummies` makes them."""
    frame = pd.get_dummies(pd.DataFrame({"z": [0.5, 1.5, 2.5, 3.5], "city": ["a", "b", "a", "c"]}))
    model = logistic_regression(frame, [0, 1, 1, 0])
    assert model.names == ("z", "city_a", "city_b", "city_c")
    np.testing.assert_array_equal(model.data["x"][:, 1], [1, 0, 1, 0])


# ---- refusals ----------------------------------------------------------------------------------

TEXT = {"z": [0.5, 1.5, 2.5], "city": ["a", "b", "a"]}
MISSING = {
    "float": pd.DataFrame({"z": [1.0, np.nan, 2.0]}),
    "Float64": pd.DataFrame({"z": pd.array([1.0, None, 2.0], "Float64")}),
    "Int64": pd.DataFrame({"z": pd.array([1, None, 2], "Int64")}),
    "boolean": pd.DataFrame({"z": pd.array([True, None, False], "boolean")}),
}


@pytest.mark.parametrize("kind", MISSING)
def test_missing_values(kind: str) -> None:
    frame = MISSING[kind]
    fragment = "NaN in data['z'], in 1 of 3 rows, the first of them row 1."
    refuse(lambda: tc.Shuffled(frame, 1), ValueError, "`Shuffled(data=...)` must have no missing values", fragment)
    refuse(lambda: tc.WithReplacement(frame["z"], 1), ValueError, "NaN in data, in 1 of 3 rows")
    refuse(
        lambda: logistic_regression(frame, [0, 1, 0]),
        ValueError,
        "`logistic_regression(features=...)` must be finite",
        "got nan in column 'z' at row 1. Fill in or drop missing values",
    )
    refuse(lambda: logistic_regression(np.ones((3, 1)), frame["z"]), ValueError, "got nan at row 1.")


def test_missing_values_of_polars() -> None:
    pl = pytest.importorskip("polars")
    for values in ([1.0, None, 2.0], [1, None, 2], [True, None, False]):
        refuse(
            lambda values=values: tc.Shuffled(pl.DataFrame({"z": values}), 1), ValueError, "NaN in data['z']", "row 1"
        )
    refuse(lambda: tc.Shuffled(pl.DataFrame(TEXT), 1), TypeError, "must hold numbers; got data['city']: object.")


def test_text_is_named() -> None:
    frame = pd.DataFrame(TEXT)
    refuse(lambda: tc.Shuffled(frame, 1), TypeError, "must hold numbers; got data['city']: ", "Encode text as numbers")
    quoted = "`logistic_regression(features=...)` must hold numbers; got object in column 'city'."
    refuse(lambda: logistic_regression(frame, [0, 1, 0]), TypeError, quoted)


def test_column_names() -> None:
    twice = pd.DataFrame(np.ones((3, 3)), columns=["a", "b", "a"])
    refuse(lambda: tc.Shuffled(twice, 1), ValueError, "`Shuffled(data=...)`", "one column of each name; got two of a.")
    mixed = pd.DataFrame(np.ones((3, 2)), columns=["a", 1])
    refuse(lambda: tc.Shuffled(mixed, 1), TypeError, "column names are all of one type; got int, str.")
    numbered = tc.Shuffled(pd.DataFrame(np.ones((3, 2))), 1)
    assert set(numbered.data) == {0, 1}
    two = lambda: logistic_regression(np.ones((3, 1)), pd.DataFrame(np.ones((3, 2)), columns=["a", "b"]))  # noqa: E731
    refuse(two, ValueError, "`logistic_regression(outcomes=...)` must be one column; got 2 columns: 'a', 'b'.")


def test_a_lazy_frame_of_polars_is_refused() -> None:
    lazy = pytest.importorskip("polars").DataFrame(COLUMNS).lazy()
    with pytest.raises(TypeError, match=r"a lazy frame has no rows yet; give `frame\.collect\(\)`"):
        open_table(lazy)
