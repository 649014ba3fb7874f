"""Chunk after chunk of draws: how long each is, and what happens between two of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import jax
import numpy as np

from tallchain import lockstep
from tallchain.faults import SamplingError
from tallchain.progress import shown
from tallchain.recorder import Recorder

_CHUNK_SECONDS = 1.0  # between two looks at the progress bar and at Ctrl-C
_CHUNK_SLOTS = 256
_MOST_TURNS = 2**20
_CHUNK_BYTES = {"cpu": 2**24}  # about what its caches hold
_CHUNK_BYTES_ELSEWHERE = 2**30

Report = Callable[[Recorder], None]


def fill(
    recorder: Recorder,
    run: Callable[..., tuple[lockstep.Lane, lockstep.Drawn]],
    lanes: lockstep.Lane,
    num_draws: int,
    interrupt: threading.Event,
    report: Report,
) -> lockstep.Lane:
    """Run chunk after chunk until every chain has its draws, or somebody interrupts, or something breaks."""
    turns = 0  # the first chunk compiles, and takes no turn
    try:
        while recorder.num_finished < num_draws and not interrupt.is_set():
            began = time.perf_counter()
            lanes, drawn = run(lanes, last=num_draws, turns=turns)
            recorder.add(np.asarray(lanes.draw), drawn)
            seconds = time.perf_counter() - began
            recorder.seconds += seconds if turns else 0.0
            report(recorder)
            pace = _CHUNK_SECONDS / seconds
            turns = min(max(4, int(turns * min(max(pace, 0.25), 4))), _MOST_TURNS)
    except KeyboardInterrupt:
        interrupt.set()
    except Exception as error:
        if not recorder.has_draws:
            raise  # there is nothing to save
        trace = recorder.trace(is_interrupted=True)
        raise SamplingError(
            f"Sampling broke: {error!r}. The draws that were finished, {trace.num_draws:,} of each of "
            f"{trace.num_chains:,} chains, are in the `trace` of this exception.",
            trace,
        ) from error
    return lanes


def slots_within(bytes_per_slot: int, num_draws: int) -> int:
    """Draws per chain between two visits to the host, such that they fit into memory."""
    budget = _CHUNK_BYTES.get(jax.default_backend(), _CHUNK_BYTES_ELSEWHERE)
    return max(1, min(_CHUNK_SLOTS, num_draws, budget // max(bytes_per_slot, 1)))


@contextmanager
def progress_bar(wanted: bool | Callable[[int, int], None], total: int) -> Generator[Report]:
    """Yield a function that shows how far a recorder is: rate, acceptance, rows per decision, time left.

    Of a function that is given in place of a bar, one that calls it as f(draws so far, all draws).
    """
    if callable(wanted):
        yield lambda recorder: wanted(recorder.total.num_decisions, total)
        return
    with shown(wanted, "sampling", total) as show:
        yield lambda recorder: show(recorder.total.num_decisions, _words(recorder))


def _words(recorder: Recorder) -> str:
    total = recorder.total
    if not (total.num_decisions and recorder.seconds):
        return ""
    return (
        f"{total.num_decisions / recorder.seconds:,.0f} draws/s, "
        f"acceptance {total.num_accepted / total.num_decisions:.2f}, "
        f"{total.num_rows / total.num_decisions:,.0f} rows a decision"
    )
