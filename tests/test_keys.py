"""Keys of every implementation give each chain and each draw numbers of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

from tallchain import MetropolisHastings, Posterior, RandomWalk, Shuffled, WithReplacement, prepare, sample
from tallchain.keys import as_threefry, make_key

ROWS = np.random.default_rng(1).normal(size=500).astype(np.float32)
POSTERIOR = Posterior(lambda t: -(t**2) / 2, lambda t, row: -1e-4 * (row - t) ** 2)


@pytest.mark.parametrize("implementation", ["rbg", "unsafe_rbg"])
def test_no_number_comes_twice(implementation: str) -> None:
    kernel = MetropolisHastings(POSTERIOR, WithReplacement(ROWS, 50), proposal=RandomWalk(1.0))
    options = {"num_chains": 8, "scan": 0, "progress": False}
    trace = sample(jr.key(7, impl=implementation), kernel, jnp.float32(0), 40, **options)
    moves = trace.position[:, 1:][trace.is_accepted[:, 1:]]
    assert len(np.unique(moves)) == moves.size > 100
    again = sample(jr.key(7, impl=implementation), kernel, jnp.float32(0), 40, chunk_size=7, **options)
    np.testing.assert_array_equal(trace.position, again.position)


def test_threefry_keys_stay() -> None:
    key = jr.key(3, impl="threefry2x32")
    assert as_threefry(key) is key
    np.testing.assert_array_equal(jr.key_data(as_threefry(jr.PRNGKey(3))), jr.key_data(key))


def test_different_keys_of_another_kind_stay_different() -> None:
    data = [tuple(np.asarray(jr.key_data(as_threefry(jr.key(seed, impl="rbg"))))) for seed in range(50)]
    assert len(set(data)) == 50


def test_the_default_implementation_has_no_part_in_our_own_keys() -> None:
    with jax.default_prng_impl("rbg"):
        assert jr.key_impl(make_key(0)) == "threefry2x32"
        prepared = prepare(POSTERIOR, ROWS, jnp.float32(0.1), progress=False)
        starts = prepared.starts(jr.key(0), 64)
        kernel = MetropolisHastings(POSTERIOR, Shuffled(ROWS, 50), proposal=RandomWalk(1.0))
        _, verdict = jax.jit(kernel.step)(jr.PRNGKey(0), kernel.init(jnp.float32(0)))
    assert len(np.unique(starts)) == 64
    assert np.isfinite(verdict.log_ratio)


@pytest.mark.parametrize("seed", [0, 2**31, 2**32 - 1, 2**32 + 7, 2**63 - 1, np.int8(5), np.int32(7), np.uint32(2**31)])
@pytest.mark.parametrize("x64", [False, True])
def test_the_key_of_a_seed_is_jaxs(seed: Any, x64: bool) -> None:
    with jax.enable_x64(x64):
        expected = jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))
        np.testing.assert_array_equal(jax.random.key_data(make_key(seed)), expected)
    with pytest.raises(ValueError, match="64 bits"):
        make_key(2**63)
