"""A rule of a user's own: a part with `terms`, `first`, `read` and `advise` is all it takes."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from conftest import SEED
from tallchain import MetropolisHastings, Posterior, Shuffled
from tallchain.acceptance import Combined, MinibatchBarker, Penalty
from tallchain.acceptance.evidence import add_rows, variance_of_mean
from tallchain.acceptance.stopping import Advice, Aim, PilotBatch, StoppingRule, Terms
from tallchain.acceptance.tables import Reading
from tallchain.functions import shared
from tallchain.parts import part, static
from tallchain.proposals import Fixed
from tallchain.types import Population

COUNT = 20_000


@part
class SoMany:
    """Decide on a number of rows that is known beforehand; read on where that is not enough by far."""

    rows: int = static(200)
    terms: ClassVar[Terms] = Terms(skew=False)

    def first(self, aim: Aim, population: Population) -> int:
        return min(self.rows, population.num_rows)

    def read(self, aim: Aim, pilot: PilotBatch, evidence: Any, population: Population) -> Reading:
        return Reading(evidence.mean, variance_of_mean(evidence, population))

    def advise(self, aim: Aim, pilot: PilotBatch, reading: Reading, evidence: Any, population: Population) -> Advice:
        return Advice(pilot, reading.s2 < 2 * aim.most_variance, add_rows(self.rows, evidence, population))


decide = jax.jit(jax.vmap(lambda kernel, key: kernel.step(key, kernel.init(jnp.float32(0)))[1], (None, 0)))


def verdicts(acceptance: Any, delta: float, sd: float = 0.8) -> Any:
    """Decisions on one move of log ratio `delta`, of which 200 normal rows have the standard deviation `sd`."""
    rows = np.random.default_rng(SEED).standard_normal(20_000)
    rows = (rows - rows.mean()) / rows.std()
    data = (delta + sd * np.sqrt(200) * rows).astype(np.float32)
    posterior = Posterior(shared(jnp.zeros_like), shared(jnp.multiply), temperature=len(data))
    kernel = MetropolisHastings(
        posterior, Shuffled(data, 50, windows=False), proposal=Fixed(jnp.float32(1)), acceptance=acceptance
    )
    return jax.tree.map(np.asarray, decide(kernel, jax.random.split(jax.random.key(SEED), COUNT)))


def test_it_keeps_the_promises_of_a_rule() -> None:
    assert isinstance(SoMany(), StoppingRule)


@pytest.mark.parametrize("make", [MinibatchBarker, lambda **options: Combined(barker=MinibatchBarker(**options))])
def test_the_minibatch_test_is_barkers_with_it(make: Any) -> None:
    for delta in (-1.0, 1.0):
        found = verdicts(make(stopping=SoMany()), delta)
        assert np.all(found.rows_read == 200)
        share = found.is_accepted.mean()
        assert abs(share - expit(delta)) < 4.5 * np.sqrt(share * (1 - share) / COUNT)


def test_the_penalty_test_keeps_detailed_balance_with_it() -> None:
    up, down = (verdicts(Penalty(stopping=SoMany()), delta).is_accepted.mean() for delta in (1.0, -1.0))
    error = np.sqrt(sum((1 - share) / share / COUNT for share in (up, down)))
    assert abs(np.log(up / down) - 1) < 4.5 * error


def test_it_says_when_to_read_on() -> None:
    """200 rows of s2 = 9 are too few for the widest correction, 400 of about 4.5 mostly are not."""
    rows = verdicts(MinibatchBarker(stopping=SoMany()), 0.0, sd=3.0).rows_read
    assert set(rows) == {400, 600}
    assert 0.97 < np.mean(rows == 400) < 1


def test_what_goes_with_the_printed_rule_only_is_refused() -> None:
    with pytest.raises(ValueError, match=r"stopping=SoMany\(rows=200\), skew=\"printed\""):
        MinibatchBarker(stopping=SoMany(), skew="printed")
