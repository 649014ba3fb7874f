"""Rows on several devices: the same draws on one device and on four, and from the right posterior."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from test_packed import PARTS, ROWS, Collected, blocks, drawn, folder, numbers, z_of

import tallchain as tc
from conftest import SEED
from tallchain.models import Regression, families
from tallchain.sources import Sharded

__all__ = ["blocks", "folder"]


def model() -> Regression:
    random = np.random.default_rng(SEED)
    x, group = random.normal(size=(6000, 2)), random.integers(0, 20, 6000)
    y = random.random(6000) < 1 / (1 + np.exp(-(0.5 * x[:, 0] + random.normal(0, 0.6, 20)[group])))
    return Regression(families.Bernoulli(), y=y, x=x, groups={"g": group})


def mixed(source: Any, regression: Regression) -> tc.Trace:
    prepared = tc.prepare(regression, source, progress=False)
    starts = prepared.starts(jr.key(1), 16)
    return tc.sample(jr.key(2), prepared.kernel(), starts, 400, num_chains=16, num_warmup=50, progress=False)


def test_draws_are_from_the_posterior() -> None:
    source = Sharded(numbers(), PARTS, seed=SEED)
    trace = drawn(source)
    assert max(map(abs, z_of(trace))) < 4
    assert "travelled between 4 parts" in " ".join(trace.notes)


def test_a_sweep_has_every_row_once() -> None:
    source, seen = Sharded({"number": np.arange(ROWS, dtype=np.int32)}, 7), []

    def keep(_: Any, found: Any) -> None:
        index, is_valid, rows = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1), found)
        seen.append((index[is_valid], rows["number"][is_valid]))

    source.sweep(Collected(), keep)
    index, number = (np.concatenate(each) for each in zip(*seen, strict=True))
    np.testing.assert_array_equal(index, np.arange(ROWS))
    np.testing.assert_array_equal(np.sort(number), np.arange(ROWS))


@pytest.mark.slow
def test_a_mixed_model_is_that_of_all_rows() -> None:
    regression = model()
    shards, whole = (
        mixed(source, regression) for source in (Sharded(regression.data, 2), tc.Shuffled(regression.data, 50))
    )
    for name, draws in shards.variables().items():
        its = whole.variables()[name]
        means, errors = zip(*((of.mean((0, 1)), of.mean(1).std(0, ddof=1) / 4) for of in (draws, its)), strict=True)
        assert np.all(np.abs(means[0] - means[1]) < 5 * np.hypot(*errors)), name


@pytest.mark.parametrize("what", ["plain", pytest.param("mixed", marks=pytest.mark.slow)])
def test_four_devices_give_the_draws_of_one(what: str, tmp_path: Path, folder: Path) -> None:
    """In a process that simulates them, from arrays and from a packed table; or a mixed model."""
    code = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parents[1]), str(Path(__file__).parent)]!r}
import jax, numpy as np, test_sharded
assert len(jax.devices()) == 4
source = test_sharded.Sharded(test_sharded.numbers(), 4)
assert len({{source.held.device(part) for part in range(4)}}) == 4
np.savez({str(tmp_path / "four.npz")!r}, *test_sharded.positions({what!r}, {str(folder)!r}))
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | flags)
    with np.load(tmp_path / "four.npz") as four:
        for mine, its in zip(positions(what, folder), four.values(), strict=True):
            np.testing.assert_array_equal(mine, its)


def positions(what: str, packed: str | Path) -> list[np.ndarray]:
    if what == "mixed":
        regression = model()
        return list(mixed(Sharded(regression.data, PARTS), regression).variables().values())
    sources = Sharded(numbers(), PARTS, seed=SEED), Sharded(packed, PARTS, columns="y")
    return [np.asarray(drawn(source).position) for source in sources]


@pytest.mark.slow
def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    source = Sharded(numbers(), PARTS, seed=SEED)

    def stop(done: int, total: int) -> None:
        if done > 0.4 * total:
            raise KeyboardInterrupt

    drawn(source, checkpoint=tmp_path / "run", progress=stop, chunk_size=16)
    again = drawn(Sharded(numbers(), PARTS, seed=SEED), checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(again.position, drawn(source).position)


def test_what_chains_carry_goes_with_them_to_the_next_part() -> None:
    """Momentum and thermostat of a dynamics: where all rows are alike, parts make no difference."""
    posterior = tc.Posterior(lambda mean: jnp.zeros(()), lambda mean, y: -((y - mean) ** 2) / 8)
    found = []
    for parts in (1, 4):
        source = Sharded(np.ones(2000, np.float32), parts)
        dynamics = tc.StochasticGradient(posterior, source, tc.stochastic.SGNHT(1e-3), 50)
        found.append(tc.sample(jr.key(SEED), dynamics, jnp.float32(1.0), 80, num_chains=4, progress=False).position)
    np.testing.assert_allclose(*found, rtol=1e-4)
    assert np.std(found) > 0


def test_bad_arguments_are_refused() -> None:
    for options, words in (
        ({"parts": 0}, "multiple of the number of devices"),
        ({"parts": ROWS + 1}, "only 20,003 rows"),
        ({"devices": []}, "must have a device"),
        ({"seed": -1}, "whole number"),
        ({"columns": "y"}, "goes with a packed table"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            Sharded(numbers(), **options)
    with pytest.raises(ValueError, match="must be a multiple of 4"):
        drawn(Sharded(numbers(), PARTS), num_chains=30)
