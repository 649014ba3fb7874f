"""A logistic regression on the rows of a packed table, on one process or on several.

    python several.py PACKED OUTPUT

PACKED is a folder that `tallchain pack` has made, with a column `y` of 0 and 1 and a column `x` of several numbers a
row. Each process reads its own part of the rows. OUTPUT.npz has the draws, and OUTPUT.txt their summary.
"""

from __future__ import annotations

import sys

import jax
import numpy as np

import tallchain as tc
from tallchain import crew

rank = crew.start()  # before JAX computes anything
packed, output = sys.argv[1:]


def log_prior(beta: jax.Array) -> jax.Array:
    """Normal, with a standard deviation of 2.5."""
    return -0.5 * (beta @ beta) / 2.5**2


def log_likelihood(beta: jax.Array, row: dict[str, jax.Array]) -> jax.Array:
    """Of one row."""
    z = row["x"] @ beta
    return row["y"] * z - jax.nn.softplus(z)


source = tc.sources.Sharded(packed, columns={"x": "x", "y": "y"})  # a part of the rows on each device
start = np.zeros(source.some_rows(1)["x"].shape[1], np.float32)
prepared = tc.prepare(tc.Posterior(log_prior, log_likelihood), source, start, progress=rank == 0)

chains = 16 * source.num_parts  # as many in each part
starts = prepared.starts(jax.random.key(0), chains)
trace = tc.sample(jax.random.key(1), prepared.kernel(), starts, 1000, num_chains=chains, progress=rank == 0)

if rank == 0:  # every process has all draws
    np.savez(f"{output}.npz", position=trace.position)
    with open(f"{output}.txt", "w", encoding="utf-8") as file:
        print(prepared, trace.summary(), sep="\n\n", file=file)
