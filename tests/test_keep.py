"""Runs that do not keep all their draws: every k-th of them, or moments of all."""

from __future__ import annotations

import pickle
import signal
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallchain as tc
from conftest import SEED
from records import chunk_of
from refusals import refuse, table
from scenarios import kernel_of, normal_mean
from tallchain import runner
from tallchain.checking import SamplingError
from tallchain.checking.moments import Gatherer
from tallchain.checking.recorder import Recorder
from tallchain.parts import part
from tallchain.surrogates import Taylor
from tallchain.types import Proposed

TARGET = normal_mean()
few_rows = partial(kernel_of, TARGET.data[:4000], temperature=400.0)
# Tests with the same number of chains and of draws in a chunk share their programs.
CHAINS, LENGTH, WARMUP = 4, 103, 7
SMALL = {"num_chains": CHAINS, "chunk_size": 5, "progress": False}


def run(num_samples: int = LENGTH, *, kernel: Any = None, initial: Any = 0.5, **options: Any) -> tc.Trace:
    kernel = few_rows() if kernel is None else kernel
    return tc.sample(jax.random.key(SEED), kernel, initial, num_samples, **(SMALL | {"scan": 0} | options))


@pytest.fixture(scope="module")
def whole() -> tc.Trace:
    return run(num_warmup=WARMUP)


@pytest.fixture(scope="module")
def moments() -> tc.Trace:
    return run(num_warmup=WARMUP, keep="moments", thin=10, scan=8)


# ---- the same draws ------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["draws", "moments"])
@pytest.mark.parametrize("thin", [2, 10, LENGTH])
def test_every_kth_draw_of_the_same_run(whole: tc.Trace, keep: Any, thin: int) -> None:
    trace = run(num_warmup=WARMUP, keep=keep, thin=np.int8(thin))
    for name in ("position", "is_accepted", "rows_read", "rows_scanned", "log_ratio", "is_invalid"):
        np.testing.assert_array_equal(getattr(trace, name), getattr(whole, name)[:, ::thin])
    assert trace.extras.keys() == whole.extras.keys()
    assert trace.num_draws == -(-LENGTH // thin)
    assert trace.decisions == whole.decisions
    assert trace.warmup == whole.warmup
    assert (trace.moments is None) == (keep == "draws")
    assert trace.summary().num_made == LENGTH
    assert trace.summary().rows.total == whole.summary().rows.total
    assert trace.summary().acceptance == whole.summary().acceptance
    assert f"one in {thin}" in repr(trace)


def test_decisions_added_up_on_an_accelerator(whole: tc.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "_is_on_device", True)
    trace = run(num_warmup=WARMUP)
    np.testing.assert_array_equal(trace.position, whole.position)
    assert trace.decisions == whole.decisions
    assert trace.warmup == whole.warmup


def test_moments_are_those_of_the_draws(whole: tc.Trace, moments: tc.Trace) -> None:
    found, draws = moments.moments, whole.position.astype(np.float64)
    assert found is not None
    assert found.num_draws == draws.size
    np.testing.assert_allclose(found.mean, draws.mean(), rtol=1e-5)
    np.testing.assert_allclose(found.sd, draws.std(), rtol=1e-5)
    np.testing.assert_allclose(found.covariance, draws.var(), rtol=1e-4)
    (ours,), (theirs,) = moments.summary().parameters, whole.summary().parameters
    assert ours.name == theirs.name
    assert ours.ess_bulk == pytest.approx(theirs.ess_bulk, rel=0.5)
    assert 0.99 < ours.r_hat < 1.2
    for share, value in ((0.05, ours.q5), (0.5, ours.median), (0.95, ours.q95)):
        exact = np.quantile(draws, share, method="inverted_cdf")
        assert abs(value - exact) <= found.quantile(share).resolution[0]
    assert np.abs(moments.position.mean() - draws.mean()) > 1e-3, "of the kept draws, the mean is another"


def test_the_summary_is_of_all_draws(moments: tc.Trace) -> None:
    told = str(moments.summary())
    assert told.startswith("4 chains x 103 draws, N = 4,000 rows\n11 draws of each chain were kept; moments and")
    assert "all rows were read   at 8 proposals" in told
    thinned = str(run(thin=10).summary())
    assert "11 draws of each chain were kept; the others are not in the table" in thinned


def test_what_is_kept_when_nothing_is_said() -> None:
    short, one = run(5, keep="moments"), run(5, keep="moments", num_chains=1)
    assert short.thin == one.thin == 1
    assert short.all_decisions is None
    assert one.position.shape == (1, 5)
    trace = run(600, keep="moments")
    assert trace.thin == 600 // 256
    assert trace.num_draws == 300


def test_one_draw_of_one_chain() -> None:
    trace = run(1, keep="moments", num_chains=1)
    assert trace.moments is not None
    np.testing.assert_array_equal(trace.moments.mean, trace.position[0])
    assert trace.moments.sd == 0
    assert "nan" in str(trace.summary())


def test_a_core_more_does_not_change_the_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for groups in (1, 2):
        monkeypatch.setattr(runner, "num_groups", lambda num_chains, groups=groups: groups)
        found.append(run(40, keep="moments", thin=3, num_warmup=WARMUP).moments)
    for of in ("mean", "sd", "covariance", "means"):
        np.testing.assert_allclose(getattr(found[0], of), getattr(found[1], of), rtol=1e-4, atol=1e-6)
    assert found[0].num_draws == found[1].num_draws == 40 * CHAINS


# ---- what is done with them ----------------------------------------------------------------------


def test_survives_a_pickle(moments: tc.Trace) -> None:
    again = pickle.loads(pickle.dumps(moments))
    assert str(again.summary()) == str(moments.summary())
    np.testing.assert_array_equal(again.moments.counts, moments.moments.counts)


def test_export_and_audit(moments: tc.Trace) -> None:
    tree = moments.to_datatree()
    assert dict(tree.posterior.sizes) == {"chain": CHAINS, "draw": 11}
    assert tree.posterior.attrs["thin"] == 10
    audit = tc.audit(moments.kernel, moments, num_decisions=40, num_trials=2, progress=False)
    assert audit.bound is None


def test_progress_counts_draws_that_are_not_kept() -> None:
    seen: list[tuple[int, int]] = []
    run(40, keep="moments", thin=20, num_warmup=WARMUP, progress=lambda *of: seen.append(of))
    assert seen[-1] == (47 * CHAINS, 47 * CHAINS)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_schedule_counts_all_draws() -> None:
    """Long steps at the odd draws, from 0 at the first of the warm-up: every second draw has made a short one."""
    schedule = tc.Schedule(scale=lambda draw: jnp.where(draw % 2 == 1, 1e4, 1e-3))
    trace = run(20, schedule=schedule, num_warmup=4, thin=2)
    assert np.abs(np.diff(trace.position, axis=1)).max() < 0.1
    assert trace.kernel is not None
    assert trace.kernel.proposal.scale == pytest.approx(1e-3)
    other = run(20, schedule=schedule, num_warmup=3, thin=2)
    assert np.abs(other.log_ratio).max() > 1e4
    assert np.abs(trace.log_ratio).max() < 10


def test_a_surrogate_that_moves() -> None:
    data, posterior = TARGET.data[:4000], TARGET.posterior
    surrogate = Taylor(posterior, data, np.float32(9.0))
    kernel = few_rows(posterior=posterior, surrogate=surrogate)
    options = {"recentre": lambda position: Taylor(posterior, data, position), "num_warmup": 10}
    plain, trace = (run(12, kernel=kernel, **options, **keep) for keep in ({}, {"keep": "moments", "thin": 4}))
    assert "which moved" in trace.notes[0]
    np.testing.assert_array_equal(plain.position[:, ::4], trace.position)
    assert trace.moments is not None
    np.testing.assert_allclose(trace.moments.mean, plain.position.mean(), rtol=1e-5)
    assert trace.warmup == plain.warmup


# ---- positions of several arrays -----------------------------------------------------------------


@part
class Growing:
    """Moves b, makes a larger and larger, and leaves the others where they are."""

    def check(self, position: Any) -> None:
        """Any."""

    def draw(self, key: jax.Array, position: Any) -> jax.Array:
        return jax.random.normal(key)

    def propose(self, noise: jax.Array, position: Any, target: Any) -> Proposed:
        return Proposed(position | {"b": position["b"] + noise, "a": position["a"] * 1e25}, 0.0)


FLAT = tc.Posterior(lambda t: 0.0 * t["b"], lambda t, x: 0.0 * x)


def test_coordinates_keep_their_names_and_overflow_alone() -> None:
    """JAX sorts the keys of a dict. Nobody looks at a, which becomes infinite."""
    initial = {"c": np.zeros((2, 2), np.float32), "b": 5.0, "a": 1.0}
    kernel = few_rows(posterior=FLAT, proposal=Growing())
    plain, trace = (run(40, kernel=kernel, initial=initial, **keep) for keep in ({}, {"keep": "moments", "thin": 7}))
    summary = trace.summary()
    names = [parameter.name for parameter in summary.parameters]
    assert names == ["c[0, 0]", "c[0, 1]", "c[1, 0]", "c[1, 1]", "b", "a"]
    assert [parameter.mean for parameter in summary.parameters[:4]] == [0] * 4
    assert summary.parameters[4].mean == pytest.approx(plain.position["b"].mean(), rel=1e-5)
    assert np.isinf(trace.position["a"][:, -1]).all()
    assert np.isnan(summary.parameters[5].mean)
    assert "nan" in str(summary)


def test_float64_beside_float32() -> None:
    with jax.enable_x64(True):
        initial = {"b": np.float64(1e12), "a": np.float32(0)}
        kernel = few_rows(posterior=FLAT, proposal=Growing())
        plain, trace = (
            run(40, kernel=kernel, initial=initial, **keep) for keep in ({}, {"keep": "moments", "thin": 7})
        )
        assert trace.position["b"].dtype == np.float64
        assert trace.moments is not None
        np.testing.assert_allclose(trace.moments.sd[1], (plain.position["b"] - 1e12).std(), rtol=1e-6)


# ---- ends that were not planned ------------------------------------------------------------------


def after_chunks(monkeypatch: pytest.MonkeyPatch, count: int, act: Any) -> None:
    """Let `count` chunks run, then act before each further one."""
    execute = runner.execute
    calls = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        if len(calls) > count:
            act()
        return execute(*args, **kwargs)

    monkeypatch.setattr(runner, "execute", counted)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("thin", [2, LENGTH])
def test_ctrl_c_keeps_draws_and_moments(whole: tc.Trace, thin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if less than one draw in `thin` was made."""
    after_chunks(monkeypatch, 5, interrupt)
    trace = run(num_warmup=WARMUP, keep="moments", thin=thin, scan=8)
    assert trace.is_interrupted
    assert trace.scan is None
    assert 0 < trace.num_draws < LENGTH
    np.testing.assert_array_equal(trace.position, whole.position[:, ::thin][:, : trace.num_draws])
    found = trace.moments
    assert found is not None
    assert CHAINS <= found.num_draws == trace.decisions.num_decisions < LENGTH * CHAINS
    made = found.count.sum(1)
    exact = np.concatenate([chain[:count] for chain, count in zip(whole.position, made, strict=True)])
    np.testing.assert_allclose(found.mean, exact.mean(dtype=np.float64), rtol=1e-5)
    np.testing.assert_allclose(found.sd, exact.std(dtype=np.float64), rtol=1e-4)
    told = str(trace.summary())
    assert "INTERRUPTED" in told
    assert f"4 chains x {round(made.mean())} draws" in told


def slow_beyond_ten() -> tc.MetropolisHastings:
    """Beyond 10 the log ratios of rows are so far apart that a decision reads all 20,000 of them."""

    def log_likelihood(t: jax.Array, x: jax.Array) -> jax.Array:
        return -((x - t) ** 2) / 2 * jnp.where(t > 10, 100.0, 1.0)

    return kernel_of(posterior=tc.Posterior(TARGET.posterior.log_prior, log_likelihood, 2000.0))


def test_a_chain_that_is_left_out_of_the_trace_is_in_the_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    after_chunks(monkeypatch, 60, interrupt)
    starts = np.array([0.5, 500.0, 0.5, 0.5], np.float32)
    with pytest.warns(RuntimeWarning, match="Chain 1 had .* left out.*The moments have what these chains have drawn"):
        trace = run(20_000, kernel=slow_beyond_ten(), initial=starts, keep="moments", thin=3)
    assert trace.num_chains == 3
    assert trace.moments is not None
    made = trace.moments.count.sum(1)
    assert trace.left_out == {1: made[1]}
    assert 0 < made[1] < made[0]
    assert trace.moments.mean > 1
    assert trace.summary().num_made == round(made.mean())


def test_a_fault_loses_neither_draws_nor_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("out of memory on the device")

    after_chunks(monkeypatch, 4, fail)
    with pytest.raises(SamplingError, match="out of memory") as caught:
        run(num_warmup=WARMUP, keep="moments", thin=4)
    assert caught.value.trace.num_draws > 0
    assert caught.value.trace.moments is not None


def test_a_device_that_has_lost_the_moments_loses_no_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(Gatherer, "moments", fail)
    after_chunks(monkeypatch, 4, fail)
    with pytest.raises(SamplingError, match="the device is lost") as caught:
        run(num_warmup=WARMUP, keep="moments", thin=4)
    assert caught.value.trace.num_draws > 0
    assert caught.value.trace.moments is None
    assert "the others are not in the table" in str(caught.value.trace.summary())


# ---- JAX's own checks ----------------------------------------------------------------------------


BAD = tc.Posterior(lambda t: jnp.where(t > 0.6, jnp.nan, 0.0), TARGET.posterior.log_likelihood, 400.0)


@pytest.mark.parametrize("what", ["nan", "inf"])
def test_debug_nans_sees_draws_that_are_not_kept(what: str) -> None:
    """Those of the trial that is open at the end of a chunk JAX sees itself, and not those that are packed."""
    log_ratio = np.zeros((CHAINS, 5), np.float32)
    log_ratio[2, 3] = float(what)
    chunk = chunk_of(np.zeros((CHAINS, 5), np.float32), log_ratio=log_ratio)
    take = Recorder(1000, CHAINS, 50, 0, thin=5).add(np.full(CHAINS, 5), chunk._replace(unwanted=("nan", "inf")))
    with pytest.raises(FloatingPointError, match=f"a decision gave {what}, and `jax_debug_{what}s` is set"):
        take()
    Recorder(1000, CHAINS, 50, 0, thin=5).add(np.full(CHAINS, 5), chunk)()


def test_invalid_log_ratios_are_counted_where_they_are_not_kept() -> None:
    with pytest.warns(RuntimeWarning, match="log ratios were NaN"):
        trace = run(50, kernel=few_rows(posterior=BAD), thin=50)
    assert trace.decisions.num_invalid > trace.is_invalid.sum()


def test_debug_nans_and_infs_find_nothing_in_a_sound_run(whole: tc.Trace) -> None:
    with jax.debug_nans(True), jax.debug_infs(True):
        trace = run(num_warmup=WARMUP, keep="moments", thin=10)
    np.testing.assert_array_equal(trace.position, whole.position[:, ::10])


# ---- refusals ------------------------------------------------------------------------------------


@table(
    {
        "more than there are": (lambda: run(5, thin=6), ValueError, "`sample(thin=..., num_samples=5)`", "got 6"),
        "none": (lambda: run(5, thin=0), ValueError, "must be a whole number from 1 to num_samples", "got 0"),
        "a part": (lambda: run(5, thin=2.5), ValueError, "whole number", "got 2.5"),
        "a truth": (lambda: run(5, thin=True), ValueError, "whole number", "got True"),
        "other words": (lambda: run(5, keep="all"), ValueError, '`sample(keep=...)` must be "draws" or "moments"; got'),
        "no words": (
            lambda: run(5, keep=None),
            ValueError,
            '`sample(keep=...)` must be "draws" or "moments"; got None',
        ),
    }
)
def test_refuses(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)
