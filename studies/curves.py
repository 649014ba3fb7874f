"""The chance to accept against Delta, for each acceptance test, on normal rows, 150 of which give a variance of 1."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

import tallchain as tc
from benchmarks.records import table
from studies.study import Keep, Result, forget
from studies.targets import given_ratios
from tallchain.acceptance import Austere, Barker, Confidence, Metropolis, MinibatchBarker, NormalBarker, Penalty
from tallchain.kernel import State
from tallchain.parts import replace
from tallchain.plots.style import BLACK, BLUE, GREEN, GREY, ORANGE, SKY, VERMILION, panels
from tallchain.proposals import Fixed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEEDED, BATCH = 150.0, 50

TESTS: dict[str, Any] = {
    "Metropolis()": Metropolis,
    "Barker()": Barker,
    "MinibatchBarker()": MinibatchBarker,
    "Penalty()": Penalty,
    "NormalBarker()": NormalBarker,
    "Austere(0.005)": partial(Austere, 0.005),
    "Confidence(0.005)": partial(Confidence, 0.005),
}
STYLES = {
    "Metropolis()": {"color": BLACK, "lw": 2.5},
    "Barker()": {"color": GREY, "lw": 5},
    "MinibatchBarker()": {"color": BLUE, "lw": 1.8},
    "Penalty()": {"color": VERMILION, "lw": 1.8},
    "NormalBarker()": {"color": GREEN, "lw": 1.8, "ls": "--"},
    "Austere(0.005)": {"color": ORANGE, "lw": 0, "marker": "o", "ms": 6},
    "Confidence(0.005)": {"color": SKY, "lw": 0, "marker": "x", "ms": 6, "mew": 1.8},
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    tests: tuple[str, ...] = tuple(TESTS)
    rows: int = 20_000
    deltas: tuple[float, ...] = tuple(np.linspace(-5.0, 5.0, 21).tolist())
    decisions: int = 2000
    """At each Delta."""
    seed: int = 3

    @classmethod
    def quick(cls) -> Config:
        """Three tests at three Delta."""
        return cls(("Metropolis()", "MinibatchBarker()", "Penalty()"), 2000, (-1.0, 0.0, 1.0), 50)


def run(config: Config, keep: Keep = forget) -> Result:
    """Find the curve of every test."""
    random = np.random.default_rng(config.seed)
    rows = random.standard_normal(config.rows)
    data = (np.sqrt(NEEDED) * (rows - rows.mean()) / rows.std()).astype(np.float32)
    posterior = given_ratios(config.rows)
    results: dict[str, Any] = {}
    for name in config.tests:
        kernel = tc.MetropolisHastings(
            posterior, tc.Shuffled(data, BATCH), proposal=Fixed(jnp.ones(())), acceptance=TESTS[name]()
        )
        accepted, mean_rows = curve(kernel, config)
        results[name] = {"acceptance": accepted.tolist(), "mean_rows": mean_rows.tolist()}
        print(name, np.round(accepted, 3), np.round(mean_rows.mean()), flush=True)
        keep(Result.of(configuration(config), results))
    return Result.of(configuration(config), results)


def configuration(config: Config) -> dict[str, Any]:
    """Say how it was measured."""
    return {
        "rows": f"{config.rows:,}, normal, standardised, times sqrt({NEEDED:g}); Shuffled(batch_size={BATCH})",
        "deltas": config.deltas,
        "trials": config.decisions,
        "seed": config.seed,
    }


def curve(kernel: tc.MetropolisHastings, config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Share accepted and mean rows at each Delta."""
    if isinstance(kernel.acceptance, Metropolis | Barker):  # they have only their own noise: the formula is enough
        accepted = np.asarray(kernel.acceptance.exact_chance(jnp.asarray(config.deltas)))
        return accepted, np.full(len(config.deltas), float(config.rows))
    deltas = jnp.asarray(config.deltas, jnp.float32)
    accepted, mean_rows = shares(kernel, deltas, jr.key(config.seed), config.decisions)
    return np.asarray(accepted), np.asarray(mean_rows)


@partial(jax.jit, static_argnames="decisions")
def shares(
    kernel: tc.MetropolisHastings, deltas: jax.Array, key: jax.Array, decisions: int
) -> tuple[jax.Array, jax.Array]:
    """Share accepted and mean rows at each Delta, by simulation."""

    def at(delta: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        moved = replace(kernel, proposal=Fixed(jnp.ones(()), delta))
        _, verdict = moved.step(key, State(jnp.zeros(())))
        return verdict.is_accepted, verdict.rows_read

    def over_decisions(delta: jax.Array) -> tuple[jax.Array, jax.Array]:
        keys = jr.split(jr.fold_in(key, (10 * delta).astype(jnp.int32)), decisions)
        accepted, rows = jax.vmap(partial(at, delta))(keys)
        return accepted.mean(), rows.mean(dtype=jnp.float32)

    return jax.lax.map(over_decisions, deltas)


def page(result: Result) -> dict[str, str]:
    """Acceptance and rows of every test, over all Delta."""
    rows = [
        [f"`{name}`", f"{np.mean(found['acceptance']):.3f}", f"{np.mean(found['mean_rows']):,.0f}"]
        for name, found in result.results.items()
    ]
    return {"curves": table(["test", "acceptance", "rows"], rows)}


def pictures(result: Result) -> dict[str, Figure]:
    """Acceptance and rows against Delta."""
    deltas = result.configuration["deltas"]
    figure, [[left, right]] = panels((10.5, 4.6), 1, 2, grid=True)
    for name, found in result.results.items():
        left.plot(deltas, found["acceptance"], label=name, **STYLES[name])
        right.plot(deltas, found["mean_rows"], **STYLES[name])
    num_rows = result.configuration["rows"].split(", ")[0]
    left.set(xlabel=r"exact log ratio $\Delta$", ylabel="chance to accept", title="Acceptance")
    right.set(xlabel=r"exact log ratio $\Delta$", ylabel="mean rows", yscale="log", title=f"Rows of {num_rows}")
    left.legend(frameon=False, fontsize=9)
    return {"acceptance": figure}
