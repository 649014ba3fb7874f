"""Two processes against one, each held to one core: chains divided alone, and rows divided too.

`python -m benchmarks.processes` writes results/processes.json: draws a second of a logistic regression, N = 1e6,
d = 20, with control variates and the `Penalty` test, in turns.
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

ROWS, FEATURES, CHAINS, DRAWS, ROUNDS = 1_000_000, 20, 64, 60_000, 2
WHAT = {"chains": "chains alone", "rows": "rows divided too"}


def child(what: str, output: Path) -> None:
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
    kernel, starts = prepared.kernel(tc.Penalty()), prepared.starts(jax.random.key(0), CHAINS)
    trace = tc.sample(
        jax.random.key(1), kernel, starts, DRAWS, num_chains=CHAINS, keep="moments", scan=0, progress=False
    )
    found = {"preparing": preparing, "sampling": trace.seconds, "draws": trace.decisions.num_decisions}
    if rank == 0:
        output.write_text(json.dumps(found))


def run(what: str, processes: int) -> dict[str, Any]:
    """Run processes, each on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))[:processes]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        launcher = [sys.executable, "-m", "tallchain", "launch", "--processes", str(processes)]
        command = [*launcher, str(Path(__file__)), what, str(output)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(command, check=True, env=environment, preexec_fn=lambda: os.sched_setaffinity(0, cores))
        found = json.loads(output.read_text())
    print(what, processes, found, file=sys.stderr, flush=True)
    return found


def pieces() -> dict[str, str]:
    """For docs/scale.md."""
    lines = []
    for what, of in load("processes").results.items():
        rate = {count: [each["draws"] / each["sampling"] for each in runs] for count, runs in of.items()}
        preparing = {count: [each["preparing"] for each in runs] for count, runs in of.items()}
        faster = f"{median_ratio(rate['2'], rate['1']):.2f}"
        lines.append([WHAT[what], faster, f"{median_ratio(preparing['1'], preparing['2']):.2f}"])
    return {"processes": table(["", "draws a second", "`prepare`"], lines)}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1], Path(sys.argv[2]))
    else:
        results: dict[str, Any] = {what: {"1": [], "2": []} for what in WHAT}
        for _ in range(ROUNDS):
            for name, of in results.items():
                for count, runs in of.items():
                    runs.append(run(name, int(count)))
        save("processes", {"rows": ROWS, "features": FEATURES, "chains": CHAINS, "draws": DRAWS}, results)
