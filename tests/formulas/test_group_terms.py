"""Group terms become groups of a regression."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from formula_rows import built, rows

from tallchain.formulas import FormulaError
from tallchain.models import Group, Regression, families

pytestmark = pytest.mark.usefixtures("small_blocks")


def test_the_regression_is_the_one_made_by_hand() -> None:
    frame = rows()
    made = built("late ~ x1 + (1 + x1 | carrier) + (1 | hour)", frame, "bernoulli").model
    groups = {"carrier": Group("carrier", ["x1"]), "hour": Group("hour")}
    expected = Regression(families.Bernoulli(), y="late", x=["x1"], groups=groups, data=frame)
    assert made.layout == expected.layout
    assert made.names == expected.names
    assert repr(made.posterior.log_prior) == repr(expected.posterior.log_prior)
    assert jax.tree.all(jax.tree.map(np.array_equal, made.start, expected.start))
    assert set(made.data) == set(expected.data)
    for name, values in expected.data.items():
        assert made.data[name].dtype == values.dtype
        np.testing.assert_array_equal(made.data[name], values)
    for name, labels in expected.levels.items():
        assert made.levels[name].tolist() == labels.tolist()


@pytest.mark.parametrize("text", ["(x1 | carrier)", "(1 + x1 || carrier)", "(1 | carrier) + (x1 | carrier)"])
def test_ways_to_write_slopes(text: str) -> None:
    terms = built(f"y ~ {text}").model.layout.terms
    assert [(term.name, term.slope) for term in terms] == [("carrier", None), ("carrier:x1", 0)]


def test_slopes_of_expressions_and_products() -> None:
    frame = rows()
    made = built("y ~ (log(w) + x1:x2 | carrier)", frame).model
    assert [term.name for term in made.layout.terms] == ["carrier", "carrier:log(w)", "carrier:x1:x2"]
    expected = np.stack([np.log(frame["w"]), frame["x1"] * frame["x2"]], 1)
    np.testing.assert_allclose(made.data["slopes"], expected, rtol=1e-6, atol=1e-7)


def test_combined_and_nested_factors() -> None:
    frame = rows()
    made = built("y ~ (1 | airport/carrier) + (1 | hour:late)", frame).model
    assert list(made.levels) == ["airport", "airport:carrier", "hour:late"]
    assert made.levels["airport:carrier"].tolist()[:2] == ["JFK:AA", "JFK:EV"]
    for at, columns in enumerate((["airport"], ["airport", "carrier"], ["hour", "late"])):
        name = ":".join(columns)
        expected = frame[columns].astype(str).agg(":".join, axis=1)
        np.testing.assert_array_equal(made.levels[name][made.data["groups"][:, at]], expected)


def test_combinations_that_do_not_occur_have_no_level() -> None:
    frame = rows().query("carrier != 'UA' or airport != 'JFK'")
    assert "UA:JFK" not in built("y ~ (1 | carrier:airport)", frame).model.levels["carrier:airport"].tolist()


def test_names_in_backticks() -> None:
    frame = rows().rename(columns={"carrier": "the carrier"})
    assert list(built("y ~ (1 | `the carrier`:airport)", frame).model.levels) == ["the carrier:airport"]


REFUSED = {
    "(0 + x1 | carrier)": r"`\(0 \+ x1 \| carrier\)` has no intercept, .*write `\(x1 \| carrier\)`",
    "(x1 - 1 | carrier)": r"write `\(x1 \| carrier\)`",
    "(1 | carrier + airport)": r"write a term of its own .* `\(1 \| a\) \+ \(1 \| b\)`",
    "(1 | C(hour))": "the factor of .* must be a column",
    "(airport | carrier)": r"`airport` is a factor; write `\(1 \| carrier:airport\)`",
    "(poly(x1, 2) | carrier)": "is several columns; give slopes one by one",
    "(1 | carier)": "there is no column 'carier' .*; the nearest: 'carrier'",
    "x1 * (1 | carrier)": r"group terms stand in parentheses of their own and are added",
    "1 | carrier": "group terms stand in parentheses of their own",
    "x1 - (1 | carrier)": "can only be added",
    "(1 |)": "a group term is",
    "(1 | a | b)": "a group term is",
    "(zero | carrier)": "slope of `zero` is of a feature that is 0 in every row",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refusals(text: str) -> None:
    with pytest.raises(FormulaError, match=REFUSED[text]) as caught:
        built(f"y ~ {text}", rows().assign(zero=0.0))
    assert str(caught.value).startswith(f'`fit("y ~ {text}")`: ')
