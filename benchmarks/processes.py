"""Two processes against one, each held to one core: chains divided alone, and rows divided too.

`python -m benchmarks.processes` writes results/processes.json: draws a second of a logistic regression, N = 1e6,
d = 20, with control variates and the `Penalty` test, in turns; with 256 chains, and with 64, of which each of two cores
has half in lockstep: too few to use a core well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import load, median_ratio, save
from benchmarks.records import table
from tallchain import crew

ROWS, FEATURES, CHAINS, DECISIONS, ROUNDS = 1_000_000, 20, (256, 64), 4_000_000, 3
WHAT = {"chains": "chains alone", "rows": "rows divided too"}


def child(what: str, chains: int, output: Path) -> None:
    """Run a part of the chains."""
    rank = crew.start()
    import jax
    import numpy as np

    import tallchain as tc

    random = np.random.default_rng(3)
    x = random.standard_normal((ROWS, FEATURES), np.float32)
    y = (random.random(ROWS) < 1 / (1 + np.exp(-x @ random.normal(0, 0.3, FEATURES)))).astype(np.float32)
    model = tc.models.logistic_regression(x, y, prior_sd=2.5, bound=False)
    source: Any = tc.Shuffled(model.data, 50) if what == "chains" else tc.sources.Sharded(model.data, 2)
    began = time.perf_counter()
    prepared = tc.prepare(model.posterior, source, model.start, progress=False)
    preparing = time.perf_counter() - began
    kernel, starts = prepared.kernel(tc.Penalty()), prepared.starts(jax.random.key(0), chains)
    options: dict[str, Any] = {"num_chains": chains, "keep": "moments", "scan": 0, "progress": False}
    trace = tc.sample(jax.random.key(1), kernel, starts, DECISIONS // chains, **options)
    found = {"preparing": preparing, "sampling": trace.seconds, "draws": trace.decisions.num_decisions}
    if rank == 0:
        output.write_text(json.dumps(found))


def run(what: str, chains: int, processes: int) -> dict[str, Any]:
    """Run processes, each on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))[:processes]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        launcher = [sys.executable, "-m", "tallchain", "launch", "--processes", str(processes)]
        command = [*launcher, str(Path(__file__)), what, str(chains), str(output)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(command, check=True, env=environment, preexec_fn=lambda: os.sched_setaffinity(0, cores))
        found = json.loads(output.read_text())
    print(what, chains, processes, found, file=sys.stderr, flush=True)
    return found


def pieces() -> dict[str, str]:
    """For docs/scale.md."""
    lines = []
    for name, of in load("processes").results.items():
        what, chains = name.split()
        rate = {count: [each["draws"] / each["sampling"] for each in runs] for count, runs in of.items()}
        preparing = {count: [each["preparing"] for each in runs] for count, runs in of.items()}
        faster = f"{median_ratio(rate['2'], rate['1']):.2f}"
        lines.append([WHAT[what], chains, faster, f"{median_ratio(preparing['1'], preparing['2']):.2f}"])
    return {"processes": table(["", "chains", "draws a second", "`prepare`"], lines)}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    else:
        results: dict[str, Any] = {f"{what} {chains}": {"1": [], "2": []} for chains in CHAINS for what in WHAT}
        for _ in range(ROUNDS):
            for name, of in results.items():
                for count, runs in of.items():
                    what, chains = name.split()
                    runs.append(run(what, int(chains), int(count)))
        save("processes", {"rows": ROWS, "features": FEATURES, "decisions": DECISIONS}, results)
