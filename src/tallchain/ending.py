"""The end of a run: the scan of all rows, and the trace."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any, NamedTuple

from tallchain.abilities import NotedSource
from tallchain.checking.faults import SamplingError
from tallchain.checking.recorder import Recorder
from tallchain.checking.scan import scan as scan_rows
from tallchain.checking.trace import Trace
from tallchain.checking.verdict import Scan
from tallchain.checking.violations import BoundError, check_all_rows, needs_check
from tallchain.checkpoints import RunCheckpoint
from tallchain.kernel import MetropolisHastings
from tallchain.lockstep import Drawn
from tallchain.rounds import Rounds
from tallchain.runner import Runner
from tallchain.schedule import Kernel, Schedule
from tallchain.settings import Settings, is_exact, settings_of
from tallchain.types import Array, PyTree, Source
from tallchain.warmup import Warmup


class Last(NamedTuple):
    """The sampler at the end of a run."""

    kernel: Kernel | None = None
    settings: Settings | None = None


@dataclasses.dataclass
class End:
    """Makes a trace of what a run has recorded."""

    recorder: Recorder
    warmup: Warmup
    schedule: Schedule
    kernel: Kernel
    """As it is now."""
    began: float
    notes: tuple[str, ...]
    facts: dict[str, Any]
    rounds: Rounds | None = None
    """In the parts of a divided source."""
    seconds_before: float = 0.0
    """Sampling, by an earlier process."""

    def stops(self, furthest: int) -> list[int]:
        """Return the draws to come at which the kernel changes, and all chains wait for each other.

        Once one chain has gone further than a stop, all have been there.
        """
        found = self.warmup.stops - {0} - {event.draw for event in self.warmup.events}
        in_rounds = self.rounds.stops if self.rounds else set()
        return sorted(found | {stop for stop in in_rounds if stop >= furthest})

    def changed(self, stop: int, run: Runner, runner: Any) -> tuple[Kernel, Runner]:
        """Return the kernel from this draw on, and what runs it."""
        if stop not in self.warmup.stops:
            return self.kernel, run.restarted(self.kernel, stop)
        return self.warmup.changed(stop, self.kernel, run, self.recorder.warmup, runner)

    def resume(self, saved: RunCheckpoint, positions: PyTree, runner: Any) -> Runner | None:
        """Take over what a checkpoint has; return what goes on from there, if there is something to go on from."""
        self.kernel, run = saved.resumed(self.recorder, self.warmup, self.kernel, positions, runner)
        self.seconds_before = self.recorder.seconds
        return run

    def last(self) -> Last:
        """Return the kernel as it was at the last draw kept; None if the device has failed: the draws matter more."""
        try:
            last = self.schedule.at(self.kernel, self.recorder.number_of_last)
            return Last(last, settings_of(last, is_scheduled=self.schedule.temperature is not None))
        except Exception:
            return Last()

    def trace(self, last: Last, found: Found, *, is_interrupted: bool) -> Trace:
        """Make it."""
        elapsed = time.perf_counter() - self.began
        return self.recorder.trace(
            **self.facts,
            kernel=last.kernel,
            settings=last.settings,
            is_interrupted=is_interrupted,
            notes=self.notes + self.warmup.notes + self._uneven() + found.notes,
            scan=found.scan,
            scan_seconds=found.seconds,
            compile_seconds=elapsed - (self.recorder.seconds - self.seconds_before) - found.seconds,
        )

    def _uneven(self) -> tuple[str, ...]:
        return self.rounds.note(max(self.recorder.num_finished - self.rounds.num_warmup, 0)) if self.rounds else ()

    def finish(self, scan: int, key: Array, interrupt: threading.Event, *, progress: Any) -> Trace:
        """Scan all rows, if that is wanted and the run was not interrupted; return the trace."""
        recorder = self.recorder
        if not recorder.has_draws:
            raise KeyboardInterrupt("sampling was interrupted before the first draw was finished")
        last, found = self.last(), Found()
        is_interrupted = interrupt.is_set() or recorder.num_finished < recorder.num_draws
        if scan and last.kernel and has_scan(self.kernel) and not interrupt.is_set():
            try:
                has_bar = not callable(progress) and bool(progress)
                found = scanned(last.kernel, recorder.draws(), scan, key, interrupt, progress=has_bar)
            except Exception as error:
                unchecked = self.trace(last, found, is_interrupted=is_interrupted)
                raise SamplingError(failed_check(error), unchecked) from error
        return self.trace(last, found, is_interrupted=is_interrupted)


class Found(NamedTuple):
    """What the scan has found."""

    scan: Scan | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


def has_scan(kernel: Kernel) -> bool:
    """Whether rows that were not seen could matter: where there is no test at all, there is nothing to check."""
    return isinstance(kernel, MetropolisHastings) and (not is_exact(kernel) or needs_check(kernel))


def failed_check(error: Exception) -> str:
    """Say that the scan failed, and where the draws are."""
    if isinstance(error, BoundError):
        return f"{error} They are in the `trace` of this exception."
    return (
        f"The draws are made, but the scan of all rows that checks them failed: {error!r}. They are in the `trace` of "
        "this exception; `sample(scan=0)` leaves the scan out."
    )


def scanned(
    kernel: Kernel, draws: Drawn, count: int, key: Array, interrupt: threading.Event, *, progress: bool
) -> Found:
    """Read every row at some proposals."""
    assert isinstance(kernel, MetropolisHastings)
    began = time.perf_counter()
    if needs_check(kernel):
        note = check_all_rows(kernel, draws.position, count, interrupt, progress=progress)
        return Found(None, time.perf_counter() - began, (note,))
    try:
        found, notes = scan_rows(kernel, draws, count, key, interrupt, progress=progress), ()
    except KeyboardInterrupt:
        found, notes = None, ("the scan was interrupted",)
    return Found(found, time.perf_counter() - began, notes)


def notes_of(source: Source) -> tuple[str, ...]:
    """Return what a source has to say about itself."""
    return source.notes if isinstance(source, NotedSource) else ()
