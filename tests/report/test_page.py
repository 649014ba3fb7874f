"""The page: well formed, complete, with nothing from elsewhere, and nothing from the user that is HTML."""

from __future__ import annotations

import base64
import dataclasses
import re
from html.parser import HTMLParser

import pytest

from plots.made_up import grouped_trace
from report.facts_cases import CHECK, FACTS, without_numbers
from tallchain.report import Facts, Pictures, Stage, advice, draw, page, verdict
from tallchain.report.html import MINUS, UNKNOWN

VOID = {"meta", "img", "br"}


class Reader(HTMLParser):
    """Elements in order, the text of each, and the attributes; complains about what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.said: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append((self.open[-1] if self.open else "", data))

    def of(self, tag: str) -> list[str]:
        return [data for within, data in self.said if within == tag]


@pytest.fixture(scope="module")
def drawn() -> Pictures:
    return draw(grouped_trace(), check=CHECK)


def test_sections_come_in_order(drawn: Pictures) -> None:
    read = Reader(page(FACTS, drawn))
    assert read.of("h1") == ["late ~ distance"]
    assert read.of("h2") == [
        *("How far to trust it", "What to do", "Coefficients", "Group effects", "Convergence", "Predictive check"),
        *("Cost", "What was chosen, and why", "To do it again", "To cite the methods"),
    ]


def test_nothing_comes_from_elsewhere_and_nothing_runs(drawn: Pictures) -> None:
    text = page(FACTS, drawn)
    read = Reader(text)
    assert {tag for tag, _, _ in read.attributes}.isdisjoint({"script", "link", "iframe", "object"})
    sources = [value for _, name, value in read.attributes if name in ("src", "href", "srcset", "action")]
    assert len(sources) == 6
    assert all(value.startswith("data:image/svg+xml;base64,") for value in sources)
    assert "http" not in text
    assert "@import" not in text
    assert "url(" not in text
    for value in sources:
        inner = base64.b64decode(value.partition(",")[2]).decode()
        assert "<script" not in inner
        links = re.findall(r'href="([^"]*)"', inner)
        assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)


def test_pictures_have_words_for_those_who_do_not_see_them(drawn: Pictures) -> None:
    alternatives = [
        value for tag, name, value in Reader(page(FACTS, drawn)).attributes if (tag, name) == ("img", "alt")
    ]
    assert len(alternatives) == 6
    assert all(len(value) > 10 for value in alternatives)


def test_what_the_user_gives_is_text() -> None:
    bad = "<script>alert('x')</script> & \"quotes\""
    parameter = dataclasses.replace(FACTS.parameters[0], name=bad, kind="group effect", term=bad, level=bad)
    facts = dataclasses.replace(
        FACTS,
        **dict.fromkeys(("title", "words", "family", "formula", "call", "checksum", "made"), bad),
        **dict.fromkeys(("equation", "priors", "findings", "citations"), (bad,)),
        parameters=(*FACTS.parameters, parameter),
        stages=(Stage(bad, 1.0),),
        advice=(advice.collinear([bad]),),
        dropped={bad: 3},
        versions={bad: bad},
        trust=dataclasses.replace(FACTS.trust, test=bad, proposal=bad),
        convergence=dataclasses.replace(FACTS.convergence, worst_ess_of=bad, worst_r_hat_of=bad),
        predictive=dataclasses.replace(CHECK, notes=(bad,)),
    )
    text = page(facts, Pictures(groups={bad: "<svg/>"}))
    read = Reader(text)
    assert "<script" not in text
    assert sum(bad in data for _, data in read.said) > 20


def test_it_needs_no_pictures_and_no_more_than_it_is_given() -> None:
    bare = dataclasses.replace(
        FACTS,
        **dict.fromkeys(("formula", "predictive", "seed", "checksum", "call", "made")),
        **dict.fromkeys(("advice", "findings", "citations", "stages", "equation", "priors"), ()),
        parameters=FACTS.parameters[:1],
        versions={},
    )
    assert Reader(page(bare)).of("h2") == ["How far to trust it", "Coefficients", "Convergence", "Cost"]


def test_numbers_of_a_table_have_digits_by_their_sd() -> None:
    cells = Reader(page(FACTS)).of("td")
    assert cells[:9] == [
        *(f"{MINUS}1.200", "0.100", f"{MINUS}1.365", f"{MINUS}1.200", f"{MINUS}1.035"),
        *("0.002", "4,100", "4,200", "1.001"),
    ]
    assert UNKNOWN in Reader(page(without_numbers())).of("td")


def test_r_hat_beyond_its_limit_is_marked_by_a_sign_too() -> None:
    parameter = dataclasses.replace(FACTS.parameters[0], r_hat=1.2)
    assert "1.200!" in Reader(page(dataclasses.replace(FACTS, parameters=(parameter,)))).of("td")


def test_long_tables_are_folded() -> None:
    def summaries(count: int) -> list[str]:
        facts = dataclasses.replace(FACTS, parameters=FACTS.parameters[:1] * count)
        return Reader(page(facts)).of("summary")

    assert summaries(15) == []
    assert summaries(16) == ["Table: all 16 coefficients"]


def test_of_very_many_effects_the_largest_are_listed_in_their_order() -> None:
    effects = tuple(
        dataclasses.replace(FACTS.parameters[-1], mean=float(at), level=f"level {at}", name=f"carrier[{at}]")
        for at in range(400)
    )
    read = Reader(page(dataclasses.replace(FACTS, parameters=effects)))
    assert read.of("summary") == ["Table: the 300 largest of 400 levels of carrier"]
    assert [said for said in read.of("th") if said.startswith("level")][:2] == ["level 100", "level 101"]


def test_missing_values_are_reported_by_column() -> None:
    assert "5,000 (3 more were left out, for missing values: distance: 3)" in Reader(page(FACTS)).of("dd")


def test_stages_have_bars_by_their_time() -> None:
    widths = re.findall(r"flex-grow:([\d.]+)", page(FACTS))
    assert [float(width) for width in widths] == pytest.approx([0.4 / 4.4, 1.5 / 4.4, 2.5 / 4.4], abs=1e-4)


class TestTrust:
    def of(self, **changes: object) -> Facts:
        return dataclasses.replace(FACTS, **({"advice": (), "predictive": None} | changes))  # ty: ignore

    def test_without_a_fault_it_is_good(self) -> None:
        assert verdict(self.of()).level == "good"

    def test_an_exact_test_needs_no_scan(self) -> None:
        trust = dataclasses.replace(FACTS.trust, is_exact=True, skewness=None, kurtosis=None)
        found = verdict(self.of(trust=trust))
        assert found.level == "good"
        assert "The test is exact" in str(found)

    def test_an_approximate_one_does(self) -> None:
        trust = dataclasses.replace(FACTS.trust, skewness=None, kurtosis=None)
        found = verdict(self.of(trust=trust))
        assert found.level == "care"
        assert "Nothing has checked how well" in str(found)

    def test_an_audit_that_found_an_error_is_bad(self) -> None:
        trust = dataclasses.replace(FACTS.trust, audited_error=0.3, is_sound=False)
        assert verdict(self.of(trust=trust)).level == "bad"

    def test_too_few_effective_draws_want_care(self) -> None:
        convergence = dataclasses.replace(FACTS.convergence, worst_ess=1000.0)
        found = verdict(self.of(convergence=convergence))
        assert found.level == "care"
        assert "fewer than the 4,000 asked for" in str(found)

    def test_a_temperature_is_bad(self) -> None:
        assert verdict(self.of(trust=dataclasses.replace(FACTS.trust, temperature=10.0))).level == "bad"

    @pytest.mark.parametrize(
        ("advised", "level"),
        [
            (advice.dropped(3, 5003, ["distance"]), "good"),
            (advice.interrupted(10, 100), "care"),
            (advice.r_hat(["a"], 1.3), "bad"),
            (advice.skewed(0.9, 2.0, 40), "bad"),
        ],
    )
    def test_advice_counts_as_far_as_it_bears_on_the_numbers(self, advised: advice.Advice, level: str) -> None:
        found = verdict(self.of(advice=(advised,)))
        assert found.level == level
        assert f'class="box {level}"' in page(self.of(advice=(advised,)))


def test_letters_that_no_font_has_do_not_stop_it() -> None:
    trace = dataclasses.replace(grouped_trace(), names={"coefficients": ("(intercept)", "价格", "距离", "hour")})
    assert draw(trace).coefficients
