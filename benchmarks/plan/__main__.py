"""Measure the constants, make the plan, and compare: `python -m benchmarks.plan` writes results/plan.json.

Two cores, and less than four minutes. `--again` only makes the plan anew, from the constants on file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.measure import load, save
from benchmarks.plan import child, model, simulation, work

REAL = {"1 process, 2 parts": (1, 2, 100), "1 process, 4 parts": (1, 4, 1000), "2 processes, 2 parts": (2, 2, 100)}
"""Processes, parts, draws of a round."""
ROWS, DRAWS, TURNS, CROWDS = 1_500_000, 2000, 2, (2, 4, 8)


def run(stage: str, processes: int, *arguments: object) -> dict[str, Any]:
    """Run a stage in processes of its own, each on one core where there are enough."""
    cores = sorted(os.sched_getaffinity(0))[:processes]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        launcher = [sys.executable, "-m", "tallchain", "launch", "--processes", str(processes)]
        words = [*launcher, str(Path(child.__file__)), stage, str(output), *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(words, check=True, env=environment, preexec_fn=lambda: os.sched_setaffinity(0, cores))
        found = json.loads(output.read_text())
    print(stage, processes, *arguments, found, file=sys.stderr, flush=True)
    return found


def measured() -> dict[str, Any]:
    """Measure the constants; then run what the formulas can be compared with."""
    found: dict[str, Any] = {"one": run("one", 1), "talk": [run("talk", count) for count in CROWDS], "real": {}}
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "packed"
        work.pack(packed, ROWS)
        for _ in range(TURNS):
            for name, (processes, parts, length) in REAL.items():
                found["real"].setdefault(name, []).append(run("real", processes, packed, parts, length, DRAWS))
    return found


def main(again: Annotated[bool, typer.Option(help="Only make the plan anew.")] = False) -> None:
    """Measure and plan."""
    found = load("plan").results["measured"] if again else measured()
    constants = model.Constants.of(found)
    results = {
        "measured": found,
        "compared": {name: simulation.compared(constants, ROWS, DRAWS, *of) for name, of in REAL.items()},
        "planned": simulation.plan(constants),
    }
    save("plan", {"rows": ROWS, "draws": DRAWS, "features": work.FEATURES, "chains": work.CHAINS}, results, quiet=again)


if __name__ == "__main__":
    typer.run(main)
