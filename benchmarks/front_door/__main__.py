"""Run both in turn, and write results/front_door.json: `python -m benchmarks.front_door`; see the package."""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import save

LEVELS, NUMBERS = 1_000, 10
FORMULA = f"y ~ {' + '.join(f'x{j}' for j in range(NUMBERS))} + (1 | site)"
_BLOCK = 1_000_000


def write_rows(path: Path, rows: int) -> None:
    """Write the file, block by block."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    effects, coefficients = random.normal(0, 0.5, LEVELS), random.normal(0, 0.5, NUMBERS)
    labels = np.array([f"site {level:04d}" for level in range(LEVELS)])
    writer = None
    for first in range(0, rows, _BLOCK):
        count = min(_BLOCK, rows - first)
        x, site = random.normal(size=(count, NUMBERS)), random.integers(0, LEVELS, count)
        chance = 1 / (1 + np.exp(-(x @ coefficients + effects[site] - 1)))
        columns = {"y": (random.random(count) < chance).astype(np.int8), "site": labels[site]}
        block = pa.table(columns | {f"x{j}": x[:, j] for j in range(NUMBERS)})
        writer = writer or pq.ParquetWriter(path, block.schema)
        writer.write_table(block)
    assert writer is not None
    writer.close()


def ours(path: Path, folder: Path) -> dict[str, Any]:
    """Seconds and peak memory of the command, from a process that does nothing else and finds no compiled programs."""
    command = [sys.executable, "-m", "tallchain", "fit", str(path), FORMULA, "--family", "bernoulli"]
    began = time.perf_counter()
    options = ["--output", str(folder), "--overwrite", "--json"]
    environment = os.environ | {"TALLCHAIN_CACHE": tempfile.mkdtemp(dir=folder.parent)}
    child = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, env=environment)
    assert child.stdout is not None
    facts = json.loads(child.stdout.read())
    _, status, used = os.wait4(child.pid, 0)
    found = {"seconds": time.perf_counter() - began, "peak_bytes": used.ru_maxrss * 1024, "exit": status >> 8}
    return found | {"stages": {stage["name"]: stage["seconds"] for stage in facts["stages"]}} | _summary(facts)


def _summary(facts: dict[str, Any]) -> dict[str, Any]:
    return {"r_hat": facts["convergence"]["worst_r_hat"], "ess": facts["convergence"]["worst_ess"]}


def theirs(path: Path) -> dict[str, float]:
    """Seconds of reading the file and of a fit of the numbers, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.front_door.child", str(path)],
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        path, folder = Path(temporary) / "rows.parquet", Path(temporary) / "fit"
        write_rows(path, given.rows)
        rounds = [(ours(path, folder), theirs(path)) for _ in range(given.rounds)]
        size = path.stat().st_size
    design = given.rows * 4 * (NUMBERS + 1 + 1 + 1)  # numbers, ones, outcome, code of the site
    own, other = ([pair[at] for pair in rounds] for at in (0, 1))
    results = {
        "rows": given.rows,
        "file_bytes": size,
        "design_bytes": design,
        "peak_over_design": statistics.median(each["peak_bytes"] / design for each in own),
        "time_over_reading_and_fit": statistics.median(
            mine["seconds"] / (its["reading"] + its["fit"]) for mine, its in rounds
        ),
        "ours": own,
        "reading_and_fit": other,
    }
    configuration = {
        "formula": FORMULA,
        "levels": LEVELS,
        "cores": len(os.sched_getaffinity(0)),
        "rounds": given.rounds,
    }
    save("front_door", configuration, results)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
