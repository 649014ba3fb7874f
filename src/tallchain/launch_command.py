"""The command `tallchain launch`: several processes of a script on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from tallchain.cores import num_cores
from tallchain.joining import LAUNCHED

with contextlib.suppress(ModuleNotFoundError):  # needed only once the application is built, which says so
    import typer

_GRACE = 60.0  # seconds for the others to end by themselves, once one has failed
_POLL = 0.1


def launch(
    script: Annotated[Path, typer.Argument(dir_okay=False, exists=True, help="A Python script.", show_default=False)],
    arguments: Annotated[list[str] | None, typer.Argument(help="Of the script.", show_default=False)] = None,
    *,
    processes: Annotated[int, typer.Option(min=1, help="How many.")] = 2,
) -> None:
    """Run several processes of a script on this machine, for `sources.Sharded` or to divide chains among cores.

    The script begins with `tallchain.crew.start()`. The same script runs under Slurm, Open MPI and Kubernetes. The
    processes divide the cores among themselves; if one fails, the others are ended.

    Example: `tallchain launch --processes 2 script.py`
    """
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    running = []
    for rank in range(processes):
        environment = os.environ | {LAUNCHED: f"127.0.0.1:{port},{processes},{rank}"}
        command = [sys.executable, str(script), *(arguments or [])]
        pinned = _pinned(rank, processes)
        # In sessions of their own: else Ctrl-C would come to them twice, from the terminal and from here.
        running.append(subprocess.Popen(command, env=environment, preexec_fn=pinned, start_new_session=True))  # noqa: PLW1509
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: [each.send_signal(number) for each in running])
    raise typer.Exit(_wait(running))


def _pinned(rank: int, count: int) -> Callable[[], None] | None:
    """Return what gives a process its share of the cores; None if there are too few."""
    if not hasattr(os, "sched_setaffinity") or num_cores() < count:
        return None
    cores = sorted(os.sched_getaffinity(0))
    mine = cores[rank * len(cores) // count : (rank + 1) * len(cores) // count]
    return lambda: os.sched_setaffinity(0, mine)


def _wait(running: list[subprocess.Popen[bytes]]) -> int:
    """Wait for all; end those that go on for long after one has failed. Return the code of the first that failed."""
    failed_at, code = 0.0, 0
    while any(each.poll() is None for each in running):
        for rank, each in enumerate(running):
            if each.poll() and not failed_at:
                failed_at, code = time.monotonic(), each.returncode
                how = f"was ended by signal {-code}" if code < 0 else f"failed with code {code}"
                print(f"tallchain launch: process {rank} {how}; the others end now.", file=sys.stderr)
        if failed_at and time.monotonic() - failed_at > _GRACE:
            for each in running:
                each.kill()
        time.sleep(_POLL)
    codes = [each.returncode for each in running if each.returncode]
    code = code or (codes[0] if codes else 0)
    return 128 - code if code < 0 else code
