"""FireflyMC beside a walk on all rows: bright rows, effective draws per row, and what the brightness costs."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

import tallchain as tc
from benchmarks.measure import interleaved, median_ratio
from benchmarks.peers.problem import effective
from benchmarks.peers.targets import SEED, simulated
from tallchain.datasets import mnist_1_7
from tallchain.firefly import FireflyMC, Langevin
from tallchain.firefly.lists import flip
from tallchain.surrogates import find_reference

COMPONENTS = 50  # principal components of the images, as in the paper of Firefly Monte Carlo
WARMUP = 500
DECISIONS, TURNS = 128, 3  # of a program that is timed


class Setting(NamedTuple):
    """A regression, and how long to walk on all of its rows."""

    model: tc.models.Regression
    chains: int
    draws: int


def mnist() -> Setting:
    """MNIST's 1s and 7s by 50 principal components."""
    digits = mnist_1_7()
    pixels = digits.features()[0]
    pixels -= pixels.mean(0)
    scores = pixels @ np.linalg.svd(pixels, full_matrices=False)[2][:COMPONENTS].T
    x = np.concatenate([np.ones((len(scores), 1), np.float32), scores / scores.std(0)], 1).astype(np.float32)
    return Setting(tc.models.logistic_regression(x, digits.train_is_seven, prior_sd=1.0), 16, 20_000)


SETTINGS = {"MNIST 1s and 7s": mnist, "simulated": lambda: Setting(simulated().model, 4, 2_000)}


def measured(setting: Setting, chains: int, draws: int) -> dict[str, Any]:
    """All samplers on one regression."""
    model = setting.model
    num_rows, d = model.data["x"].shape
    reference = find_reference(model.posterior, model.data, jnp.zeros(d), progress=False)
    laplace = reference.laplace
    walk = tc.RandomWalk.preconditioned(laplace)
    source = tc.Shuffled(model.data, 100)
    whole = tc.MetropolisHastings(model.posterior, source, proposal=walk, acceptance=tc.Metropolis())
    firefly = FireflyMC(model, reference, source=source)
    langevin = FireflyMC(model, reference, source=source, proposal=Langevin())
    rarely = FireflyMC(model, reference, source=source, brighten=float(firefly.brighten) / 8)
    ours = tc.prepare(model, progress=False).kernel()
    results: dict[str, Any] = {"rows": num_rows, "d": d, "device": jax.default_backend(), "samplers": {}}
    for name, kernel, count, length in (
        ("walk on all rows", whole, setting.chains, setting.draws),
        ("FireflyMC, walk", firefly, chains, draws),
        ("FireflyMC, Langevin", langevin, chains, draws),
        ("FireflyMC, walk, q / 8", rarely, chains, draws),
        ("tallchain", ours, chains, draws),
    ):
        results["samplers"][name] = record = sampled(kernel, laplace, count, length)
        if isinstance(kernel, FireflyMC):
            record |= {"brighten": float(kernel.brighten), "expected_bright": float(kernel.expected_bright)}
            record |= {"bytes_per_chain": kernel.bytes_per_chain}
            record["share_of_brightness"] = share_of_brightness(kernel, laplace, chains)
        print(name, record, flush=True)
    first = results["samplers"]["walk on all rows"]
    for record in results["samplers"].values():
        record["per_row_over_walk"] = record["effective_per_row"] / first["effective_per_row"]
        record["per_second_over_walk"] = record["effective_per_second"] / first["effective_per_second"]
    return results


def sampled(kernel: Any, laplace: tc.proposals.Laplace, chains: int, draws: int) -> dict[str, Any]:
    """Rows, acceptance and effective draws of a run, after one that compiles and warms up."""
    starts = jax.vmap(laplace.draw)(jr.split(jr.key(SEED), chains))
    options: dict[str, Any] = {"num_chains": chains, "scan": 0, "progress": False, "chunk_size": DECISIONS}
    warm = tc.sample(jr.key(SEED + 1), kernel, starts, min(WARMUP, draws // 10), **options)
    began = time.perf_counter()
    trace = tc.sample(jr.key(SEED + 2), kernel, warm.position[:, -1], draws, **options)
    seconds = time.perf_counter() - began
    per_draw = effective(np.asarray(trace.position))
    rows = float(trace.rows_read.mean())
    record = {
        "chains": chains,
        "draws_by_chain": draws,
        "rows": rows,
        "acceptance": float(trace.is_accepted.mean()),
        "effective_per_draw": per_draw,
        "effective_draws": per_draw * chains * draws,
        "effective_per_row": per_draw / rows,
        "effective_per_second": per_draw * chains * draws / seconds,
    }
    return record | {name: float(np.mean(values)) for name, values in trace.extras.items() if name == "bright"}


def share_of_brightness(kernel: FireflyMC, laplace: tc.proposals.Laplace, chains: int) -> float:
    """Seconds of a step of the bright rows alone, over those of a whole decision; both in one program."""
    starts = kernel.carried(jax.vmap(laplace.draw)(jr.split(jr.key(SEED), chains)))

    def switches(key: jax.Array, state: Any) -> Any:
        flipped = flip(
            key,
            state.bright,
            state.position,
            kernel.sums.position,
            kernel.source.data,  # ty: ignore[missing-attribute]
            brighten=kernel.brighten,
            table=kernel.table,
            size=kernel.source.population.total,
        )
        return state._replace(bright=flipped.bright.index)

    def program(one: Any) -> Any:
        many = lambda state, key: (jax.vmap(one)(jr.split(key, chains), state), None)  # noqa: E731
        run = jax.jit(lambda key, state: jax.lax.scan(many, state, jr.split(key, DECISIONS))[0])
        return lambda: run(jr.key(SEED), starts)

    whole = program(lambda key, state: kernel.step(key, state)[0])
    seconds = interleaved({"brightness": program(switches), "decision": whole}, TURNS)
    return median_ratio(seconds["brightness"], seconds["decision"])
