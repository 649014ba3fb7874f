import json
import math

from report.facts_cases import FACTS, without_numbers
from tallchain.report import Facts


def test_facts_come_back_from_json_as_they_were() -> None:
    assert Facts.from_json(FACTS.to_json()) == FACTS


def test_numbers_that_are_not_known_are_null_and_come_back_as_nan() -> None:
    text = without_numbers().to_json()
    assert json.loads(text)["parameters"][0]["r_hat"] is None
    assert math.isnan(Facts.from_json(text).parameters[0].r_hat)
    assert Facts.from_json(text).trust.audited_error is None


def test_parameters_by_kind_and_terms_in_order() -> None:
    assert [each.name for each in FACTS.of_kind("coefficient")] == ["(intercept)", "<b>distance</b> & more"]
    assert FACTS.terms == ("carrier",)


def test_a_check_says_how_many_places_are_within() -> None:
    assert FACTS.predictive is not None
    assert FACTS.predictive.is_suspect
    assert FACTS.predictive.verdict == (
        "mean outcome, by predicted mean: 2 of 3 within their 90 % interval; expected 2.7; beyond chance (p = 1e-05)."
    )
