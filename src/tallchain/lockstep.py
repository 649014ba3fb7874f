"""Many chains in lockstep: the device side of `sample`.

Under `vmap(while_loop)` every chain waits for the slowest at every decision. Here one turn of the loop is one LOOK of
every chain; a chain that has decided closes its trial, writes its draw at its own index, and opens its next trial in
the same turn. No chain waits for another, and every lane does useful work at every turn.

The randomness of the decisions ahead is drawn in bulk at the beginning of a chunk, from keys folded by chain and draw.
So it depends neither on the length of a chunk nor on the other chains.

On a CPU the work of one turn is too small for XLA to divide among cores. So the chains are divided instead: each core
has a group of them in lockstep, in a thread of its own; see `tallchain.runner`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

from tallchain.abilities import CostlyProposal
from tallchain.census import census_of, is_time_for_census, scan
from tallchain.cores import divisor
from tallchain.functions import SOON, program
from tallchain.kernel import MetropolisHastings, Noise, Randomness, where
from tallchain.machines import Lane, Machine, at, shown
from tallchain.packing import pack
from tallchain.schedule import Schedule
from tallchain.threefry import wrap
from tallchain.types import Array, PyTree, Verdict

_TOGETHER, _WRITTEN_OUT = 8, 4  # turns before an accelerator waits for the host to go on; turns that it is sent at once
_CACHED = 2**17  # numbers of all positions whose candidates are made together on a CPU


class Drawn(NamedTuple):
    """A recorded draw."""

    position: PyTree
    verdict: Verdict


def _draw_ahead(randomness: Randomness, words: Array, draw: Array, *, count: int) -> Noise:
    """Draw the noise of decisions by chain, `count` of them from number `draw` of the chain; `words` are its key."""

    def one_chain(words: Array, draw: Array) -> Noise:
        key = wrap(words)
        return jax.vmap(lambda at: randomness.draw(jr.fold_in(key, at)))(draw + jnp.arange(count))

    return jax.vmap(one_chain)(words, draw)


@program()
def start(kernel: Machine, schedule: Schedule, words: Array, position: PyTree, draw: Array) -> Lane:
    """Open the trial of a draw of one chain. It is only traced, for the shapes of a trial: `_run` opens them all."""
    noise = kernel.randomness(position).draw(jr.fold_in(wrap(words), draw))
    return Lane(draw, position, at(schedule, kernel, draw).open(noise, position), jnp.zeros((), bool))


def waiting(kernel: Machine, shapes: Lane, positions: PyTree, draw: Any) -> Lane:
    """Return chains that wait for their first trial: of this draw, or of one for each of them.

    Until then an empty trial is looked at, and its verdict dropped.
    """

    def empty(leaf: jax.ShapeDtypeStruct) -> Any:
        if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return np.zeros(leaf.shape, leaf.dtype)
        dtype: Any = leaf.dtype
        words = jax.eval_shape(jr.key_data, leaf)
        return jr.wrap_key_data(jnp.asarray(np.zeros(words.shape, words.dtype)), impl=dtype._impl)

    count = shapes.draw.shape
    numbers: Any = np.full(count, draw, np.int32), np.ones(count, bool)
    own = jax.tree.map(np.array, positions)  # the caller's are not given away with the lanes
    return Lane(numbers[0], own, kernel.resting(jax.tree.map(empty, shapes.trial), positions), numbers[1])


def _run(
    kernel: Machine,
    schedule: Schedule,
    ahead: Noise,
    lanes: Lane,
    *,
    last: Array,
    turns: Array,
    slots: int,
    size: int,
    one_by_one: bool = False,
) -> tuple[Lane, Array]:
    """Run until a chain has filled its slots, or every chain has `last` draws, or `turns` turns are over.

    The noise ahead is that of the trial that each chain has open, and one more, or some, for each slot. Returns the
    lanes (their trials still open) and the draws by chain and slot, packed into `size` words each. Chain c has filled
    the first lanes.draw[c] (after) - lanes.draw[c] (before) of its slots. `one_by_one` works on one chain after the
    other within a turn; see `calls_lapack`.
    """

    def all_of(function: Callable[[Lane], Any]) -> Callable[[Lane], Any]:
        return (lambda lanes: lax.map(function, lanes)) if one_by_one else jax.vmap(function)

    first = lanes.draw
    chains = jnp.arange(len(first))
    record = jnp.zeros((len(first), slots, size), jnp.uint32)
    share, census = _share_waiting(kernel), census_of(kernel)
    together = _TOGETHER if jax.default_backend() != "cpu" and slots >= 4 * _TOGETHER else 1

    def turn(carry: tuple[Array, Lane, Array]) -> tuple[Array, Lane, Array]:
        count, lanes, record = carry
        if census == "within":
            is_time = is_time_for_census(lanes, last)
            lanes = lax.cond(is_time, all_of(partial(scan, kernel, schedule)), lambda lanes: lanes, lanes)
        lanes, is_decided, drawn = all_of(partial(_look, kernel, schedule, last))(lanes)
        # Slots of undecided lanes are out of bounds, and dropped.
        slot = jnp.where(is_decided, lanes.draw - 1 - first, slots)
        record = record.at[chains, slot].set(pack(drawn), mode="drop", unique_indices=True)
        if share == 0:
            return count + 1, open_all(lanes), record
        is_running = lanes.draw < last
        is_time = jnp.sum(lanes.is_waiting & is_running) >= share * jnp.sum(is_running)
        return count + 1, lax.cond(is_time, open_all, lambda lanes: lanes, lanes), record

    def open_all(lanes: Lane) -> Lane:
        noise = jax.tree.map(lambda leaf: leaf[chains, lanes.draw - first], ahead)
        size = 1 if one_by_one else len(first) if share == 0 else _together(lanes)
        if size < len(first):
            batches = {} if size == 1 else {"batch_size": size}
            return lax.map(lambda each: _open(kernel, schedule, *each), (lanes, noise), **batches)
        return jax.vmap(partial(_open, kernel, schedule))(lanes, noise)

    def is_on(carry: tuple[Array, Lane, Array]) -> Array:
        count, lanes, _ = carry
        is_room = jnp.all(lanes.draw - first <= slots - together) & jnp.any(lanes.draw < last)
        return (count < turns) & is_room & (~is_time_for_census(lanes, last) if census == "apart" else True)

    def some_turns(carry: tuple[Array, Lane, Array]) -> tuple[Array, Lane, Array]:
        if together == 1:
            return turn(carry)
        # A costly proposal is large: to write it out several times takes long to compile.
        return lax.fori_loop(0, together, lambda _, carry: turn(carry), carry, unroll=1 if share else _WRITTEN_OUT)

    _, lanes, record = lax.while_loop(is_on, some_turns, (jnp.zeros((), jnp.int32), lanes, record))
    return lanes, record


def _sampler(**options: Any) -> tuple[Any, Any]:
    """Make programs of both, with options of the compiler."""
    run = program(donate_argnames="lanes", static_argnames=("slots", "size", "one_by_one"), **options)(_run)
    return jax.jit(_draw_ahead, static_argnames="count", **options), run


LONG, SHORT = _sampler(), _sampler(compiler_options=SOON)  # the second is compiled sooner, and slower


def _look(kernel: Machine, schedule: Schedule, last: Array, lane: Lane) -> tuple[Lane, Array, Drawn]:
    """One look of one chain; if that decides, its trial is over."""
    now = at(schedule, kernel, lane.draw)
    trial, is_decided, is_accepted = now.judge(now.look(lane.position, lane.trial))
    is_decided &= ~lane.is_waiting & (lane.draw < last)
    position, verdict = now.close(lane.position, trial, is_decided & is_accepted)
    if not isinstance(now, MetropolisHastings):  # others may move although they reject
        position = where(is_decided, position, lane.position)
    lane = Lane(lane.draw + is_decided, position, trial, lane.is_waiting | is_decided)
    return lane, is_decided, Drawn(shown(now, position), verdict)


def _open(kernel: Machine, schedule: Schedule, lane: Lane, noise: Any) -> Lane:
    """Open the next trial of one chain, if it is waiting for one."""
    opened = at(schedule, kernel, lane.draw).open(noise, lane.position)
    return lane._replace(trial=where(lane.is_waiting, opened, lane.trial), is_waiting=jnp.zeros((), bool))


def _share_waiting(kernel: Machine) -> float:
    """Share of the chains that must wait before candidates are made; 0 if each gets its own at once."""
    proposal = kernel.proposal if isinstance(kernel, MetropolisHastings) else None
    return proposal.share_waiting if isinstance(proposal, CostlyProposal) else 0.0


def _together(lanes: Lane) -> int:
    """Chains whose costly candidates are made together: as many as a core's cache holds, and all on accelerators."""
    chains, size = len(lanes.draw), sum(leaf.size for leaf in jax.tree.leaves(lanes.position))
    return divisor(chains, min(chains, _CACHED * chains // size) if jax.default_backend() == "cpu" else chains)


def shapes_of(kernel: Machine, schedule: Schedule, words: Any, positions: PyTree, draw: Any) -> tuple[Lane, Drawn]:
    """Return the shapes of chains, and of a recorded draw."""
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (words, positions))
    lane = start.trace(kernel, schedule, *one, draw).out_info
    lanes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((len(words), *leaf.shape), leaf.dtype), lane)
    return lanes, _like(kernel, lanes)


def _like(kernel: Machine, lanes: Lane) -> Drawn:

    def close(lanes: Lane) -> Drawn:
        lane = jax.tree.map(lambda leaf: leaf[0], lanes)
        position, verdict = kernel.close(lane.position, lane.trial, jnp.zeros((), bool))
        return Drawn(shown(kernel, position), verdict)

    return jax.eval_shape(close, lanes)
