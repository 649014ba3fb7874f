"""Chains in lockstep against `vmap` over a per-chain `while_loop`; rows looked at against a plain sweep over rows.

Also chains in one group per core, as `sample` runs them, against all chains in one group.

Same kernel, same source, the paper's mixture (N = 1,000,000, K = 10,000, m = 50, step 0.15), draws recorded on both
sides.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

import tallchain as tc
from benchmarks.measure import interleaved, median_ratio, save
from tallchain import runner
from tallchain.kernel import State

CHAINS = (64, 1024)
DRAWS = {64: 512, 1024: 256}
REPETITIONS = 7


def kernel_of(mixture: tc.models.GaussianMixture) -> tc.MetropolisHastings:
    source = tc.Shuffled(mixture.data, 50, windows=True)
    return tc.MetropolisHastings(
        mixture.posterior, source, proposal=tc.RandomWalk(0.15), acceptance=tc.MinibatchBarker(stopping="growth")
    )


@partial(jax.jit, static_argnames="draws")
def vmapped(kernel: tc.MetropolisHastings, keys: jax.Array, positions: jax.Array, draws: int) -> Any:
    """Every chain loops over its own looks; under vmap all wait for the slowest chain at every draw."""

    def chain(key: jax.Array, position: jax.Array) -> Any:
        def draw(state: State, at: jax.Array) -> Any:
            state, verdict = kernel.step(jr.fold_in(key, at), state)
            return state, (state.position, verdict)

        return lax.scan(draw, State(position), jnp.arange(draws))

    return jax.vmap(chain)(keys, positions)


@jax.jit
def full_pass(posterior: tc.Posterior, data: jax.Array, position: jax.Array) -> jax.Array:
    """The log likelihood of all rows at one position: the least cost of a row."""
    return jax.vmap(lambda row: posterior.log_likelihood(position, row))(data).sum()


def compare(kernel: tc.MetropolisHastings, data: jax.Array, chains: int, draws: int) -> dict[str, Any]:
    keys = jax.vmap(lambda chain: jr.fold_in(jr.key(0), chain))(jnp.arange(chains))
    settled = tc.sample(jr.key(1), kernel, jnp.array([0.0, 1.0]), 1, num_warmup=300, num_chains=chains, progress=False)
    positions = jnp.asarray(settled.position[:, 0])
    schedule = tc.Schedule()
    # As many turns as the vmapped chains take looks on average: the same number of decisions, up to noise.
    _, (_, verdict) = vmapped(kernel, keys, positions, draws)
    looks = -(-np.asarray(verdict.rows_read) // kernel.width)
    turns = jnp.int32(round(looks.sum(1).mean()))

    one_group, cores = (runner.Runner(kernel, schedule, keys, 3 * draws // 2, groups) for groups in (1, None))

    def in_lockstep() -> Any:
        return one_group.start(positions)(last=2**30, turns=int(turns))

    def on_cores() -> Any:
        return cores.start(positions)(last=2**30, turns=int(turns))

    decisions = int(in_lockstep()[0].sum())
    seconds = interleaved(
        {
            "lockstep": in_lockstep,
            "on cores": on_cores,
            "vmap": lambda: vmapped(kernel, keys, positions, draws),
            "full pass": lambda: full_pass(kernel.posterior, data, positions[0]),
        },
        REPETITIONS,
    )
    per_decision = {
        "lockstep": np.asarray(seconds["lockstep"]) / decisions,
        "vmap": np.asarray(seconds["vmap"]) / looks.size,
    }
    per_row = np.asarray(seconds["on cores"]) / (int(turns) * chains * kernel.width)
    return {
        "chains": chains,
        "groups": runner.num_groups(chains),
        "on_cores_over_one_group_throughput": median_ratio(seconds["lockstep"], seconds["on cores"]),
        "lockstep_over_vmap_throughput": median_ratio(per_decision["vmap"], per_decision["lockstep"]),
        "mean_of_slowest_looks_over_mean_looks": float(looks.max(0).mean() / looks.mean()),
        "mean_looks": float(looks.mean()),
        "row_looked_at_over_row_of_full_pass": median_ratio(per_row, np.asarray(seconds["full pass"]) / len(data)),
        "decisions": {"lockstep": decisions, "vmap": int(looks.size)},
    }


def main() -> None:
    mixture = tc.models.gaussian_mixture()
    kernel, data = kernel_of(mixture), jnp.asarray(mixture.data)
    results = [compare(kernel, data, chains, DRAWS[chains]) for chains in CHAINS]
    configuration = {
        "model": "gaussian_mixture, N = 1,000,000, K = 10,000",
        "source": "Shuffled(batch_size=50, windows=True)",
        "proposal": "RandomWalk(0.15)",
        "acceptance": "MinibatchBarker(stopping='growth')",
        "draws": DRAWS,
        "repetitions": REPETITIONS,
        "statistic": "median of ratios of neighbouring runs",
    }
    save("lockstep", configuration, results)


if __name__ == "__main__":
    main()
