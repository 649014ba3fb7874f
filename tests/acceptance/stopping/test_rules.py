"""How many rows to read: the rules by hand, through the tests that ask them."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import pytest

from tallchain.acceptance import MinibatchBarker, Penalty
from tallchain.acceptance.evidence import Moments, SkewMoments
from tallchain.acceptance.stopping import LEAST_ROWS, Fresh, Pilot, PilotBatch, Stein
from tallchain.types import Population

POPULATION = Population(10_000, 100, repeats=False)
REPEATING = POPULATION._replace(repeats=True)
RULES = [MinibatchBarker(), MinibatchBarker(stopping="pilot"), Penalty(), Penalty(stopping="pilot")]
IDS = ["fresh", "pilot", "penalty fresh", "penalty pilot"]


def moments(count: int, variance: float, mean: float = 0.0) -> SkewMoments:
    """Rows with this variance and no skewness."""
    return SkewMoments(jnp.int32(count), jnp.float32(mean), jnp.float32(variance * (count - 1)), jnp.float32(0.0))


def after_pilot(test: Any, variance: float, population: Population, count: int = 100) -> Any:
    """The judgement of a pilot's rows."""
    memory, _, ask = test.open(test.draw(jnp.zeros(2, jnp.uint32)), None, population)
    assert int(ask.rows) == 100
    return test.judge(memory, jnp.float32(0.0), moments(count, variance), population)


@pytest.mark.parametrize("test", RULES, ids=IDS)
def test_a_pilot_asks_for_fresh_rows_and_does_not_decide(test: Any) -> None:
    judgement = after_pilot(test, 250.4, REPEATING)
    assert not judgement.is_decided
    assert judgement.ask.fresh
    assert int(judgement.ask.rows) == 251
    assert judgement.memory.pilot.is_over


@pytest.mark.parametrize("test", RULES, ids=IDS)
def test_a_pilot_counts_with_the_rows_there_are(test: Any) -> None:
    """v/n (1 - n/N) = 1 at n = v/(1 + v/N); where the pilot and that are all rows, the pilot's rows are kept."""
    assert int(after_pilot(test, 5_000.0, POPULATION).ask.rows) == 3_334
    everything = after_pilot(test, 1e7, POPULATION).ask
    assert (int(everything.rows), bool(everything.fresh)) == (9_900, False)


@pytest.mark.parametrize("test", RULES, ids=IDS)
def test_a_pilot_asks_for_some_rows_at_least(test: Any) -> None:
    assert int(after_pilot(test, 1e-6, REPEATING).ask.rows) == LEAST_ROWS


def test_a_pilot_has_rows_enough_for_a_variance() -> None:
    small = POPULATION._replace(batch_size=2)
    assert MinibatchBarker().appetite(small) == LEAST_ROWS
    assert MinibatchBarker(stopping="growth").appetite(small) == 2
    assert MinibatchBarker().appetite(Population(7, 2, repeats=False)) == 7


def test_skewed_rows_ask_for_more() -> None:
    pilot = moments(100, 100.0)._replace(cubes=jnp.float32(3.0 * 100 * 100.0**1.5))
    for test in (MinibatchBarker(), Penalty()):
        memory, _, _ = test.open(test.draw(jnp.zeros(2, jnp.uint32)), None, REPEATING)
        assert int(test.judge(memory, jnp.float32(0.0), pilot, REPEATING).ask.rows) > 150


def test_stein_weighs_both_means_so_that_the_scale_is_sigma() -> None:
    test = MinibatchBarker(stopping="stein")
    memory, _, _ = test.open(test.draw(jnp.zeros(2, jnp.uint32)), None, REPEATING)
    n0, n1, variance = 100, 170, 250.0
    for means in ((1.0, 0.0), (0.0, 1.0)):  # the weights of both, one at a time
        first = Moments(jnp.int32(n0), jnp.float32(means[0]), jnp.float32(variance * (n0 - 1)))
        second = Moments(jnp.int32(n1), jnp.float32(means[1]), jnp.float32(0.0))
        reading = test.read(memory._replace(pilot=PilotBatch.of(first)), jnp.float32(0.0), second, REPEATING)
        if means[0]:
            w = float(reading.estimate)
        else:
            assert float(reading.estimate) == pytest.approx(1 - w, abs=1e-5)
    assert variance * (w**2 / n0 + (1 - w) ** 2 / n1) == pytest.approx(1.0, rel=1e-4)


def test_fresh_rows_far_noisier_than_planned_are_added_to() -> None:
    test = MinibatchBarker()
    memory, _, _ = test.open(test.draw(jnp.zeros(2, jnp.uint32)), None, REPEATING)
    memory = memory._replace(pilot=PilotBatch.of(moments(100, 100.0)))
    assert test.judge(memory, jnp.float32(0.0), moments(100, 300.0), REPEATING).is_decided
    judgement = test.judge(memory, jnp.float32(0.0), moments(100, 900.0), REPEATING)
    assert not judgement.is_decided
    assert not judgement.ask.fresh
    assert int(judgement.ask.rows) == 400


# ---- settings of the rules ---------------------------------------------------------------------


@pytest.mark.parametrize("rule", [Fresh(50), Pilot(50), Stein(50)])
def test_least_rows_of_a_pilot(rule: Any) -> None:
    assert MinibatchBarker(stopping=rule).appetite(POPULATION._replace(batch_size=2)) == 50


@pytest.mark.parametrize("test", [MinibatchBarker(stopping=Fresh(50)), Penalty(stopping=Pilot(50))])
def test_least_rows_after_a_pilot(test: Any) -> None:
    assert int(after_pilot(test, 1e-6, REPEATING).ask.rows) == 50


def test_what_is_far_off() -> None:
    """s2 = 9: more than twice, less than four times 1.6^2, the largest that there is a correction for."""
    for far_off, is_decided in ((2.0, False), (4.0, True), (math.inf, True)):
        test = MinibatchBarker(stopping=Fresh(far_off=far_off))
        memory, _, _ = test.open(test.draw(jnp.zeros(2, jnp.uint32)), None, REPEATING)
        memory = memory._replace(pilot=PilotBatch.of(moments(100, 100.0)))
        assert bool(test.judge(memory, jnp.float32(0.0), moments(100, 900.0), REPEATING).is_decided) is is_decided
