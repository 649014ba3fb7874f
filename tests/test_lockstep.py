"""Chains side by side: costly proposals are made together, and nobody's draws change for it."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tallchain as tc
from scenarios import SCENARIOS, kernel_of
from tallchain import census, lockstep, runner
from tallchain.abilities import CostlyProposal
from tallchain.census import census_of
from tallchain.parts import part, static
from tallchain.types import Array, Ask, Judgement, Population, Proposed, Target

TARGET = SCENARIOS["normal mean"](2000)


@part
class Costly:
    """A random walk that takes its time, says how many rows it has read, and looks at the target."""

    walk: tc.RandomWalk
    share_waiting: float = static()

    def check(self, position: Any) -> None:
        self.walk.check(position)

    def draw(self, key: jax.Array, position: Any) -> Any:
        return self.walk.draw(key, position)

    def propose(self, noise: Any, position: Any, target: Target) -> Proposed:
        assert target.surrogate is None
        rows = target.source.population.num_rows // 200 + 0 * target.posterior.temperature.astype(int)
        return self.walk.propose(noise, position)._replace(rows_read=rows)


few_rows = partial(kernel_of, TARGET.data, temperature=jnp.float32(200.0), batch_size=20)


def draws_of(proposal: Any, **options: Any) -> tc.Trace:
    options = {"num_chains": 9, "num_warmup": 3, "scan": 0, "progress": False} | options
    return tc.sample(jax.random.key(1), few_rows(proposal=proposal), 0.5, 40, **options)


@pytest.mark.parametrize("share", [0.3, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.0, 0.7, 1.0))])
def test_chains_that_wait_for_each_other_make_the_same_draws(share: float) -> None:
    plain, costly = draws_of(tc.RandomWalk(0.6)), draws_of(Costly(tc.RandomWalk(0.6), share), chunk_size=7)
    for name in ("position", "is_accepted", "rows_read"):
        np.testing.assert_array_equal(getattr(costly, name), getattr(plain, name))
    np.testing.assert_allclose(costly.log_ratio, plain.log_ratio, rtol=1e-5)  # another program rounds otherwise
    assert (costly.rows_scanned == 10).all()
    assert (plain.rows_scanned == 0).all()
    assert isinstance(Costly(tc.RandomWalk(0.6), share), CostlyProposal)


@pytest.mark.parametrize(
    ("share", "least", "most"), [pytest.param(0.0, 0, 0.2, marks=pytest.mark.slow), (1.0, 0.9, 1.0)]
)
def test_candidates_are_made_once_enough_lanes_wait(share: float, least: float, most: float) -> None:
    """Seen from the lanes: how often every chain is at the same draw between two turns."""
    kernel, schedule = few_rows(proposal=Costly(tc.RandomWalk(0.6), share)), tc.Schedule()
    keys = jax.random.split(jax.random.key(0), 8)
    run = runner.Runner(kernel, schedule, keys, 4, groups=1).start(jnp.full(8, 0.5))
    spread = [np.ptp(run(last=1000, turns=1)[0]) <= 1 for _ in range(120)]
    assert least <= np.mean(spread) <= most


@pytest.mark.parametrize("acceptance", [tc.Penalty, tc.MinibatchBarker], ids=["penalty", "minibatch"])
def test_the_log_ratio_is_that_on_which_the_decision_fell(acceptance: Any) -> None:
    """Also where a test that has decided would have asked for a census next, of few rows that repeat."""
    posterior = tc.Posterior(TARGET.posterior.log_prior, TARGET.posterior.log_likelihood, 10.0)
    source = tc.WithReplacement(TARGET.data[:300], 20)
    kernel = tc.MetropolisHastings(posterior, source, proposal=tc.RandomWalk(0.6), acceptance=acceptance())

    @jax.jit
    @jax.vmap
    def decide(key: jax.Array) -> Any:
        return kernel.decide(kernel.draw(key, jnp.float32(0.5)), jnp.float32(0.5))

    decision = decide(jax.random.split(jax.random.key(3), 200))
    seen = decision.seen
    assert (np.asarray(seen.evidence.count) > 0).all()
    np.testing.assert_allclose(decision.verdict.log_ratio, seen.evidence.mean + seen.offset, rtol=1e-5)


def test_one_decision_is_what_a_step_makes() -> None:
    kernel = few_rows()
    state = kernel.init(0.5)
    for key in jax.random.split(jax.random.key(2), 5):
        moved, verdict = kernel.step(key, state)
        decision = kernel.decide(kernel.draw(key, state.position), state.position)
        jax.tree.map(np.testing.assert_array_equal, (decision.position, decision.verdict), (moved.position, verdict))
        assert decision.seen.evidence.count == decision.seen.rows_read - 20  # a pilot, forgotten, and fresh rows
        assert decision.verdict.log_ratio == decision.seen.evidence.mean + decision.seen.offset
        assert bool(decision.memory.pilot.is_over)
        state = moved


@pytest.mark.parametrize("share", [2.0, -0.1, float("nan"), "a"])
def test_a_share_of_chains_is_from_0_to_1(share: Any) -> None:
    with pytest.raises(ValueError, match=r"share_waiting.*must be a number from 0 to 1"):
        few_rows(proposal=Costly(tc.RandomWalk(0.6), share))


@pytest.mark.parametrize("windows", [True, False])
def test_a_census_is_the_same_by_wide_windows(windows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Confidence without a bound scans all rows before it begins; a few of them are read by every decision."""
    rows = np.random.default_rng(0).normal(0.5, 1, 3007).astype(np.float32)
    source = partial(tc.Shuffled, windows=windows, exact=np.arange(3, 120, 7))

    def draws() -> tc.Trace:
        posterior = tc.Posterior(lambda t: -(t**2) / 8, lambda t, x: -((x - t) ** 2) / 2, 300.0)  # and new programs
        kernel = kernel_of(rows, tc.Confidence(), source=source, posterior=posterior)
        options = {"num_chains": 4, "chunk_size": 8, "scan": 0, "progress": False}
        return tc.sample(jax.random.key(1), kernel, 0.5, 8, **options)

    wide = draws()
    assert wide.kernel is not None
    assert census_of(wide.kernel) == "within"
    assert census_of(kernel_of(rows, tc.Metropolis())) is None  # its windows are wide already
    assert census_of(kernel_of(rows, tc.Confidence(), bound=lambda here, there: 1.0)) is None
    monkeypatch.setattr(lockstep, "census_of", lambda kernel: None)
    narrow = draws()
    for name in ("position", "is_accepted", "rows_read", "rows_scanned"):
        np.testing.assert_array_equal(getattr(wide, name), getattr(narrow, name))
    np.testing.assert_allclose(wide.log_ratio, narrow.log_ratio, rtol=1e-5)
    assert wide.rows_scanned.min() == 3007 - 17


def test_a_census_by_a_program_apart_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the decisions of an exact test with a low limit read all rows."""
    x = np.random.default_rng(0).normal(size=(3007, 2)).astype(np.float32)
    y = (np.random.default_rng(1).random(3007) < 1 / (1 + np.exp(-x[:, 0]))).astype(np.float32)
    programs = []
    trace = census.read_on.trace
    monkeypatch.setattr(runner.read_on, "trace", lambda *a, **k: programs.append(1) or trace(*a, **k))

    def draws(limit: float, chunk_size: int = 8) -> tc.Trace:
        model = tc.models.logistic_regression(x, y, prior_sd=1.0, bound=False)
        prepared = tc.prepare(model.posterior, model.data, np.zeros(2, np.float32), progress=False)
        kernel = prepared.kernel(tc.MHSS(limit=limit))
        starts = prepared.starts(jax.random.key(0), 8)
        return tc.sample(jax.random.key(1), kernel, starts, 40, num_chains=8, chunk_size=chunk_size, progress=False)

    apart = draws(0.05)
    assert census_of(apart.kernel) == "apart"
    assert 0.2 < np.mean(apart.rows_read == 3007) < 0.8
    assert len(programs) == 1
    assert np.max(draws(1e4).rows_read) < 3007
    assert len(programs) == 1  # nothing is compiled for a census that nobody asks for
    for module in (lockstep, runner):
        monkeypatch.setattr(module, "census_of", lambda kernel: None)
    narrow = draws(0.05, chunk_size=9)  # and new programs
    for name in ("position", "is_accepted", "rows_read", "rows_scanned"):
        np.testing.assert_array_equal(getattr(apart, name), getattr(narrow, name))
    np.testing.assert_allclose(apart.log_ratio, narrow.log_ratio, atol=1e-4)


def test_functions_are_only_evaluated_where_chains_go() -> None:
    """Also before the first trial: this likelihood never ends at 0, and is NaN there."""

    def log_likelihood(rate: Array, row: Array) -> Array:
        count = lax.while_loop(lambda c: c[0] < 8.0, lambda c: (c[0] + jnp.abs(rate), c[1] + 1), (rate, 0))[1]
        return row * jnp.log(rate) - rate + 0.0 * count * jnp.log(rate)

    rows = np.random.default_rng(0).poisson(3, 500).astype(np.float32)
    source = tc.WithReplacement(rows, 50)
    for test in (tc.Metropolis(), tc.MinibatchBarker()):
        posterior = tc.Posterior(lambda rate: -0.5 * rate**2, log_likelihood, 100.0)
        kernel = tc.MetropolisHastings(posterior, source, proposal=tc.RandomWalk(0.01), acceptance=test)
        with jax.debug_nans(True):
            trace = tc.sample(jax.random.key(1), kernel, 3.0, 5, num_chains=4, progress=False)
            tc.audit(trace.kernel, trace, num_decisions=4, num_trials=8, progress=False)
        assert np.isfinite(trace.position).all()


class _Remembered(NamedTuple):
    of_test: Any
    key: Array


@part
class Keyed:
    """A test that keeps a key of JAX's own in its memory."""

    test: Any
    impl: str = static()

    def appetite(self, population: Population) -> int:
        return self.test.appetite(population)

    def draw(self, key: Array) -> Any:
        return self.test.draw(key)

    def open(self, noise: Any, bound: Array | None, population: Population) -> tuple[Any, Any, Ask]:
        memory, evidence, ask = self.test.open(noise, bound, population)
        return _Remembered(memory, jax.random.key(0, impl=self.impl)), evidence, ask

    def judge(self, memory: Any, offset: Array, evidence: Any, population: Population) -> Judgement:
        judged = self.test.judge(memory.of_test, offset, evidence, population)
        return judged._replace(memory=_Remembered(judged.memory, memory.key))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_trials_may_hold_keys_of_any_kind(impl: str) -> None:
    rows = np.random.default_rng(0).normal(0.5, 1, 1001).astype(np.float32)
    options = {"num_chains": 4, "scan": 0, "progress": False}
    plain, keyed = (
        tc.sample(jax.random.key(1), kernel_of(rows, test), 0.5, 4, **options)
        for test in (tc.Metropolis(), Keyed(tc.Metropolis(), impl))
    )
    np.testing.assert_allclose(plain.position, keyed.position, rtol=1e-6)


def test_a_run_can_start_again_from_the_same_array() -> None:
    """The lanes are given away to each chunk; what the caller has is not."""
    keys, starts = jax.random.split(jax.random.key(0), 8), jnp.full(8, 0.5)
    run = runner.Runner(few_rows(proposal=tc.RandomWalk(0.6)), tc.Schedule(), keys, 4, groups=1)
    first, second = (run.start(starts)(last=4, turns=100)[1].position for _ in range(2))
    np.testing.assert_array_equal(first, second)
