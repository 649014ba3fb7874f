"""Shared by the benchmarks: interleaved medians, and their result files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.records import Result

RESULTS = Path(__file__).parent / "results"


def interleaved(candidates: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, list[float]]:
    """Time the candidates in turn, many times, so that a noisy machine disturbs all of them equally."""
    for run in candidates.values():
        jax.block_until_ready(run())
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repetitions):
        for name, run in candidates.items():
            began = time.perf_counter()
            jax.block_until_ready(run())
            seconds[name].append(time.perf_counter() - began)
    return seconds


def median_ratio(above: list[float] | np.ndarray, below: list[float] | np.ndarray) -> float:
    """Median of the ratios of neighbours in time."""
    return float(np.median(np.asarray(above) / np.asarray(below)))


def load(name: str) -> Result:
    """Read results/NAME.json."""
    return Result.read(RESULTS / f"{name}.json")


def save(name: str, configuration: dict[str, Any], results: Any, *, quiet: bool = False) -> None:
    """Write results/NAME.json, and print it unless `quiet`."""
    result = Result.of(configuration, results)
    result.write(RESULTS / f"{name}.json")
    if not quiet:
        print(result)
