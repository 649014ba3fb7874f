"""Throughput of chains in lockstep on this device: absolute numbers, so for an accelerator only.

The paper's mixture, N = 1,000,000, m = 50, draws recorded; whole chunks as `sample` runs them, without the copies to
the host.
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

CHAINS = (1024, 16_384, 131_072)
TURNS, REPETITIONS = 100, 5


def measure(kernel: tc.MetropolisHastings, chains: int) -> dict[str, float]:
    keys = jax.vmap(lambda chain: jr.fold_in(jr.key(0), chain))(jnp.arange(chains))
    positions = jnp.tile(jnp.array([0.0, 1.0]), (chains, 1))
    run = lockstep.Runner(kernel, tc.Schedule(), keys, TURNS).start(positions)
    seconds, finished = [], [0]
    for _ in range(REPETITIONS + 1):
        began = time.perf_counter()
        draw, _ = run(last=2**30, turns=TURNS)
        seconds.append(time.perf_counter() - began)
        finished.append(int(draw.sum()))
    seconds, decisions = np.asarray(seconds[1:]), np.diff(finished)[1:]  # the first one compiles
    return {
        "chains": chains,
        "million_looks_per_second": float(np.median(TURNS * chains / seconds)) / 1e6,
        "million_decisions_per_second": float(np.median(decisions / seconds)) / 1e6,
        "million_rows_per_second": float(np.median(TURNS * chains * kernel.width / seconds)) / 1e6,
    }


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
        "turns": TURNS,
        "repetitions": REPETITIONS,
        "statistic": "median; random numbers drawn ahead included",
    }
    save("device", configuration, [measure(kernel, chains) for chains in CHAINS])


if __name__ == "__main__":
    main()
