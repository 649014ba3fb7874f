"""Run the methods in turn, and write results/time_to_answer.json; see the package."""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tallchain
from benchmarks.measure import RESULTS, load, save
from benchmarks.peers.targets import TARGETS
from benchmarks.records import Result
from benchmarks.time_to_answer import page, picture
from benchmarks.time_to_answer.child import EFFECTIVE, METHODS

DOCS = Path(__file__).parents[2] / "docs"
FITS = ("scikit-learn newton-cholesky", "scikit-learn lbfgs", "glum")
SLOW = ("NumPyro NUTS", "NumPyro HMCECS", "BlackJAX NUTS")
GIVES = dict.fromkeys(METHODS, "posterior") | dict.fromkeys(FITS, "point") | {"glum": "point, interval on request"}
CACHED = ("tallchain",)
MOST_ROWS = 1_000_000  # for the slow ones: NUTS on 10^7 rows takes hours


def write_rows(target: str, rows: int | None, folder: Path) -> int:
    """Write the rows of a target for the processes to load."""
    data = TARGETS[target](rows, None).model.data
    np.save(folder / "x.npy", np.ascontiguousarray(data["x"], np.float32))
    np.save(folder / "y.npy", np.asarray(data["y"], np.float32))
    return len(data["y"])


def run(method: str, folder: Path, cache: Path | None, *, count_programs: bool = False) -> dict[str, Any]:
    """Run one process; {"error": ...} if it fails."""
    settings = {"TIME_TO_ANSWER_PROGRAMS": "1"} if count_programs else {}
    if cache is not None:
        settings |= {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    calls = "1" if method in SLOW else "2"
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.time_to_answer.child", method, str(folder), calls]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(target: str, rows: int | None, methods: list[str], rounds: int) -> dict[str, Any]:
    """All methods on one table, interleaved; the slow ones once, where compiling matters little."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        num_rows = write_rows(target, rows, folder)
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in methods}
        cached: dict[str, list[dict[str, Any]]] = {name: [] for name in methods if name in CACHED}
        for number in range(rounds):
            for name in methods:
                if name in SLOW and (number or num_rows > MOST_ROWS):
                    continue
                runs[name].append(run(name, folder, None))
                if name in cached:
                    if not number:
                        run(name, folder, folder / "cache")
                    cached[name].append(run(name, folder, folder / "cache"))
                print(f"{target} {num_rows:,} {name}: {_said(runs[name][-1])}", flush=True)
        found = {name: _summary(runs[name], cached.get(name, [])) for name in methods if runs[name]}
        if "tallchain" in methods:
            found["tallchain"] |= _programs(run("tallchain", folder, None, count_programs=True))
    return {"target": target, "rows": num_rows, "methods": found}


def _said(found: dict[str, Any]) -> str:
    if "error" in found:
        return found["error"]
    return ", ".join(f"{found[name]['seconds']:.2f} s" for name in ("first", "again") if name in found)


def _summary(runs: list[dict[str, Any]], cached: list[dict[str, Any]]) -> dict[str, Any]:
    errors = [one["error"] for one in (*runs, *cached) if "error" in one]
    if errors:
        return {"error": errors[0]}
    facts = {name: runs[-1]["first"].get(name) for name in ("effective", "rows_swept", "mean", "sd")}
    seconds = {
        "cold": [one["first"]["seconds"] for one in runs],
        "cached": [one["first"]["seconds"] for one in cached],
        "again": [one["again"]["seconds"] for one in runs if "again" in one],
    }
    medians = {name: statistics.median(values) for name, values in seconds.items() if values}
    return {"seconds": medians, "runs": seconds} | {name: value for name, value in facts.items() if value is not None}


def _programs(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ("programs", "compile_seconds", "longest") if name in found}


def with_ratios(table: dict[str, Any]) -> dict[str, Any]:
    """Add every time over that of a maximum-likelihood fit by scikit-learn's fastest solver, once it is imported."""
    fit = table["methods"].get(FITS[0], {}).get("seconds")
    for found in table["methods"].values():
        if fit and "seconds" in found:
            found["over_fit"] = {name: value / fit["again"] for name, value in found["seconds"].items()}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--targets", nargs="*", default=["simulated"], choices=list(TARGETS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--rounds", type=int, default=3, help="0 only draws docs/time-to-answer.png, from the results")
    options = parser.parse_args()
    path = RESULTS / "time_to_answer.json"
    for package in tallchain.__path__:  # as pip does with what it installs; Python may be told not to
        compileall.compile_dir(package, quiet=1)
    for target in options.targets if options.rounds else ():
        for rows in options.rows if target == "simulated" else [None]:
            table = with_ratios(measure(target, rows, options.methods, options.rounds))
            found = {f"{target} {table['rows']}": table}
            configuration = {
                "what": f"seconds from import to {EFFECTIVE} effective draws of the worst parameter (posteriors), or "
                "to the coefficients (fits); rows in memory",
                "cores": len(os.sched_getaffinity(0)),
                "statistic": f"median of {options.rounds} interleaved rounds; slow methods once",
                "gives": GIVES,
            }
            before = load("time_to_answer") if path.exists() else None
            new = Result.of(configuration, found)
            save("time_to_answer", configuration, (new if before is None else new.over(before)).results, quiet=True)
    picture.figure(page.ordered()).savefig(DOCS / "time-to-answer.png")
    for name, table in load("time_to_answer").results.items():
        print(name)
        for method, one in table["methods"].items():
            print(
                f"  {method:30s}", one.get("error") or {key: round(value, 2) for key, value in one["seconds"].items()}
            )


if __name__ == "__main__":
    main()
