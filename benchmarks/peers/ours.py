"""tallchain: the kernels that `tc.prepare` makes, with either test."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

import tallchain as tc
from benchmarks.peers.problem import Problem, Run
from tallchain.prepare import Prepared

CHUNK = 128  # draws per dispatch
WARMUP, WALK_WARMUP = 20, 200


def log_prior(t: jax.Array) -> jax.Array:
    """N(0, 1)."""
    return -0.5 * jnp.sum(t**2)


def log_likelihood(t: jax.Array, row: dict[str, jax.Array]) -> jax.Array:
    """Logistic regression."""
    return jax.nn.log_sigmoid((2 * row["y"] - 1) * jnp.dot(row["x"], t))


GENERIC = tc.Posterior(log_prior, log_likelihood)


def draw_ours(
    key: jax.Array, kernel: tc.MetropolisHastings, starts: np.ndarray, draws: int, warmup: int = 0
) -> tc.Trace:
    """Sample without the scan and without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return tc.sample(
            key,
            kernel,
            starts,
            draws,
            num_chains=len(starts),
            num_warmup=warmup,
            scan=0,
            progress=False,
            chunk_size=CHUNK,  # one program, however many draws
        )


class Ours:
    """`tc.prepare`, then `tc.sample`.

    Args:
        problem: the target; its mode is not used, `tc.prepare` finds its own.
        chains: in lockstep.
        warmup: for peers; ours has nothing to adapt, and starts in the Laplace approximation.
        acceptance: the test; None for the one that `prepare` chooses.
        is_walking: use a random walk in place of the proposal that `prepare` chooses.
        is_generic: with functions of our own, of which tallchain knows nothing, in place of a `Regression`.
        options: of `tc.prepare`.
    """

    def __init__(
        self,
        problem: Problem,
        chains: int,
        warmup: int,
        *,
        acceptance: Callable[[], Any] | None = None,
        is_walking: bool = False,
        is_generic: bool = False,
        **options: Any,
    ) -> None:
        self.problem, self.chains = problem, chains
        self._posterior = GENERIC if is_generic else problem.target.model.posterior
        self._acceptance, self._is_walking, self._options = acceptance, is_walking, options
        self._draws_per_second = 0.0

    def prepare(self, key: jax.Array) -> dict[str, float]:
        """Find the mode, score the rows, make the source, compile, warm up."""
        began = time.perf_counter()
        model = self.problem.target.model
        start = jnp.zeros(self.problem.target.d)
        self.prepared: Prepared = tc.prepare(self._posterior, model.data, start, progress=False, **self._options)
        prepared = time.perf_counter()
        proposal = tc.RandomWalk.preconditioned(self.prepared.laplace) if self._is_walking else None
        test = None if self._acceptance is None else self._acceptance()
        self._kernel = jax.block_until_ready(self.prepared.kernel(test, proposal))
        made = time.perf_counter()
        starts, walk = jr.split(key)
        warmup = WALK_WARMUP if self._is_walking else WARMUP
        trace = draw_ours(walk, self._kernel, np.asarray(self.prepared.starts(starts, self.chains)), 4, warmup)
        self._at = trace.position[:, -1]
        done = time.perf_counter()
        return {
            "mode": self.prepared.reference.seconds,
            "scores": prepared - began - self.prepared.reference.seconds,
            "source": made - prepared,
            "compilation": trace.compile_seconds,
            "warmup": done - made - trace.compile_seconds,
        }

    def run(self, key: jax.Array, seconds: float) -> Run:
        """Draw as many as the pace of the last run allows: short runs are slower, and the first one is short."""
        draws = max(16, int(seconds * self._draws_per_second))
        began = time.perf_counter()
        trace = draw_ours(key, self._kernel, self._at, draws)
        seconds = time.perf_counter() - began
        self._at, self._draws_per_second = trace.position[:, -1], draws / seconds
        rows = float(trace.rows_read.mean() + trace.rows_scanned.mean())
        return Run(trace.position, seconds, float(trace.is_accepted.mean()), rows)
