"""A long run of NUTS on all rows, for comparison."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from benchmarks.peers.blackjax import Nuts
from benchmarks.peers.problem import Problem, moments
from benchmarks.peers.targets import SEED, Target
from tallchain.arrays import dot


def make_reference(target: Target, path: Path, *, draws: int, chains: int, warmup: int = 500) -> None:
    """Run NUTS on all rows, with a dense mass matrix, and write its draws (chain, draw, parameter)."""
    problem = Problem.of(target)
    # A row's term minus its value at the mode: sums of a million rows then have digits to spare in float32.
    base = jax.nn.log_sigmoid(dot(problem.rows["x"], jnp.asarray(problem.laplace.mean)))
    problem = dataclasses.replace(problem, rows=problem.rows | {"base": base})
    sampler = Nuts(problem, chains, warmup, is_diagonal=False)
    print(sampler.prepare(jr.key(SEED + 100)), flush=True)
    parts: list[np.ndarray] = []
    while sum(part.shape[1] for part in parts) < draws:
        run = sampler.run(jr.fold_in(jr.key(SEED + 101), len(parts)), 10.0)
        parts.append(run.draws)
        kept = np.concatenate(parts, 1)[:, :draws]
        print(f"{kept.shape[1]} draws, acceptance {run.acceptance:.3f}", flush=True)
        np.savez_compressed(path, draws=kept, rows=target.num_rows)


def read_reference(path: Path, target: Target) -> dict[str, np.ndarray]:
    """Moments of the draws that `make_reference` wrote, for the same rows, with their Monte Carlo errors."""
    from arviz_stats.base import array_stats

    with np.load(path) as file:
        draws, rows = file["draws"].astype(np.float64), int(file["rows"])
    if rows != target.num_rows or draws.shape[2] != target.d:
        raise ValueError(
            f"{path} is for {rows:,} rows and {draws.shape[2]} parameters, not for {target.num_rows:,} and {target.d}."
        )
    axes = {"chain_axis": 0, "draw_axis": 1}
    found = moments(draws)
    centred = (draws - found["mean"]) / found["sd"]
    return found | {
        "mcse_mean": array_stats.mcse(draws, method="mean", **axes),
        # By hand: NUTS draws are antithetic, their squares are not, and ArviZ' error of the sd is too small here.
        "mcse_sd": found["sd"] / 2 * array_stats.mcse(centred**2, method="mean", **axes),
        "skewness": (centred**3).mean((0, 1)),
        "ess": array_stats.ess(draws, method="bulk", **axes),
        "r_hat": array_stats.rhat(draws, **axes),
        "shape": np.array(draws.shape[:2]),
    }
