"""What the processes of tests/test_processes.py run: `crew_script.py WHAT OUTPUT`."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tallchain import crew

WHAT, OUTPUT = sys.argv[1], Path(sys.argv[2])
RANK = crew.start(patience=10.0 if WHAT == "hang" else 120.0)
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "sources")]

import jax  # noqa: E402
import numpy as np  # noqa: E402
from test_packed import drawn, kernel, numbers  # noqa: E402

import tallchain as tc  # noqa: E402
from tallchain.checkpoints import Folder  # noqa: E402


def no_room(*_: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def progress(done: int, total: int) -> None:
    """Fail in the middle of a run, as asked for."""
    if WHAT == "full" and RANK == 0 and done > total / 2:
        os.pwrite = no_room
    if WHAT == "first" and RANK == 0 and done > total / 2:
        raise RuntimeError("out of luck")
    if RANK == 1 and done > total / 2:
        if WHAT == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if WHAT == "raise":
            raise RuntimeError("out of luck")
        if WHAT == "hang":
            time.sleep(600)
        if WHAT == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)


def interrupted(done: int, total: int) -> None:
    """Interrupt one of two processes in the middle of a run."""
    if RANK == 1 and done > total / 2:
        os.kill(os.getpid(), signal.SIGINT)


def in_folder(name: str) -> Path:
    """Where a checkpoint is: a folder that the first process alone can see."""
    return OUTPUT.with_name(f"{OUTPUT.name}-{name}") if RANK == 0 else Path("/proc/nowhere")


def resumed(source: Any) -> tc.Trace:
    """Draw, interrupted once, from a checkpoint."""
    half = drawn(source, progress=interrupted, chunk_size=16, checkpoint=in_folder("half"))
    assert half.is_interrupted
    assert half.num_draws < 800
    return drawn(source, checkpoint=in_folder("half"))


def refusal(**options: Any) -> str:
    """What is said of a run that must not begin."""
    try:
        drawn(tc.Shuffled(numbers(), 50), **options)
    except tc.CheckpointError as error:
        return str(error)
    raise AssertionError("it was not refused")


found: dict[str, Any] = {}
if WHAT == "draws":
    found["devices"] = np.array([jax.process_count(), jax.local_device_count()])
    sharded = drawn(tc.sources.Sharded(numbers(), 4))
    found |= {"sharded": sharded.position, "notes": np.array(sharded.notes)}
    trace = drawn(tc.Shuffled(numbers(), 50))
    found |= {"chains": trace.position, "chains: rows": trace.rows_read}
elif WHAT == "long":
    alone = tc.Shuffled(numbers(), 50)
    trace = (drawn if jax.process_count() == 1 else resumed)(alone)
    found |= {"goes on": trace.position, "goes on: rows": trace.rows_read}
    trace = drawn(tc.sources.Sharded(numbers(), 4), keep="moments", num_warmup=50, thin=1)
    found |= {"all kept": trace.position, "about: all": trace.moments.means, "decisions": trace.decisions.rows_read}
    trace = drawn(tc.sources.Sharded(numbers(), 4), keep="moments", num_warmup=50)
    found |= {"travelled": trace.position, "read": trace.decisions.rows_read, "made there": trace.moments.count}
    found |= {"about: travelled": trace.moments.means, "about: its": trace.moments.covariance}
    trace = drawn(alone, keep="moments", num_warmup=50)
    moments, tallies = trace.moments, (vars(of).values() for of in (trace.decisions, trace.warmup))
    found |= {"kept": trace.position, "kept: rows": trace.rows_read, "made": moments.count}
    found |= {"totals": np.array([int(number) for of in tallies for number in of])}
    found |= {"about: batches": moments.means, "about: covariance": moments.covariance}
    found |= {"about: median": moments.quantile(0.5).value}
elif WHAT == "refused":
    folder = in_folder("run")
    trace = drawn(tc.Shuffled(numbers(), 50), checkpoint=folder)
    again = tc.resume(folder, kernel(tc.Shuffled(numbers(), 50)), scan=0, progress=False)
    np.testing.assert_array_equal(again.position, trace.position)
    said = [refusal(checkpoint=folder, num_chains=16), refusal(checkpoint="/proc/nowhere")]
    with Folder("other", folder):
        said.append(refusal(checkpoint=folder))
    for name in ("draws.bin", "state", "manifest"):
        if RANK == 0:
            whole = (folder / name).read_bytes()
            (folder / name).write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        said.append(refusal(checkpoint=folder))
    found["said"] = np.array(said)
elif WHAT == "mixed":
    from test_sharded import Sharded, mixed, model

    found |= mixed(Sharded(model().data, 4), model()).variables()
    alone = drawn(tc.Shuffled(numbers(), 50))
    found["audited"] = tc.audit(alone.kernel, alone, num_decisions=20, progress=False).log_odds.upper
else:
    rows = numbers() + (RANK if WHAT == "data" else 0)
    folder = in_folder("run") if WHAT == "full" else None
    other = (
        {"scan": {"scan": 8}, "schedule": {"schedule": tc.Schedule(scale=lambda n: 2.0)}}.get(WHAT) if RANK else None
    )
    trace = drawn(tc.Shuffled(rows, 50), progress=progress, chunk_size=16, checkpoint=folder, **(other or {}))
    found["position"], found["is_interrupted"] = trace.position, trace.is_interrupted
np.savez(OUTPUT.with_name(f"{OUTPUT.name}-{RANK}.npz"), **found)
