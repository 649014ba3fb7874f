"""JAX's settings: 64 bits and the search for NaN, by context and by environment, on one core and several."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

import tallchain as tc
from scenarios import normal_mean
from tallchain import runner

TARGET = normal_mean(4000)

PROGRAM = """
import os, jax, jax.numpy as jnp, numpy as np, tallchain as tc
if hasattr(os, "sched_setaffinity"):  # the test has one core, and this shall have them all
    os.sched_setaffinity(0, range(os.cpu_count()))
rows = np.random.default_rng(1).normal(0.5, 1.0, 4000)
def kernel(bad):
    def log_likelihood(t, x):
        return jnp.where(t > bad, jnp.nan, -((x - t) ** 2) / 2)
    posterior = tc.Posterior(lambda t: -(t**2) / 8, log_likelihood, 400.0)
    return tc.MetropolisHastings(posterior, tc.Shuffled(rows, 100), proposal=tc.RandomWalk(0.6))
trace = tc.sample(jax.random.key(0), kernel(1e9), 0.5, 20, num_chains=8, progress=False)
print(trace.position.dtype, trace.num_draws)
try:
    tc.sample(jax.random.key(0), kernel(2.5), 0.5, 5000, num_chains=8, chunk_size=1, progress=False)
except tc.SamplingError as error:
    print("a decision gave nan" in str(error), error.trace.num_draws > 0)
"""


def run(**settings: str) -> str:
    environment = os.environ | settings
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("x64", "dtype"), [("1", "float64"), pytest.param("0", "float32", marks=pytest.mark.slow)])
def test_search_for_nan_and_64_bits_by_environment(x64: str, dtype: str) -> None:
    """Ordinary input makes no NaN; the NaN of a model's own is an error, with the draws before it."""
    assert run(JAX_DEBUG_NANS="1", JAX_ENABLE_X64=x64).split() == [dtype, "20", "True", "True"]


@pytest.mark.parametrize("num_chains", [pytest.param(1, marks=pytest.mark.slow), 8])
def test_64_bits_by_context(key: jax.Array, num_chains: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of several cores have not entered it."""
    monkeypatch.setattr(runner, "num_groups", lambda count: min(count, 2))
    with jax.enable_x64(True):
        kernel: Any = tc.MetropolisHastings(
            TARGET.posterior, tc.Shuffled(TARGET.data, 100), proposal=tc.RandomWalk(0.6)
        )
        trace = tc.sample(key, kernel, 0.5, 20, num_chains=num_chains, progress=False)
    assert trace.position.dtype == np.float64
    assert trace.num_draws == 20
