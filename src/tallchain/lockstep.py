"""Many chains in lockstep: the device side of `sample`.

Under `vmap(while_loop)` every chain waits for the slowest at every decision. Here one turn of the loop is one LOOK of
every chain; a chain that has decided closes its trial, writes its draw at its own index, and opens its next trial in
the same turn. No chain waits for another, and every lane does useful work at every turn.

The randomness of the decisions ahead is drawn in bulk at the beginning of a chunk, from keys folded by chain and draw.
So it depends neither on the length of a chunk nor on the other chains.

On a CPU the work of one turn is too small for XLA to divide among cores. So the chains are divided instead: each core
has a group of them in lockstep, in a thread of its own.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

from tallchain.functions import program
from tallchain.kernel import MetropolisHastings, where
from tallchain.schedule import Schedule
from tallchain.types import Array, CostlyProposal, PyTree, Verdict

_LEAST_GROUP = 4  # chains


class Machine(Protocol):
    """What runs in lockstep: decisions of a `MetropolisHastings`, or of an audit; see `tallchain.kernel`."""

    @property
    def log_likelihood(self) -> Any:
        """Whose programs these are."""
        ...

    def draw(self, key: Array, position: PyTree) -> Any:
        """Draw all the randomness of one decision."""
        ...

    def open(self, noise: Any, position: PyTree) -> Any:
        """Begin a trial."""
        ...

    def look(self, position: PyTree, trial: Any, /) -> Any:
        """Read one window."""
        ...

    def judge(self, trial: Any, /) -> tuple[Any, Array, Array]:
        """Return the trial, whether it is decided, and whether it is accepted."""
        ...

    def close(self, position: PyTree, trial: Any, is_accepted: Array, /) -> tuple[PyTree, Verdict]:
        """End a trial."""
        ...


class Lane(NamedTuple):
    """One chain: the number of the draw it is deciding, where it is, and its trial."""

    draw: Array
    position: PyTree
    trial: Any
    is_waiting: Array
    """The trial is over, and the next is not open yet: its candidate will be made together with others."""


class Drawn(NamedTuple):
    """A recorded draw."""

    position: PyTree
    verdict: Verdict


@program()
def start(kernel: Machine, schedule: Schedule, keys: Array, positions: PyTree, draw: Array | int = 0) -> Lane:
    """Open the trial of a draw, the first by default, of every chain."""
    draw = jnp.asarray(draw, jnp.int32)

    def start_one(key: Array, position: PyTree) -> Lane:
        noise = kernel.draw(jr.fold_in(key, draw), position)
        return Lane(draw, position, _at(schedule, kernel, draw).open(noise, position), jnp.zeros((), bool))

    return jax.vmap(start_one)(keys, positions)


@program(static_argnames="slots", donate_argnames="lanes")
def run(
    kernel: Machine,
    schedule: Schedule,
    keys: Array,
    lanes: Lane,
    *,
    last: Array,
    turns: Array,
    slots: int,
) -> tuple[Lane, Drawn]:
    """Run until a chain has filled its slots, or every chain has `last` draws, or `turns` turns are over.

    Returns the lanes (with their trials still open) and the draws by chain and slot. Chain c has filled the
    first lanes.draw[c] (after) - lanes.draw[c] (before) of its slots.
    """
    first = lanes.draw
    chains = jnp.arange(len(first))
    ahead = _draw_ahead(kernel, keys, lanes, slots)
    record = jax.tree.map(
        lambda leaf: jnp.zeros((len(first), slots, *leaf.shape[1:]), leaf.dtype), _shapes(kernel, lanes)
    )
    share = _share_waiting(kernel)

    def turn(carry: tuple[Array, Lane, Drawn]) -> tuple[Array, Lane, Drawn]:
        count, lanes, record = carry
        lanes, is_decided, drawn = jax.vmap(partial(_look, kernel, schedule, last))(lanes)
        # Slots of undecided lanes are out of bounds, and dropped.
        slot = jnp.where(is_decided, lanes.draw - 1 - first, slots)
        record = jax.tree.map(
            lambda all_, one: all_.at[chains, slot].set(one, mode="drop", unique_indices=True), record, drawn
        )
        if share == 0:
            return count + 1, open_all(lanes), record
        is_running = lanes.draw < last
        is_time = jnp.sum(lanes.is_waiting & is_running) >= share * jnp.sum(is_running)
        return count + 1, lax.cond(is_time, open_all, lambda lanes: lanes, lanes), record

    def open_all(lanes: Lane) -> Lane:
        noise = jax.tree.map(lambda leaf: leaf[chains, lanes.draw - first], ahead)
        return jax.vmap(partial(_open, kernel, schedule))(lanes, noise)

    def is_on(carry: tuple[Array, Lane, Drawn]) -> Array:
        count, lanes, _ = carry
        return (count < turns) & jnp.all(lanes.draw - first < slots) & jnp.any(lanes.draw < last)

    _, lanes, record = lax.while_loop(is_on, turn, (jnp.zeros((), jnp.int32), lanes, record))
    return lanes, record


class Runner:
    """Runs the chunks of one kernel, a group of its chains on each core.

    The program is compiled in the thread of the caller, with JAX's settings there (such as `jax.enable_x64`, which
    threads do not inherit); the threads of the groups only execute it.
    """

    def __init__(self, kernel: Machine, schedule: Schedule, keys: Array, slots: int) -> None:
        # A plain number becomes an array by the settings of the current thread. (Its type stays weak.)
        self._shared = jax.tree.map(jnp.asarray, (kernel, schedule))
        self._keys = keys
        self._slots = slots
        self._compiled: Any = None

    def __call__(self, lanes: Lane, *, last: int, turns: int) -> tuple[Lane, Drawn]:
        """As `run`; the first call compiles."""
        groups = num_groups(len(self._keys))
        each = (self._keys, lanes)
        parts = _split(each, groups) if groups > 1 else [each]
        ends = {"last": jnp.int32(last), "turns": jnp.int32(turns)}
        if self._compiled is None:
            self._compiled = run.lower(*self._shared, *parts[0], **ends, slots=self._slots).compile()

        def run_part(part: tuple[Array, Lane]) -> tuple[Lane, Drawn]:
            return execute(self._compiled, *self._shared, *part, **ends)

        if groups == 1:
            return run_part(parts[0])
        with ThreadPoolExecutor(groups) as threads:
            done = list(threads.map(run_part, parts))
        moved, drawn = zip(*done, strict=True)
        return _join(moved), jax.tree.map(lambda *leaves: np.concatenate(leaves), *drawn)


def execute(compiled: Any, *arguments: Any, **ends: Array) -> tuple[Lane, Drawn]:
    """Run one chunk of one group."""
    try:
        return jax.block_until_ready(compiled(*arguments, **ends))
    except Exception as error:
        if error.args[1:] not in (("nan",), ("inf",)):
            raise
        raise FloatingPointError(  # JAX's own message names the program, and nothing that a user has written
            f"a decision gave {error.args[1]}, and `jax_debug_{error.args[1]}s` is set: the log prior or the log "
            "likelihood is not finite at some candidate. Without that setting such candidates are rejected and counted."
        ) from error


def num_groups(num_chains: int) -> int:
    """Number of equal groups to divide the chains into: one per core of a CPU if that divides evenly."""
    if jax.default_backend() != "cpu":
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = min(cores, num_chains // _LEAST_GROUP)
    return next((groups for groups in range(most, 1, -1) if num_chains % groups == 0), 1)


@partial(jax.jit, static_argnums=1)
def _split(tree: PyTree, groups: int) -> list[PyTree]:
    leaves, structure = jax.tree.flatten(tree)
    parts = [jnp.split(leaf, groups) for leaf in leaves]
    return [jax.tree.unflatten(structure, part) for part in zip(*parts, strict=True)]


@jax.jit
def _join(trees: tuple[PyTree, ...]) -> PyTree:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)


def _look(kernel: Machine, schedule: Schedule, last: Array, lane: Lane) -> tuple[Lane, Array, Drawn]:
    """One look of one chain; if that decides, its trial is over."""
    now = _at(schedule, kernel, lane.draw)
    trial, is_decided, is_accepted = now.judge(now.look(lane.position, lane.trial))
    is_decided &= ~lane.is_waiting & (lane.draw < last)
    position, verdict = now.close(lane.position, trial, is_decided & is_accepted)
    return (
        Lane(lane.draw + is_decided, position, trial, lane.is_waiting | is_decided),
        is_decided,
        Drawn(position, verdict),
    )


def _open(kernel: Machine, schedule: Schedule, lane: Lane, noise: Any) -> Lane:
    """Open the next trial of one chain, if it is waiting for one."""
    opened = _at(schedule, kernel, lane.draw).open(noise, lane.position)
    return lane._replace(trial=where(lane.is_waiting, opened, lane.trial), is_waiting=jnp.zeros((), bool))


def _at(schedule: Schedule, kernel: Machine, draw: Array) -> Machine:
    """Return the kernel of a draw; the decisions of an audit have no schedule."""
    return schedule.at(kernel, draw) if isinstance(kernel, MetropolisHastings) else kernel


def _share_waiting(kernel: Machine) -> float:
    """Share of the chains that must wait before candidates are made; 0 if each gets its own at once."""
    proposal = kernel.proposal if isinstance(kernel, MetropolisHastings) else None
    return proposal.share_waiting if isinstance(proposal, CostlyProposal) else 0.0


def _draw_ahead(kernel: Machine, keys: Array, lanes: Lane, slots: int) -> Any:
    """Draw the noise of the trial that each chain has open and of the `slots` it may open next, by chain and slot."""

    def one_chain(key: Array, draw: Array, position: PyTree) -> Any:
        draws = draw + jnp.arange(slots + 1)
        return jax.vmap(lambda at: kernel.draw(jr.fold_in(key, at), position))(draws)

    return jax.vmap(one_chain)(keys, lanes.draw, lanes.position)


def _shapes(kernel: Machine, lanes: Lane) -> Any:
    def close(lane: Lane) -> Drawn:
        return Drawn(*kernel.close(lane.position, lane.trial, jnp.zeros((), bool)))

    return jax.eval_shape(jax.vmap(close), lanes)


def bytes_per_slot(kernel: Machine, keys: Array, lanes: Lane) -> int:
    """Device memory that one slot of all chains takes: its draw on record and the noise ahead of it."""
    ahead = jax.eval_shape(lambda: _draw_ahead(kernel, keys, lanes, 0))
    return sum(_bytes(leaf) for leaf in jax.tree.leaves((ahead, _shapes(kernel, lanes))))


def _bytes(leaf: jax.ShapeDtypeStruct) -> int:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jr.key_data, leaf)
    return leaf.size * leaf.dtype.itemsize
