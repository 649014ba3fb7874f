"""Data and settings on which a minibatch test can go wrong: what happens, what warns, and that the remedy is one.

`docs/when-it-fails.md` has the same cases in words. In most, the log likelihood of a row is t x_i - t^2/2: whatever the
rows are, the posterior is normal with a known mean and variance, so that a wrong one is known to be wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallchain as tc
from checks import Z_LIMIT
from conftest import SEED
from scenarios import kernel_of
from tallchain.acceptance import MHSS
from tallchain.bounds import Bound
from tallchain.parts import replace

NUM_ROWS = 100_000
WEIGHT = 10.0  # N/K
PRECISION = 0.25 + WEIGHT
CHAINS, DRAWS = 200, 60


def run(kernel: tc.MetropolisHastings, data: np.ndarray, **options: Any) -> tuple[tc.Trace, np.ndarray]:
    """Run chains from the exact posterior; return z-scores of their mean and second moment."""
    mean = data.mean(dtype=np.float64) * WEIGHT / PRECISION
    starts = mean + np.random.default_rng(SEED).standard_normal(CHAINS) / np.sqrt(PRECISION)
    options = {"num_chains": CHAINS, "num_warmup": 20, "progress": False} | options
    trace = tc.sample(jax.random.key(SEED), kernel, starts.astype(np.float32), DRAWS, **options)
    centred = trace.position.astype(np.float64) - mean
    by_chain = np.stack([centred.mean(1), (centred**2).mean(1)], 1)
    truth = np.array([0.0, 1 / PRECISION])
    return trace, (by_chain.mean(0) - truth) / (by_chain.std(0, ddof=1) / np.sqrt(CHAINS))


@contextmanager
def no_warning() -> Generator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def agrees(z: np.ndarray) -> bool:
    return bool(np.all(np.abs(z) < Z_LIMIT))


# ---- heavy tails -------------------------------------------------------------------------------


def heavy_rows(freedom: float) -> np.ndarray:
    rows = np.random.default_rng(3).standard_t(freedom, NUM_ROWS)
    return rows / np.quantile(np.abs(rows), 0.6)


def test_heavy_tails_warn() -> None:
    """Student's with 2 degrees of freedom, without a variance: the log ratios of most batches miss the tail."""
    rows = heavy_rows(2.0)
    with pytest.warns(RuntimeWarning, match="A few rows carry the log ratio"):
        trace, _ = run(kernel_of(rows), rows)
    assert "WARNING" in str(trace.summary())


@pytest.mark.slow
def test_cauchy_rows_are_read_by_the_thousand_and_warn() -> None:
    """A tail like that shows in most batches, so that a good part of all rows is read; it is not enough."""
    rows = heavy_rows(1.0)
    with pytest.warns(RuntimeWarning, match="A few rows carry the log ratio"):
        trace, _ = run(kernel_of(rows), rows)
    assert trace.rows_read.mean() > 0.2 * len(rows)


def test_rows_with_a_variance_do_not_warn() -> None:
    rows = heavy_rows(5.0)
    with no_warning():
        _, z = run(kernel_of(rows), rows)
    assert agrees(z)


def exact_kernel(rows: np.ndarray) -> tc.MetropolisHastings:
    """MH-SS with the bound |x_i| + R on the slope of a row, within |t| <= R; beyond, every row is read."""
    reach = abs(rows.mean(dtype=np.float64)) + 6 / PRECISION**0.5
    constants = np.abs(rows) + reach
    bound = Bound(constants, 0, position=np.float32(0), radius=reach)
    source = partial(tc.WithReplacement, weights=constants)
    return kernel_of(rows, MHSS(), source=source, batch_size=16, scale=0.2, bound=bound)


@pytest.mark.parametrize("freedom", [2.0, pytest.param(1.0, marks=pytest.mark.slow)])
def test_an_exact_test_is_right_where_tails_are_heavy(freedom: float) -> None:
    """Rows without a variance, and rows without a mean; the scans above warn of them."""
    rows = heavy_rows(freedom)
    with no_warning():
        trace, z = run(exact_kernel(rows), rows)
    assert agrees(z)
    assert trace.rows_read.mean() < 100


# ---- one row in a million ----------------------------------------------------------------------


def one_large_row(num_rows: int = 1_000_000) -> np.ndarray:
    rows = np.random.default_rng(4).standard_normal(num_rows)
    rows[num_rows // 8] = num_rows / 2
    return rows


def test_one_row_that_carries_the_posterior_warns() -> None:
    """Without that row the posterior is elsewhere, which is where the chains go: only reading all rows can tell."""
    rows = one_large_row(100_000)
    with pytest.warns(RuntimeWarning, match="A few rows carry the log ratio"):
        _, z = run(kernel_of(rows), rows)
    assert not agrees(z)  # it IS wrong: the warning is due


def test_an_exact_test_sees_the_one_row() -> None:
    """It is drawn in proportion to its bound: half of all rows read are this one."""
    rows = one_large_row(100_000)
    with no_warning():
        trace, z = run(exact_kernel(rows), rows)
    assert agrees(z)
    assert trace.rows_read.mean() < 100


@pytest.mark.slow
def test_one_row_is_seen_by_the_audit() -> None:
    rows = one_large_row(100_000)
    kernel = kernel_of(rows)
    trace, _ = run(kernel, rows, scan=0)
    audit = tc.audit(kernel, trace, num_decisions=50, num_trials=64, progress=False)
    assert audit.is_error_found


@pytest.mark.slow
def test_one_row_read_at_every_decision_is_no_trouble() -> None:
    rows = one_large_row()
    with no_warning():
        trace, z = run(kernel_of(rows, source=partial(tc.Shuffled, exact=[125_000])), rows)
    assert agrees(z)
    assert trace.rows_read.mean() < 1000


def test_an_exact_test_takes_one_row_for_what_it_is() -> None:
    rows = one_large_row(2_000)
    with no_warning():
        _, z = run(kernel_of(rows, tc.Barker()), rows)
    assert agrees(z)


# ---- rows that are there many times ------------------------------------------------------------


@pytest.mark.parametrize("source", [tc.Shuffled, pytest.param(tc.WithReplacement, marks=pytest.mark.slow)])
def test_duplicated_rows_count_as_often_as_they_are_there(source: Any) -> None:
    """Nothing goes wrong: the posterior is that of the rows as given."""
    rows = np.repeat(np.random.default_rng(5).standard_normal(NUM_ROWS // 100), 100)
    with no_warning():
        _, z = run(kernel_of(rows, source=source), rows)
    assert agrees(z)


def test_rows_that_are_all_the_same() -> None:
    """No variance at all: the first rows say everything."""
    rows = np.ones(NUM_ROWS)
    with no_warning():
        _, z = run(kernel_of(rows), rows)
    assert agrees(z)


# ---- rows in an order --------------------------------------------------------------------------


def test_sorted_rows_are_shuffled() -> None:
    rows = np.sort(np.random.default_rng(6).standard_normal(NUM_ROWS))
    with no_warning():
        _, z = run(kernel_of(rows, source=lambda data, m: tc.Shuffled(data, m, windows=True)), rows)
    assert agrees(z)


def test_sorted_rows_in_a_source_that_does_not_shuffle_warn() -> None:
    rows = np.sort(np.random.default_rng(6).standard_normal(NUM_ROWS)).astype(np.float32)
    kernel = kernel_of(rows, source=lambda data, m: tc.Shuffled(data, m, windows=True))
    unshuffled = replace(kernel.source, data=jnp.asarray(np.concatenate([rows, rows[:8192]])))
    with pytest.warns(RuntimeWarning, match="vary .* times as much as they should"):
        _, z = run(replace(kernel, source=unshuffled), rows)
    assert not agrees(z)


# ---- several modes -----------------------------------------------------------------------------


def two_modes() -> tc.MetropolisHastings:
    """t^2 is what the rows tell: two modes at +-1, and steps far too short to cross between them."""
    data = np.random.default_rng(7).normal(1.0, 1.0, 20_000).astype(np.float32)
    posterior = tc.Posterior(lambda t: -(t**2) / 50, lambda t, x: -((x - t**2) ** 2) / 2, 50.0)
    return tc.MetropolisHastings(posterior, tc.Shuffled(data, 100), proposal=tc.RandomWalk(0.05))


@pytest.mark.parametrize("starts", ["both", pytest.param("one", marks=pytest.mark.slow)])
def test_several_modes(starts: str, key: jax.Array) -> None:
    """Chains that start apart disagree, and the summary says so; from one start it says that this cannot be seen."""
    initial = np.where(np.arange(8) % 2, 1.0, -1.0 if starts == "both" else 1.0).astype(np.float32)
    trace = tc.sample(key, two_modes(), initial, 200, num_chains=8, progress=False)
    told = str(trace.summary())
    assert "CHAINS DISAGREE" in told or (starts == "one" and "ONE START" in told)


# ---- rows that are impossible outside a support ------------------------------------------------


def uniform_rows() -> np.ndarray:
    return (3 * np.random.default_rng(8).random(NUM_ROWS)).astype(np.float32)


def uniform_kernel(support_in_prior: bool) -> tc.MetropolisHastings:
    """x_i ~ U(0, t): one row, the largest, decides whether t is possible."""
    rows = uniform_rows()
    least = rows.max() if support_in_prior else np.float32(0)
    posterior = tc.Posterior(
        lambda t: jnp.where(t >= least, 0.0, -jnp.inf),
        lambda t, x: -jnp.log(t) + (0.0 if support_in_prior else jnp.where(x <= t, 0.0, -jnp.inf)),
        NUM_ROWS / 100,
    )
    return tc.MetropolisHastings(posterior, tc.Shuffled(rows, 100), proposal=tc.RandomWalk(0.03))


def test_impossible_candidates_warn(key: jax.Array) -> None:
    with pytest.warns(RuntimeWarning) as caught:
        tc.sample(key, uniform_kernel(support_in_prior=False), 3.05, 60, num_chains=50, progress=False)
    told = " ".join(str(warning.message) for warning in caught)
    assert "candidates are impossible for a few rows" in told
    assert "log ratios were NaN or +inf" in told


def test_a_support_in_the_log_prior_is_right(key: jax.Array) -> None:
    """Then log(t / max x) is exponential with rate N/K - 1 = 99."""
    least = uniform_rows().max()
    starts = least * np.exp(np.random.default_rng(SEED).standard_exponential(CHAINS) / 99).astype(np.float32)
    with no_warning():
        trace = tc.sample(key, uniform_kernel(support_in_prior=True), starts, DRAWS, num_chains=CHAINS, progress=False)
    excess = np.log(trace.position.astype(np.float64) / least).mean(1)
    assert abs(excess.mean() - 1 / 99) < Z_LIMIT * excess.std() / np.sqrt(CHAINS)


# ---- batches of two ----------------------------------------------------------------------------


def test_a_batch_of_two_is_too_small_for_the_paper_s_rule() -> None:
    """Two rows that happen to be alike have no variance, so that they decide: wrongly."""
    rows = np.random.default_rng(9).standard_exponential(NUM_ROWS)
    with pytest.warns(RuntimeWarning, match="used fewer than 20 rows"):
        _, z = run(kernel_of(rows, tc.MinibatchBarker.paper(batch=2)), rows, scan=0)
    assert not agrees(z)


@pytest.mark.slow
def test_the_default_takes_a_larger_pilot_than_two() -> None:
    rows = np.random.default_rng(9).standard_exponential(NUM_ROWS)
    with no_warning():
        _, z = run(kernel_of(rows, tc.MinibatchBarker(batch=2)), rows)
    assert agrees(z)
