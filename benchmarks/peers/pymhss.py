"""PyMHSS: exact subsampling."""

from __future__ import annotations

import contextlib
import io
import os
import time
import warnings
from typing import Any

import jax
import numpy as np
from jax import random as jr

from benchmarks.peers.problem import Problem, Run

SHORT_WARMUP = 200
LEAST_DRAWS = 256
MOST_HESSIANS = 2**32  # bytes that it may take for the Hessians of all rows


class Mhss:
    """PyMHSS' `MH_SS`, exact subsampling: NumPy in float64, one chain, and a FLAT prior (it has no other).

    It gets our mode and covariance, in place of its own stochastic gradients. It forms the Hessian of every row for
    order 2; if these do not fit, order 1 is used. It cannot continue where it stopped: every run is new, with its own
    preparation.
    """

    def __init__(self, problem: Problem, chains: int, warmup: int) -> None:
        self.problem, self.chains = problem, chains
        self._warmup = min(warmup, SHORT_WARMUP)
        target = problem.target
        self._order = 2 if target.num_rows * target.d**2 * 8 <= MOST_HESSIANS else 1
        self._per_draw = 0.0

    def prepare(self, key: jax.Array) -> dict[str, float]:
        """Make a short run, to time its preparation."""
        began = time.perf_counter()
        sampling = self._sample(key, LEAST_DRAWS)["cpu_time"]
        return {"mode": self.problem.seconds, "bounds": time.perf_counter() - began - sampling, "warmup": sampling}

    def run(self, key: jax.Array, seconds: float) -> Run:
        """Draw as many as the pace of the last run allows."""
        draws = max(LEAST_DRAWS, 2 * int(seconds / self._per_draw / 2))  # it fails on odd numbers
        found = self._sample(key, draws)
        rows = float(np.mean(found["BoverN"])) * self.problem.target.num_rows
        share = draws / (draws + self._warmup)
        return Run(found["parameters"][None], share * found["cpu_time"], float(found["acc_rate"]), rows)

    def _sample(self, key: jax.Array, draws: int) -> dict[str, Any]:
        data = self.problem.target.model.data
        np.random.seed(int(jr.randint(key, (), 0, 2**31 - 1)))
        with quiet():
            found = import_quietly().MH_SS(
                data["y"].astype(np.float64),
                data["x"].astype(np.float64),
                self.problem.covariance,
                np.asarray(self.problem.laplace.mean, np.float64),
                nburn=self._warmup,
                npost=draws,
                model="logistic",
                implementation="vectorised",
                taylor_order=self._order,
            )
        self._per_draw = found["cpu_time"] / (draws + self._warmup)
        return found


def quiet() -> contextlib.AbstractContextManager[Any]:
    """Show no progress bars."""
    return contextlib.redirect_stderr(io.StringIO())


def import_quietly() -> Any:
    """Import it, and silence TensorFlow, which it imports."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import PyMHSS  # ty: ignore[import-not-found]
    return PyMHSS
