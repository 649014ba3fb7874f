"""The plan for very many rows: its simulation against cases by hand, and its formulas against that and real runs."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tallchain as tc
from benchmarks.measure import load
from benchmarks.plan.model import Constants, Fleet, Job, planned
from benchmarks.plan.simulation import GROUPED, JOB, simulated, told
from tallchain.rounds import Rounds
from tallchain.sources import Sharded


def test_two_that_tell_each_other() -> None:
    """A request takes 1 there and back, of which the store works for nothing: each says, asks, and asks."""
    np.testing.assert_allclose(told(np.zeros(2), 1.0, 0.0), [3, 3])
    np.testing.assert_allclose(told(np.array([0.0, 10.0]), 1.0, 0.0), [11, 13])  # waits for the other's word
    np.testing.assert_allclose(told(np.array([10.0, 0.0]), 1.0, 0.0), [13, 12])


def test_a_store_that_is_busy_answers_one_request_after_another() -> None:
    count = 40
    assert told(np.zeros(count), 1.0, 1.0).max() == pytest.approx(count * (count + 1))
    late = np.linspace(0, 5, count)
    done = told(late, 1e-3, 1e-6)
    assert done.min() > 5
    assert done.max() < 5 + (count + 1) * 1e-3 + count**2 * 1e-6


@pytest.mark.parametrize("draws", [3, 900, 1001, 8000, 12_001])
def test_rounds_are_those_of_the_library(draws: int) -> None:
    source = Sharded(np.zeros(100, np.float32), 4)
    posterior = tc.Posterior(lambda mean: jnp.zeros(()), lambda mean, y: -((y - mean) ** 2))
    kernel = tc.MetropolisHastings(posterior, source, proposal=tc.RandomWalk(1.0))
    found, job = Rounds.of(kernel, draws, 8, 0), Job(100, 4, 2, draws, 1)
    assert found is not None
    assert (found.length, found.num_samples) == (job.length, job.rounds * job.length)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return load("plan").results


def test_formulas_are_near_the_simulation(record: dict[str, Any]) -> None:
    """Also of devices that differ much, where the slowest decides."""
    constants = Constants.of(record["measured"])
    for fleet in (GROUPED, GROUPED._replace(spread=0.3)):
        by_formula, by_events = planned(constants, JOB, fleet), simulated(constants, JOB, fleet)
        for step, seconds in by_formula._asdict().items():
            assert getattr(by_events, step) == pytest.approx(seconds, rel=0.25), step
    alone = planned(constants, JOB, Fleet(1, cores=16))
    assert alone.telling == 0


def test_real_runs_took_about_as_long(record: dict[str, Any]) -> None:
    for name, runs in record["measured"]["real"].items():
        for kind in ("planned", "simulated"):
            of = record["compared"][name][kind]["total"]
            assert 1 / 2 < np.median([each["total"] for each in runs]) / of < 2, name
