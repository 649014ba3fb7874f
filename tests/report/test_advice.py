"""Advice and citations, as sets."""

from __future__ import annotations

import dataclasses

import pytest

from report.facts_cases import CHECK
from tallchain.report import Advice, advice, citations
from tallchain.report.citing import HOFFMAN, NEAL_2011, OF_TESTS, PIIRONEN, PRADO, QUIROZ, VEHTARI

NAMES = [f"column {at}" for at in range(6)]
SET = [
    advice.low_ess("distance", 1234.5, 4000),
    advice.r_hat(NAMES, 1.05),
    advice.saturated(0.8, 900_000),
    advice.tiny_steps(0.02, 0.001),
    advice.invalid_ratios(3, 4000),
    advice.poor_expansion(NAMES),
    advice.unseen_levels("carrier", ["XX"]),
    advice.collinear(NAMES[:2]),
    advice.separation(NAMES[:1]),
    advice.prior_alone(NAMES[:1]),
    advice.too_few(1),
    advice.limit_reached("time", "10 min"),
    advice.interrupted(120),
    advice.not_checked(),
    advice.scan_interrupted(),
    advice.skewed(0.5, 2.0, 40),
    advice.audit_failed("ERROR FOUND: the log-odds are off."),
    advice.tempered(100.0),
    advice.dropped(1, 10, ["distance"]),
]


def test_each_has_a_code_of_its_own_and_says_what_to_do() -> None:
    checked = advice.predictive(CHECK)
    assert checked is not None
    every = [*SET, checked]
    assert len({each.code for each in every}) == len(every)
    for each in every:
        assert each.what[-1] == each.remedy[-1] == "."
        assert each.what[0].isupper() or each.what[0].isdigit() or each.what.startswith(("column", "distance"))
        assert len(each.remedy.split()) >= 4


@pytest.mark.parametrize("each", SET, ids=lambda each: each.code)
def test_advice_is_plain_text(each: Advice) -> None:
    assert "  " not in str(each)
    assert "None" not in str(each)
    assert "nan" not in str(each)


def test_only_what_makes_the_numbers_wrong_is_grave() -> None:
    grave = {each.code for each in SET if each.is_grave}
    assert grave == {"r-hat", "too-few-draws", "invalid-ratios", "skewed-batches", "audit", "tempered"}


def test_long_lists_of_names_are_cut() -> None:
    assert "column 0, column 1, column 2, column 3 and 2 more" in advice.r_hat(NAMES, 1.05).what


def test_one_is_singular() -> None:
    assert advice.dropped(1, 10, ["x"]).what.startswith("1 row of 10 was left out")
    assert advice.unseen_levels("carrier", ["XX"]).what.startswith("1 level of carrier was not in")


def test_a_check_that_found_nothing_gives_no_advice() -> None:
    right = dataclasses.replace(CHECK.panels[0], p_value=0.4)
    assert advice.predictive(dataclasses.replace(CHECK, panels=(right,))) is None


class TestCitations:
    def test_a_test_and_a_proposal(self) -> None:
        found = citations("MHSS(truncation=3.0)", "PCN(beta=0.5)")
        assert found[0] == PRADO
        assert [each.split(",")[0] for each in found[1:]] == ["Neal", "Cotter", "Vehtari"]

    def test_an_algorithm_is_in_the_words_of_a_transition(self) -> None:
        assert HOFFMAN in citations("Penalty()", "Transition(algorithm='nuts', repeats=2)")
        assert NEAL_2011 in citations("Penalty()", "Transition(algorithm='hmc')")

    def test_what_else_was_used(self) -> None:
        found = citations("Penalty", "RandomWalk", has_surrogate=True, has_horseshoe=True)
        assert {QUIROZ, PIIRONEN, VEHTARI} <= set(found)
        assert citations("Own", "Own") == (VEHTARI,)

    def test_every_test_of_the_library_has_one(self) -> None:
        from tallchain import acceptance

        tests = {name for name in acceptance.__all__ if hasattr(getattr(acceptance, name), "judge")}
        assert tests <= OF_TESTS.keys()

    def test_they_are_no_addresses(self) -> None:
        assert not any("http" in each for of in OF_TESTS.values() for each in of)
