"""Shared by all tests: the seed, and its override; how programs are compiled; fixtures."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

gc.set_threshold(100_000, 50, 100)  # JAX makes many objects that live long: a tenth of the time of the tests

SEED = int(os.environ.get("TALLCHAIN_TEST_SEED", "20170811"))

if os.environ.get("TALLCHAIN_TEST_COMPILE") == "quick":  # before JAX is imported
    flags = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
    if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # XLA ends the process at a flag it does not know
        flags.append("--xla_cpu_use_fusion_emitters=false")
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags]).strip()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # workers, and processes that tests start, share what takes long
        os.environ["JAX_COMPILATION_CACHE_DIR"] = PROGRAMS = tempfile.mkdtemp(prefix="tallchain-test-")
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
        atexit.register(shutil.rmtree, PROGRAMS, ignore_errors=True)

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw")[2:]
if WORKER and hasattr(os, "sched_setaffinity"):  # a core for each: threads that wait for each other take a sixth more
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(WORKER) % len(cores)]})

import jax  # noqa: E402
import pytest  # noqa: E402

if TYPE_CHECKING:
    from tallchain.checking import Audit


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_is_heard() -> None:
    """A shell that starts the tests in the background has them ignore it, and some of them send it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def key() -> jax.Array:
    return jax.random.key(SEED)


@pytest.fixture
def table_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for computed correction tables of the test's own."""
    monkeypatch.setenv("TALLCHAIN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_solving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever correction table is not read from a file fails."""
    from tallchain.acceptance import correction

    def refuse(*_: object) -> None:
        pytest.fail("computed a table that should have been read")

    monkeypatch.setattr(correction, "compute_minimax", refuse)
    monkeypatch.setattr(correction, "compute_ridge", refuse)
    monkeypatch.setattr(correction, "compute_for_law", refuse)


@pytest.fixture(scope="session")
def sound() -> Audit:
    """An audit of a test without error."""
    from audits import scaled_audit

    return scaled_audit(1.0)


@pytest.fixture(scope="session")
def broken() -> Audit:
    """An audit of a test with the wrong temperature inside."""
    from audits import scaled_audit

    return scaled_audit(1.1)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a table are smaller than the data."""
    from tallchain.formulas import arrangement
    from tallchain.tables import table

    monkeypatch.setattr(table, "BLOCK", 97)
    monkeypatch.setattr(arrangement, "_ROWS", 31)
