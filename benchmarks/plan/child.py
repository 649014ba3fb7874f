"""What is measured, each in processes of its own that are held to a core each.

`child.py STAGE OUTPUT [ARGUMENTS]`, which `benchmarks.plan` starts by `tallchain launch`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import tallchain as tc
from benchmarks.plan import work
from tallchain import crew
from tallchain.checking.recorder import Recorder
from tallchain.checkpoints.folder import STATE
from tallchain.packing import Chunk
from tallchain.sources import divided
from tallchain.sources.divided import Divided

SMALL, LARGE, TIMES = 200_000, 1_000_000, 5
ROUNDS = {"long": (2, 1000, 4000), "short": (2, 100, 2000), "shortest": (2, 10, 600), "four": (4, 10, 800)}
"""Parts, draws of a round, draws of a chain."""
SIZES = (16, 2**16, 2**20, 2**23)
"""Bytes of a message."""


def timed(call: Callable[..., Any], *given: Any) -> tuple[float, Any]:
    """Return the seconds that a call takes, and what it returns."""
    began = time.perf_counter()
    found = call(*given)
    return time.perf_counter() - began, found


class Counts:
    """What the host does with the chunks of a run, and how many sweeps there are."""

    def __init__(self) -> None:
        self.seconds, self.chunks, self.sweeps = 0.0, 0, 0

    @contextmanager
    def counting(self) -> Generator[None]:
        """Count from here on."""
        add, sweep = Recorder.add, Divided.sweep

        def counted(recorder: Recorder, draw: np.ndarray, chunk: Chunk) -> Callable[[], None]:
            seconds, take = timed(add, recorder, draw, chunk)
            self.seconds, self.chunks = self.seconds + seconds, self.chunks + 1

            def taken() -> None:
                self.seconds += timed(take)[0]

            return taken

        def swept(source: Divided, *given: Any, **options: Any) -> Any:
            self.sweeps += 1
            return sweep(source, *given, **options)

        Recorder.add, Divided.sweep = counted, swept  # ty: ignore[invalid-assignment]
        try:
            yield
        finally:
            Recorder.add, Divided.sweep = add, sweep


def one() -> dict[str, Any]:
    """Everything that one process on one core does."""
    with tempfile.TemporaryDirectory() as name:
        folder, counts = Path(name), Counts()
        found: dict[str, Any] = {"rows": [SMALL, LARGE], "packing": [], "reading": [], "preparing": [], "scanning": []}
        with counts.counting():
            for num_rows in (SMALL, LARGE):
                packed = folder / str(num_rows)
                found["packing"].append(work.pack(packed, num_rows))
                found["reading"].append([timed(table, packed, 2)[0] for _ in range(TIMES)])
                source, counts.sweeps = table(packed, 2), 0
                first, prepared = timed(work.prepare, source)
                found |= {"sweeps": counts.sweeps, "passes": prepared.rows_swept / num_rows}
                found["preparing"].append([first, *(timed(work.prepare, source)[0] for _ in range(TIMES))])
                traces = [work.sample(prepared, source, 20, scan=8) for _ in range(TIMES)]
                found["scanning"].append([trace.scan_seconds for trace in traces])
                if num_rows == SMALL:
                    found["compiling"] = traces[0].compile_seconds
        disk = sum(path.stat().st_size for path in packed.rglob("*") if path.is_file())
        found |= {"row_bytes": source.held.row_bytes, "disk_bytes": disk / LARGE}
        found["variance"] = [prepared.influence.plans[0].rows, prepared.influence.batch_size]
        found["rounds"] = {name: rounds(packed, *of) for name, of in ROUNDS.items()}
        found["checkpoint"] = checkpoint(folder, packed)
        return found


def table(packed: Path, parts: int) -> tc.sources.Sharded:
    """Read the rows."""
    return tc.sources.Sharded(packed, parts, columns=work.COLUMNS)


def rounds(packed: Path, parts: int, length: int, draws: int) -> dict[str, Any]:
    """Sample in rounds of some length."""
    source = table(packed, parts)
    prepared, seconds, digesting = work.prepare(source), [], []
    with of_length(length):
        trace = work.sample(prepared, source, draws)
        for _ in range(TIMES):
            counts = Counts()
            with counts.counting():
                trace = work.sample(prepared, source, draws)
            seconds.append(trace.seconds)
            digesting.append(counts.seconds)
    return {
        **{"parts": parts, "length": length, "chains": work.CHAINS * parts, "chunks": counts.chunks},
        **{"draws": trace.decisions.num_decisions, "seconds": seconds, "digesting": digesting},
        "effective": work.effective(trace),
    }


@contextmanager
def of_length(length: int) -> Generator[None]:
    """Make rounds of so many draws."""
    before, module = divided.LEAST_ROUND, vars(divided)
    try:
        module["LEAST_ROUND"] = length
        yield
    finally:
        module["LEAST_ROUND"] = before


def checkpoint(folder: Path, packed: Path) -> dict[str, float]:
    """Sizes of the files of a checkpoint."""
    source = table(packed, 2)
    trace = work.sample(work.prepare(source), source, 1000, checkpoint=folder / "run")
    chains = 2 * work.CHAINS
    state, draws = ((folder / "run" / file).stat().st_size for file in (STATE, "draws.bin"))
    return {"state_of_a_chain": state / chains, "draw": draws / trace.decisions.num_decisions}


def talk() -> dict[str, Any] | None:
    """How long two processes and more take to tell each other something, and what it costs the first."""
    rank = crew.start()
    met = crew.current()
    assert met is not None
    found: dict[str, Any] = {"processes": met.size, "seconds": [], "first": []}
    for size in SIZES if met.size == 2 else SIZES[:1]:
        message, seconds = bytes(size), []
        found["first"].append(timed(met.gather, "a message", message)[0])
        busy, count = time.process_time(), 200 if size == SIZES[0] else 10
        for _ in range(count):
            seconds.append(timed(met.gather, "a message", message)[0])
        busy = (time.process_time() - busy) / count
        if size == SIZES[0]:
            found["busy"] = [float(each) for each in met.gather("times", str(busy).encode())]
        found["seconds"].append(float(np.median(seconds)))
    return found if rank == 0 else None


def real(folder: str, *numbers: str) -> dict[str, Any] | None:
    """Do all of it once, as a user would, to compare with what the formulas say."""
    rank = crew.start()
    packed, (parts, length, draws) = Path(folder), map(int, numbers)
    began = time.perf_counter()
    reading, source = timed(table, packed, parts)
    preparing, prepared = timed(work.prepare, source)
    with of_length(length):
        trace = work.sample(prepared, source, draws, scan=8)
    found = {
        **{"reading": reading, "preparing": preparing, "compiling": trace.compile_seconds},
        **{"sampling": trace.seconds, "scanning": trace.scan_seconds, "total": time.perf_counter() - began},
        **{"rows": trace.num_rows, "draws": trace.decisions.num_decisions},
    }
    return found if rank == 0 else None


STAGES: dict[str, Callable[..., dict[str, Any] | None]] = {"one": one, "talk": talk, "real": real}

if __name__ == "__main__":
    made = STAGES[sys.argv[1]](*sys.argv[3:])
    if made is not None:  # by the first process
        Path(sys.argv[2]).write_text(json.dumps(made))
