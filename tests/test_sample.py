"""The host side: starts, schedules, interruptions, faults, and log ratios that are not numbers."""

from __future__ import annotations

import re
import signal
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallchain as tc
from scenarios import kernel_of, normal_mean
from tallchain import progress, runner
from tallchain.checking import scan
from tallchain.checking.faults import SamplingError
from tallchain.parts import part
from tallchain.sample import sample

TARGET = normal_mean()


few_rows = partial(kernel_of, TARGET.data[:4000], temperature=TARGET.posterior.temperature)
# Tests with the same number of chains and of draws in a chunk share their programs.
SMALL = {"num_chains": 4, "chunk_size": 5, "progress": False}


def test_one_start_per_chain(key: jax.Array) -> None:
    starts = np.array([-50.0, 0.0, 20.0, 50.0], np.float32)
    trace = sample(key, few_rows(), starts, 1, scan=0, **SMALL)
    np.testing.assert_allclose(trace.position[:, 0], starts, atol=5.0)


def test_one_start_for_all_chains(key: jax.Array) -> None:
    trace = sample(key, few_rows(), 7.0, 1, scan=0, **SMALL)
    np.testing.assert_allclose(trace.position[:, 0], 7.0, atol=4.0)


def test_old_style_keys_are_taken() -> None:
    old = sample(jax.random.PRNGKey(3), few_rows(), 0.5, 5, scan=0, **SMALL)
    new = sample(jax.random.key(3), few_rows(), 0.5, 5, scan=0, **SMALL)
    np.testing.assert_array_equal(old.position, new.position)


def test_small_numpy_integers_do_not_overflow(key: jax.Array) -> None:
    options = {"num_warmup": np.int8(100), "num_chains": np.int8(4), "scan": np.int8(8), "chunk_size": np.int8(5)}
    trace = sample(key, few_rows(), 0.5, np.int8(100), progress=False, **options)
    assert trace.num_draws == 100
    assert trace.scan is not None
    assert trace.scan.rows_swept == 8 * 4000


def test_schedule_of_temperature_and_scale(key: jax.Array) -> None:
    """Hot with long steps for the first half, cold with short ones after: exact tests show both."""
    schedule = tc.Schedule(
        temperature=lambda draw: jnp.where(draw < 300, 1000.0, 10.0), scale=lambda draw: jnp.where(draw < 300, 2.0, 0.1)
    )
    rows = TARGET.data[:1000]
    kernel = kernel_of(rows, acceptance=tc.Metropolis())
    trace = sample(key, kernel, 0.5, 600, num_chains=64, schedule=schedule, scan=0, progress=False)
    assert trace.kernel is not None
    assert trace.kernel.posterior.temperature == 10
    assert trace.kernel.proposal.scale == pytest.approx(0.1)
    hot, cold = trace.position[:, 50:300], trace.position[:, 350:]
    mean = rows.mean(dtype=np.float64)
    for values, weight in ((hot, 1.0), (cold, 100.0)):
        precision = 0.25 + weight
        chain_means, chain_squares = values.mean(1), ((values - mean * weight / precision) ** 2).mean(1)
        for found, truth in ((chain_means, mean * weight / precision), (chain_squares, 1 / precision)):
            assert abs(found.mean() - truth) < 4.5 * found.std() / 8, (weight, found.mean(), truth)


def test_schedule_counts_warmup_draws(key: jax.Array) -> None:
    schedule = tc.Schedule(scale=lambda draw: jnp.where(draw < 10, 1e-6, 5.0))
    trace = sample(key, few_rows(), 0.5, 5, num_warmup=10, num_chains=4, schedule=schedule, scan=0, progress=False)
    assert np.abs(trace.log_ratio[:, 0]).max() > 1


def test_progress_off_a_terminal_is_lines(key: jax.Array, capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    monkeypatch.setattr(progress, "_SHARE", 0.0)
    sample(key, few_rows(), 0.5, 20, num_chains=4, chunk_size=5)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert re.search(
        r"^sampling \d+%, [\d,]+ draws/s, acceptance 0\.\d\d, \d+ rows a decision", shown.err, re.MULTILINE
    )
    assert "sampling 100%" in shown.err
    assert "reading all rows 100%" in shown.err


# ---- chains dealt out to cores -----------------------------------------------------------------


def test_a_core_more_does_not_change_the_draws(key: jax.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    def traces(groups: int) -> tc.Trace:
        monkeypatch.setattr(runner, "num_groups", lambda num_chains: groups)
        return sample(key, few_rows(), 0.5, 50, num_chains=12, num_warmup=10, scan=0, progress=False, chunk_size=5)

    alone, dealt = traces(1), traces(3)
    np.testing.assert_array_equal(alone.rows_read, dealt.rows_read)
    np.testing.assert_allclose(alone.position, dealt.position, rtol=1e-5)
    assert alone.warmup == dealt.warmup


@pytest.mark.parametrize(
    ("num_chains", "cores", "groups"), [(1, 2, 1), (7, 2, 1), (8, 2, 2), (1024, 6, 4), (97, 8, 1), (1024, 1, 1)]
)
def test_groups_are_equal_and_not_small(num_chains: int, cores: int, groups: int, monkeypatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)), raising=False)
    assert runner.num_groups(num_chains) == groups


def test_a_fault_on_one_core_loses_no_finished_draws(key: jax.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise MemoryError("out of memory on the device")

    monkeypatch.setattr(runner, "num_groups", lambda num_chains: 2)
    after_chunks(monkeypatch, 7, fail)  # the eighth is the second group's in its fourth chunk
    with pytest.raises(SamplingError, match="out of memory on the device") as caught:
        sample(key, few_rows(), 0.5, 200, num_chains=8, progress=False, chunk_size=5)
    assert caught.value.trace.num_draws > 0


# ---- ends that were not planned ----------------------------------------------------------------


def after_chunks(monkeypatch: pytest.MonkeyPatch, count: int, act) -> None:
    """Let `count` chunks run, then act before each further one."""
    execute = runner.execute
    calls = []

    def counted(*args, **kwargs):
        calls.append(None)
        if len(calls) > count:
            act()
        return execute(*args, **kwargs)

    monkeypatch.setattr(runner, "execute", counted)


def test_ctrl_c_returns_the_draws_so_far(key: jax.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sample(key, few_rows(), 0.5, 200, scan=0, **SMALL)
    handler = signal.getsignal(signal.SIGINT)
    after_chunks(monkeypatch, 4, lambda: signal.raise_signal(signal.SIGINT))
    part = sample(key, few_rows(), 0.5, 200, **SMALL)
    assert part.is_interrupted
    assert 0 < part.num_draws < 200
    np.testing.assert_array_equal(part.position, whole.position[:, : part.num_draws])
    assert "INTERRUPTED" in str(part.summary())
    assert signal.getsignal(signal.SIGINT) is handler


def slow_beyond_ten() -> tc.MetropolisHastings:
    """Beyond 10 the log ratios of rows are so far apart that a decision reads all 20,000 of them."""

    def log_likelihood(t, x):
        return -((x - t) ** 2) / 2 * jnp.where(t > 10, 100.0, 1.0)

    return kernel_of(posterior=tc.Posterior(TARGET.posterior.log_prior, log_likelihood, 2000.0))


def test_ctrl_c_leaves_out_a_chain_without_a_draw(key: jax.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    after_chunks(monkeypatch, 3, lambda: signal.raise_signal(signal.SIGINT))
    starts = np.array([0.5, 500.0, 0.5, 0.5], np.float32)
    with pytest.warns(RuntimeWarning, match="Chain 1 had no finished draw and is left out"):
        trace = sample(key, slow_beyond_ten(), starts, 200, **SMALL)
    assert trace.is_interrupted
    assert trace.left_out == {1: 0}
    assert trace.num_chains == 3
    assert trace.num_draws > 0
    assert "chain 1 had no finished draw" in str(trace.summary())


def test_no_pass_over_all_rows_after_ctrl_c(key: jax.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if it comes with the last draws."""
    monkeypatch.setattr(scan, "_begin", lambda *_: pytest.fail("the pass was begun"))
    after_chunks(monkeypatch, 0, lambda: signal.raise_signal(signal.SIGINT))
    trace = sample(key, few_rows(), 0.5, 1, **SMALL)
    assert trace.num_draws == 1
    assert trace.is_interrupted
    assert trace.scan is None


def test_one_ctrl_c_ends_the_pass_and_keeps_the_draws(key: jax.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = scan._begin

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGTERM)
        return begin(*arguments)

    monkeypatch.setattr(scan, "_begin", interrupted)
    monkeypatch.setattr(tc.Shuffled, "sweep", lambda *_, **__: pytest.fail("rows were read"))
    trace = sample(key, few_rows(), 0.5, 20, **SMALL)
    assert trace.num_draws == 20
    assert trace.scan is None
    assert "NOT CHECKED" in str(trace.summary())
    assert "the scan was interrupted" in str(trace.summary())


def test_ctrl_c_before_the_first_draw_raises(key: jax.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the sampler is compiled."""
    compile_ = runner.Runner._compile

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        return compile_(*arguments)

    monkeypatch.setattr(runner.Runner, "_compile", interrupted)
    with pytest.raises(KeyboardInterrupt, match="before the first draw"):
        sample(key, few_rows(), 0.5, 200, scan=0, **SMALL)


def test_a_fault_loses_no_finished_draws(key: jax.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise MemoryError("out of memory on the device")

    after_chunks(monkeypatch, 4, fail)
    with pytest.raises(SamplingError, match="out of memory on the device") as caught:
        sample(key, few_rows(), 0.5, 200, **SMALL)
    assert caught.value.trace.num_draws > 0
    assert caught.value.trace.is_interrupted


@pytest.mark.parametrize("name", ["settings_of", "_is_one"])
def test_a_device_that_does_not_answer_any_more_loses_no_finished_draws(
    name: str, key: jax.Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said of a run beside its draws may need the device: after a fault that may fail, too."""

    def fail(*_: object, **__: object) -> None:
        raise MemoryError("out of memory on the device")

    def break_down() -> None:
        monkeypatch.setitem(sample.__globals__, name, fail)
        fail()

    after_chunks(monkeypatch, 4, break_down)
    with pytest.raises(SamplingError, match="Sampling failed: MemoryError") as caught:
        sample(key, few_rows(), 0.5, 200, **SMALL)
    assert caught.value.trace.num_draws > 0


# ---- log ratios that are not numbers -----------------------------------------------------------


@part
class Prior:
    """Flat, and bad beyond 1."""

    bad: jax.Array

    def __call__(self, t):
        return jnp.where(t > 1, self.bad, 0.0)


@part
class Likelihood:
    """Normal, with something bad beyond 1."""

    bad: jax.Array

    def __call__(self, t, x):
        return jnp.where(t > 1, self.bad, 0.0) - (x - t) ** 2 / 2


@pytest.mark.parametrize(
    ("acceptance", "where", "bad"),
    [
        (tc.Metropolis(), "prior", jnp.inf),
        (tc.Metropolis(), "likelihood", jnp.nan),
        (tc.MinibatchBarker(), "prior", jnp.nan),
        (tc.MinibatchBarker(), "likelihood", jnp.inf),
        pytest.param(tc.Metropolis(), "prior", jnp.nan, marks=pytest.mark.slow),
        pytest.param(tc.Metropolis(), "likelihood", jnp.inf, marks=pytest.mark.slow),
        pytest.param(tc.MinibatchBarker(), "prior", jnp.inf, marks=pytest.mark.slow),
        pytest.param(tc.MinibatchBarker(), "likelihood", jnp.nan, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_invalid_log_ratios_are_rejected_counted_and_reported(key, acceptance, where: str, bad: float) -> None:
    prior, likelihood = (jnp.float32(bad if where == each else 0.0) for each in ("prior", "likelihood"))
    kernel = few_rows(acceptance, posterior=tc.Posterior(Prior(prior), Likelihood(likelihood), 400.0))
    with pytest.warns(RuntimeWarning, match="NaN or \\+inf and counted as rejections"):
        trace = sample(key, kernel, 0.5, 100, num_chains=4, scan=0, progress=False)
    assert trace.is_invalid.sum() > 0
    assert trace.position.max() <= 1
    assert not trace.is_accepted[trace.is_invalid].any()
    assert "log ratios were NaN or +inf" in str(trace.summary())


def test_minus_infinity_is_an_ordinary_rejection(key: jax.Array) -> None:
    """A prior with bounds: candidates outside are rejected, nothing is reported, and hardly a row is read for them."""
    posterior = tc.Posterior(
        lambda t: jnp.where(jnp.abs(t - 0.5) < 0.2, 0.0, -jnp.inf), TARGET.posterior.log_likelihood, 400.0
    )
    trace = sample(
        key, kernel_of(acceptance=tc.Metropolis(), posterior=posterior), 0.5, 200, num_chains=4, progress=False
    )
    outside = np.isneginf(trace.log_ratio)
    assert outside.sum() > 100
    assert not trace.is_invalid.any()
    assert not trace.is_accepted[outside].any()
    assert np.abs(trace.position - 0.5).max() < 0.2
    assert trace.rows_read[outside].max() < trace.rows_read[~outside].min()
