"""What the class Regression refuses, before anything compiles; what it must not refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tallchain as tc
from conftest import SEED
from refusals import refuse, table
from tallchain.models import Prior, Regression, priors
from tallchain.models.families import Bernoulli, Binomial, Categorical, Gaussian, Ordinal, Poisson, Weibull

pd = pytest.importorskip("pandas")

ROWS = 60
X = np.random.default_rng(SEED).normal(size=(ROWS, 2))
Y = np.arange(ROWS) % 3 == 0
FRAME = pd.DataFrame({"y": Y, "age": X[:, 0], "height": X[:, 1]})
FLAT = Prior(priors.Flat())
FREE = Prior(priors.Flat(), priors.Flat())
NAN = np.where(np.arange(ROWS)[:, None] == 7, [[0.0, np.nan]], X)
RARE = (np.arange(ROWS) == 3).astype(float)  # a row whose outcome is 1


def model_of(family: Any = None, **settings: Any) -> Regression:
    return Regression(Bernoulli() if family is None else family, **{"y": Y, "x": X} | settings)


def with_column(values: Any, **settings: Any) -> Regression:
    return model_of(x=np.column_stack([X, values]), **settings)


REFUSALS = {
    "a class": (lambda: model_of(Bernoulli), TypeError, "`Regression(family=...)` must be a family such as"),
    "prior of the coefficients alone": (
        lambda: model_of(prior=priors.Normal(1.0)),
        TypeError,
        "`Regression(prior=...)` must be a Prior(...)",
    ),
    "a dict for a frame": (
        lambda: model_of(y="y", data={"y": Y}),
        TypeError,
        "`Regression(data=...)` must be a frame of pandas or polars",
        "`pandas.DataFrame(data)`",
    ),
    "no frame": (lambda: model_of(y="y"), TypeError, "`Regression(y='y')` names the column 'y': give the frame"),
    "no frame for features": (lambda: model_of(x=["a", "b"]), TypeError, "`Regression(x='a')` names the column 'a'"),
    "no such column": (
        lambda: model_of(x=["age", "hight"], data=FRAME),
        ValueError,
        "`Regression(x='hight')`: the frame has no column 'hight'; it has 'y', 'age', 'height'.",
    ),
    "no such weights": (lambda: model_of(weights="w", data=FRAME), ValueError, "`Regression(weights='w')`"),
    "missing feature": (
        lambda: model_of(x=NAN),
        ValueError,
        "`Regression(x=...)` must be finite",
        "got nan at row 7, column 1.",
        "Fill in or drop",
    ),
    "missing feature of a frame": (
        lambda: model_of(x=pd.DataFrame(NAN, columns=["age", "height"])),
        ValueError,
        "got nan in column 'height' at row 7.",
    ),
    "text feature": (
        lambda: model_of(x=pd.DataFrame({"age": X[:, 0], "city": ["a"] * ROWS})),
        TypeError,
        "must hold numbers; got object in column 'city'.",
    ),
    "missing outcome": (
        lambda: model_of(Gaussian(), y=NAN[:, 1]),
        ValueError,
        "`Regression(y=...)` must be finite",
        "nan at row 7.",
    ),
    "missing offset": (
        lambda: model_of(offset=NAN[:, 1]),
        ValueError,
        "`Regression(offset=...)` must be finite",
        "row 7",
    ),
    "missing weight": (
        lambda: model_of(weights=NAN[:, 1]),
        ValueError,
        "`Regression(weights=...)` must be finite",
        "row 7",
    ),
    "weight below 0": (
        lambda: model_of(weights=1 - 2 * RARE),
        ValueError,
        "`Regression(weights=...)` must be at least 0; got -1 for row 3.",
    ),
    "weights of 0": (lambda: model_of(weights=0 * RARE), ValueError, "must not all be 0: no row would count."),
    "observed times of weight 0": (
        lambda: model_of(Weibull(), y=(1 + Y, RARE), weights=1 - RARE),
        ValueError,
        "must have times that were observed; got 0 for every row. Rows of weight 0 do not count.",
    ),
    "all outcomes alike, free intercept": (
        lambda: Regression(Bernoulli(), y=0 * Y + 1, groups={"g": Y}, prior=Prior(intercept=priors.Flat())),
        ValueError,
        "all outcomes are 1, and the intercept has a flat prior",
    ),
    "all counts 0, free intercept": (
        lambda: Regression(Poisson(), y=0 * Y, groups={"g": Y}, prior=Prior(intercept=priors.Flat())),
        ValueError,
        "all counts are 0, and the intercept has a flat prior",
    ),
    "another start": (
        lambda: tc.prepare(Regression(Bernoulli(), y=Y, groups={"g": Y}), initial=np.zeros(3), progress=False),
        ValueError,
        "`prepare(model, initial=...)`: A position of this regression is a dict",
    ),
    "other arrays": (
        lambda: tc.prepare(model_of(), data={"x": X}, progress=False),
        ValueError,
        "`prepare(model, data=...)` must have the arrays of `model.data`, x, y; got x.",
    ),
    "two weights": (lambda: model_of(weights=[1, 2]), ValueError, "one number for each of 60 rows; got shape (2,)."),
    "one offset": (lambda: model_of(offset=1.0), ValueError, "`Regression(offset=...)`", "60 rows; got shape ()."),
    "rows do not match": (
        lambda: model_of(x=X[:50]),
        ValueError,
        "`Regression(y=...)` must be one number for each row of the features, shape (50,); got shape (60,).",
    ),
    "one axis": (lambda: model_of(x=X[:, 0]), ValueError, "(rows, features); got shape (60,).", "`x[:, None]`"),
    "half a count": (
        lambda: model_of(Poisson(), y=Y + 0.5),
        ValueError,
        "`Regression(y=...)` must be counts: 0, 1, 2 and so on; got 1.5 at row 0.",
    ),
    "time below 0": (
        lambda: model_of(Weibull(), y=(RARE - 0.5, Y)),
        ValueError,
        "`Regression(y=...)`",
        "times are above 0; got -0.5 at row 0.",
    ),
    "level that never occurs": (
        lambda: model_of(Categorical(4), y=np.arange(ROWS) % 3),
        ValueError,
        "`Regression(y=...)`: 1 of the 4 levels of Categorical(levels=4) never occur: 3. Number",
    ),
    "level without weight": (
        lambda: model_of(Ordinal(3), y=np.arange(ROWS) % 3, weights=np.arange(ROWS) % 3),
        ValueError,
        "1 of the 3 levels of Ordinal(levels=3) never occur: 0.",
    ),
    "intercept and cutpoints": (
        lambda: model_of(Ordinal(3), y=np.arange(ROWS) % 3, intercept=True),
        ValueError,
        "`Regression(intercept=True)`: Ordinal(levels=3) has numbers in place of an intercept (cutpoint, log_gap_1)",
        "Leave `intercept` out.",
    ),
    "intercept of 1": (
        lambda: model_of(intercept=1),
        TypeError,
        "`Regression(intercept=...)` must be True or False; got 1.",
    ),
    "cutpoints alone": (
        lambda: model_of(Ordinal(3), y=np.arange(ROWS) % 3, x=None),
        ValueError,
        "`Regression(x=None)`: without an intercept there must be a feature",
    ),
    "horseshoe without features": (
        lambda: model_of(x=None, prior=Prior(priors.Horseshoe())),
        ValueError,
        "`Regression(x=None, prior=...)`: a horseshoe prior is of the coefficients of features",
    ),
    "collinear": (
        lambda: with_column(X[:, 0] - 2 * X[:, 1], prior=FLAT),
        ValueError,
        "`Regression(x=..., prior=...)`: under a flat prior no column may be determined by others",
        "float32: column 0 of x, column 1 of x, column 2 of x. Leave one",
    ),
    "collinear, by name": (
        lambda: model_of(x=pd.DataFrame({"age": X[:, 0], "years": 2 * X[:, 0], "height": X[:, 1]}), prior=FLAT),
        ValueError,
        "float32: column 'age', column 'years'. Leave",
    ),
    "constant besides the intercept": (
        lambda: with_column(np.full(ROWS, 3.0), prior=FLAT),
        ValueError,
        "float32: the intercept, column 2 of x. Leave",
    ),
    "zeros": (lambda: with_column(np.zeros(ROWS), prior=FLAT), ValueError, "float32: column 2 of x. Leave"),
    "no row that counts": (lambda: with_column(RARE, weights=1 - RARE, prior=FLAT), ValueError, "column 2 of x. Leave"),
    "all outcomes alike": (
        lambda: model_of(y=np.ones(ROWS), prior=FREE),
        ValueError,
        "`Regression(y=..., prior=...)`: all outcomes are 1, and the intercept has a flat prior",
    ),
    "no successes": (
        lambda: model_of(Binomial(), y=(np.zeros(ROWS), np.ones(ROWS)), prior=FREE),
        ValueError,
        "all outcomes are 0",
    ),
    "a dummy with one outcome": (
        lambda: with_column(RARE, prior=FLAT),
        ValueError,
        "`Regression(x=..., y=..., prior=...)`: column 2 of x tells outcomes of 1 from outcomes of 0",
        "priors.Normal(2.5)",
    ),
    "a dummy with one outcome, by name": (
        lambda: model_of(x=pd.DataFrame({"age": X[:, 0], "late": ~Y}), prior=FLAT),
        ValueError,
        "column 'late' tells outcomes",
    ),
    "a dummy whose other rows have one outcome": (
        lambda: with_column(1 - RARE, prior=FREE),
        ValueError,
        "column 2 of x",
    ),
    "a threshold": (lambda: with_column(np.abs(X[:, 0]) + 5 * Y + 9, prior=FREE), ValueError, "column 2 of x tells"),
    "trials that all succeed": (
        lambda: with_column(RARE, family=Binomial(), y=(1 + RARE, np.full(ROWS, 2)), prior=FLAT),
        ValueError,
        "column 2 of x tells",
    ),
}


@table(REFUSALS)
def test_refusals(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)


def test_flat_priors_that_the_data_determine() -> None:
    """Not refused: a mixed dummy, a threshold that a proper intercept cannot follow, outcomes with both kinds."""
    with_column((np.arange(ROWS) < 6).astype(float), prior=FREE)
    with_column(1 - RARE, prior=FLAT)
    with_column(np.abs(X[:, 0]) + 5 * Y + 9, prior=FLAT, y=~Y * 1.0, family=Poisson())
    with_column(RARE, prior=Prior(intercept=priors.Flat()))
    with_column(RARE, family=Binomial(), y=(1 + RARE, np.full(ROWS, 2)), prior=Prior())
    model_of(y=np.ones(ROWS), prior=FLAT)
