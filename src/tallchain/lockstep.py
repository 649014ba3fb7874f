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

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

from tallchain.abilities import CostlyProposal
from tallchain.census import census_of, is_time_for_census, is_time_now, read_on, scan
from tallchain.cores import divisor, num_cores
from tallchain.functions import SOON, calls_lapack, program
from tallchain.kernel import MetropolisHastings, Noise, Randomness, where
from tallchain.machines import Lane, Machine, at, carried, check_trials, lanes_of, numbers_of, shown
from tallchain.packing import Chunk, named_faults, num_bytes, num_words, pack
from tallchain.schedule import Schedule
from tallchain.threefry import wrap
from tallchain.types import Array, PyTree, Verdict

_LEAST_GROUP = 4  # chains
_TOGETHER, _WRITTEN_OUT = 8, 4  # turns before an accelerator waits for the host to go on; turns that it is sent at once
_FULL = 8  # numbers of a vector of any CPU, or a part of them
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


def _waiting(kernel: Machine, shapes: Lane, positions: PyTree, draw: int) -> Lane:
    """Return chains that wait for their first trial; until then an empty one is looked at, and its verdict dropped."""

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


_LONG, _SHORT = _sampler(), _sampler(compiler_options=SOON)  # the second is compiled sooner, and slower


class _Programs(NamedTuple):
    """Compiled for the chains of one group, whose shapes `lanes` has; `like` has those of a recorded draw."""

    draw_ahead: Any
    run: Any
    lanes: Lane
    like: Drawn


class Runner:
    """Runs the chunks of one kernel, a group of its chains on each core.

    The program is compiled in the thread of the caller, with JAX's settings there (such as `jax.enable_x64`, which
    threads do not inherit); the threads of the groups only execute it.
    """

    def __init__(
        self,
        kernel: Machine,
        schedule: Schedule,
        keys: Array,
        slots: Any,
        groups: Any = None,
        *,
        is_short: bool = False,
    ) -> None:
        # A plain number becomes an array by the settings of the current thread. (Its type stays weak.)
        self._shared = jax.device_put((kernel, schedule))
        self._find_slots = (lambda _: int(slots)) if isinstance(slots, int | np.integer) else slots
        self.slots = 0  # of a chunk, for each chain: by the device memory that one slot of all chains takes
        self._draw_ahead, self._run = _SHORT if is_short else _LONG
        self._num_groups = groups or num_groups(len(keys))
        self._words = self._split(np.asarray(jr.key_data(keys)))
        self._lanes: list[Lane] = []
        self._running: list[Callable[[], tuple[Lane, Array]]] = []
        self._programs: _Programs | None = None
        self._read_on: Any = None
        """The program of a census, if it is a program apart and was needed."""

    def start(self, positions: PyTree, draw: int = 0) -> Self:
        """Begin with a draw, the first by default, of every chain; compiles everything."""
        parts = self._split(carried(self._shared[0], positions))
        if self._programs is None:
            self._programs = self._compile(self._words[0], parts[0], jax.device_put(np.int32(draw)))
        self._lanes = [jax.device_put(_waiting(self._shared[0], self._programs.lanes, part, draw)) for part in parts]
        return self

    def restarted(self, kernel: Machine, draw: int) -> Self:
        """Go on from here, at this draw of every chain, with other numbers in the kernel: the programs are the same."""
        assert self._programs is not None
        positions = self.positions
        self._shared = jax.device_put((kernel, self._shared[1]))
        randomness = kernel.randomness(jax.tree.map(lambda leaf: leaf[0], positions))
        ahead = partial(self._programs.draw_ahead.func, jax.device_put(randomness))
        self._programs = self._programs._replace(draw_ahead=ahead)
        return self.start(positions, draw)

    def dispatch(self, *, last: int, turns: int) -> None:
        """Begin a chunk, and do not wait for it; `collect` does."""
        assert self._programs is not None
        programs, ends = self._programs, {"last": np.int32(last), "turns": np.int32(turns)}
        for lanes in self._lanes:
            check_trials(self._shared[0], lanes.trial)
            self._make_ready_to_read_on(lanes, ends)

        def run_group(words: Array, lanes: Lane) -> tuple[Lane, Array]:
            if self._read_on is not None:
                with named_faults():
                    lanes = self._read_on(*self._shared, lanes, **ends)
            return execute(programs.run, *self._shared, programs.draw_ahead(words, lanes.draw), lanes, **ends)

        groups = list(zip(self._words, self._lanes, strict=True))
        if len(groups) == 1 and jax.default_backend() == "cpu":
            done = run_group(*groups[0])
            self._running = [lambda: jax.block_until_ready(done)]
        else:  # on an accelerator too: JAX waits there, turn by turn, for the condition of a loop
            threads = ThreadPoolExecutor(len(groups))
            running = [
                threads.submit(lambda *group: jax.block_until_ready(run_group(*group)), *group) for group in groups
            ]
            threads.shutdown(wait=False)
            self._running = [each.result for each in running]

    def _make_ready_to_read_on(self, lanes: Lane, ends: dict[str, Any]) -> None:
        """Compile the program of a census once it is needed: most runs of a test that asks for one rarely never do."""
        if self._read_on is not None or census_of(self._shared[0]) != "apart":
            return
        if is_time_now(lanes, ends["last"]):
            self._read_on = read_on.trace(*self._shared, lanes, **ends).lower().compile()

    def collect(self) -> tuple[np.ndarray, Chunk]:
        """Wait for the chunk; return how many draws each chain has now, and those of the chunk.

        An accelerator still has them: they are to be fetched after the next chunk was dispatched.
        """
        assert self._programs is not None
        with named_faults():
            done = [result() for result in self._running]
        self._lanes = [lanes for lanes, _ in done]
        # JAX's own search does not see numbers that are packed.
        unwanted = tuple(what for what in ("nan", "inf") if getattr(jax.config, f"jax_debug_{what}s"))
        return self.draw, Chunk([record for _, record in done], self._programs.like, unwanted)

    def empty(self) -> Chunk:
        """Return a chunk without draws."""
        assert self._programs is not None
        size = self.slots, num_words(self._programs.like)
        return Chunk([jnp.zeros((len(words), *size), jnp.uint32) for words in self._words], self._programs.like)

    def __call__(self, *, last: int, turns: int) -> tuple[np.ndarray, Drawn]:
        """Run a chunk; return how many draws each chain has now, and those of the chunk, by chain and slot."""
        before = self.draw
        self.dispatch(last=last, turns=turns)
        draw, chunk = self.collect()
        chunk = chunk.divided(int((draw - before).max()))
        return draw, chunk.unpack(np.concatenate([chunk.fetch(part) for part in range(len(chunk.records))]))

    def _compile(self, words: Array, positions: PyTree, draw: Array) -> _Programs:
        """Trace the programs of a group one after another, and compile each while the next is traced."""
        kernel, schedule = self._shared
        lanes, like = _shapes(kernel, schedule, words, positions, draw)
        randomness = kernel.randomness(
            jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), positions)
        )
        with ThreadPoolExecutor(2) as threads:
            noise = jax.eval_shape(lambda words: randomness.draw(wrap(words[0])), words)
            bytes_of_one = sum(map(num_bytes, jax.tree.leaves((noise, like))))
            self.slots = self._find_slots(bytes_of_one * len(words) * self._num_groups)
            # Numbers of a vector that is not full may be rounded otherwise (jaxlib 0.12).
            count = -(-(self.slots + 1) // _FULL) * _FULL
            drawn = self._draw_ahead.trace(randomness, words, lanes.draw, count=count)
            ahead_ = threads.submit(drawn.lower().compile)
            given = {"last": draw, "turns": draw, "slots": self.slots, "size": num_words(like)}
            looked = self._run.trace(kernel, schedule, drawn.out_info, lanes, **given)
            if len(words) > 1 and calls_lapack(looked):
                looked = self._run.trace(kernel, schedule, drawn.out_info, lanes, **given, one_by_one=True)
            run_ = threads.submit(looked.lower().compile)
        return _Programs(partial(ahead_.result(), randomness), run_.result(), lanes, like)

    @property
    def draw(self) -> np.ndarray:
        """How many draws each chain has."""
        return self._joined([lanes.draw for lanes in self._lanes])

    @property
    def positions(self) -> PyTree:
        """Where the chains are."""
        return shown(self._shared[0], self._joined([lanes.position for lanes in self._lanes]))

    @property
    def like(self) -> Drawn:
        """The shapes of a recorded draw."""
        assert self._programs is not None
        return self._programs.like

    def like_at(self, positions: PyTree) -> Drawn:
        """Return the same without compiling anything."""
        return _shapes(*self._shared, self._words[0], carried(self._shared[0], positions), np.int32(0))[1]

    def lanes(self) -> list[np.ndarray]:
        """Copy what the chains carry, the trials that are open included: numbers by chain."""
        return numbers_of(self._lanes)

    def resumed(self, leaves: list[np.ndarray]) -> Self:
        """Go on with what `lanes` returned."""
        self._lanes = lanes_of(leaves, self._lanes)
        return self

    def _split(self, tree: PyTree) -> list[PyTree]:
        """Divide among the groups what has the chains along its first axis."""
        if self._num_groups == 1:
            return [jax.device_put(tree)]
        leaves, structure = jax.tree.flatten(tree)
        parts = zip(*(np.split(np.asarray(leaf), self._num_groups) for leaf in leaves), strict=True)
        return [jax.device_put(jax.tree.unflatten(structure, part)) for part in parts]

    def _joined(self, trees: list[PyTree]) -> PyTree:
        return jax.tree.map(lambda *leaves: np.concatenate(leaves) if len(leaves) > 1 else np.asarray(*leaves), *trees)


def execute(compiled: Any, *arguments: Any, **ends: Any) -> tuple[Lane, Array]:
    """Run one chunk of one group."""
    with named_faults():
        return compiled(*arguments, **ends)


def num_groups(num_chains: int) -> int:
    """Number of equal groups to divide the chains into: one per core of a CPU if that divides evenly."""
    return divisor(num_chains, min(num_cores(), num_chains // _LEAST_GROUP)) if jax.default_backend() == "cpu" else 1


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


def _shapes(kernel: Machine, schedule: Schedule, words: Any, positions: PyTree, draw: Any) -> tuple[Lane, Drawn]:
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
