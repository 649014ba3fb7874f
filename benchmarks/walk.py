"""Steps of a random walk among independent proposals: their cost where they are not needed, and what they fix.

`python -m benchmarks.walk` writes results/walk.json: effective draws a second on the `simulated` target of the peers,
with them over without them, in turns; and standard deviations over the exact one for five separated rows, each repeated
80 times at temperature 80.
"""

from __future__ import annotations

import time
from typing import Any

import jax.numpy as jnp
import numpy as np
from arviz_stats.base import array_stats
from jax import random as jr

import tallchain as tc
from benchmarks.measure import save
from benchmarks.peers.ours import draw_ours
from benchmarks.peers.targets import simulated

SEED, CHAINS, DRAWS, REPETITIONS = 11, 64, 2048, 7
ROWS = np.array([-2, -1, 0.5, 1, 2], np.float32)  # labels: their signs
COPIES = 80  # of each row; also the temperature
PRIOR_SD, SHORT, SEEDS = 10.0, 1000, 16


def kernels(prepared: tc.Prepared) -> dict[str, tc.MetropolisHastings]:
    return {"with": prepared.kernel(), "without": prepared.kernel(proposal=tc.PCN(prepared.laplace))}


def share_of_walk(prepared: tc.Prepared) -> float:
    """Return the share of steps that belong to the random walk."""
    assert isinstance(prepared.proposal, tc.PCN)
    return prepared.proposal.walk


def speed() -> dict[str, Any]:
    model = simulated().model
    prepared = tc.prepare(model.posterior, model.data, jnp.zeros(20), progress=False)
    made, starts = kernels(prepared), np.asarray(prepared.starts(jr.key(SEED), CHAINS))
    rates: dict[str, list[float]] = {name: [] for name in made}
    for repetition in range(REPETITIONS + 1):  # the first one compiles
        for name, kernel in made.items():
            began = time.perf_counter()
            trace = draw_ours(jr.key(SEED + repetition), kernel, starts, DRAWS)
            seconds = time.perf_counter() - began
            ess = array_stats.ess(np.asarray(trace.position, float), method="bulk", chain_axis=0, draw_axis=1)
            if repetition:
                rates[name].append(float(np.min(ess)) / seconds)
    medians = {name: float(np.median(values)) for name, values in rates.items()}
    return {
        "share_of_walk": share_of_walk(prepared),
        "acceptance": prepared.influence.acceptance,
        "effective_draws_per_second": medians,
        "ratio": medians["with"] / medians["without"],
    }


def exact_sd() -> float:
    grid = np.linspace(-60, 90, 300_001)
    log_density = -np.logaddexp(0, -np.abs(ROWS) * grid[:, None]).sum(1) - grid**2 / (2 * PRIOR_SD**2)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    return float(np.sqrt(weights @ grid**2 - (weights @ grid) ** 2))


def tails() -> dict[str, Any]:
    rows = np.tile(ROWS, COPIES)
    model = tc.models.logistic_regression(rows[:, None], rows > 0, prior_sd=PRIOR_SD, temperature=COPIES)
    prepared = tc.prepare(model.posterior, model.data, np.zeros(1, np.float32), progress=False)
    sd, found = exact_sd(), {}
    for name, kernel in kernels(prepared).items():
        ratios = [
            float(
                draw_ours(
                    jr.key(seed), kernel, np.asarray(prepared.starts(jr.key(seed + 100), CHAINS)), SHORT
                ).position.std()
            )
            / sd
            for seed in range(SEEDS)
        ]
        found[name] = {"mean": float(np.mean(ratios)), "least": min(ratios), "most": max(ratios)}
    return {"share_of_walk": share_of_walk(prepared), "exact_sd": sd, "sd_over_exact": found}


if __name__ == "__main__":
    configuration = {"chains": CHAINS, "draws": DRAWS, "repetitions": REPETITIONS, "short": SHORT, "seeds": SEEDS}
    save("walk", configuration, {"simulated": speed(), "separated": tails()})
