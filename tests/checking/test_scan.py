"""The scan at the end of a run: its moments against NumPy, and what it warns of."""

from __future__ import annotations

import dataclasses
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from scipy import stats

import tallchain as tc
from scenarios import kernel_of
from tallchain.checking import Scan, scan
from tallchain.parts import replace
from tallchain.types import Ask

NUM_ROWS = 50_001
RANDOM = np.random.default_rng(5)
SKEWED = RANDOM.standard_exponential(NUM_ROWS).astype(np.float32)
NORMAL = RANDOM.standard_normal(NUM_ROWS).astype(np.float32)


def sample(key: jax.Array, kernel: tc.MetropolisHastings, start: float = 0.5, **options) -> tc.Trace:
    return tc.sample(key, kernel, start, 20, num_chains=16, progress=False, **options)


@pytest.mark.parametrize("source", [tc.Shuffled, tc.WithReplacement])
def test_moments_of_all_rows(source, key: jax.Array) -> None:
    """Against SciPy in float64, with a last window that is not full."""
    kernel = kernel_of(SKEWED, source=source)
    here, there = jnp.array([0.2, 1.0, 2.0]), jnp.array([0.7, 0.4, 2.0])
    found = scan.row_moments(kernel, scan.Pairs(here, there, jnp.zeros(3)), threading.Event())
    for i in range(3):
        t, other = float(here[i]), float(there[i])
        rows = 10 * ((SKEWED.astype(np.float64) - t) ** 2 - (SKEWED.astype(np.float64) - other) ** 2) / 2
        assert found.mean[i] == pytest.approx(rows.mean(), abs=1e-4)
        assert found.variance[i] == pytest.approx(rows.var(), rel=1e-4)
        if t == other:  # a step that goes nowhere: no spread, and no shape
            assert found.skewness[i] == found.kurtosis[i] == 0
        else:
            assert found.skewness[i] == pytest.approx(stats.skew(rows), rel=1e-3)
            assert found.kurtosis[i] == pytest.approx(stats.kurtosis(rows), rel=1e-3)
            assert found.disorder[i] == pytest.approx(1, abs=0.9)
    assert not found.num_impossible.any()
    assert not found.num_invalid.any()


@pytest.mark.parametrize("source", [tc.Shuffled, tc.WithReplacement])
def test_however_many_rows_are_read_always_one_look_of_them_is_traced(source, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what comes after them is the same as after looks one by one."""
    reweighted, width = source(SKEWED, 10).reweighted(exact=np.arange(101)), 10
    cursor, calls, look = reweighted.start(reweighted.draw(jr.key(3))), [], source.look
    for _ in range(11):
        cursor, _ = reweighted.look(cursor, Ask(jnp.int32(width)), width, lambda row: row, lambda *_: ())

    def counted(*arguments):
        calls.append(arguments)
        return look(*arguments)

    monkeypatch.setattr(source, "look", counted)
    begun = scan.begin(reweighted, jr.key(3), width)
    jax.tree.map(np.testing.assert_array_equal, begun[1:], cursor[1:])
    assert len(calls) <= 2


def test_a_sound_run_has_no_complaint(key: jax.Array) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace = sample(key, kernel_of(NORMAL))
    assert trace.scan is not None
    assert trace.scan.complaints() == []
    assert trace.scan.rows_swept == 8 * trace.num_rows
    summary = trace.summary()
    assert summary.rows.scanned == trace.scan.rows_swept
    assert "all rows were read   at 8 proposals" in str(summary)


def test_skewness_and_kurtosis_of_the_mean_of_a_batch(key: jax.Array) -> None:
    """Exponential rows (2 and 6), with a batch that makes the noise of Delta* about as large as the test's own."""
    found = sample(key, kernel_of(SKEWED)).scan
    assert found is not None
    step = np.asarray(found.skewness) > 0.9 * max(found.skewness)
    b = found.batch
    assert max(found.skewness) == pytest.approx(2 / np.sqrt(b), rel=0.1)
    assert np.asarray(found.kurtosis)[step] == pytest.approx(6 / b, rel=0.3)


def test_without_a_pass(key: jax.Array) -> None:
    trace = sample(key, kernel_of(SKEWED), scan=0)
    assert trace.scan is None
    assert "NOT CHECKED" in str(trace.summary())


def test_no_pass_where_every_decision_is_one(key: jax.Array) -> None:
    trace = sample(key, kernel_of(SKEWED, tc.Barker()))
    assert trace.scan is None
    assert "NOT CHECKED" not in str(trace.summary())


def test_an_interrupted_pass_keeps_the_draws(key: jax.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(scan, "_begin", interrupted)
    trace = sample(key, kernel_of(SKEWED))
    assert trace.num_draws == 20
    assert trace.scan is None


def test_a_broken_pass_keeps_the_draws(key: jax.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(scan, "_begin", broken)
    with pytest.raises(tc.SamplingError, match="`sample\\(scan=0\\)`") as caught:
        sample(key, kernel_of(SKEWED))
    assert caught.value.trace.num_draws == 20


@pytest.mark.slow
def test_order_of_rows(key: jax.Array) -> None:
    """A source that gives sorted rows in windows is found out; the same rows drawn one by one are not accused."""
    kernel = kernel_of(SKEWED)
    in_order = jnp.sort(kernel.source.data[:NUM_ROWS])
    unshuffled = replace(kernel.source, windows=True, data=jnp.concatenate([in_order, in_order[:8192]]))
    with pytest.warns(RuntimeWarning, match="vary .* times as much as they should"):
        sample(key, replace(kernel, source=unshuffled))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample(key, kernel_of(np.sort(SKEWED), source=tc.WithReplacement))


def test_share_of_proposals_that_may_be_far() -> None:
    good = Scan(20, 1, 100.0, (0.1,) * 20, (0.1,) * 20, (0.0,) * 20, 0, 1.0, 2.0, False)
    assert not good.complaints()
    two = dataclasses.replace(good, kurtosis=(5.0,) * 2 + (0.1,) * 18)
    assert not two.complaints()
    three = dataclasses.replace(good, skewness=(0.4,) * 3 + (0.1,) * 17)
    assert "at 3 of 20 proposals" in three.complaints()[0]


def test_who_has_shuffled_already_is_not_told_to_shuffle() -> None:
    found = Scan(1, 1, 100.0, (0.1,), (0.1,), (0.0,), 0, 5.0, 2.0, is_shuffled=True)
    assert "Use `Shuffled`" not in found.complaints()[0]
    assert "windows=False" in found.complaints()[0]
    assert "Use `Shuffled`" in dataclasses.replace(found, is_shuffled=False).complaints()[0]


def test_chains_that_disagree_are_named(key: jax.Array) -> None:
    starts = np.linspace(-3, 3, 16, dtype=np.float32)
    kernel = replace(kernel_of(SKEWED), proposal=tc.RandomWalk(0.001))
    trace = tc.sample(jr.fold_in(key, 1), kernel, starts, 20, num_chains=16, scan=0, progress=False)
    assert "CHAINS DISAGREE      r_hat above 1.01 for position" in str(trace.summary())
