"""Rounds until there are enough effective draws: starts, limits, interruptions, joined traces."""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

import tallchain as tc
from conftest import SEED
from tallchain.checking.convergence import convergence_of
from tallchain.checking.joining import last_positions, without_first
from tallchain.fitting import running
from tallchain.fitting.running import Limits, dispersed, run
from tallchain.models import Regression, families
from tallchain.runner import Runner

N = 5_000
SHORT = Limits(400, 100_000, math.inf)


@pytest.fixture(scope="module")
def prepared() -> tc.Prepared:
    random = np.random.default_rng(SEED)
    x = random.normal(size=(N, 2)).astype(np.float32)
    y = (random.random(N) < 1 / (1 + np.exp(-x @ [1.0, -0.5]))).astype(np.float32)
    return tc.prepare(Regression(families.Bernoulli(), y=y, x=x), progress=False)


def ran(prepared: tc.Prepared, limits: Limits, kernel: tc.MetropolisHastings | None = None, chains: int = 4):
    starts = dispersed(prepared, jr.key(1), chains)
    return run(jr.key(SEED), kernel or prepared.kernel(), starts, chains, limits, scan=2, progress=False)


def test_enough_draws(prepared: tc.Prepared) -> None:
    found = ran(prepared, SHORT)
    assert found.is_enough
    assert found.why == ""
    state = convergence_of(list(found.trace.variables().values()))
    assert state.ess.min() >= 400
    assert state.r_hat.max() <= 1.01


def test_a_walk_needs_several_rounds_and_is_the_same_again(prepared: tc.Prepared) -> None:
    kernel = prepared.kernel(tc.Penalty(), tc.RandomWalk.preconditioned(prepared.laplace))
    found, again = ran(prepared, SHORT, kernel), ran(prepared, SHORT, kernel)
    assert found.is_enough
    assert found.trace.num_draws > 250
    assert np.array_equal(found.trace.position, again.trace.position)
    assert found.trace.scan is not None


def test_limits_end_it(prepared: tc.Prepared) -> None:
    walk = prepared.kernel(tc.Penalty(), tc.RandomWalk(1e-3))
    found = ran(prepared, Limits(400, 2_000, math.inf), walk)
    assert not found.is_enough
    assert found.why == "the limit of 2,000 draws was reached"
    assert found.trace.num_draws * found.trace.num_chains <= 2_000
    found = ran(prepared, Limits(10**7, 10**9, 0.5), walk)
    assert found.why == "the limit of 0.5 s was reached"
    assert found.trace.num_draws > 0
    assert not found.trace.is_interrupted
    assert found.trace.scan is not None


def test_draws_that_became_warm_up_count_towards_the_limit(
    prepared: tc.Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run whose second halves always seem to agree would never end."""
    monkeypatch.setattr(running, "_judged", lambda trace, _: (without_first(trace, trace.num_draws // 2), 2.0))
    found = ran(prepared, Limits(400, 8_000, math.inf))
    made = found.trace.decisions.num_decisions + found.trace.warmup.num_decisions
    assert made == 8_000 + 4 * 100  # and the warm-up
    assert found.why == "the limit of 8,000 draws was reached"


def test_an_interrupt_keeps_the_draws(prepared: tc.Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    real, chunks = Runner.collect, []

    def collect(self: Runner, **options: Any) -> Any:
        chunks.append(real(self, **options))
        if len(chunks) == 3:
            signal.raise_signal(signal.SIGINT)
        return chunks[-1]

    monkeypatch.setattr(Runner, "collect", collect)
    began = time.perf_counter()
    found = ran(prepared, Limits(10**7, 10**9, math.inf), prepared.kernel(tc.Penalty(), tc.RandomWalk(1e-3)))
    assert time.perf_counter() - began < 60
    assert found.trace.is_interrupted
    assert found.why == "the run was interrupted"
    assert found.trace.num_draws > 0


def test_an_interrupt_of_the_scan_is_known(prepared: tc.Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    real = running.scanned

    def interrupted(*arguments: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return real(*arguments, **options)

    monkeypatch.setattr(running, "scanned", interrupted)
    found = ran(prepared, SHORT, prepared.kernel(tc.Penalty()))
    assert found.is_enough
    assert found.is_scan_cut
    assert found.trace.scan is None
    assert not found.trace.is_interrupted


def test_starts_are_farther_out_than_draws(prepared: tc.Prepared) -> None:
    laplace = prepared.laplace
    radius = lambda positions: np.linalg.norm(np.asarray(jax.vmap(laplace.whiten)(positions)), axis=1)  # noqa: E731
    plain, far = prepared.starts(jr.key(1), 500), dispersed(prepared, jr.key(1), 500)
    assert radius(jnp.asarray(far)).mean() == pytest.approx(2 * radius(plain).mean(), rel=1e-4)


def test_starts_are_within_the_support() -> None:
    """An exponential rate from five rows: twice as far from the mode as draws are is below 0 for some."""
    data = np.random.default_rng(SEED).exponential(2.0, 5).astype(np.float32)
    posterior = tc.Posterior(
        lambda t: jnp.where(t > 0, -t, -jnp.inf),
        lambda t, x: jnp.where(t > 0, jnp.log(jnp.maximum(t, 1e-30)) - t * x, -jnp.inf),
    )
    prepared = tc.prepare(posterior, data, jnp.float32(0.5), progress=False)
    starts = dispersed(prepared, jr.key(1), 64)
    assert starts.shape == (64,)
    assert np.all(starts > 0)
    assert np.ptp(starts) > 0.5


def test_chains_that_never_meet_are_not_enough() -> None:
    """Two modes: R-hat sees it, whatever the effective draws within each."""
    posterior = tc.Posterior(
        lambda t: jnp.logaddexp(-0.5 * ((t - 30) / 0.1) ** 2, -0.5 * ((t + 30) / 0.1) ** 2), lambda t, x: 0.0 * t * x
    )
    data = np.random.default_rng(SEED).normal(size=1000).astype(np.float32)
    kernel = tc.MetropolisHastings(
        posterior, tc.Shuffled(data, 20), proposal=tc.RandomWalk(0.2), acceptance=tc.Penalty()
    )
    starts = np.array([30, -30, 30, -30], np.float32)
    found = run(jr.key(SEED), kernel, starts, 4, Limits(100, 4_000, math.inf), scan=0, progress=False)
    assert not found.is_enough


# ---- traces that follow each other -------------------------------------------------------------


def test_joined_traces_add_up(prepared: tc.Prepared) -> None:
    kernel = prepared.kernel(tc.Penalty())
    options = {"num_chains": 4, "scan": 0, "progress": False}
    first = tc.sample(jr.key(1), kernel, np.zeros(3, np.float32), 20, num_warmup=5, **options)
    second = tc.sample(jr.key(2), kernel, last_positions(first), 30, **options)
    both = first.extend(second)
    assert both.num_draws == 50
    assert both.decisions.rows_read == first.decisions.rows_read + second.decisions.rows_read
    assert both.warmup == first.warmup
    assert both.is_one_start
    np.testing.assert_array_equal(both.position[:, 20:], second.position)
    half = without_first(both, 20)
    np.testing.assert_array_equal(half.position, second.position)
    total = dataclasses.astuple(half.warmup + half.decisions)
    assert total == dataclasses.astuple(both.warmup + both.decisions)
