"""Metropolis and Barker on hand-made numbers and against their formulas."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from conftest import SEED
from tallchain.acceptance import Barker, Metropolis
from tallchain.acceptance.evidence import Moments
from tallchain.types import Population

POPULATION = Population(1000, 50, repeats=False)


def evidence(mean: float) -> Moments:
    return Moments(jnp.int32(1000), jnp.float32(mean), jnp.float32(1.0))


@pytest.mark.parametrize(
    ("test", "noise", "offset", "mean", "is_accepted"),
    [
        (Metropolis(), 0.7, 0.5, -1.0, True),  # log u = -0.7 < -0.5
        (Metropolis(), 0.3, 0.5, -1.0, False),  # log u = -0.3 > -0.5
        (Barker(), 0.6, 0.0, -0.5, True),
        (Barker(), -0.6, 0.0, 0.5, False),
        (Barker(), -0.6, 0.2, 0.5, True),
    ],
)
def test_judge(test, noise: float, offset: float, mean: float, is_accepted: bool) -> None:
    memory, _, ask = test.open(jnp.float32(noise), None, POPULATION)
    assert (ask.rows, ask.census) == (1000, True)
    judgement = test.judge(memory, jnp.float32(offset), evidence(mean), POPULATION)
    assert judgement.is_decided is True
    assert bool(judgement.is_accepted) is is_accepted


@pytest.mark.parametrize(
    ("test", "probability"),
    [(Metropolis(), lambda d: min(1, np.exp(d))), (Barker(), expit)],
    ids=["metropolis", "barker"],
)
@pytest.mark.parametrize("delta", [-3.0, -1.0, 0.0, 0.5, 2.0])
def test_acceptance_probability(test, probability, delta: float) -> None:
    count = 200_000
    keys = jax.random.split(jax.random.key(SEED), count)

    def decide(key: jax.Array) -> jax.Array:
        memory, _, _ = test.open(test.draw(key), None, POPULATION)
        return test.judge(memory, jnp.float32(0), evidence(delta), POPULATION).is_accepted

    expected = probability(delta)
    standard_error = np.sqrt(expected * (1 - expected) / count) + 1e-9
    assert abs(float(jax.vmap(decide)(keys).mean()) - expected) < 4.5 * standard_error
