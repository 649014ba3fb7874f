"""Shared by the benchmarks: interleaved medians, and result files that name their configuration."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tallchain

RESULTS = Path(__file__).parent / "results"


def interleaved(candidates: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, list[float]]:
    """Time the candidates in turn, again and again, so that a noisy machine disturbs all of them alike."""
    for run in candidates.values():
        jax.block_until_ready(run())
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repetitions):
        for name, run in candidates.items():
            began = time.perf_counter()
            jax.block_until_ready(run())
            seconds[name].append(time.perf_counter() - began)
    return seconds


def median_ratio(above: list[float], below: list[float]) -> float:
    """Median of the ratios of neighbours in time."""
    return float(np.median(np.asarray(above) / np.asarray(below)))


def load(name: str) -> Any:
    """Read results/NAME.json."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def save(name: str, configuration: dict[str, Any], results: Any, *, quiet: bool = False) -> None:
    """Write results/NAME.json, and print it unless `quiet`."""
    record = {
        "configuration": configuration,
        "versions": {"tallchain": tallchain.__version__} | {name: version(name) for name in ("jax", "numpy", "scipy")},
        "backend": jax.default_backend(),
        "results": results,
    }
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(record, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    if not quiet:
        print(text)


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
