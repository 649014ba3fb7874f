"""A run on several processes: which of them runs which chains, and whether all run the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jax import random as jr

from tallchain.abilities import DividedSource
from tallchain.checkpoints.identity import described, differences, versions
from tallchain.crew import Crew, CrewError, current
from tallchain.rounds import Rounds
from tallchain.types import Array, PyTree

_OF_A_PART = ("kernel.source.rows", "kernel.source.number")  # of divided rows: others on every process


def divided_by(rounds: Rounds | None) -> Callable[[Any, int], list[Any]]:
    """Return what makes the kernels of a draw, one for each group of chains; None in place of another process's.

    If rows are divided among the processes, each runs the chains that are in its parts; else each runs as many chains.
    """
    crew = current()

    def divided(kernel: Any, draw: int) -> list[Any]:
        found = [kernel] if rounds is None else rounds.divided(kernel, draw)
        if crew is None or len(found) > 1:
            return found
        return [found[0] if rank == crew.rank else None for rank in range(crew.size)]

    return divided


def apart_for(
    rounds: Rounds | None, *, keep: str, adapt: bool, has_checkpoint: bool
) -> tuple[Crew | None, Crew | None]:
    """Return the processes if each keeps the draws of its own chains until the end; and if each counts what it makes.

    That is for moments, of which little is left at the end. Chains that travel between the parts of rows are with one
    process after another, and an adaptation needs the draws of all; a checkpoint has the moments of all as they come.
    """
    if keep != "moments" or has_checkpoint:
        return None, None
    return (current() if rounds is None and not adapt else None), current()


def num_places(kernel: Any) -> int:
    """Return how many kernels `divided_by` makes: as many as parts that chains are in, or as processes."""
    crew, source = current(), kernel.source
    return max(source.num_slots if isinstance(source, DividedSource) else 1, 1 if crew is None else crew.size)


def check_alike(kernel: Any, initial: PyTree, key: Array, called: dict[str, Any]) -> None:
    """Refuse a run that is not the same on all processes, and name the difference; `called` are arguments by name."""
    crew = current()
    if crew is None:
        return
    num_chains = called["num_chains"]
    if num_chains % crew.size:
        raise ValueError(
            f"`sample(num_chains=...)` must be a multiple of {crew.size}, the number of processes; got {num_chains}."
        )
    mine = described("key", jr.key_data(key)) | described("initial", initial) | versions()
    for name, value in called.items():
        mine |= described(name, value)
    mine |= {name: of for name, of in described("kernel", kernel).items() if not name.startswith(_OF_A_PART)}
    for rank, said in enumerate(crew.gather("a run", json.dumps(mine).encode())):
        found = differences(json.loads(said), mine)
        if found:
            words = "; ".join(each.replace("the checkpoint", f"process {rank}") for each in found)
            raise CrewError(f"`sample(...)` is not the same on all processes: {words} (process {crew.rank}).")
