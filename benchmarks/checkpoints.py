"""What a checkpoint and progress cost: the time of a call of `sample` with both over that with neither, in turns.

`python -m benchmarks.checkpoints` writes results/checkpoints.json. Calls of some seconds: a normal mean, whose chunks
are short, with 512 chains; the `simulated` target of the peers, with an exact test; a mixed model with 1,000 groups.
The progress bar is drawn if this runs in a terminal. Checksums of all rows, to say which run it is, are counted.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tallchain as tc
from benchmarks.measure import load, median_ratio, save
from benchmarks.peers.targets import simulated
from benchmarks.records import table
from tallchain.models import Regression, families

SEED, REPETITIONS, SECONDS = 7, 5, 10.0


def normal_mean() -> tuple[tc.MetropolisHastings, Any, int]:
    """Many short chunks."""
    data = np.random.default_rng(SEED).normal(size=1_000_000).astype(np.float32)
    posterior = tc.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2, temperature=1000.0)
    return tc.MetropolisHastings(posterior, tc.Shuffled(data, 50), proposal=tc.RandomWalk(0.05)), np.float32(0), 512


def exact() -> tuple[tc.MetropolisHastings, Any, int]:
    """A million rows of 20 columns, an exact test."""
    model = simulated().model
    prepared = tc.prepare(model, progress=False)
    return prepared.kernel(), prepared.starts(jax.random.key(SEED), 512), 512


def mixed() -> tuple[tc.MetropolisHastings, Any, int]:
    """A thousand groups: large draws, and much that chains carry."""
    random = np.random.default_rng(SEED)
    x, group = random.normal(size=(200_000, 5)), random.integers(0, 1000, 200_000)
    z = x @ random.normal(0, 0.3, 5) + random.normal(0, 0.5, 1000)[group]
    y = random.random(len(z)) < 1 / (1 + np.exp(-z))
    prepared = tc.prepare(Regression(families.Bernoulli(), y=y, x=x, groups={"g": group}), progress=False)
    return prepared.kernel(), prepared.starts(jax.random.key(SEED), 16), 16


CASES: dict[str, Callable[[], tuple[tc.MetropolisHastings, Any, int]]] = {
    "a normal mean, 512 chains": normal_mean,
    "logistic, 1,000,000 x 20, exact test, 512 chains": exact,
    "logistic, 1,000 groups, 16 chains": mixed,
}


def measure(make: Callable[[], tuple[tc.MetropolisHastings, Any, int]]) -> dict[str, Any]:
    """Time calls of about `SECONDS` in turns."""
    kernel, start, chains = make()
    folder = Path(tempfile.mkdtemp(prefix="tallchain-benchmark-"))
    run = partial(tc.sample, jax.random.key(SEED), kernel, start, num_chains=chains, scan=0)
    run(num_samples=256, progress=False)
    began = time.perf_counter()
    run(num_samples=256, progress=False)
    draws = int(256 * SECONDS / (time.perf_counter() - began))
    seconds: dict[str, list[float]] = {"neither": [], "both": []}
    try:
        for repetition in range(REPETITIONS + 1):  # the first one compiles
            for name, of in seconds.items():
                options: dict[str, Any] = {"progress": False}
                if name == "both":
                    options = {"progress": True, "checkpoint": folder / str(repetition)}
                began = time.perf_counter()
                run(num_samples=draws, **options)
                of.append(time.perf_counter() - began)
            shutil.rmtree(folder / str(repetition))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    kept = {name: of[1:] for name, of in seconds.items()}
    return {"draws": draws * chains, "seconds": kept, "ratio": median_ratio(kept["both"], kept["neither"])}


def pieces() -> dict[str, str]:
    """For docs/long-runs.md."""
    found = load("checkpoints")
    rows = [[name, f"{of['draws']:,}", f"{100 * (of['ratio'] - 1):+.1f} %"] for name, of in found.results.items()]
    return {"checkpoint_cost": table(["run", "draws", "time with a checkpoint and progress"], rows)}


if __name__ == "__main__":
    configuration = {"repetitions": REPETITIONS, "in_terminal": sys.stderr.isatty()}
    save("checkpoints", configuration, {name: measure(make) for name, make in CASES.items()})
