"""Close to 2^31 rows: nothing overflows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

from conftest import SEED
from tallchain.parts import replace
from tallchain.sources import Shuffled, shuffled
from tallchain.types import Ask

REACH = 2**31 - 1


def virtual(monkeypatch: pytest.MonkeyPatch, num_rows: int, *, windows: bool) -> Shuffled:
    """A shuffled source of very many rows that are their own places in storage: nothing is held in memory."""

    def slice_of(leaf: jax.Array, start: jax.Array, width: int) -> jax.Array:
        return start.astype(jnp.uint32) + jnp.arange(width, dtype=jnp.uint32)

    monkeypatch.setattr(shuffled.lax, "dynamic_slice_in_dim", slice_of)
    monkeypatch.setattr(shuffled, "take_rows", lambda stored, index: (index.astype(jnp.uint32), None))
    return replace(Shuffled(np.zeros(2, np.int32), 1, windows=windows), num_rows=num_rows)


def look_from(source: Shuffled, positions: np.ndarray, width: int, *, is_census: bool = False) -> tuple[Any, Any]:
    """Where the window at each position starts in storage, and the position after it, under four keys."""

    def one(key: jax.Array, position: jax.Array) -> tuple[jax.Array, jax.Array]:
        cursor = source.start(source.draw(key))._replace(position=position)
        ask = Ask(jnp.int32(width), census=jnp.bool(is_census))
        after, seen = source.look(cursor, ask, width, lambda row: row, lambda values, is_valid: values[0])
        return seen.evidence, after.position

    over_keys = jax.vmap(jax.vmap(one, (None, 0)), (0, None))
    first, after = jax.jit(over_keys)(jr.split(jr.key(SEED), 4), jnp.asarray(positions, jnp.int32))
    return np.asarray(first, np.int64), np.asarray(after, np.int64)


@pytest.mark.parametrize("num_rows", [REACH, 2**30 + 3])
def test_windows_of_very_many_rows_do_not_overflow(num_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    width = 8192
    source = virtual(monkeypatch, num_rows, windows=True)
    whole = num_rows // width
    number = np.unique(np.linspace(0, whole - 1, 1000).astype(np.int64))
    places, after = look_from(source, np.concatenate([number * width, number * width + 17, [whole * width]]), width)
    first, inner, last = np.split(places, [len(number), 2 * len(number)], axis=1)
    # The rows left over begin where the rotation and all whole windows before them say; the rest follows from that.
    rotation = (last - whole * width) % num_rows
    ahead = (first - rotation) % num_rows
    assert places.min() >= 0
    assert places.max() < num_rows
    assert len(np.unique(rotation)) == 4
    assert np.all(ahead % width == 0)
    assert np.all(ahead // width < whole)
    assert all(len(np.unique(each)) == len(number) for each in ahead)
    np.testing.assert_array_equal(inner, (first + 17) % num_rows)
    np.testing.assert_array_equal(after[:, -1], 0)


@pytest.mark.parametrize("windows", [True, False])
def test_a_census_of_very_many_rows_does_not_overflow(windows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    source = virtual(monkeypatch, REACH, windows=windows)
    positions = np.array([0, 8192, 8192 * (REACH // 16_384), REACH - 8191, REACH - 1])
    first, after = look_from(source, positions, 8192, is_census=True)
    np.testing.assert_array_equal(first, np.broadcast_to(positions, first.shape))
    np.testing.assert_array_equal(after, np.broadcast_to([*(positions[:3] + 8192), 0, 0], after.shape))


def test_gathering_from_very_many_rows_does_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    source = virtual(monkeypatch, REACH, windows=False)
    spread = np.linspace(0, REACH - 1, 2000).astype(np.int64)
    positions = np.unique(np.concatenate([spread, REACH - np.arange(1, 10)]))
    first, after = look_from(source, positions, 8)
    assert first.min() >= 0
    assert first.max() < REACH
    assert all(len(np.unique(each)) == len(positions) for each in first)
    np.testing.assert_array_equal(after[0], np.where(positions + 8 >= REACH, 0, positions + 8))
