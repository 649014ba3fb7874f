"""The left side: numbers, pairs and labels, and the family that they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from formula_rows import built, rows

from tallchain.formulas import FormulaError
from tallchain.models import Prior, families, priors
from tallchain.models.families import Bernoulli, Categorical, Ordinal

pytestmark = pytest.mark.usefixtures("small_blocks")


def test_functions_and_comparisons() -> None:
    frame = rows()
    np.testing.assert_allclose(built("log(w) ~ x1", frame).model.data["y"], np.log(frame["w"]), rtol=1e-6)
    made = built("I(w > 2) ~ x1", frame, "bernoulli").model
    np.testing.assert_array_equal(made.data["y"], frame["w"] > 2)


def test_successes_and_trials() -> None:
    frame = rows()
    made = built("p(hits, tries) ~ x1", frame, "binomial").model
    np.testing.assert_array_equal(made.data["y"], frame[["hits", "tries"]])
    np.testing.assert_array_equal(built("p(hits, 9) ~ 1", frame, "binomial").model.data["y"][:, 1], 9)


def test_times_that_are_cut_off() -> None:
    frame = rows()
    made = built("censored(w, late) ~ x1", frame, "weibull").model
    np.testing.assert_allclose(made.data["y"], frame[["w", "late"]].astype(float), rtol=1e-6)


def test_two_labels() -> None:
    frame = rows()
    made = built("answer ~ x1", frame, "bernoulli")
    np.testing.assert_array_equal(made.model.data["y"], frame["answer"] == "yes")
    assert made.words == ("answer counts as 1 where it is 'yes', as 0 where it is 'no'.",)
    assert made.spec.levels["answer"] == ("no", "yes")
    turned = built("C(answer, levels=['yes', 'no']) ~ x1", frame, "bernoulli")
    np.testing.assert_array_equal(turned.model.data["y"], frame["answer"] == "no")


@pytest.mark.parametrize("family", ["categorical", Categorical, Categorical(3)])
def test_labels_are_counted(family: Any) -> None:
    frame = rows()
    made = built("carrier ~ x1", frame, family)
    assert made.model.family == Categorical(3)
    np.testing.assert_array_equal(made.model.data["y"], frame["carrier"].map({"AA": 0, "EV": 1, "UA": 2}))
    assert made.words == ("carrier has the levels AA, EV, UA; the first is compared with.",)


def test_ordered_labels() -> None:
    frame = rows()
    made = built("grade ~ x1 + carrier", frame, "ordinal")
    assert made.model.family == Ordinal(3)
    assert made.model.names == ("x1", "carrier[EV]", "carrier[UA]")  # cutpoints take the place of the intercept
    np.testing.assert_array_equal(made.model.data["y"], frame["grade"].cat.codes)
    as_text = frame.assign(grade=frame["grade"].astype(str))
    again = built("C(grade, levels=['low', 'mid', 'high']) ~ x1", as_text, "ordinal")
    np.testing.assert_array_equal(again.model.data["y"], frame["grade"].cat.codes)
    of_numbers = built("hour ~ x1", frame, "ordinal").model
    np.testing.assert_array_equal(of_numbers.data["y"], frame["hour"])


def test_families_by_name() -> None:
    frame = rows()
    for name, column in (("poisson", "hits"), ("student_t", "y"), ("NegativeBinomial", "hits"), ("gamma", "w")):
        family = built(f"{column} ~ x1", frame, name).model.family
        assert type(family).__name__.lower() == name.replace("_", "").lower()
    assert built("late ~ x1", frame, Bernoulli("probit")).model.family == Bernoulli("probit")


def test_the_prior_is_handed_on() -> None:
    prior = Prior(priors.Normal(0.5), priors.Normal(2.0))
    log_prior: Any = built("y ~ x1", prior=prior).model.posterior.log_prior
    assert log_prior.prior.coefficients == priors.Normal(0.5)
    with pytest.raises(TypeError, match=r"`prior` must be a Prior"):
        built("y ~ x1", prior=0.5)


REFUSED = {
    ("carrier ~ x1", "bernoulli"): "must have two levels; got 3: 'AA', 'EV', 'UA'. Use the family Categorical",
    ("carrier ~ x1", "gaussian"): "`carrier` holds text, and this family needs numbers",
    ("carrier ~ x1", "ordinal"): "the order of the levels of `carrier` is not known",
    ("carrier ~ x1", Categorical(4)): r"the outcome has 3 levels, and the family is Categorical\(levels=4\)",
    ("hits ~ x1", "binomial"): r"is written `p\(successes, trials\)`; got `hits`",
    ("w ~ x1", "weibull"): r"is written `censored\(time, is_event\)`",
    ("p(hits, tries) ~ x1", "gaussian"): "is the outcome of a family with trials",
    ("p(hits) ~ x1", "binomial"): "is the outcome of a family with trials",
    ("p(tries, hits) ~ x1", "binomial"): r"the outcome `p\(tries, hits\)` must be .*with no more successes than trials",
    ("y ~ x1", "bernoulli"): "the outcome `y` must be 0 or 1",
    ("y ~ x1", "gausian"): "there is no family 'gausian'.*'gaussian'",
    ("log(y) ~ x1", "gaussian"): r"`log\(y\)` is nan in row \d+, where 'y' is -",
    ("yy ~ x1", "gaussian"): "there is no column 'yy'; the nearest: 'y'",
    ("y ~ x1 + y", "gaussian"): "the outcome `y` is among the features too",
    ("one ~ x1", "bernoulli"): "all outcomes are 1, and the intercept has a flat prior",
    ("poly(y, 2) ~ x1", "gaussian"): "is 2 columns, and one is needed here",
    ("day ~ x1", "gaussian"): "needs numbers, and column 'day' holds times",
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_refusals(case: tuple[str, Any]) -> None:
    prior = Prior(priors.Flat(), priors.Flat()) if case[0].startswith("one") else None
    with pytest.raises(FormulaError, match=REFUSED[case]) as caught:
        built(case[0], rows().assign(one=1), case[1], prior=prior)
    assert str(caught.value).startswith(f'`fit("{case[0]}")`: ')


def test_what_is_no_family() -> None:
    for given in (3, families.Family, pd.DataFrame):
        with pytest.raises(TypeError, match="`family` must be a family"):
            built("y ~ x1", family=given)
