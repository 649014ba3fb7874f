"""A simulation of the same run, event by event: what the formulas of `model` leave out is how processes wait.

Processes have speeds of their own, and vary from step to step. Nobody goes on before all have told what they found:
each asks the store for what the others have said, one after another, and the store answers one request at a time.
"""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np

from benchmarks.plan import work
from benchmarks.plan.model import SHORT, Constants, Fleet, Job, Steps, collective, message, planned

JOB = Job(rows=10**12, parts=1000, chains=16, draws=1000, features=work.FEATURES)
"""Of the plan. Chains of a part and draws of a chain are those of docs/several/several.py."""
FLEET, GROUPED = Fleet(1000, cores=16, disk=1e9), Fleet(125, cores=8 * 16, disk=8e9)
"""A process for each device; and one for eight devices, which share neither cores nor disks."""


_SEEN = 3  # times that all tell each other something of a kind are simulated request by request


def told(arrivals: np.ndarray, request: float, serve: float) -> np.ndarray:
    """Return when each process knows what all have said, from when each has come.

    A process says its own, then asks for that of 0, 1, ... in turn; an answer waits until the other has said it. A
    request takes `request` from a process to the store and back, of which the store works for `serve`.
    """
    count, travel = len(arrivals), max(request - serve, 0)
    said, done, free = np.full(count, math.inf), np.zeros(count), 0.0
    waiting: dict[int, list[int]] = {}
    events = [(at, process, -1) for process, at in enumerate(arrivals.tolist())]
    heapq.heapify(events)
    while events:
        at, process, asked = heapq.heappop(events)
        if asked >= 0 and said[asked] > at:  # not yet
            waiting.setdefault(asked, []).append(process)
            continue
        free = max(at, free) + serve
        if asked < 0:
            said[process] = at  # or it might be asked for while it is being said
            for other in waiting.pop(process, []):
                heapq.heappush(events, (free, other, process))
        if asked == count - 1:
            done[process] = free + travel
        else:
            heapq.heappush(events, (free + travel, process, asked + 1))
    return done


class _Clock:
    """The processes, and how late it is for each."""

    def __init__(self, constants: Constants, fleet: Fleet, seed: int) -> None:
        self._constants, self._fleet = constants, fleet
        self._random = np.random.default_rng(seed)
        self._speed = np.exp(self._random.normal(0, fleet.spread, fleet.processes))
        self._after: dict[str, list[float]] = {}
        self.now = np.zeros(fleet.processes)

    def work(self, seconds: float, *, once: float = 0.0) -> float:
        """Let each work at its own speed; return how much later the last one is."""
        began = self.now.max()
        varied = np.exp(self._random.normal(0, self._fleet.spread, len(self.now)))
        self.now = self.now + once + seconds * self._speed * varied
        return float(self.now.max() - began)

    def tell(self, what: str, size: float) -> float:
        """Let each tell the others a message; return how much later it is, from when the last one came."""
        if len(self.now) == 1:
            return 0.0
        began, after = float(self.now.max()), self._after.setdefault(what, [])
        once = 0.0 if after or size <= SHORT else self._constants.collective_once
        if len(after) < _SEEN:  # later ones take as long as these: a thousand processes ask a million times
            self.now = told(self.now, self._constants.request, self._constants.serve)
            after.append(float(self.now.max()) - began)
        else:
            self.now = np.full(len(self.now), began + float(np.mean(after)))
        if size > SHORT:
            later = self.now.max() + once + collective(self._constants, len(self.now), size)
            self.now = np.full(len(self.now), later)
        return float(self.now.max()) - began


def simulated(constants: Constants, job: Job, fleet: Fleet, seed: int = 0) -> Steps:
    """Run it."""
    clock, found = _Clock(constants, fleet, seed), dict.fromkeys(Steps._fields, 0.0)
    here, rows = job.parts // fleet.processes, job.part_rows * (job.parts // fleet.processes)
    found["reading"] = clock.work(0, once=rows * constants.row_bytes * max(constants.read_byte, 1 / fleet.disk))
    found["sweeping"] = clock.work(0, once=constants.prepare_once)
    for _ in range(int(constants.sweeps)):
        found["sweeping"] += clock.work(rows * constants.sweep_row / constants.sweeps / fleet.cores)
        found["sweeping"] += clock.tell("a sweep", 2 * SHORT)
    found["sampling"] = clock.work(0, once=constants.compile_once)
    draws = job.chains * here * job.length / job.chunks
    seen = draws * fleet.processes, job.chains * job.parts
    for _ in range(job.rounds * job.chunks):
        found["sampling"] += clock.work(
            draws * constants.draw / fleet.cores + constants.chunk + here * constants.chunk_part
        )
        found["telling"] += clock.tell("a chunk", message(constants, job, fleet))
        found["digesting"] += clock.work(0, once=seen[0] * constants.digest_draw + seen[1] * constants.digest_chain)
    found["scanning"] = clock.work(rows * constants.scan_row / fleet.cores, once=constants.scan_once)
    found["scanning"] += clock.tell("a sweep", 2 * SHORT)
    return Steps(**found)


def compared(constants: Constants, rows: int, draws: int, processes: int, parts: int, length: int) -> dict[str, Any]:
    """Return what formulas and simulation say of a run that was made here."""
    job, fleet = Job(rows, parts, work.CHAINS, draws, work.FEATURES, length), Fleet(processes)
    return _both(constants, job, fleet) | {"draws": job.all_draws}


def plan(constants: Constants) -> dict[str, Any]:
    """Return the plan for very many rows, and the same simulated."""
    return {
        "alone": _both(constants, JOB, FLEET),
        "grouped": _both(constants, JOB, GROUPED),
        "lifted": {"planned": _plain(planned(constants, JOB, FLEET, is_lifted=True))},
    }


def _both(constants: Constants, job: Job, fleet: Fleet) -> dict[str, dict[str, float]]:
    return {name: _plain(of(constants, job, fleet)) for name, of in (("planned", planned), ("simulated", simulated))}


def _plain(steps: Steps) -> dict[str, float]:
    return steps._asdict() | {"total": steps.total}
