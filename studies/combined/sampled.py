"""The constructions on the paper's mixture: rows, error of the draws, and time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

import tallchain as tc
from benchmarks.measure import interleaved, median_ratio
from studies.combined.constructions import CHOSEN, is_early
from studies.mixture import bias
from studies.targets import SEED, MakeKernel, Sizes, exact_starts
from tallchain.models.gaussian_mixture import Grid
from tallchain.types import Array

TIMED = ("MinibatchBarker()", "Combined(0.001)")


def on_mixture(kernel: tc.MetropolisHastings, grid: Grid, sizes: Sizes) -> dict[str, Any]:
    """Sample, and return what it read and how far the draws are from the exact posterior."""
    chains, draws, warmup = sizes
    starts = exact_starts(grid, chains)
    trace = tc.sample(jr.key(SEED), kernel, starts, draws, num_chains=chains, num_warmup=warmup, progress=False)
    by_chain = trace.rows_read.mean(1)
    positions = jnp.asarray(trace.position[:, :: draws // 4].reshape(-1, 2))
    return {
        "chains": chains,
        "draws": draws,
        "rows": float(by_chain.mean()),
        "rows_mcse": float(by_chain.std(ddof=1) / np.sqrt(chains)),
        "acceptance": float(trace.is_accepted.mean()),
        "early": float(early_share(kernel, jr.split(jr.key(SEED + 1), len(positions)), positions)),
    } | bias(trace.position, grid.mean, np.diag(grid.covariance))


@jax.jit
def early_share(kernel: tc.MetropolisHastings, keys: Array, positions: Array) -> Array:
    """The share of decisions made by the t-test, over one decision at each position."""

    def once(key: Array, position: Array) -> Array:
        return is_early(kernel.decide(kernel.draw(key, position), position))

    return jax.vmap(once)(keys, positions).mean()


def time_ratio(kernel_of: MakeKernel, grid: Grid, chains: int, draws: int, repetitions: int) -> float:
    """Time of `Combined` over that of `MinibatchBarker` for as many draws: fewer rows, in more and narrower looks."""
    starts = exact_starts(grid, chains)

    def run(name: str) -> Callable[[], Any]:
        kernel = kernel_of(CHOSEN[name]())
        return lambda: tc.sample(jr.key(SEED), kernel, starts, draws, num_chains=chains, progress=False)

    seconds = interleaved({name: run(name) for name in TIMED}, repetitions)
    return median_ratio(seconds[TIMED[1]], seconds[TIMED[0]])
