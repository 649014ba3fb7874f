"""How the mean of a batch of rows varies."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax import random as jr

from conftest import SEED
from registry import SOURCES
from tallchain.acceptance.evidence import Moments
from tallchain.sources import Shuffled, WithReplacement
from tallchain.types import Ask

Z_LIMIT = 4.5
NUM_KEYS = 20_000
POPULATION = np.random.default_rng(1).exponential(size=43).astype(np.float32)
MEAN, VARIANCE = POPULATION.mean(dtype=float), POPULATION.var(ddof=1, dtype=float)


@partial(jax.jit, static_argnames=("rows", "width"))
def batch_means(source: Any, keys: jax.Array, rows: int, width: int) -> jax.Array:
    """The mean of the first `rows` rows under every key."""

    def one(key: jax.Array) -> jax.Array:
        def look(_: int, carry: Any) -> Any:
            cursor, moments, left = carry
            cursor, seen = source.look(cursor, Ask(left), width, lambda row: row, Moments.of)
            return cursor, moments.merge(seen.evidence), left - seen.taken

        start = source.start(source.draw(key)), Moments.empty(), jnp.int32(rows)
        return lax.fori_loop(0, -(-rows // width), look, start)[1].mean

    return jax.vmap(one)(keys)


def z_of_mean(values: np.ndarray, truth: float) -> float:
    return (values.mean() - truth) / (values.std(ddof=1) / np.sqrt(len(values)))


def squared_errors(source: Any, rows: int, width: int, seed: int = SEED, num_keys: int = NUM_KEYS) -> np.ndarray:
    """Their mean is the variance of the mean of a batch."""
    means = batch_means(source, jr.split(jr.key(seed), num_keys), rows, width)
    return (np.asarray(means, float) - MEAN) ** 2


BATCHES = pytest.mark.parametrize(("rows", "width"), [(21, 21), (25, 10), (42, 20)])


@pytest.mark.parametrize("name", SOURCES)
@BATCHES
def test_the_mean_of_a_batch_is_unbiased(name: str, rows: int, width: int) -> None:
    means = batch_means(SOURCES[name](POPULATION, 5), jr.split(jr.key(SEED), NUM_KEYS), rows, width)
    assert abs(z_of_mean(np.asarray(means, float), MEAN)) < Z_LIMIT


@BATCHES
def test_the_variance_of_a_batch_row_by_row_has_the_finite_population_factor(rows: int, width: int) -> None:
    errors = squared_errors(Shuffled(POPULATION, 5, windows=False), rows, width)
    assert abs(z_of_mean(errors, VARIANCE / rows * (1 - rows / 43))) < Z_LIMIT
    assert abs(z_of_mean(errors, VARIANCE / rows)) > Z_LIMIT


@BATCHES
def test_the_variance_of_a_batch_with_replacement_has_no_factor(rows: int, width: int) -> None:
    errors = squared_errors(WithReplacement(POPULATION, 5), rows, width)
    variance = POPULATION.var(dtype=float)  # of one row drawn from all
    assert abs(z_of_mean(errors, variance / rows)) < Z_LIMIT
    assert abs(z_of_mean(errors, variance / rows * (1 - rows / 43))) > Z_LIMIT


@BATCHES
def test_the_variance_of_windows_is_right_on_average_over_shuffles(rows: int, width: int) -> None:
    errors = [
        squared_errors(Shuffled(POPULATION, 5, seed=seed, windows=True), rows, width, SEED + seed, num_keys=500).mean()
        for seed in range(300)
    ]
    assert abs(z_of_mean(np.array(errors), VARIANCE / rows * (1 - rows / 43))) < Z_LIMIT
    assert abs(z_of_mean(np.array(errors), VARIANCE / rows)) > Z_LIMIT
