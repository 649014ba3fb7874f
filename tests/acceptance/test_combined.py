"""The minibatch test stopped early: hand-made judgements, and what is foreseen against what is then decided."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from scipy import stats
from scipy.stats import t as student

from tallchain.acceptance import MinibatchBarker
from tallchain.acceptance.combined import Combined
from tallchain.acceptance.evidence import Moments
from tallchain.types import Population

POPULATION = Population(10**6, 50, repeats=True)


NOTHING = jnp.float32(0)  # of an offset


def evidence(count: int, mean: float, variance: float) -> Moments:
    return Moments(jnp.int32(count), jnp.float32(mean), jnp.float32(variance * (count - 1)))


def combined(looks: int = 8) -> Combined:
    return Combined(0.001, MinibatchBarker(stopping="pilot", skew=False), looks)


def planned(test: Combined, variance: float, offset: float = 0.0, population: Population = POPULATION):
    """Return the judgement after a pilot of 50 rows, and the noise X that goes with the plan."""
    memory, _, ask = test.open(test.draw(jr.key(3)), None, population)
    assert int(ask.rows) == 50
    judgement = test.judge(memory, jnp.float32(offset), evidence(50, 40.0, variance), population)
    at_the_end = evidence(int(judgement.memory.plan), 0.0, variance)
    return judgement, float(test._foresee(judgement.memory, NOTHING, at_the_end, population)[0])


def test_a_pilot_decides_nothing_and_plans() -> None:
    judgement, _ = planned(combined(), 400.0)
    assert not judgement.is_decided
    assert bool(judgement.ask.fresh)
    assert int(judgement.memory.plan) == 400
    assert int(judgement.ask.rows) == 50  # an eighth of the plan


def test_parts_are_not_smaller_than_half_a_pilot() -> None:
    assert int(planned(combined(), 100.0)[0].ask.rows) == 25


def test_one_look_is_the_whole_plan() -> None:
    assert int(planned(combined(looks=1), 400.0)[0].ask.rows) == 400


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("factor", "is_sure"), [(0.99, False), (1.01, True)])
def test_stops_where_the_rest_could_not_turn_it(sign: int, factor: float, is_sure: bool) -> None:
    test = combined()
    judgement, x = planned(test, 400.0, offset=0.3)
    bound = student.ppf(1 - 0.001, 49) * np.sqrt(400.0 * (1 / 100 - 1 / 400))
    mean = sign * factor * bound - x - 0.3
    # The variance is the pilot's.
    again = test.judge(judgement.memory, jnp.float32(0.3), evidence(100, mean, 1e6), POPULATION)
    assert bool(again.is_decided) is is_sure
    assert bool(again.is_accepted) is (sign > 0)
    assert int(again.ask.rows) == 50


def test_is_decided_when_the_plan_is_done() -> None:
    test = combined()
    judgement, x = planned(test, 400.0)
    for mean in (-x - 0.01, -x + 0.01):
        done = test.judge(judgement.memory, NOTHING, evidence(400, mean, 400.0), POPULATION)
        assert done.is_decided
        assert bool(done.is_accepted) is (mean > -x)


def test_a_plan_of_all_rows_keeps_the_pilot() -> None:
    few = Population(200, 50, repeats=False)
    judgement, _ = planned(combined(), 1e6, population=few)
    assert not bool(judgement.ask.fresh)
    assert int(judgement.memory.plan) == 200


# ---- what is foreseen is what will be decided --------------------------------------------------


def turned(test: Combined, key: jax.Array, count: int = 20_000) -> float:
    """The share of early decisions that the rest of the rows would have turned, after 300 of 400 rows."""

    def one(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        noise_key, first_key, rest_key = jr.split(key, 3)
        memory, _, _ = test.open(test.draw(noise_key), None, POPULATION)
        memory = test.judge(memory, NOTHING, evidence(50, 0.0, 400.0), POPULATION).memory
        mean, rest = jnp.sqrt(400 / 300) * jr.normal(first_key), jnp.sqrt(400 / 100) * jr.normal(rest_key)
        early = test.judge(memory, NOTHING, evidence(300, 0.0, 400.0)._replace(mean=mean), POPULATION)
        all_rows = evidence(400, 0.0, 400.0)._replace(mean=0.75 * mean + 0.25 * rest)
        late = test.judge(memory, NOTHING, all_rows, POPULATION)
        return early.is_decided, early.is_decided & (early.is_accepted != late.is_accepted)

    early, wrong = jax.jit(jax.vmap(one))(jr.split(key, count))
    assert 0.1 < float(early.mean()) < 0.9
    return float(wrong.mean())


class _Forgetful(Combined):
    """Draws a new noise when the plan is done."""

    def judge(self, memory, offset, evidence, population):
        fresh = self.draw(jr.key(jr.bits(jr.key(0)) ^ memory.barker.noise.bits))
        noise = jax.tree.map(lambda a, b: jnp.where(evidence.count >= memory.plan, a, b), fresh, memory.barker.noise)
        return super().judge(memory._replace(barker=memory.barker._replace(noise=noise)), offset, evidence, population)


def test_hardly_any_early_decision_would_be_turned(key: jax.Array) -> None:
    assert turned(combined(), key) < 0.001


def test_the_check_refuses_noise_that_is_drawn_again(key: jax.Array) -> None:
    broken = _Forgetful(0.001, MinibatchBarker(stopping="pilot", skew=False))
    assert turned(broken, key) > 0.01


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"epsilon": 0.5}, "between 0 and 1/2; got 0.5"),
        ({"looks": 0}, "at least 1; got 0"),
        ({"barker": MinibatchBarker.paper()}, "got one with stopping='growth'"),
        ({"barker": 3}, "got 3"),
    ],
)
def test_refusals(options, fragment: str) -> None:
    with pytest.raises(ValueError, match=fragment):
        Combined(**options)


@pytest.mark.parametrize(("epsilon", "most"), [(0.001, 0.003), (0.005, 0.02), (0.05, 0.4)])
def test_error_added_is_as_small_as_it_says(epsilon: float, most: float) -> None:
    """sigma^2 h(t) sum over looks of (n/k - 1), h(t) = (1 + t^2) Phi(-t) - t phi(t), eight looks, a pilot of 50."""
    t = stats.t.isf(epsilon, 49)
    looks = Combined().looks
    h = (1 + t**2) * stats.norm.sf(t) - t * stats.norm.pdf(t)
    assert h * sum(looks / k - 1 for k in range(1, looks)) <= most
