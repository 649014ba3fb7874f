"""Groups as codes: labels of all kinds, levels in a given order, slopes; refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conftest import SEED
from refusals import refuse, table
from tallchain.models import Group, Prior, Regression, priors
from tallchain.models.families import Bernoulli, Categorical, Gaussian
from tallchain.models.groups import code_groups

ROWS = 12
INDEX = np.arange(ROWS) % 3
X = np.random.default_rng(SEED).normal(size=(ROWS, 2))
Y = np.arange(ROWS) % 2

LABELS = {
    "numbers": [10, 30, 20],
    "floats": [1.5, 3.5, 2.5],
    "text": ["a", "c", "b"],
    "objects": np.array(["a", "c", "b"], object),
    "truths": [False, True, True],
    "dates": np.array(["2020-01-01", "2022-01-01", "2021-01-01"], "datetime64[D]"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_become_codes_in_their_order(kind: str) -> None:
    labels = np.asarray(LABELS[kind])[INDEX]
    coded = code_groups("f", {"g": labels}, ROWS, None)
    np.testing.assert_array_equal(coded.levels["g"], np.unique(labels))
    np.testing.assert_array_equal(coded.levels["g"][coded.groups[:, 0]], labels)
    assert coded.groups.dtype == np.int32
    given = list(np.unique(labels))[::-1]
    turned = code_groups("f", {"g": Group(labels, levels=given)}, ROWS, None)
    np.testing.assert_array_equal(turned.levels["g"], given)
    np.testing.assert_array_equal(turned.levels["g"][turned.groups[:, 0]], labels)


def test_factors_and_slopes_have_columns() -> None:
    groups = {"g": Group(INDEX, slopes={"a": X[:, 0], "b": X[:, 1]}), "h": Y, "k": Group(Y, slopes={"a": X[:, 1]})}
    coded = code_groups("f", groups, ROWS, None)
    found = [(term.name, term.factor, term.slope, term.num_levels) for term in coded.terms]
    of_g = [("g", 0, None, 3), ("g:a", 0, 0, 3), ("g:b", 0, 1, 3)]
    assert found == [*of_g, ("h", 1, None, 2), ("k", 2, None, 2), ("k:a", 2, 2, 2)]
    np.testing.assert_array_equal(coded.groups, np.stack([INDEX, Y, Y], 1))
    np.testing.assert_array_equal(coded.slopes, np.column_stack([X, X[:, 1]]).astype(np.float32))
    assert code_groups("f", None, ROWS, None) == code_groups("f", {}, ROWS, None) == (None, None, (), {})


def test_frames_of_pandas() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"y": Y, "age": X[:, 0], "clinic": np.array(["a", "c", "b"])[INDEX]})
    plain = Regression(Bernoulli(), y=Y, x=X[:, :1], groups={"g": Group(frame["clinic"], slopes={"age": X[:, 0]})})
    for kind in (str, "string", "category"):
        typed = frame.astype({"clinic": kind})
        for group in (Group("clinic", slopes=["age"]), Group(typed["clinic"], slopes=typed[["age"]])):
            model = Regression(Bernoulli(), y="y", x=["age"], groups={"g": group}, data=typed)
            for name, values in plain.data.items():
                np.testing.assert_array_equal(model.data[name], values)
            assert model.levels["g"].tolist() == ["a", "b", "c"]
        missing = typed.assign(clinic=typed["clinic"].where(typed["age"] < np.sort(X[:, 0])[-1]))
        refuse(
            lambda missing=missing: Regression(Bernoulli(), y="y", groups={"g": "clinic"}, data=missing),
            ValueError,
            "must have no missing labels; got",
            f"for row {np.argmax(X[:, 0])}.",
        )


# ---- refusals ----------------------------------------------------------------------------------


def model_of(group: Any, name: str = "g", family: Any = None, y: Any = Y, **settings: Any) -> Regression:
    return Regression(family or Bernoulli(), y=y, x=X, groups={name: group}, **settings)


REFUSALS = {
    "no dict": (
        lambda: Regression(Bernoulli(), y=Y, groups=INDEX),
        TypeError,
        '`Regression(groups=...)` must be a dict such as {"clinic": Group(index)}; got array',
    ),
    "a slope of 0": (
        lambda: model_of(Group(INDEX, slopes={"age": np.zeros(len(Y))})),
        ValueError,
        "slope 'age' is of a feature that is 0 in every row.",
    ),
    "no name": (lambda: model_of(INDEX, ""), TypeError, "must be a dict such as"),
    "no frame": (
        lambda: model_of("clinic"),
        TypeError,
        "`Regression(groups={'g': ...})` names the column 'clinic': give the frame as `data=`.",
    ),
    "too few labels": (lambda: model_of(INDEX[:5]), ValueError, "one label for each of 12 rows; got shape (5,)."),
    "missing": (
        lambda: model_of(np.where(INDEX == 1, np.nan, INDEX)),
        ValueError,
        "`Regression(groups={'g': ...})` must have no missing labels; got nan for row 1.",
    ),
    "None": (
        lambda: model_of(np.array(["a", None, "b"], object)[INDEX]),
        ValueError,
        "no missing labels; got None for row 1. Fill in or drop such rows.",
    ),
    "no time": (lambda: model_of(np.array(["2020", "NaT", "2021"], "M8[Y]")[INDEX]), ValueError, "missing", "row 1."),
    "two types": (lambda: model_of(np.array(["a", 1, "b"], object)[INDEX]), TypeError, "labels must be of one type"),
    "codes from 1": (
        lambda: model_of(Group(INDEX + 1, levels=3)),
        ValueError,
        "`Regression(groups={'g': ...})` must hold codes from 0 to 2, as `levels=3` says; got 3 for row 2.",
        "They seem to begin at 1: subtract 1",
    ),
    "codes out of range": (
        lambda: model_of(Group(np.where(INDEX == 2, 5, INDEX), levels=3)),
        ValueError,
        "got 5 for row 2.",
    ),
    "codes below 0": (lambda: model_of(Group(INDEX - 1, levels=3)), ValueError, "got -1 for row 0."),
    "codes with a point": (lambda: model_of(Group(INDEX / 2, levels=3)), TypeError, "whole numbers if `levels`"),
    "code without rows": (
        lambda: model_of(Group(INDEX, levels=5)),
        ValueError,
        "`Regression(groups={'g': ...})`: 2 of 5 levels have no rows: 3, 4. Leave them out",
        '`predict(new_levels="draw")`',
    ),
    "label without rows": (
        lambda: model_of(Group(np.array(list("abc"))[INDEX], levels=list("abcd"))),
        ValueError,
        "1 of 4 levels have no rows: 'd'.",
    ),
    "label that is no level": (
        lambda: model_of(Group(np.array(list("abc"))[INDEX], levels=["a", "b"])),
        ValueError,
        "label 'c' of row 2 is not among the levels: 'a', 'b'. Add it to `levels`",
    ),
    "labels of another type": (
        lambda: model_of(Group(INDEX, levels=["0", "1", "2"])),
        TypeError,
        "must hold text, as the levels are '0', '1', '2'; got int64.",
    ),
    "no levels": (
        lambda: model_of(Group(INDEX, levels=0)),
        ValueError,
        "`levels` must be the labels there are",
        "got 0.",
    ),
    "missing level": (
        lambda: model_of(Group(INDEX, levels=[0, 1, 2, np.nan])),
        ValueError,
        "`levels` must be the labels",
    ),
    "two predictors": (
        lambda: model_of(INDEX, family=Categorical(3), y=INDEX),
        ValueError,
        "`Regression(groups=...)` needs a family with one linear predictor; Categorical(levels=3) has 2.",
    ),
    "slope that is no column": (
        lambda: model_of(Group(INDEX, slopes=["age"])),
        TypeError,
        "`Regression(groups={'g': ...})`: slope names the column 'age': give the frame as `data=`.",
    ),
    "slopes of an array": (lambda: model_of(Group(INDEX, slopes=X)), TypeError, "slopes must be a dict of arrays"),
    "short slope": (
        lambda: model_of(Group(INDEX, slopes={"a": [1, 2]})),
        ValueError,
        "`Regression(groups={'g': ...})`: slope 'a' must be one number for each of 12 rows; got shape (2,).",
    ),
    "missing in a slope": (
        lambda: model_of(Group(INDEX, slopes={"a": np.where(INDEX == 1, np.nan, 1.0)})),
        ValueError,
        "slope 'a' must be finite",
        "row 1",
    ),
    "name of the coefficients": (
        lambda: model_of(INDEX, "coefficients"),
        ValueError,
        "`Regression(groups=...)`: two parts of a position would be called 'coefficients'",
        "Choose another name",
    ),
    "name of the noise": (
        lambda: model_of(INDEX, "log_noise_sd", Gaussian(), X[:, 0]),
        ValueError,
        "would be called 'log_noise_sd'; without this group it has 'coefficients', 'log_noise_sd'.",
    ),
    "name of a scale of the prior": (
        lambda: model_of(INDEX, "log_slab", prior=Prior(priors.Horseshoe())),
        ValueError,
        "called 'log_slab'",
    ),
    "name of a slope": (
        lambda: Regression(Bernoulli(), y=Y, groups={"a": Group(INDEX, slopes={"b": X[:, 0]}), "a:b": INDEX}),
        ValueError,
        "called 'a:b'",
    ),
}


@table(REFUSALS)
def test_refusals(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)


def test_refusals_of_frames() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"y": Y, "age": X[:, 0]})
    make = lambda group: Regression(Bernoulli(), y="y", groups={"g": group}, data=frame)  # noqa: E731
    refuse(lambda: make("clinic"), ValueError, "{'g': ...})`: the frame has no column 'clinic'; it has 'y', 'age'.")
    refuse(lambda: make(Group("y", slopes="hight")), ValueError, "slope: the frame has no column 'hight'; it has")
