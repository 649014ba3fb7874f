"""Numbers on the host."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

from tallchain.arrays import inverse_of_lower, once


@pytest.mark.parametrize("size", [1, 2, 3, 20, 61])
@pytest.mark.parametrize("spread", [0, 12])
def test_inverses_of_triangular_matrices_are_scipys(size: int, spread: int) -> None:
    random = np.random.default_rng(0)
    rows, columns = 10.0 ** random.uniform(-spread, spread, (2, size))
    well = np.tril(random.normal(size=(size, size)) / size) + np.diag(random.uniform(1, 2, size))
    found = inverse_of_lower(rows[:, None] * well * columns)
    expected = linalg.solve_triangular(well, np.eye(size), lower=True) / rows / columns[:, None]
    np.testing.assert_allclose(found * rows * columns[:, None], expected * rows * columns[:, None], atol=1e-13)
    assert np.array_equal(found, np.tril(found))


@pytest.mark.parametrize("most", [2**24, 2**31 - 1])
def test_numbers_that_are_computed_once_stay_as_they_are(most: int) -> None:
    values = np.random.default_rng(0).integers(0, most, 1000, endpoint=True).astype(np.int32)
    values[:4] = 0, 1, most - 1, most
    assert np.array_equal(jax.jit(lambda x: once(x, most))(jnp.asarray(values)), values)


def test_what_is_computed_once_is_not_fused_into_what_uses_it() -> None:
    """Two look-ups of an index that takes a while: without `once`, it is computed in both of them."""

    def looked_up(table: jax.Array, x: jax.Array, *, is_once: bool) -> tuple[jax.Array, jax.Array]:
        index = (x * 7919 ^ (x << 3)) & 1023
        index = once(index, 1023) if is_once else index
        return jnp.take(table[0], index, mode="clip"), jnp.take(table[1], index, mode="clip")

    table, x = jnp.zeros((2, 1024)), jnp.arange(4096, dtype=jnp.int32)
    counts = [
        jax.jit(looked_up, static_argnames="is_once")
        .lower(table, x, is_once=is_once)
        .compile()
        .as_text()
        .count(" xor(")
        for is_once in (False, True)
    ]
    assert counts == [2, 1] or jax.default_backend() != "cpu"
