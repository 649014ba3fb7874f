"""Draws in chunks: how long each chunk is, and what happens between two of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Protocol

import jax
import numpy as np

from tallchain.crew import current
from tallchain.packing import Chunk
from tallchain.progress import shown
from tallchain.runner import FEWEST_TURNS, Runner

_CHUNK_SECONDS = 1.0  # between two looks at the progress bar and at Ctrl-C
_CHUNK_SLOTS, _SHARED_SLOTS = 256, 1024  # the latter where processes tell each other the draws of every chunk
_MOST_TURNS = 2**20  # of a chunk
_CHUNK_BYTES = {"cpu": 2**24}  # about what its caches hold
_CHUNK_BYTES_ELSEWHERE = 2**30


class Keeper(Protocol):
    """Keeps the draws of a run, and knows its progress."""

    seconds: float
    """Time spent sampling, so far."""

    @property
    def total(self) -> Any:
        """Totals over decisions: num_decisions, num_accepted, num_rows."""
        ...

    @property
    def num_made(self) -> int:
        """Draws so far."""
        ...

    def compile(self, run: Runner) -> None:
        """Compile what the device has to do with the chunks of a run."""
        ...

    def add(self, draw: np.ndarray, chunk: Chunk) -> Callable[[], None]:
        """Take over the draws of one chunk; chain c has now finished draw[c] draws.

        What the device has to do for it is begun; the function returned does the rest, and the host's part.
        """
        ...


Report = Callable[[Keeper], None]


class Checkpoint(Protocol):
    """Writes down how far a run is."""

    def copy(self, run: Runner, *, is_last: bool) -> None:
        """Copy what the chains carry, before the next chunk takes it over."""
        ...

    def write(self, recorder: Any, *, is_last: bool) -> None:
        """Write it, with what was recorded up to there; the next chunk is running, unless it was the last."""
        ...


def fill(
    recorder: Keeper,
    run: Runner,
    num_draws: int,
    interrupt: threading.Event,
    report: Report,
    checkpoint: Checkpoint | None = None,
) -> None:
    """Run chunks until every chain has its draws, or the run is interrupted.

    The draws of a chunk are copied to the host while the next one runs.
    """
    recorder.compile(run)
    is_on, began = not interrupt.is_set(), time.perf_counter()
    try:
        if is_on:
            run.dispatch(last=num_draws, turns=run.turns)
        while is_on:
            draw, chunk = run.collect(is_interrupted=interrupt.is_set())
            if run.is_interrupted:  # another process was
                interrupt.set()
            began, seconds = time.perf_counter(), time.perf_counter() - began
            pace = _CHUNK_SECONDS / seconds
            grown = int(run.turns * min(max(pace, 0.25), 16 if pace > 64 else 4))
            run.turns = min(max(FEWEST_TURNS, grown), _MOST_TURNS)
            is_on = bool(draw.min() < num_draws) and not interrupt.is_set()
            take = recorder.add(draw, chunk)
            if checkpoint:
                checkpoint.copy(run, is_last=not is_on)
            try:
                if is_on:
                    run.dispatch(last=num_draws, turns=run.turns)
            finally:  # whatever becomes of the next chunk, this one is kept
                take()
                recorder.seconds += seconds if is_on else seconds + time.perf_counter() - began
            if checkpoint:
                checkpoint.write(recorder, is_last=not is_on)
            try:
                report(recorder)
            except KeyboardInterrupt:
                if not (is_on and run.is_shared):
                    raise
                interrupt.set()  # other processes wait for the chunk that is running
    except KeyboardInterrupt:
        interrupt.set()


def slots_within(num_draws: int, bytes_per_slot: int) -> int:
    """Draws per chain between two visits to the host, such that they fit into memory.

    A power of 4, so that runs of different lengths share a program, and short ones draw little in vain.
    """
    budget = _CHUNK_BYTES.get(jax.default_backend(), _CHUNK_BYTES_ELSEWHERE)
    most = _CHUNK_SLOTS if current() is None else _SHARED_SLOTS
    enough = next((slots for slots in (1, 4, 16, 64, 256) if slots >= num_draws), most)
    return max(1, min(enough, budget // max(bytes_per_slot, 1)))


@contextmanager
def progress_bar(wanted: bool | Callable[[int, int], None], total: int) -> Generator[Report]:
    """Yield a function that shows a recorder's progress: rate, acceptance, rows per decision, time left.

    If a function f is given in place of a bar, call it as f(draws so far, all draws).
    """
    if callable(wanted):
        yield lambda recorder: wanted(recorder.num_made, total)
        return
    with shown(wanted, "sampling", total) as show:
        show(0, "compiling the sampler first")
        yield lambda recorder: show(recorder.num_made, _words(recorder))


def _words(recorder: Keeper) -> str:
    total = recorder.total
    if not (total.num_decisions and recorder.seconds):
        return ""
    return (
        f"{recorder.num_made / recorder.seconds:,.0f} draws/s, "
        f"acceptance {total.num_accepted / total.num_decisions:.2f}, "
        f"{total.rows_read / total.num_decisions:,.0f} rows a decision"
    )
