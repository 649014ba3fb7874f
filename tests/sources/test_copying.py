"""The copy a source holds: whose it is, in which order, and what memory it takes to make."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from registry import SOURCES
from tallchain.sources import Shuffled, copying

NUM_ROWS = 1000
COLUMNS = {
    "column": np.arange(NUM_ROWS, dtype=np.float32),
    "integers": np.arange(NUM_ROWS),
    "narrow": np.arange(3 * NUM_ROWS, dtype=np.float64).reshape(NUM_ROWS, 3),
    "wide": np.arange(20 * NUM_ROWS, dtype=np.float32).reshape(NUM_ROWS, 2, 10),
    "strided": np.arange(4 * NUM_ROWS).reshape(2 * NUM_ROWS, 2)[::-2, 1],
    "leaves": {"x": np.arange(NUM_ROWS), "is": np.arange(NUM_ROWS) % 3 == 0, "none": np.zeros((NUM_ROWS, 0))},
    "jax": {"x": jnp.arange(NUM_ROWS), "y": jnp.arange(NUM_ROWS) / 8},
}


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_the_order_is_that_of_numpys_permutation(name: str, windows: bool) -> None:
    data = COLUMNS[name]
    order = np.random.default_rng(7).permutation(NUM_ROWS)
    order = np.concatenate([order, order]) if windows else order
    held = Shuffled(data, 10, seed=7, windows=windows).data

    def check(mine: jax.Array, leaf: Any) -> None:
        assert mine.dtype == jax.dtypes.canonicalize_dtype(leaf.dtype)
        np.testing.assert_array_equal(mine, np.asarray(leaf)[order])

    jax.tree.map(check, held, data)


def test_exact_rows_and_copies_keep_the_order() -> None:
    data, exact = np.arange(50, dtype=np.float32), np.array([40, 3])
    copies = 1 + np.arange(50) % 3
    source = Shuffled(data, 10, seed=2, windows=False).reweighted(exact, copies)
    slots = np.repeat(np.setdiff1d(np.arange(50), exact), copies[np.setdiff1d(np.arange(50), exact)])
    order = np.concatenate([exact, slots[np.random.default_rng(2).permutation(len(slots))]])
    assert source.share is not None
    np.testing.assert_array_equal(source.data, data[order])
    np.testing.assert_array_equal(source.share, np.where(np.arange(len(order)) < 2, 1, 1 / copies[order]).astype("f4"))


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("offset", [0, 16])
def test_what_is_written_to_a_large_array_afterwards_does_not_get_in(name: str, offset: int) -> None:
    """At whatever address: JAX alone copies arrays of this size in the background, if they are not aligned."""
    memory = np.zeros(2**26 + 128, np.uint8)
    first = -memory.ctypes.data % 64 + offset
    data = memory[first : first + 2**26].view(np.float32).reshape(-1, 64)
    source = SOURCES[name](data, 5)
    data[::-1] = 1
    assert not np.any(source.data)


# ---- memory ------------------------------------------------------------------------------------

MEASURE = """
import gc, sys
import numpy as np, jax
from tallchain.sources import Shuffled, WithReplacement

def megabytes(name):
    return next(int(line.split()[1]) / 1000 for line in open("/proc/self/status") if line.startswith(name))

for data, make in zip(sys.argv[1::2], sys.argv[2::2]):
    data, make = eval(data), eval(make)
    make(data[:100_000])  # what NumPy and JAX take for themselves
    gc.collect()
    open("/proc/self/clear_refs", "w").write("5")  # forget the peak
    before = megabytes("VmRSS:")
    source = make(data)
    jax.block_until_ready(source.data)
    print(megabytes("VmHWM:") - before, megabytes("VmRSS:") - before)
    del source
"""
"""Prints the megabytes that making a source takes at the most, and in the end."""

SIZE = 32  # megabytes
ROWS_OF_20, ROWS_OF_1 = SIZE * 10**6 // 80, SIZE * 10**6 // 4
MEMORY = {
    "matrix": (f"np.ones(({ROWS_OF_20}, 20), np.float32)", "lambda data: Shuffled(data, 100)", 1.4),
    "one column": (f"np.ones({ROWS_OF_1}, np.float32)", "lambda data: Shuffled(data, 100)", 1.4),
    "64 bits": (f"np.ones(({ROWS_OF_20}, 20))", "lambda data: Shuffled(data, 100)", 1.4),
    "exact rows": (f"np.ones(({ROWS_OF_20}, 20), np.float32)", "lambda data: Shuffled(data, 100, exact=[3])", 1.5),
    "with replacement": (f"np.ones(({ROWS_OF_20}, 20))", "lambda data: WithReplacement(data, 100)", 1.4),
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_source_takes_little_more_memory_than_its_copy() -> None:
    calls = [word for data, make, _ in MEMORY.values() for word in (data, make)]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "100000"}  # what is freed goes back at once
    command = [sys.executable, "-c", MEASURE, *calls]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    for (name, (_, _, most)), line in zip(MEMORY.items(), done.stdout.splitlines(), strict=True):
        peak, after = (float(word) / SIZE for word in line.split())
        assert 0.8 < after <= peak < most, f"{name}: {peak:.2f} times the data, in the end {after:.2f}"


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("is_wide", [False, True])
def test_very_many_rows_come_in_the_order_of_a_keyed_permutation(
    dtype: str, is_wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the order is evaluated on the host in parts, or at once on a device."""
    monkeypatch.setattr(copying, "_KEYED", 500)
    monkeypatch.setattr(copying, "_PLACES", 64)
    monkeypatch.setattr(copying, "_GATHERED", 1500)
    rows = {"x": np.arange(1000, dtype=dtype)}
    if is_wide:
        rows["y"] = np.tile(np.arange(1000, dtype=dtype)[:, None], 7)
    source = Shuffled(rows, 50, seed=3, windows=True)
    order = source.order()
    assert order is not None
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.15
    for name, leaf in rows.items():
        np.testing.assert_array_equal(source.data[name][:1000], leaf[order])
        np.testing.assert_array_equal(source.data[name][1000:], source.data[name][: len(source.data[name]) - 1000])
    np.testing.assert_array_equal(copying._Places(1000, 3).all(1100), np.concatenate([order, order[:100]]))
    other = Shuffled(rows, 50, seed=4).order()
    assert other is not None
    assert (other != order).mean() > 0.9
    weighed = source.reweighted(exact=[5, 17], copies=np.where(np.arange(1000) % 2, 1, 2))
    kept = np.asarray(weighed.data["x"])
    np.testing.assert_array_equal(kept[:2], [5, 17])
    values, counts = np.unique(kept[2 : 2 + weighed.num_rows], return_counts=True)
    np.testing.assert_array_equal(counts, np.where(values % 2, 1, 2))
