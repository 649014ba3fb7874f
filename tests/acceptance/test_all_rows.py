"""Decisions for which no number of rows below N is enough."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import SEED
from tallchain import MetropolisHastings, Posterior, Shuffled, WithReplacement
from tallchain.acceptance import Combined, MinibatchBarker, Penalty
from tallchain.kernel import State
from tallchain.proposals import Fixed

decide = jax.jit(jax.vmap(lambda kernel, key: kernel.step(key, State(jnp.float32(0)))[1], (None, 0)))


@pytest.mark.parametrize(
    "acceptance",
    [
        MinibatchBarker(stopping="stein"),
        Combined(),
        pytest.param(MinibatchBarker(), marks=pytest.mark.slow),
        pytest.param(MinibatchBarker(stopping="pilot"), marks=pytest.mark.slow),
    ],
)
def test_where_rows_repeat_a_decision_that_takes_them_all_is_exact(acceptance, key: jax.Array) -> None:
    """400 rows of standard deviation 60 for a log ratio of -2: no number of them below N is enough."""
    rows = np.random.default_rng(SEED).normal(0, 60, 400)
    rows = jnp.asarray(rows - rows.mean() - 2, jnp.float32) / 400
    posterior = Posterior(lambda t: 0.0 * t, lambda t, row: t * row)
    kernel = MetropolisHastings(
        posterior, WithReplacement(rows, 20), proposal=Fixed(jnp.float32(1)), acceptance=acceptance
    )
    verdict = decide(kernel, jax.random.split(key, 4000))
    share, exact = float(verdict.is_accepted.mean()), 1 / (1 + np.exp(2))
    assert abs(share - exact) < 4.5 * np.sqrt(exact * (1 - exact) / 4000)
    assert verdict.rows_read.max() <= 3 * 400


@pytest.mark.parametrize(
    "acceptance",
    [
        Penalty(),
        pytest.param(Penalty(stopping="pilot"), marks=pytest.mark.slow),
        MinibatchBarker(),
        pytest.param(Combined(), marks=pytest.mark.slow),
    ],
)
def test_fresh_rows_that_overflow_after_a_pilot_that_did_not_take_all_rows(acceptance, key: jax.Array) -> None:
    """Two rows in a thousand are of 1e25 and cancel: a batch that has one of them knows nothing."""
    rows = np.random.default_rng(SEED).normal(0, 1, 1000)
    rows[:2] = 1e22, -1e22
    posterior = Posterior(lambda t: 0.0 * t, lambda t, row: t * row, temperature=0.001)
    source = Shuffled(rows.astype(np.float32), 20)
    kernel = MetropolisHastings(posterior, source, proposal=Fixed(jnp.float32(1)), acceptance=acceptance)
    verdict = jax.tree.map(np.asarray, decide(kernel, jax.random.split(key, 500)))
    is_large = np.abs(verdict.log_ratio) > 1e20
    assert not (is_large & (verdict.rows_read < 1000)).any()
