"""How the processes of a run find each other, and what is said if they do not."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import jax

LAUNCHED = "TALLCHAIN_LAUNCHED"
"""Environment that says where a process belongs: ADDRESS:PORT of the first, how many there are, which one this is."""
_SEVERAL = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
"""How many processes there are, say Open MPI, MPICH and Slurm."""
_INDEX = "JOB_COMPLETION_INDEX"
"""Which one this is, says an Indexed Job of Kubernetes."""
_HEARTBEAT = 30  # seconds until a process counts as dead
_SILENT = 15.0  # seconds of waiting, before it is said


class CrewError(RuntimeError):
    """The processes do not find each other; or another one has failed, hangs, or does something else."""


def join(patience: float) -> bool:
    """Join the other processes; return whether there may be any."""
    launched = os.environ.get(LAUNCHED)
    # JAX waits longer than `patience`: at the end of its own time it aborts, and does not say for whom it has waited.
    options: dict[str, Any] = {"initialization_timeout": math.ceil(patience) + 60}
    if launched:
        options |= _place(launched) | {"cluster_detection_method": "deactivate"}
    with _in_time(patience):
        try:
            jax.distributed.initialize(heartbeat_timeout_seconds=_HEARTBEAT, **options)
        except KeyError as error:
            raise CrewError(f"`crew.start()`: {error.args[0]} is not in the environment. {_HELP}") from error
        except ValueError as error:
            if "coordinator_address" not in str(error):
                raise CrewError(f"`crew.start()`: {error} {_HELP}") from error
            _check_alone()
            return False
    return True


_HELP = f"Set {LAUNCHED}=ADDRESS:PORT,COUNT,RANK for every process: where the first one is, how many, which one."


def _place(launched: str) -> dict[str, Any]:
    """Read where this process belongs."""
    address, *numbers = launched.split(",")
    if len(numbers) != 2 or not all(each.isdecimal() for each in numbers) or not address.rpartition(":")[2].isdecimal():
        raise CrewError(
            f"`crew.start()`: {LAUNCHED} must be ADDRESS:PORT,COUNT,RANK, such as node1:4321,4,0; got {launched!r}."
        )
    count, rank = map(int, numbers)
    if rank >= count:
        raise CrewError(f"`crew.start()`: {LAUNCHED} counts ranks from 0 to COUNT - 1; got {launched!r}.")
    return {"coordinator_address": address, "num_processes": count, "process_id": rank}


def _check_alone() -> None:
    """Refuse a process of several that JAX takes for the only one: each would do all the work, and write the files."""
    signs = [f"{name} is {said}" for name in _SEVERAL if (said := os.environ.get(name, "1")) != "1"]
    signs += [f"{_INDEX} is {said}" for said in [os.environ.get(_INDEX)] if said is not None]
    if signs:
        raise CrewError(
            f"`crew.start()`: {', '.join(signs)}, so there are several processes; but the environment does not "
            f"say where the first one is. Under Slurm start with `srun`. {_HELP} A process by itself is "
            "localhost:4321,1,0."
        )


@contextmanager
def _in_time(patience: float) -> Generator[None]:
    """Say for whom the process waits, and end it if they do not come: nothing else ends JAX's own waiting."""
    come = threading.Event()

    def watch() -> None:
        silent = min(_SILENT, patience / 2)
        if come.wait(silent):
            return
        print(f"tallchain: {_waiting()}.", file=sys.stderr, flush=True)
        if come.wait(patience - silent):
            return
        print(
            f"tallchain: {_waiting()}, and not all have come within {patience:,.0f} s. All must be started, with the "
            "same address and number of processes; process 0 must run at that address, and its port must be open.",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="tallchain-join").start()
    try:
        yield
    finally:
        come.set()


def _waiting() -> str:
    from jax._src import distributed  # as `crew`

    found = distributed.global_state
    if found.coordinator_address is None:
        return "waiting to learn where the other processes are"
    return f"process {found.process_id} of {found.num_processes} waits for the others at {found.coordinator_address}"
