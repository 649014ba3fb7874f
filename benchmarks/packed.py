"""Packing and packed tables: how much longer than a copy, and how many effective draws from a file of 4 GB.

`python -m benchmarks.packed [--rows 100000000] [--folder DIR]` writes results/packed.json. The file is a .npz of `y`
and nine features, float32; it takes three times its size on the disk of the folder for a while. Each stage is a process
of its own, whose peak of resident memory counts. A logistic regression is then prepared and sampled from a tenth of the
rows in memory, and from all rows in parts with 1 GB, in turns.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.measure import load, median_ratio, save
from benchmarks.records import table

SEED, FEATURES, ROUNDS, BLOCK = 11, 9, 3, 2**20
MEMORY, CHAINS, DECISIONS = "1GB", 64, 4_000_000
BETA = np.concatenate([[-0.5], np.random.default_rng(SEED).normal(0, 0.3, FEATURES)])


def rows_of(number: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Make a block of the table."""
    random = np.random.default_rng([SEED, number])
    x = random.standard_normal((count, FEATURES), np.float32)
    return x, (random.random(count, np.float32) < 1 / (1 + np.exp(-(BETA[0] + x @ BETA[1:])))).astype(np.float32)


def generate(path: Path, num_rows: int) -> None:
    """Write the file, block by block."""
    with zipfile.ZipFile(path, "w", allowZip64=True) as held:
        for name, width in (("x", FEATURES), ("y", 0)):
            shape = (num_rows, width) if width else (num_rows,)
            with held.open(f"{name}.npy", "w", force_zip64=True) as stream:
                header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_2_0(stream, header)
                for number, first in enumerate(range(0, num_rows, BLOCK)):
                    x, y = rows_of(number, min(BLOCK, num_rows - first))
                    stream.write((x if width else y).tobytes())


def copy(path: Path, _: int) -> dict[str, Any]:
    """Copy the file."""
    began = time.perf_counter()
    with path.open("rb") as source, (path.parent / "copy").open("wb") as to:  # not within the kernel, as shutil would
        shutil.copyfileobj(source, to, 2**24)
    seconds = time.perf_counter() - began
    (path.parent / "copy").unlink()
    return {"seconds": seconds}


def pack(path: Path, _: int) -> dict[str, Any]:
    """Pack it."""
    import tallchain as tc

    shutil.rmtree(path.parent / "packed", ignore_errors=True)
    began = time.perf_counter()
    tc.pack(path, path.parent / "packed", progress=False)
    return {"seconds": time.perf_counter() - began}


def in_parts(path: Path, _: int) -> dict[str, Any]:
    """Prepare and sample from all rows, a part at a time."""
    from tallchain.sources import Packed

    source = Packed(path.parent / "packed", memory=MEMORY)
    began = time.perf_counter()
    for number in range(source.num_parts):
        source.held.take(number)
    once = time.perf_counter() - began
    return {"parts": source.num_parts, "reading_once": once} | fitted(source)


def in_memory(_: Path, num_rows: int) -> dict[str, Any]:
    """Prepare and sample from a tenth of the rows in memory."""
    import tallchain as tc

    blocks = [rows_of(number, min(BLOCK, num_rows - first)) for number, first in enumerate(range(0, num_rows, BLOCK))]
    x, y = (np.concatenate(each) for each in zip(*blocks, strict=True))
    del blocks
    return fitted(tc.Shuffled({"x": x, "y": y}, 50))


def fitted(source: Any) -> dict[str, Any]:
    """Time `prepare` and `sample`; effective draws of the worst coefficient."""
    import jax
    from jax import random as jr

    import tallchain as tc
    from tallchain.checking.convergence import convergence_of
    from tallchain.models.design import INTERCEPT
    from tallchain.models.posterior import Posterior

    def log_likelihood(beta: Any, row: Any) -> Any:
        z = beta[0] + row["x"] @ beta[1:]
        return row["y"] * z - jax.nn.softplus(z)

    names = (INTERCEPT, *(f"x{k}" for k in range(FEATURES)))
    posterior = Posterior(lambda beta: -0.5 * (beta @ beta) / 6.25, log_likelihood, names=names)
    began = time.perf_counter()
    prepared = tc.prepare(posterior, source, np.zeros(1 + FEATURES, np.float32), progress=False)
    preparing = time.perf_counter() - began
    kernel = prepared.kernel()
    starts, draws = prepared.starts(jr.key(1), CHAINS), DECISIONS // CHAINS
    began = time.perf_counter()
    trace = tc.sample(
        jr.key(0),
        kernel,
        starts,
        draws,
        num_chains=CHAINS,
        num_warmup=100,
        scan=0,
        progress=False,
    )
    seconds = time.perf_counter() - began
    position = np.asarray(trace.position)
    ess = float(np.min(convergence_of([position]).ess))
    columns = (position[:, :, k].astype(np.float64) for k in range(len(BETA)))  # one at a time: memory is measured
    error = max(abs(column.mean() - beta) / column.std() for column, beta in zip(columns, BETA, strict=True))
    total = trace.decisions
    return {
        "num_rows": trace.num_rows,
        "preparing": preparing,
        "sweeps": prepared.rows_swept / trace.num_rows,
        "seconds": seconds,
        "sampling": trace.seconds,
        "draws": total.num_decisions,
        "acceptance": total.num_accepted / total.num_decisions,
        "rows_per_decision": total.rows_read / total.num_decisions,
        "effective": ess,
        "farthest_from_truth": float(error),
        "notes": list(trace.notes),
    }


STAGES: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "copy": copy,
    "pack": pack,
    "in_parts": in_parts,
    "in_memory": in_memory,
}


def run(stage: str, path: Path, num_rows: int) -> dict[str, Any]:
    """Run a stage in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.packed", "--stage", stage, "--folder", str(path.parent)]
    done = subprocess.run([*command, "--rows", str(num_rows)], check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(stage, {name: of for name, of in found.items() if name != "notes"}, file=sys.stderr, flush=True)
    return found


def main(
    rows: Annotated[int, typer.Option(help="N.")] = 100_000_000,
    folder: Annotated[Path | None, typer.Option(help="With room for the file three times.")] = None,
    rounds: Annotated[int, typer.Option(help="Of every stage, in turns.")] = ROUNDS,
    stage: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Measure all stages."""
    if stage is not None:
        assert folder is not None
        found = STAGES[stage](folder / "rows.npz", rows)
        found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix="tallchain-packed-") as made:
        path = Path(made) / "rows.npz"
        generate(path, rows)
        found: dict[str, Any] = {name: [] for name in STAGES}
        for _ in range(rounds):
            for name, of in found.items():
                of.append(run(name, path, rows if name != "in_memory" else rows // 10))
        size = path.stat().st_size
    configuration = {"rows": rows, "bytes": size, "memory": MEMORY, "rounds": rounds, "chains": CHAINS}
    save("packed", configuration, found)


def pieces() -> dict[str, str]:
    """For docs/scale.md."""
    held = load("packed")
    found, rows = held.results, held.configuration["rows"]

    def times(name: str, field: str = "seconds") -> list[float]:
        return [each[field] for each in found[name]]

    def peak(name: str) -> str:
        return f"{max(times(name, 'peak')) / 1e9:.1f} GB"

    per_second = {name: [e["effective"] / e["sampling"] for e in found[name]] for name in ("in_parts", "in_memory")}
    reading = [each["sweeps"] * each["reading_once"] for each in found["in_parts"]]
    lines = [
        [f"packing {rows:,} rows, over a plain copy", f"{median_ratio(times('pack'), times('copy')):.1f}", "6"],
        ["its peak of resident memory", peak("pack"), "2 GB"],
        [
            f"effective draws a second, {rows:,} rows in parts with {MEMORY}, over {rows // 10:,} rows in memory",
            f"{median_ratio(per_second['in_parts'], per_second['in_memory']):.2f}",
            "0.5",
        ],
        ["its peak of resident memory", peak("in_parts"), "2 GB"],
        [
            "`prepare`, over reading the table as often as it sweeps",
            f"{median_ratio(times('in_parts', 'preparing'), reading):.1f}",
            "3",
        ],
    ]
    return {"packed": table(["", "measured", "at most (effective draws: at least)"], lines)}


if __name__ == "__main__":
    typer.run(main)
