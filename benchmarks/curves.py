"""The chance to accept against Delta, for each acceptance test, on normal rows of which 150 give a variance of 1.

`python -m benchmarks.curves`: measures, and draws docs/acceptance.png.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

import tallchain as tc
from benchmarks.measure import load, save
from tallchain.acceptance import Austere, Barker, Confidence, Metropolis, MinibatchBarker, NormalBarker, Penalty
from tallchain.functions import shared
from tallchain.proposals import Fixed

DOCS = Path(__file__).parent.parent / "docs"
ROWS, NEEDED, BATCH, SEED = 20_000, 150.0, 50, 3
DELTAS = np.linspace(-5.0, 5.0, 21)
TRIALS = 2000

TESTS: dict[str, Any] = {
    "Metropolis()": Metropolis,
    "Barker()": Barker,
    "MinibatchBarker()": MinibatchBarker,
    "Penalty()": Penalty,
    "NormalBarker()": NormalBarker,
    "Austere(0.005)": partial(Austere, 0.005),
    "Confidence(0.005)": partial(Confidence, 0.005),
}
# Okabe and Ito's colours, told apart by colour-blind readers too.
STYLES = {
    "Metropolis()": {"color": "#000000", "lw": 2.5},
    "Barker()": {"color": "#999999", "lw": 5},
    "MinibatchBarker()": {"color": "#0072B2", "lw": 1.8},
    "Penalty()": {"color": "#D55E00", "lw": 1.8},
    "NormalBarker()": {"color": "#009E73", "lw": 1.8, "ls": "--"},
    "Austere(0.005)": {"color": "#E69F00", "lw": 0, "marker": "o", "ms": 6},
    "Confidence(0.005)": {"color": "#56B4E9", "lw": 0, "marker": "x", "ms": 6, "mew": 1.8},
}


@partial(jax.jit, static_argnames="trials")
def shares(kernel: tc.MetropolisHastings, deltas: jax.Array, trials: int) -> tuple[jax.Array, jax.Array]:
    """Share accepted and mean rows at each Delta."""

    def at(delta: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        moved = tc.types.replace(kernel, proposal=Fixed(jnp.ones(()), delta))
        _, verdict = moved.step(key, tc.kernel.State(jnp.zeros(())))
        return verdict.is_accepted, verdict.num_rows

    def over_trials(delta: jax.Array) -> tuple[jax.Array, jax.Array]:
        keys = jr.split(jr.fold_in(jr.key(SEED), (10 * delta).astype(jnp.int32)), trials)
        accepted, rows = jax.vmap(partial(at, delta))(keys)
        return accepted.mean(), rows.mean(dtype=jnp.float32)

    return jax.lax.map(over_trials, deltas)


def measure() -> dict[str, Any]:
    random = np.random.default_rng(SEED)
    rows = random.standard_normal(ROWS)
    data = (np.sqrt(NEEDED) * (rows - rows.mean()) / rows.std()).astype(np.float32)
    posterior = tc.Posterior(shared(jnp.zeros_like), shared(jnp.multiply), temperature=ROWS)
    results = {}
    for name, test in TESTS.items():
        kernel = tc.MetropolisHastings(
            posterior, tc.Shuffled(data, BATCH), proposal=Fixed(jnp.ones(())), acceptance=test()
        )
        # Tests on all rows have no noise beside their own: the formula will do.
        if name in ("Metropolis()", "Barker()"):
            accepted = np.asarray(kernel.acceptance.exact_chance(jnp.asarray(DELTAS)))
            mean_rows = np.full(len(DELTAS), float(ROWS))
        else:
            accepted, mean_rows = (np.asarray(a) for a in shares(kernel, jnp.asarray(DELTAS, jnp.float32), TRIALS))
        results[name] = {"acceptance": accepted.tolist(), "mean_rows": mean_rows.tolist()}
        print(name, np.round(accepted, 3), np.round(mean_rows.mean()))
    return results


def draw(results: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.6), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, found in results.items():
        left.plot(DELTAS, found["acceptance"], label=name, **STYLES[name])
        right.plot(DELTAS, found["mean_rows"], **STYLES[name])
    left.set(xlabel=r"exact log ratio $\Delta$", ylabel="chance to accept", title="Acceptance")
    right.set(xlabel=r"exact log ratio $\Delta$", ylabel="mean rows", yscale="log", title=f"Rows of {ROWS:,}")
    left.legend(frameon=False, fontsize=9)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)


def main() -> None:
    configuration = {
        "rows": f"{ROWS:,}, normal, standardised, times sqrt({NEEDED:g}); Shuffled(batch_size={BATCH})",
        "deltas": DELTAS.tolist(),
        "trials": TRIALS,
        "seed": SEED,
    }
    save("curves", configuration, measure())
    draw(load("curves")["results"], DOCS / "acceptance.png")


if __name__ == "__main__":
    main()
