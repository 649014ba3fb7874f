"""Whether chains agree: false alarms are rare, chains that differ are found; a summary does not copy the trace."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.signal import lfilter

import tallchain as tc
from conftest import SEED
from tallchain.checking.convergence import FALSE_ALARM, MOST_R_HAT, chance_of_r_hat, parameters_of

REPETITIONS = 200


def autoregressions(random: np.random.Generator, chains: int, ess: int, coefficient: float) -> np.ndarray:
    """Stationary chains with so many effective draws each."""
    length = int(ess * (1 + coefficient) / (1 - coefficient))
    noise = random.standard_normal((chains, length)) * np.sqrt(1 - coefficient**2)
    noise[:, 0] = random.standard_normal(chains)
    return lfilter([1], [1, -coefficient], noise, axis=1)


def alarms(draws: list[np.ndarray]) -> float:
    return float(np.mean([chance_of_r_hat(each) < FALSE_ALARM for each in draws]))


@pytest.mark.parametrize(
    ("chains", "ess"),
    [(4, 50), (16, 30), (64, 20), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((4, 125), (64, 50)))],
)
def test_chains_that_agree_are_rarely_accused(chains: int, ess: int) -> None:
    """With 20 effective draws to a chain R-hat is always above 1.01. Allowed: 1 per cent, and chance."""
    random = np.random.default_rng(SEED)
    found = alarms([autoregressions(random, chains, ess, 0.8) for _ in range(REPETITIONS)])
    assert found < 0.01 + 3 * np.sqrt(0.01 / REPETITIONS)


@pytest.mark.parametrize(("chains", "ess"), [(4, 1000), (16, 300), (64, 100)])
def test_chains_that_differ_by_a_third_of_a_standard_deviation_are_found(chains: int, ess: int) -> None:
    random = np.random.default_rng(SEED)
    apart = 0.3 * (np.arange(chains) % 2)[:, None]
    assert alarms([autoregressions(random, chains, ess, 0.8) + apart for _ in range(30)]) > 0.9


def test_chains_of_another_spread_are_found() -> None:
    draws = autoregressions(np.random.default_rng(SEED), 8, 400, 0.5)
    assert chance_of_r_hat(draws * np.where(np.arange(8) % 2, 1.5, 1.0)[:, None]) < FALSE_ALARM
    assert chance_of_r_hat(draws) > FALSE_ALARM


def test_a_chain_that_never_moved() -> None:
    still = np.ones((4, 100)) * np.arange(4)[:, None]
    assert chance_of_r_hat(still) == 0
    assert chance_of_r_hat(np.ones((4, 100))) == 1


def trace_of(position: np.ndarray) -> tc.Trace:
    no = np.zeros(position.shape[:2], bool)
    return tc.Trace(position, no, no + 50, no * 0, no * 0.0, no, num_rows=1000)


def test_a_high_r_hat_by_chance_is_said_to_be_one() -> None:
    draws = autoregressions(np.random.default_rng(SEED), 64, 20, 0.8)
    summary = trace_of(draws).summary()
    assert summary.parameters[0].r_hat > MOST_R_HAT
    assert summary.disagreeing == []
    assert "CHAINS DISAGREE" not in str(summary)
    assert "which chance explains" in str(summary)


def test_quantiles() -> None:
    draws = np.random.default_rng(0).normal(size=(4, 500, 2)).astype(np.float32)
    first, second = parameters_of(["a", "b"], draws)
    np.testing.assert_allclose(
        [second.q5, second.median, second.q95], np.quantile(draws[..., 1].astype(float), [0.05, 0.5, 0.95])
    )
    assert first.name == "a"


def test_memory_does_not_grow_with_the_number_of_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallchain.checking.convergence._BLOCK", 2**15)
    trace = trace_of(np.random.default_rng(0).normal(size=(8, 1000, 100)).astype(np.float32))
    trace_of(trace.position[..., :4]).summary()  # imports
    tracemalloc.start()
    trace.summary()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * trace.position.nbytes  # it was 7 times that
