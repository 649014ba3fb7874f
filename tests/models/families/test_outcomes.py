"""Outcomes that families take, and those that they refuse; settings."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tallchain.models import families


class Frame:
    """As much of a data frame as is looked at."""

    def __init__(self, **columns: Any) -> None:
        self.data = {name: np.asarray(values) for name, values in columns.items()}
        self.columns, self.shape = list(self.data), (len(next(iter(self.data.values()))), len(self.data))

    def to_numpy(self) -> np.ndarray:
        return np.stack(list(self.data.values()), 1)

    def __getitem__(self, name: str) -> Any:
        return Frame.Series(self.data[name])

    class Series:
        def __init__(self, values: np.ndarray) -> None:
            self.values = values

        def to_numpy(self) -> np.ndarray:
            return self.values


BINOMIAL, WEIBULL = families.Binomial(), families.Weibull()
REFUSED = {
    "missing": (
        families.Gaussian(),
        [0, 1, np.nan],
        ["`fit(y=...)` must be finite, in float32 as well; got nan at row 2.", "missing values"],
    ),
    "too large": (families.Gaussian(), [0, 1e39], ["got inf at row 1.", "rescale"]),
    "text": (families.Poisson(), ["a", "b"], ["`fit(y=...)` must hold numbers; got <U1."]),
    "two columns": (families.Poisson(), np.zeros((3, 2)), ["one number for each row; got shape (3, 2)."]),
    "no rows": (families.Poisson(), [], ["one number for each row; got shape (0,)."]),
    "frame of two": (families.Poisson(), Frame(a=[1], b=[2]), ["must be one column; got 2 columns: 'a', 'b'."]),
    "labels -1 and 1": (families.Bernoulli(), [1, -1], ["must be 0 or 1", "got -1 at row 1.", "`y > 0`"]),
    "labels 1 and 2": (families.Bernoulli("probit"), [1, 2], ["got 2 at row 1.", "`y == label`"]),
    "half a count": (families.Poisson(), [1, 0.5], ["must be counts: 0, 1, 2 and so on; got 0.5 at row 1."]),
    "negative count": (families.NegativeBinomial(), [1, -3], ["must be counts", "got -3 at row 1."]),
    "more successes than trials": (
        BINOMIAL,
        ([1, 3], [2, 2]),
        ["no more successes than trials; got 3 at row 1.", "(successes, trials)"],
    ),
    "half a success": (BINOMIAL, [[0.5, 2]], ["successes are 0, 1, 2 and so on; got 0.5 at row 0."]),
    "negative trials": (BINOMIAL, [[0, -2]], ["trials are 0, 1, 2 and so on; got -2 at row 0."]),
    "successes alone": (BINOMIAL, [1, 2, 3], ["(rows, 2) of successes and trials", "got shape (3,)."]),
    "rows of two": (BINOMIAL, [[1, 2, 3], [4, 5, 6]], ["got shape (2, 3)."]),
    "three columns": (BINOMIAL, ([1], [2], [3]), ["a tuple of these two", "got 3 columns."]),
    "lengths": (BINOMIAL, ([1, 2], [2]), ["got shapes (2,) and (1,)."]),
    "missing trials": (BINOMIAL, ([1, 2], [2, np.nan]), ["got nan in trials at row 1."]),
    "no variation": (
        families.Gaussian(),
        [2, 2],
        ["must differ, in float32 as well, for the noise to be estimated; got 2 for every row."],
    ),
    "no variation, t": (families.StudentT(4), [2, 2], ["must differ, in float32 as well, for the noise"]),
    "no variation, gamma": (families.Gamma(), [2, 2], ["must differ, in float32 as well, for the shape"]),
    "far from 0": (families.Gaussian(), [1e6, 1e6 + 1], ["vary by 0.5 about 1e+06", "Subtract a number near"]),
    "a tiny unit": (families.Gaussian(1.0), [0, 1e-12], ["standard deviation of 5e-13", "another unit"]),
    "a large unit": (families.StudentT(4), [0, 1e12], ["standard deviation of 5e+11", "another unit"]),
    "masked": (families.Gaussian(), np.ma.masked_invalid([1, np.nan]), ["must have no masked values"]),
    "zero": (families.Gamma(), [1, 0], ["must be above 0; got 0 at row 1."]),
    "time 0": (WEIBULL, ([1, 0], [1, 1]), ["times are above 0; got 0 at row 1."]),
    "negative time": (WEIBULL, [[-2, 1]], ["times are above 0; got -2 at row 0."]),
    "columns exchanged": (WEIBULL, ([1, 1], [3, 5]), ["0 or 1; got 3 at row 0.", "(time, observed)"]),
    "nothing observed": (WEIBULL, ([1, 2], [0, 0]), ["must have times that were observed"]),
    "levels from 1": (
        families.Categorical(3),
        [1, 2, 3],
        ["levels from 0 to 2, whole numbers; got 3 at row 2.", "count from 1: write `y - 1`"],
    ),
    "too many levels": (families.Ordinal(3), [0, 5], ["got 5 at row 1.", "got levels=3."]),
    "half a level": (families.Ordinal(3), [0, 0.5], ["got 0.5 at row 1."]),
}


@pytest.mark.parametrize(("family", "y", "fragments"), REFUSED.values(), ids=list(REFUSED))
def test_refusals(family: families.Family, y: Any, fragments: list[str]) -> None:
    with pytest.raises((ValueError, TypeError), match="(?s)" + ".*".join(map(re.escape, fragments))):
        family.outcomes("fit", y)


SETTINGS = {
    "link": (
        lambda: families.Bernoulli("cauchit"),
        "must be one of 'logit', 'probit', 'cloglog'; got 'cauchit'.",
    ),
    "link of counts": (
        lambda: families.Binomial("probit"),
        "`Binomial(link=...)` must be one of 'logit'",
    ),
    "sd": (
        lambda: families.Gaussian(0),
        "`Gaussian(sd=...)` must be a positive number, or None",
    ),
    "nu": (lambda: families.StudentT(-1), "`StudentT(nu=...)` must be a positive number"),
    "levels": (lambda: families.Categorical(1), "`Categorical(levels=...)` must be a whole number, at least 2; got 1."),
    "levels in part": (lambda: families.Ordinal(2.5), "`Ordinal(levels=...)` must be a whole number"),
}


@pytest.mark.parametrize(("make", "message"), SETTINGS.values(), ids=list(SETTINGS))
def test_settings_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_accepts_what_is_meant() -> None:
    for y in ([False, True], [0.0, 1.0], np.array([[0], [1]]), Frame(y=[0, 1])):
        np.testing.assert_array_equal(families.Bernoulli().outcomes("fit", y), np.float32([0, 1]))
    for y in (([1, 0], [2, 3]), [[1, 2], [0, 3]], Frame(k=[1, 0], n=[2, 3])):
        made = BINOMIAL.outcomes("fit", y)
        assert made.dtype == np.float32
        np.testing.assert_array_equal(made, [[1, 2], [0, 3]])
    np.testing.assert_array_equal(WEIBULL.outcomes("fit", (np.array([2.5]), np.array([True]))), [[2.5, 1]])
    np.testing.assert_array_equal(families.Gaussian(1.0).outcomes("fit", [2, 2]), [2, 2])


def test_starts_of_little_information() -> None:
    """All outcomes alike where that is allowed: finite all the same."""
    for family, y in (
        (families.Bernoulli("cloglog"), [0, 0]),
        (families.Poisson(), [0, 0]),
        (families.NegativeBinomial(), [3, 3]),
        (families.StudentT(), [1, 1, 1, 1, 1, 2]),
        (families.Gamma(), [1, 1 + 2e-7]),
        (WEIBULL, [[2, 1], [2, 1]]),
        (families.Categorical(3), [0, 0]),
        (families.Ordinal(4), [1, 1]),
        (families.Gaussian(2.0), [5]),
    ):
        made = family.outcomes("fit", y)
        assert np.all(np.isfinite(family.start(made))), family
        assert family.unit(made) > 0
