"""Throughput of chains in lockstep on this device: absolute numbers, so for an accelerator only.

The paper's mixture, N = 1,000,000, m = 50, draws recorded; whole chunks as `sample` runs them, random numbers included,
without the copies to the host. Looks and rows are those of the decisions that a chunk has ended.
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

import tallchain as tc
from benchmarks.measure import save
from tallchain import lockstep
from tallchain.chunks import slots_within
from tallchain.packing import Chunk

CHAINS = (1024, 16_384, 131_072)
REPETITIONS = 5


def measure(kernel: tc.MetropolisHastings, chains: int) -> dict[str, float]:
    keys = jax.vmap(lambda chain: jr.fold_in(jr.key(0), chain))(jnp.arange(chains))
    positions = jnp.tile(jnp.array([0.0, 1.0]), (chains, 1))
    slots = slots_within(lockstep.bytes_per_slot(kernel, positions), 256)
    run = lockstep.Runner(kernel, tc.Schedule(), keys, slots).start(positions)
    seconds, rows, decisions = [], [], []
    for _ in range(REPETITIONS + 1):
        before, began = run.draw, time.perf_counter()
        run.dispatch(last=2**30, turns=2**20)
        draw, chunk = run.collect()
        seconds.append(time.perf_counter() - began)
        decisions.append(int((draw - before).sum()))
        rows.append(rows_of(chunk.divided(slots)))
    per_second = {"rows": rows, "looks": np.divide(rows, kernel.width), "decisions": decisions}
    return {"chains": chains, "slots": slots} | {
        f"million_{name}_per_second": float(np.median(np.divide(of, seconds)[1:])) / 1e6
        for name, of in per_second.items()
    }


def rows_of(chunk: Chunk) -> int:
    """Rows read for the decisions of a chunk; slots that no chain has used are 0."""
    found = (chunk.unpack(chunk.fetch(part)).verdict.rows_read for part in range(len(chunk.records)))
    return sum(int(rows.sum(dtype=np.int64)) for rows in found)


def main() -> None:
    mixture = tc.models.gaussian_mixture()
    source = tc.Shuffled(mixture.data, 50, windows=True)
    kernel = tc.MetropolisHastings(
        mixture.posterior, source, proposal=tc.RandomWalk(0.15), acceptance=tc.MinibatchBarker(stopping="growth")
    )
    configuration = {
        "device": jax.devices()[0].device_kind,
        "model": "gaussian_mixture, N = 1,000,000, K = 10,000, RandomWalk(0.15), "
        "MinibatchBarker(stopping='growth'), m = 50",
        "repetitions": REPETITIONS,
        "statistic": "median over chunks, after the first",
    }
    save("device", configuration, [measure(kernel, chains) for chains in CHAINS])


if __name__ == "__main__":
    main()
