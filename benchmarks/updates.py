"""What it costs to add a hundredth of the rows to a fit, over a new fit of all rows.

`python -m benchmarks.updates [--rows 10000000]` writes results/updates.json. A process fits a table with room for more,
adds 1 % of its rows three times, and fits all of these rows anew, by a regression without groups (an exact test) and
one with 1000 groups, in turns. What comes before the draws is reading the new rows, comparing them with the posterior
before, the sums, and getting ready to sample; the rest is the draws: making them, judging whether they are enough, and
the summary of every parameter.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.measure import load, save
from benchmarks.records import table

SEED, FEATURES, GROUPS, SHARE, UPDATES, ROUNDS = 5, 5, 1000, 0.01, 3, 2
FIXED = "y ~ " + " + ".join(f"x{k}" for k in range(FEATURES))
FORMULAS = {"no groups, exact test": FIXED, "1000 groups": f"{FIXED} + (1 | group)"}
BETA = np.random.default_rng(SEED).normal(0, 0.3, FEATURES)
EFFECTS = np.random.default_rng(SEED + 1).normal(0, 0.4, GROUPS)


def rows_of(number: int, count: int) -> dict[str, np.ndarray]:
    """Make some rows."""
    random = np.random.default_rng([SEED, number])
    columns = {f"x{k}": random.standard_normal(count, np.float32) for k in range(FEATURES)}
    columns["group"] = random.integers(0, GROUPS, count).astype(np.int32)
    z = -0.5 + EFFECTS[columns["group"]] + sum(beta * columns[f"x{k}"] for k, beta in enumerate(BETA))
    return columns | {"y": (random.random(count) < 1 / (1 + np.exp(-z))).astype(np.int8)}


def child(name: str, num_rows: int) -> dict[str, Any]:
    """Fit, update, and fit anew."""
    import tallchain as tc

    parts = [rows_of(0, num_rows), *(rows_of(number, int(SHARE * num_rows)) for number in range(1, UPDATES + 1))]
    options: dict[str, Any] = {"family": "bernoulli", "progress": False}
    began = time.perf_counter()
    fit = tc.fit(FORMULAS[name], parts[0], room=SHARE * UPDATES, **options)
    first, updates = time.perf_counter() - began, []
    for more in parts[1:]:
        began = time.perf_counter()
        fit = fit.update(more, progress=False)
        seconds = time.perf_counter() - began
        before = sum(of.seconds for of in fit.facts.stages if of.name not in ("sampling", "scan of all rows"))
        updates.append({"seconds": seconds, "before": before, "sampling": fit.trace.seconds})
    whole = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}
    began = time.perf_counter()
    anew = tc.fit(FORMULAS[name], whole, **options)
    seconds = time.perf_counter() - began
    mine, its = fit.summary(), anew.summary()
    apart = float(np.max(np.abs(mine["mean"] - its["mean"]) / its["sd"]))
    return {"fit": first, "updates": updates, "anew": seconds, "apart": apart}


def run(rows: Annotated[int, typer.Option()] = 10_000_000, only: str = "") -> None:
    """Run all, each in a process of its own."""
    if only:
        print(json.dumps(child(only, rows)))
        return
    results: dict[str, list[Any]] = {name: [] for name in FORMULAS}
    for _ in range(ROUNDS):
        for name, runs in results.items():
            with tempfile.TemporaryFile("w+") as output:
                command = [sys.executable, "-m", "benchmarks.updates", "--rows", str(rows), "--only", name]
                subprocess.run(command, check=True, stdout=output, cwd=Path(__file__).parents[1])
                output.seek(0)
                runs.append(json.loads(output.read().splitlines()[-1]))
            print(name, runs[-1], file=sys.stderr, flush=True)
    save("updates", {"rows": rows, "features": FEATURES, "share": SHARE}, results)


def pieces() -> dict[str, str]:
    """For docs/scale.md."""
    lines = []
    for name, runs in load("updates").results.items():
        before, whole = (
            np.array([[of[what] / each["anew"] for of in each["updates"]] for each in runs])
            for what in ("before", "seconds")
        )
        shares = np.median(before[:, 0]), np.median(before[:, 1:]), np.median(whole - before)
        lines.append([name, *(f"{100 * share:.1f} %" for share in shares)])
    return {"updates": table(["", "the first update", "those after it", "and the draws"], lines)}


if __name__ == "__main__":
    typer.run(run)
