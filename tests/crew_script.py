"""What the processes of tests/test_processes.py run: `crew_script.py WHAT OUTPUT`."""

from __future__ import annotations

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
from test_packed import drawn, numbers  # noqa: E402

import tallchain as tc  # noqa: E402


def progress(done: int, total: int) -> None:
    """Fail in the middle of a run, as asked for."""
    if RANK == 1 and done > total / 2:
        if WHAT == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if WHAT == "raise":
            raise RuntimeError("out of luck")
        if WHAT == "hang":
            time.sleep(600)
        if WHAT == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)


found: dict[str, Any] = {}
if WHAT == "draws":
    found["devices"] = np.array([jax.process_count(), jax.local_device_count()])
    found["sharded"] = drawn(tc.sources.Sharded(numbers(), 4)).position
    found["chains"] = drawn(tc.Shuffled(numbers(), 50)).position
elif WHAT == "mixed":
    from test_sharded import Sharded, mixed, model

    found |= mixed(Sharded(model().data, 4), model()).variables()
    alone = drawn(tc.Shuffled(numbers(), 50))
    found["audited"] = tc.audit(alone.kernel, alone, num_decisions=20, progress=False).log_odds.upper
else:
    rows = numbers() + (RANK if WHAT == "data" else 0)
    trace = drawn(tc.Shuffled(rows, 50), progress=progress, chunk_size=16)
    found["position"], found["is_interrupted"] = trace.position, trace.is_interrupted
np.savez(OUTPUT.with_name(f"{OUTPUT.name}-{RANK}.npz"), **found)
