"""Looks, decisions and rows a second, in whole chunks as `sample` runs them, without the copies to the host."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random as jr

import tallchain as tc
from tallchain import runner
from tallchain.chunks import slots_within
from tallchain.keys import keys_of
from tallchain.packing import Chunk
from tallchain.types import Array

CHAINS = (1024, 16_384, 131_072)
WIDE = {"rows": 1_000_000, "columns": 784, "chains": 4096, "batch_size": 100}
REPETITIONS = 5


def mixture() -> list[dict[str, float]]:
    """The paper's mixture, K = 10,000, RandomWalk(0.15), the printed stopping rule."""
    model = tc.models.gaussian_mixture()
    kernel = tc.MetropolisHastings(
        model.posterior,
        tc.Shuffled(model.data, 50, windows=True),
        proposal=tc.RandomWalk(0.15),
        acceptance=tc.MinibatchBarker(stopping="growth"),
    )
    return [measure(kernel, jnp.tile(jnp.array([0.0, 1.0]), (chains, 1))) for chains in CHAINS]


def wide() -> dict[str, float]:
    """Logistic regression, K = N / 1000, RandomWalk(0.05)."""
    rows, columns = WIDE["rows"], WIDE["columns"]
    x = jr.normal(jr.key(0), (rows, columns)) / np.sqrt(columns)
    data = {"x": x, "y": (jr.uniform(jr.key(1), (rows,)) < 0.5).astype(jnp.float32)}
    kernel = tc.MetropolisHastings(
        tc.Posterior(log_prior, log_likelihood, temperature=rows / 1000),
        tc.Shuffled(data, WIDE["batch_size"], windows=True),
        proposal=tc.RandomWalk(0.05),
        acceptance=tc.MinibatchBarker(stopping="growth"),
    )
    found = measure(kernel, jnp.zeros((WIDE["chains"], columns)))
    return found | {"terabytes_per_second": found["million_rows_per_second"] * 4 * columns / 1e6} | WIDE


def log_prior(weights: Array) -> Array:
    return -0.5 * jnp.sum(weights**2)


def log_likelihood(weights: Array, row: Any) -> Array:
    logit = row["x"] @ weights
    return row["y"] * logit - jnp.logaddexp(0.0, logit)


def measure(kernel: tc.MetropolisHastings, positions: Array) -> dict[str, float]:
    """Looks and rows are those of the decisions that a chunk has ended.

    The chunks follow each other, as in `sample`, and their rows are counted afterwards: a copy to the host in between
    slows the launches of the next chunk down by a third.
    """
    chains = len(positions)
    keys, slots = keys_of(jr.key(0), chains), partial(slots_within, 256)
    run = runner.Runner(kernel, tc.Schedule(), keys, slots).start(positions)
    seconds, chunks, decisions = [], [], []
    for _ in range(REPETITIONS + 1):
        before, began = run.draw, time.perf_counter()
        run.dispatch(last=2**30, turns=2**20)
        draw, chunk = run.collect()
        seconds.append(time.perf_counter() - began)
        decisions.append(int((draw - before).sum()))
        chunks.append(chunk)
    rows = [rows_of(chunk.divided(run.slots)) for chunk in chunks]
    per_second = {"rows": rows, "looks": np.divide(rows, kernel.width), "decisions": decisions}
    return {"chains": chains, "slots": run.slots} | {
        f"million_{name}_per_second": float(np.median(np.divide(of, seconds)[1:])) / 1e6
        for name, of in per_second.items()
    }


def rows_of(chunk: Chunk) -> int:
    """Rows read for the decisions of a chunk; slots that no chain has used are 0."""
    found = (chunk.unpack(chunk.fetch(part)).verdict.rows_read for part in range(len(chunk.records)))
    return sum(int(rows.sum(dtype=np.int64)) for rows in found)
