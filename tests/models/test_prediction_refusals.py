"""What predictions refuse: draws of another model, rows that do not fit, labels that it has not seen."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from conftest import SEED
from refusals import refuse, table
from tallchain.models import Group, Prior, Regression, prediction, priors
from tallchain.models.families import Bernoulli, Binomial

pd = pytest.importorskip("pandas")

ROWS = 20
RANDOM = np.random.default_rng(SEED)
FRAME = pd.DataFrame({"age": RANDOM.normal(size=ROWS), "height": RANDOM.normal(size=ROWS), "clinic": [*"abcd"] * 5})
X = FRAME[["age", "height"]].to_numpy()
MODEL = Regression(
    Bernoulli(),
    y=np.arange(ROWS) % 2,
    x=["age", "height"],
    groups={"clinic": Group("clinic", slopes="age")},
    offset="age",
    data=FRAME,
)
PLAIN = Regression(Bernoulli(), y=np.arange(ROWS) % 2, x=X)
TRIALS = Regression(Binomial(), y=(np.arange(ROWS) % 3, np.full(ROWS, 2)), x=X)
FLAT = Regression(Bernoulli(), y=np.arange(ROWS) % 2, x=X, prior=Prior(intercept=priors.Flat()))
KEY = jax.random.key(0)


def predict(**changes: Any) -> prediction.Prediction:
    """Two new rows."""
    clinic = Group(["a", "b"], slopes={"age": [0.0, 1.0]})
    return MODEL.predict(MODEL.start, **{"x": X[:2], "groups": {"clinic": clinic}, "offset": 0.0} | changes)


def clinics(index: Any, **changes: Any) -> prediction.Prediction:
    return predict(groups={"clinic": Group(index, slopes={"age": [0.0, 1.0]})}, **changes)


REFUSALS = {
    "draws of another model": (
        lambda: MODEL.predict(np.zeros((5, 3))),
        ValueError,
        "`predict(trace=...)` must be a trace of this regression, or draws of its position: arrays of shapes {'coeff",
        "after (chain, draw) or (draw,); got array",
    ),
    "coefficients of another model": (lambda: PLAIN.predict(np.zeros((5, 2))), ValueError, "shapes (3,) after"),
    "a dict for a vector": (lambda: PLAIN.predict({"coefficients": np.zeros((5, 3))}), ValueError, "shapes (3,) after"),
    "three axes": (lambda: PLAIN.predict(np.zeros((2, 2, 5, 3))), ValueError, "after (chain, draw) or (draw,)"),
    "no draws": (lambda: PLAIN.predict(np.zeros((2, 0, 3))), ValueError, "at least one draw; got shape (2, 0)."),
    "no draws asked for": (
        lambda: predict(max_draws=0),
        ValueError,
        "`predict(max_draws=...)` must be a whole",
        "got 0.",
    ),
    "unknown label": (
        lambda: clinics(["a", "x"]),
        ValueError,
        "`predict(groups={'clinic': ...})`: label 'x' of row 1 is not among the 4 levels of the regression: 'a', 'b', "
        "'c', 'd'. To draw the effect of a new level from N(0, sd^2), give `new_levels=\"draw\"`.",
    ),
    "unknown labels": (lambda: clinics(["y", "x"]), ValueError, "label 'y' of row 0", "2 labels are unknown in all."),
    "labels of another type": (lambda: clinics([0, 1]), TypeError, "labels must be of the type of the levels"),
    "missing label": (
        lambda: clinics(np.array(["a", None], object)),
        ValueError,
        "missing labels; got None for row 1.",
    ),
    "new level without a key": (
        lambda: clinics(["a", "x"], new_levels="draw"),
        ValueError,
        '`predict(new_levels="draw")` needs a key',
    ),
    "what to do with new levels": (lambda: predict(new_levels="zero"), ValueError, '"refuse" or "draw"; got \'zero\'.'),
    "no label": (
        lambda: MODEL.predict(MODEL.start, X[:2], offset=0.0),
        ValueError,
        "`predict(groups={'clinic': ...})`: new rows need the label of their 'clinic', one of 'a', 'b', 'c', 'd'.",
    ),
    "a factor too many": (
        lambda: PLAIN.predict(PLAIN.start, X[:2], {"city": ["a", "b"]}),
        ValueError,
        "`predict(groups=...)` must be those of the regression",
        "'city'",
    ),
    "no slope": (
        lambda: predict(groups={"clinic": ["a", "b"]}),
        ValueError,
        "new rows need the feature 'age', whose slopes differ between groups",
    ),
    "too few labels": (lambda: clinics(["a"]), ValueError, "one label for each of 2 rows; got shape (1,)."),
    "no features": (
        lambda: predict(x=None),
        ValueError,
        "`predict(x=...)`: new rows need the 2 features of this regression: 'age', 'height'.",
    ),
    "another number of features": (
        lambda: predict(x=np.zeros((2, 3))),
        ValueError,
        "`predict(x=...)` must be an array (rows, 2), without the intercept, or a frame; got shape (2, 3).",
    ),
    "a single row": (lambda: PLAIN.predict(PLAIN.start, X[0]), ValueError, "got shape (2,).", "`x[None, :]`"),
    "missing feature": (
        lambda: predict(x=[[0, 1], [np.nan, 2]]),
        ValueError,
        "`predict(x=...)` must be finite",
        "row 1, column 0",
    ),
    "no such column": (
        lambda: MODEL.predict(MODEL.start, data=FRAME[["age", "clinic"]]),
        ValueError,
        "`predict(data=...)` must have the columns of the features, by name: there is no 'height'; it has",
    ),
    "no such column of features": (
        lambda: predict(x=FRAME[["age"]][:2]),
        ValueError,
        "`predict(x=...)` must",
        "'height'",
    ),
    "names without a frame": (lambda: predict(x=["age", "height"]), TypeError, "give the frame as `data=`."),
    "no frame": (lambda: predict(data={"age": [1.0]}), TypeError, "`predict(data=...)` must be a frame"),
    "no offset": (
        lambda: predict(offset=None),
        ValueError,
        "`predict(offset=...)`: this regression has an offset, so new rows need one; give 0 for none.",
    ),
    "short offset": (lambda: predict(offset=[1, 2, 3]), ValueError, "`predict(offset=...)`", "2 rows; got shape (3,)."),
    "no rows": (lambda: PLAIN.predict(PLAIN.start, np.zeros((0, 2))), ValueError, "at least one row"),
    "an offset for no row": (
        lambda: Regression(Bernoulli(), y=[0, 1]).predict(np.zeros(1), offset=1.0),
        ValueError,
        "`predict` needs rows",
    ),
    "features of an intercept": (
        lambda: Regression(Bernoulli(), y=[0, 1]).predict(np.zeros(1), X),
        ValueError,
        "`predict(x=...)`: this regression has no features",
    ),
    "rows and new rows": (lambda: predict(rows=[0]), ValueError, "`predict(rows=...)` picks rows of the regression"),
    "row out of range": (
        lambda: PLAIN.predict(PLAIN.start, rows=[3, 20]),
        ValueError,
        "the 20 rows, from 0; got 3 to 20.",
    ),
    "short mask": (lambda: PLAIN.predict(PLAIN.start, rows=[True]), ValueError, "got a mask of 1."),
    "no row picked": (lambda: PLAIN.predict(PLAIN.start, rows=slice(5, 5)), ValueError, "at least one of the 20 rows"),
    "rows by text": (lambda: PLAIN.predict(PLAIN.start, rows="first"), TypeError, "numbers of rows, a mask or a slice"),
    "draws without a key": (lambda: predict(draws=True), ValueError, "`predict(draws=True)` needs a key"),
    "number of draws": (
        lambda: predict(draws=10, key=KEY),
        TypeError,
        "`predict(draws=...)` must be True or False; got 10.",
    ),
    "seed for a key": (lambda: predict(draws=True, key=0), TypeError, "`predict(key=...)` must be one JAX key"),
    "interval": (lambda: predict(interval=90), ValueError, "`predict(interval=...)` must be a probability", "got 90."),
    "trials of outcomes without": (lambda: predict(size=3), ValueError, "`predict(size=...)` is the number of trials"),
    "no trials": (
        lambda: TRIALS.predict(TRIALS.start, X, key=KEY, draws=True),
        ValueError,
        "`predict(size=...)`: to draw outcomes of Binomial(link='logit'), give the numbers of trials.",
    ),
    "half a trial": (lambda: TRIALS.predict(TRIALS.start, X, size=0.5), ValueError, "0, 1, 2 and so on; got 0.5."),
    "flat prior": (
        lambda: FLAT.prior_predict(KEY),
        ValueError,
        "`prior_predict`: the prior of the intercept is flat, and nothing can be drawn from it.",
        "Prior(intercept=priors.Normal(2.5))",
    ),
    "count": (lambda: PLAIN.prior_predict(KEY, 0), ValueError, "`prior_predict(count=...)` must be a whole", "got 0."),
    "no key": (lambda: PLAIN.prior_predict(0), TypeError, "`prior_predict(key=...)` must be one JAX key"),
}


@table(REFUSALS)
def test_refusals(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)


def test_more_outcomes_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "_MOST_KEPT", 100)
    refuse(
        lambda: PLAIN.predict(np.zeros((10, 3)), key=KEY, draws=True),
        ValueError,
        "`predict(draws=True)` would keep 200 numbers",
        "for 20 rows and 10 draws. Ask for some of the rows",
    )
