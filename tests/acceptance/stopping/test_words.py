"""A word means the part with its defaults; what is neither a word nor a rule is refused."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import numpy as np
import pytest

import tallchain as tc
from tallchain.acceptance import Combined, MinibatchBarker, Penalty
from tallchain.acceptance.stopping import RULES, Fresh, Growth, Pilot, Stein
from tallchain.settings import describe

PARTS = {"fresh": Fresh(), "pilot": Pilot(), "stein": Stein(), "growth": Growth()}
CASES = [(MinibatchBarker, word) for word in PARTS] + [(Penalty, word) for word in PARTS if word != "stein"]


def assert_same(one: Any, other: Any) -> None:
    """The same structure and the same arrays: then also the same compiled programs."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_every_word_has_its_part() -> None:
    assert {word: type(rule) for word, rule in PARTS.items()} == RULES


@pytest.mark.parametrize(("test", "word"), CASES)
def test_a_word_and_its_part_are_the_same_test(test: Any, word: str) -> None:
    assert_same(test(stopping=word), test(stopping=PARTS[word]))


@pytest.mark.parametrize(("test", "word"), CASES)
def test_a_pickled_test_is_the_same_test(test: Any, word: str) -> None:
    assert_same(test(stopping=word), pickle.loads(pickle.dumps(test(stopping=word))))


def test_another_setting_is_another_program() -> None:
    structure = jax.tree.structure(MinibatchBarker())
    assert structure == jax.tree.structure(MinibatchBarker(stopping=Fresh(20, 2)))
    assert structure != jax.tree.structure(MinibatchBarker(stopping=Fresh(21)))


@pytest.mark.parametrize(
    ("test", "text"),
    [
        (MinibatchBarker(), "MinibatchBarker(sigma=1.0, stopping=Fresh(least_rows=20, far_off=2.0), skew=True)"),
        (MinibatchBarker.paper(batch=9), "MinibatchBarker(sigma=1.0, batch=9, stopping=Growth(), skew=False)"),
        (Penalty(stopping=Pilot(50)), "Penalty(max_sd=1.0, stopping=Pilot(least_rows=50))"),
        (Combined(), "Combined(epsilon=0.001, looks=8)"),
    ],
)
def test_a_summary_says_the_rule(test: Any, text: str) -> None:
    assert describe(test, static_only=True) == text


class NotAPart:
    """It has all that a rule has, but JAX cannot take it into a program."""

    terms = first = read = advise = None


REFUSED = {
    "a class": (
        lambda: MinibatchBarker(stopping=Fresh),
        "one of fresh, pilot, stein, growth; got <class",
        "`Fresh(...)`?",
    ),
    "a number": (lambda: MinibatchBarker(stopping=3), "`MinibatchBarker(stopping=...)` must be one of", "got 3."),
    "nothing": (lambda: Penalty(stopping=None), "`Penalty(stopping=...)` must be one of", "got None."),
    "an array": (
        lambda: Penalty(stopping=np.arange(2)),
        "`Penalty(stopping=...)` must be one of",
        "got array([0, 1]).",
    ),
    "another part": (lambda: Penalty(stopping=tc.Barker()), "`Penalty(stopping=...)` must be one of", "got Barker()."),
    "not a part": (lambda: Penalty(stopping=NotAPart()), "or one of yours: see `tallchain.acceptance.stopping`"),
    "stein": (lambda: Penalty(stopping=Stein()), "one of fresh, pilot, growth; got Stein(least_rows=20)."),
    "combined": (lambda: Combined(barker=MinibatchBarker(stopping=Stein())), "got one with stopping='stein'."),
    "combined, settings": (
        lambda: Combined(barker=MinibatchBarker(stopping=Stein(30))),
        "got one with stopping=Stein(least_rows=30).",
    ),
    "shortcut": (
        lambda: MinibatchBarker(shortcut=5.0, stopping=Fresh(30)),
        'needs stopping="growth"; got Fresh(least_rows=30, far_off=2.0).',
    ),
    "delta": (lambda: MinibatchBarker(delta=0.1, stopping=Stein()), "`MinibatchBarker(stopping='stein', delta=0.1)`"),
    "one row": (
        lambda: Fresh(least_rows=1),
        "`Fresh(least_rows=...)` must be a whole number of rows, at least 2; got 1.",
    ),
    "half a row": (lambda: Stein(2.5), "`Stein(least_rows=...)`", "got 2.5."),
    "many rows": (lambda: Pilot("many"), "`Pilot(least_rows=...)`", "got 'many'."),
    "far off": (
        lambda: Fresh(far_off=0.5),
        "`Fresh(far_off=...)` must be a number, at least 1, or math.inf",
        "got 0.5.",
    ),
    "far off nan": (lambda: Fresh(far_off=np.nan), "`Fresh(far_off=...)`", "got nan."),
    "far off by a word": (lambda: Fresh(far_off="far"), "`Fresh(far_off=...)`", "got 'far'."),
}


@pytest.mark.parametrize(("call", "fragments"), [(call, rest) for call, *rest in REFUSED.values()], ids=list(REFUSED))
def test_refusals(call: Any, fragments: list[str]) -> None:
    with pytest.raises(ValueError, match=r"stopping|least_rows|far_off") as error:
        call()
    for fragment in fragments:
        assert fragment in str(error.value)
