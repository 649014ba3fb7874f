"""Repetitions of an experiment: run in parallel, kept as they go, and resumed after an interruption.

The repetitions of one method are chains in lockstep: a turn of a few chains costs about as much as a turn of one. So
ten repetitions of the confidence sampler, which reads all rows at every decision, take about as long as one.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from tallchain import __version__
from tallchain.checking.trace import Trace
from tallchain.experiments.common import Progress
from tallchain.files import read_arrays, write_arrays
from tallchain.keys import make_key
from tallchain.sample import sample
from tallchain.schedule import Kernel, Schedule

Arrays = dict[str, np.ndarray]
_VERSION = 2  # of what is kept: files of another version are not read
_UNITS = 1000  # of progress for every job, since slow tests have fewer draws
_OWN = ("end", "seconds")  # of a segment: where it ended, and what it took


class Printed(NamedTuple):
    """A number of the paper, with the standard deviation over repetitions that it prints."""

    mean: float
    sd: float


@dataclasses.dataclass(frozen=True)
class Job:
    """The repetitions of one method, in parallel: one chain is one repetition."""

    name: str
    config: Any
    """All that determines the repetitions, as JSON: draws kept for other settings are not used."""
    num_trials: int
    num_draws: int
    make: Callable[[], tuple[Kernel, np.ndarray]]
    """The sampler, and where the repetitions start (repetition, ...); called if there is something left to run."""
    keep: Callable[[Trace], Arrays]
    """What to keep of some draws, by repetition and draw."""
    seed: tuple[int, ...]
    schedule: Schedule | None = None
    segment: int = 250
    """Draws of each repetition after which they are kept: an interruption loses no more. With a schedule, which counts
    draws from the start of a run, all of them; so with a kernel that carries more than its position."""


def run_jobs(jobs: Sequence[Job], folder: Path | None, progress: Progress | None = None) -> dict[str, Arrays]:
    """Run all repetitions of all jobs, method by method; draws already in `folder` are taken from there.

    Returns what was kept by job, with the repetitions along the first axis and the draws along the second; and under
    "seconds" the time it took, including the time before an interruption.
    """
    if len({job.name for job in jobs}) < len(jobs):
        raise ValueError(f"two jobs have the same name: {[job.name for job in jobs]}")
    total = _UNITS * len(jobs)
    found = {
        job.name: _run(job, folder, partial(_report, progress, job, _UNITS * number, total))
        for number, job in enumerate(jobs)
    }
    if progress:
        progress(total, total, "done")
    return found


def _report(progress: Progress | None, job: Job, before: int, total: int, done: int) -> None:
    if progress:
        draws = f"{done // job.num_trials:,} of {job.num_draws:,} draws"
        trials = f"{job.num_trials} repetitions" if job.num_trials > 1 else "1 repetition"
        part = _UNITS * done // (job.num_trials * job.num_draws)
        progress(before + part, total, f"{job.name}, {trials}, {draws}")


def _run(job: Job, folder: Path | None, report: Callable[[int], None]) -> Arrays:
    """Run the segments, each from where the last one ended."""
    parts: list[Arrays] = []
    made: tuple[Kernel, np.ndarray] | None = None
    segment = job.num_draws if job.schedule else job.segment
    for begin in range(0, job.num_draws, segment):
        draws = min(segment, job.num_draws - begin)
        report(begin * job.num_trials)
        path = folder / f"{_slug(job.name)}-{begin}.npz" if folder else None
        key = json.dumps(
            {
                "version": [_VERSION, __version__],
                "segment": [begin, draws],
                "trials": job.num_trials,
                "config": job.config,
            }
        )
        # Once a segment is drawn anew, the later segments on file started elsewhere.
        part = read_arrays(path) if path and made is None else None
        if part is None or str(part.pop("key", "")) != key:
            made = made or job.make()
            start = parts[-1]["end"] if parts else made[1]
            part = _sample(job, made[0], start, begin, draws, report)
            if path:
                write_arrays(path, part | {"key": np.array(key)})
        parts.append(part)
    joined = {name: np.concatenate([part[name] for part in parts], 1) for name in parts[0] if name not in _OWN}
    return joined | {"seconds": np.sum([part["seconds"] for part in parts])}


def _sample(
    job: Job, kernel: Kernel, start: np.ndarray, begin: int, draws: int, report: Callable[[int], None]
) -> Arrays:
    """Draw one segment; an interruption is passed on."""
    begun = time.perf_counter()
    key = make_key(job.seed[0])
    for number in (*job.seed[1:], begin):
        key = jax.random.fold_in(key, number)
    trace = sample(
        key,
        kernel,
        start,
        draws,
        num_chains=job.num_trials,
        schedule=job.schedule,
        scan=0,
        progress=lambda done, _: report(begin * job.num_trials + done),
    )
    if trace.is_interrupted:
        raise KeyboardInterrupt("interrupted; what was finished before is kept")
    end, seconds = np.asarray(trace.position)[:, -1], np.array(time.perf_counter() - begun)
    return job.keep(trace) | {"end": end, "seconds": seconds}


def seconds_of(found: Mapping[Any, Arrays]) -> float:
    """Add up what all jobs took."""
    return float(sum(of["seconds"] for of in found.values()))


def rows_and_verdicts(trace: Trace) -> Arrays:
    """What every experiment keeps: rows read, rows scanned, whether the chain moved."""
    return {"rows_read": trace.rows_read, "rows_scanned": trace.rows_scanned, "is_accepted": trace.is_accepted}


class Rows(NamedTuple):
    """Rows per decision of a method: mean over repetitions of a repetition's mean, and its sd over repetitions."""

    mean: float
    sd: float
    scanned: float
    """Additional rows scanned, for bounds or design."""
    trials: list[float]


def rows_of(trials: Arrays) -> Rows:
    """Count rows as the paper does, and separately those that it does not count."""
    means = trials["rows_read"].mean(1).tolist()
    return Rows(float(np.mean(means)), spread(means), float(trials["rows_scanned"].mean()), means)


def spread(values: Sequence[float]) -> float:
    """Standard deviation over repetitions; 0 for a single one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def standard_error(values: Sequence[float]) -> float:
    """Of the mean over repetitions."""
    return spread(values) / max(len(values), 1) ** 0.5


def config_of(of: Any, **more: Any) -> dict[str, Any]:
    """A configuration as JSON takes it."""
    return json.loads(json.dumps(dataclasses.asdict(of) | more))


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower()).strip("-")
