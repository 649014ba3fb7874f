"""Kernels without a test: rows, keys, chunks, schedules, positions, and updates that are not finite."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

import tallchain as tc
from conftest import SEED
from gaussian import BATCH, ROWS, Gaussian, shuffled, with_replacement
from tallchain.stochastic import SGFS, SGHMC, SGLD, SGNHT, StochasticGradient
from tallchain.surrogates import Taylor

pytest.importorskip("blackjax")

TARGET = Gaussian.make(size=3)
START = TARGET.mean.astype(np.float32)
STEP = 0.1 / np.sqrt(TARGET.precision)
DYNAMICS = {
    "sgld": SGLD(0.1 / TARGET.precision),
    "sghmc": SGHMC(STEP, 4, 0.3 / STEP),
    "sgnht": SGNHT(STEP, 0.3 / STEP),
    "sgfs": SGFS(1.0),
}
OPTIONS: dict[str, Any] = {"num_chains": 4, "num_warmup": 3, "progress": False}


def kernel_of(dynamics: str = "sgld", source: Any = shuffled, **options: Any) -> StochasticGradient:
    return StochasticGradient(TARGET.posterior, source(TARGET.data), DYNAMICS[dynamics], BATCH, **options)


def run(kernel: StochasticGradient, start: Any = START, length: int = 20, **options: Any) -> tc.Trace:
    return tc.sample(jr.key(SEED), kernel, start, length, **OPTIONS | options)


@pytest.mark.parametrize("name", DYNAMICS)
def test_contract(name: str) -> None:
    """Records, rows, one key, any chunks, other chains, and one chain step by step."""
    kernel = kernel_of(name)
    trace = run(kernel)
    assert trace.position.shape == (4, 20, 3)
    assert trace.is_accepted.all()
    assert not trace.is_invalid.any()
    assert (trace.rows_read == BATCH).all()
    assert not trace.rows_scanned.any()
    assert trace.warmup.rows_read == 4 * 3 * BATCH
    assert trace.scan is None
    assert trace.complaints() == []
    again = run(kernel, chunk_size=7, num_chains=2)
    np.testing.assert_allclose(trace.position[:2], again.position, rtol=1e-5, atol=1e-5)
    state, step = kernel.init(START), jax.jit(lambda kernel, key, state: kernel.step(key, state))
    for draw in range(23):
        state, verdict = step(kernel, jr.fold_in(jr.fold_in(jr.key(SEED), 3), draw), state)
        assert int(verdict.rows_read) == BATCH
        if draw >= 3:
            np.testing.assert_allclose(state.position, trace.position[3, draw - 3], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", DYNAMICS)
def test_positions_are_pytrees(name: str) -> None:
    """The same draws as of a vector; with rows that repeat."""
    data = {"x": TARGET.data}
    apart = lambda t: jnp.concatenate([t["a"][None], t["b"]])  # noqa: E731
    posterior = tc.Posterior(
        lambda t: TARGET.posterior.log_prior(apart(t)),
        lambda t, row: TARGET.posterior.log_likelihood(apart(t), row["x"]),
    )
    kernel = StochasticGradient(posterior, with_replacement(data), DYNAMICS[name], BATCH)
    trace = run(kernel, {"a": START[0], "b": START[1:]})
    plain = run(kernel_of(name, with_replacement))
    np.testing.assert_allclose(trace.position["a"], plain.position[..., 0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(trace.position["b"], plain.position[..., 1:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", DYNAMICS)
def test_64_bits(name: str) -> None:
    """Positions keep their type; rows have 64 bits here."""
    with jax.enable_x64(True):
        kernel = StochasticGradient(TARGET.posterior, shuffled(TARGET.data.astype(float)), DYNAMICS[name], BATCH)
        for start in (START, START.astype(float)):
            trace = run(kernel, start, length=5)
            assert trace.position.dtype == start.dtype
            assert trace.is_accepted.all()


def test_the_thermostat_and_the_momentum_outlive_an_update() -> None:
    kernel = kernel_of("sgnht")
    state, step = kernel.init(START), jax.jit(kernel.step)
    assert not state.memory.has_started
    first, _ = step(jr.key(1), state)
    again, _ = step(jr.key(2), first)
    np.testing.assert_allclose(again.position, first.position + STEP * first.memory.momentum, rtol=1e-5)
    grown = first.memory.thermostat + STEP * (np.mean(np.square(again.memory.momentum)) - 1)
    np.testing.assert_allclose(again.memory.thermostat, grown, rtol=1e-5)


def test_a_schedule_of_steps() -> None:
    """From one draw on, steps so short that nothing moves."""
    eps = DYNAMICS["sgld"].step_size
    trace = run(kernel_of(), schedule=tc.Schedule(scale=lambda draw: jnp.where(draw < 10, eps, 1e-14)))
    moves = np.abs(np.diff(trace.position, axis=1)).max((0, 2))
    assert (moves[:6] > 1e-3).all()
    assert (moves[7:] < 1e-5).all()
    assert float(trace.kernel.dynamics.step_size) == pytest.approx(1e-14)


def test_a_schedule_of_temperatures() -> None:
    hot = run(kernel_of(), schedule=tc.Schedule(temperature=lambda draw: jnp.full((), 100.0)), length=10)
    assert hot.settings.is_tempered
    other = tc.Posterior(TARGET.posterior.log_prior, TARGET.posterior.log_likelihood, 100.0)
    same = run(StochasticGradient(other, shuffled(TARGET.data), DYNAMICS["sgld"], BATCH), length=10)
    np.testing.assert_allclose(hot.position, same.position, rtol=1e-4, atol=1e-5)


def test_a_surrogate_moves_with_recentre() -> None:
    """Chains that start far from where it was made; what they carry starts anew."""
    surrogate = Taylor(TARGET.posterior, TARGET.data, START + 1.0, 2)
    made = []

    def recentre(position: Any) -> Taylor:
        made.append(position)
        return Taylor(TARGET.posterior, TARGET.data, position, 2)

    kernel = StochasticGradient(TARGET.posterior, shuffled(TARGET.data), DYNAMICS["sgnht"], BATCH, surrogate)
    trace = run(kernel, num_warmup=20, recentre=recentre)
    assert len(made) == 1
    np.testing.assert_allclose(trace.kernel.surrogate.position, made[0])
    assert not trace.is_invalid.any()


def test_an_update_that_is_not_finite_stays() -> None:
    """Beyond 0.1 the gradient is not a number: a chain that is there stays, and a chain elsewhere moves."""
    posterior = tc.Posterior(
        TARGET.posterior.log_prior,
        lambda t, x: jnp.where(t[0] > 0.5, jnp.sqrt(0.5 - t[0]), TARGET.posterior.log_likelihood(t, x)),
    )
    kernel = StochasticGradient(posterior, shuffled(TARGET.data), DYNAMICS["sgnht"], BATCH)
    inside, outside = (kernel.init(np.float32([at, 0, 0])) for at in (0.4, 0.6))
    moved, verdict = jax.jit(kernel.step)(jr.key(0), inside)
    assert bool(verdict.is_accepted)
    assert not bool(verdict.is_invalid)
    assert np.any(np.asarray(moved.position) != np.asarray(inside.position))
    stayed, verdict = jax.jit(kernel.step)(jr.key(0), outside)
    assert not bool(verdict.is_accepted)
    assert bool(verdict.is_invalid)
    jax.tree.map(np.testing.assert_array_equal, stayed, outside)


def test_invalid_updates_are_complained_of() -> None:
    """Steps so long that positions overflow."""
    kernel = StochasticGradient(TARGET.posterior, shuffled(TARGET.data), SGLD(1e3), BATCH)
    with pytest.warns(tc.SamplingWarning, match="updates were not finite"):
        trace = run(kernel)
    assert np.isfinite(trace.position).all()
    assert trace.is_invalid.any()
    assert (trace.is_invalid != trace.is_accepted).all()


def test_the_summary_says_that_there_is_no_test() -> None:
    trace = run(kernel_of("sghmc"), scan=8)
    said = str(trace.summary())
    for words in (
        "none: every update is kept, so the draws are biased",
        "SGHMC(step_size=",
        f"{BATCH} rows an update, 4 gradients of each",
        "NO TEST",
    ):
        assert words in said
    assert "NOT CHECKED" not in said
    assert trace.settings is not None
    assert not trace.settings.is_tested
    assert "1 gradient of each" in run(kernel_of()).settings.proposal


def test_moments_are_kept_of_all_draws() -> None:
    trace = run(kernel_of("sgnht"), keep="moments", thin=5)
    assert trace.position.shape == (4, 4, 3)
    assert trace.moments is not None
    assert trace.decisions.rows_read == 4 * 20 * BATCH


def test_windows_and_rows_in_several_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient is over all rows of the minibatch, however many looks they take."""
    whole = run(kernel_of(), length=5)
    monkeypatch.setattr(tc.Shuffled, "width", lambda self, appetite: 8)
    parts = run(kernel_of(), length=5)
    np.testing.assert_allclose(whole.position, parts.position, rtol=1e-4, atol=1e-4)
    assert (parts.rows_read == BATCH).all()


def test_all_rows_once() -> None:
    """The gradient of all rows does not depend on their order."""
    kernel = StochasticGradient(TARGET.posterior, shuffled(TARGET.data), DYNAMICS["sgld"], ROWS)
    windows = StochasticGradient(TARGET.posterior, tc.Shuffled(TARGET.data, 64), DYNAMICS["sgld"], ROWS)
    one, other = run(kernel), run(windows)
    np.testing.assert_allclose(one.position, other.position, rtol=1e-4, atol=1e-4)
    assert (one.rows_read == ROWS).all()
