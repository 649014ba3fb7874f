"""Shared by all tests: the seed, and its override; and how programs are compiled."""

import gc
import os
import signal
from importlib.metadata import version

gc.set_threshold(100_000, 50, 100)  # JAX makes many objects that live long: a tenth of the time of the tests

SEED = int(os.environ.get("TALLCHAIN_TEST_SEED", "20170811"))

if os.environ.get("TALLCHAIN_TEST_COMPILE") == "quick":  # before JAX is imported
    flags = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
    if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # XLA ends the process at a flag it does not know
        flags.append("--xla_cpu_use_fusion_emitters=false")
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags]).strip()

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw")[2:]
if WORKER and hasattr(os, "sched_setaffinity"):  # a core for each: threads that wait for each other take a sixth more
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(WORKER) % len(cores)]})

import jax  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_is_heard() -> None:
    """A shell that starts the tests in the background has them ignore it, and some of them send it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def key() -> jax.Array:
    return jax.random.key(SEED)
