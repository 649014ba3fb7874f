"""Decisions on given rows."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import random as jr

from conftest import SEED
from studies.combined.fixed import DELTAS, decide
from tallchain.acceptance import MinibatchBarker

BATCH, ROWS, DECISIONS = 50, 400, 20


def rows_needed(rows: np.ndarray) -> int:
    """The first multiple of the batch at which the variance of the mean is below 1."""
    sizes = range(BATCH, len(rows) + 1, BATCH)
    return next(size for size in sizes if rows[:size].var(ddof=1) / size < 1)


def test_decisions_read_the_given_rows_in_order_until_there_are_no_more() -> None:
    rows = np.sqrt(150) * np.random.default_rng(SEED).standard_normal((DECISIONS, ROWS)).astype(np.float32)
    rows[0] *= 10  # these are not enough
    test = MinibatchBarker(stopping="growth", skew=False)
    decided = decide(test, jr.split(jr.key(SEED), DECISIONS), jnp.asarray(rows), BATCH)
    assert decided.rows_read.shape == (2, len(DELTAS), DECISIONS)
    assert decided.is_undecided[..., 0].all()
    assert not decided.is_accepted[..., 0].any()
    assert not decided.is_undecided[..., 1:].any()
    needed = [rows_needed(each) for each in rows[1:]]
    assert len(set(needed)) > 1  # else any order would do
    np.testing.assert_array_equal(decided.rows_read[..., 1:], np.broadcast_to(needed, (2, len(DELTAS), DECISIONS - 1)))
    forward = decided.is_accepted[0].mean(1)
    assert forward[0] < 0.4
    assert forward[-1] > 0.6
