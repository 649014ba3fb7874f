"""Trials of an experiment: one chain at a time, kept as they finish, and not run again after an interruption."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from tallchain.experiments.common import Progress
from tallchain.files import read_arrays, write_arrays
from tallchain.kernel import MetropolisHastings
from tallchain.sample import sample
from tallchain.schedule import Schedule
from tallchain.trace import Trace
from tallchain.types import PyTree

Arrays = dict[str, np.ndarray]
_VERSION = 1  # of what is kept: files of another one are not read


class Printed(NamedTuple):
    """A number of the paper, with the standard deviation over trials that it prints."""

    mean: float
    sd: float


class Job(NamedTuple):
    """The trials of one method."""

    name: str
    config: Any
    """All that determines the trials, as JSON takes it: kept trials of another one are not used."""
    num_trials: int
    run: Callable[[int, Callable[[int, int], None]], Arrays]
    """(number of the trial, report of (draws done, draws)) -> what is kept of it."""


def run_jobs(jobs: Sequence[Job], folder: Path | None, progress: Progress | None = None) -> dict[str, list[Arrays]]:
    """Run all trials of all jobs, method by method; take those that are in `folder` already from there.

    An interruption loses the trial under way, and no other.
    """
    if len({job.name for job in jobs}) < len(jobs):
        raise ValueError(f"two jobs have the same name: {[job.name for job in jobs]}")
    report = progress or (lambda done, total, what: None)
    total = 1000 * sum(job.num_trials for job in jobs)
    found: dict[str, list[Arrays]] = {job.name: [] for job in jobs}
    done = 0
    for job in jobs:
        for trial in range(job.num_trials):
            what = f"{job.name}, trial {trial + 1} of {job.num_trials}"
            report(done, total, what)
            path = folder / f"{_slug(job.name)}-{trial}.npz" if folder else None
            found[job.name].append(_kept(path, job, partial(_report_part, report, done, total, what), trial))
            done += 1000
    report(total, total, "done")
    return found


def _report_part(report: Progress, begun: int, total: int, what: str, draws: int, of: int) -> None:
    report(begun + 1000 * draws // of, total, what)


def _kept(path: Path | None, job: Job, report: Callable[[int, int], None], trial: int) -> Arrays:
    key = json.dumps({"version": _VERSION, "trial": trial, "config": job.config}, sort_keys=True)
    if path is not None:
        arrays = read_arrays(path)
        if arrays is not None and str(arrays.pop("key", "")) == key:
            return arrays
    arrays = job.run(trial, report)
    if path is not None:
        write_arrays(path, arrays | {"key": np.array(key)})
    return arrays


def run_trial(
    kernel: MetropolisHastings,
    start: PyTree,
    num_draws: int,
    seed: tuple[int, ...],
    report: Callable[[int, int], None],
    schedule: Schedule | None = None,
) -> Trace:
    """One chain; what interrupts it is not swallowed, since half a trial is none."""
    key = jax.random.key(seed[0])
    for number in seed[1:]:
        key = jax.random.fold_in(key, number)
    trace = sample(key, kernel, start, num_draws, schedule=schedule, scan=0, progress=report)
    if trace.is_interrupted:
        raise KeyboardInterrupt("a trial was interrupted; those that were finished are kept")
    return trace


class Rows(NamedTuple):
    """Rows per decision of a method: mean over trials of the mean of a trial, and its sd over trials."""

    mean: float
    sd: float
    scanned: float
    """Rows read beside them, for bounds or design."""
    trials: list[float]


def rows_of(trials: Sequence[Arrays]) -> Rows:
    """Count rows as the paper does, and what it does not count beside them."""
    means = [float(trial["num_rows"].mean()) for trial in trials]
    scanned = float(np.mean([trial["num_scanned"].mean() for trial in trials]))
    return Rows(float(np.mean(means)), spread(means), scanned, means)


def spread(values: Sequence[float]) -> float:
    """Standard deviation over trials; 0 of a single one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def standard_error(values: Sequence[float]) -> float:
    """Of the mean over trials."""
    return spread(values) / max(len(values), 1) ** 0.5


def config_of(of: Any, **more: Any) -> dict[str, Any]:
    """A configuration as JSON takes it."""
    return json.loads(json.dumps(dataclasses.asdict(of) | more))


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower()).strip("-")
