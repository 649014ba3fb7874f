"""Runs many chains in lockstep: the host side of `tallchain.lockstep`.

Chains are divided into groups, each run by a thread: on a CPU one for each core; with a divided source one for each of
the parts that chains are in at the same time, on the device that has the part.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.abilities import PlacedSource
from tallchain.census import census_of, is_time_now, read_on
from tallchain.cores import divisor, num_cores
from tallchain.crew import Crew, current
from tallchain.functions import calls_lapack
from tallchain.lockstep import LONG, SHORT, Drawn, shapes_of, waiting
from tallchain.machines import Lane, Machine, carried, check_shapes, check_trials, lanes_of, numbers_of, shown
from tallchain.packing import Chunk, named_faults, num_bytes, num_words
from tallchain.schedule import Schedule
from tallchain.threefry import wrap
from tallchain.types import Array, PyTree

FEWEST_TURNS = 4  # of a chunk
_LEAST_GROUP = 4  # chains
_FULL = 8  # numbers of a vector of any CPU, or a part of them


class _Programs(NamedTuple):
    """Compiled for the chains of one group, whose shapes `lanes` has; `like` has those of a recorded draw."""

    draw_ahead: Any
    run: Any
    lanes: Lane
    like: Drawn


class _Place:
    """A kernel where its rows are, and the programs there."""

    def __init__(self, kernel: Machine, schedule: Schedule) -> None:
        self.device = kernel.source.device if isinstance(kernel.source, PlacedSource) else None
        # A plain number becomes an array by the settings of the current thread. (Its type stays weak.)
        self.shared = jax.device_put((kernel, schedule), self.device)

    @property
    def kernel(self) -> Machine:
        """The kernel."""
        return self.shared[0]

    def put(self, tree: PyTree) -> PyTree:
        """Bring arrays here."""
        return jax.device_put(tree, self.device)


class Runner:
    """Runs the chunks of a kernel, or of several that differ in their rows, a group of its chains with each.

    Programs are compiled in the thread of the caller, with JAX's settings there (such as `jax.enable_x64`, which
    threads do not inherit); the threads of the groups only execute them.

    Args:
        kernel: what runs.
        schedule: temperature and scale.
        keys: of the chains.
        slots: draws of a chain in a chunk; or a function of the bytes that one of all chains takes.
        groups: how many, in all; None for what suits the machine.
        is_short: whether compiling takes longer than running.
        is_apart: whether every process keeps the draws of its own chains.
        divided: makes the kernels of a draw, which differ in their rows; the chains are divided among them equally.
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
        is_apart: bool = False,
        divided: Callable[[Any, int], list[Any]] = lambda kernel, draw: [kernel],
    ) -> None:
        self._kernel, self._schedule, self._divided = kernel, schedule, divided
        self._places = self._placed(0)
        self._crew = current() if None in self._places else None  # where others run some of the chains
        self._is_apart = is_apart
        self._find_slots = (lambda _: int(slots)) if isinstance(slots, int | np.integer) else slots
        self.slots = 0  # of a chunk, for each chain: by the device memory that one slot of all chains takes
        self._draw_ahead, self._run = SHORT if is_short else LONG
        self._num_groups = groups or num_groups_of(len(keys), len(self._places), self._crew)
        self._words = _split(np.asarray(jr.key_data(keys)), self._num_groups)
        self._lanes: list[Lane | None] = []
        """Those of the groups; None for one that another process runs."""
        self._others: dict[int, tuple[np.ndarray, PyTree]] = {}
        """Of such groups: how many draws their chains have, and where they are."""
        self._before = np.zeros(0, np.int64)
        """How many draws the chains had before the chunk."""
        self.is_interrupted = False
        """Whether a process was interrupted before the last chunk was collected."""
        self._running: list[Callable[[], tuple[Lane, Array]]] = []
        self._programs: dict[Any, _Programs] = {}
        """By device."""
        self._read_on: dict[Any, Any] = {}
        """The program of a census, by device, if it is a program apart and was needed."""
        self._has_census: bool | None = None
        """Whether a census is a program apart; None if that is not known yet."""
        self._threads: ThreadPoolExecutor | None = None
        self.turns = FEWEST_TURNS
        """Of the next chunk: as many as take about a second."""

    def _placed(self, draw: int) -> list[_Place | None]:
        kernels = self._divided(self._kernel, draw)
        return [None if each is None else _Place(each, self._schedule) for each in kernels]

    @property
    def is_shared(self) -> bool:
        """Whether other processes run some of the chains."""
        return self._crew is not None

    def _here(self) -> list[tuple[int, _Place]]:
        """Return the groups that this process runs, and where."""
        places = (self._places[group * len(self._places) // self._num_groups] for group in range(self._num_groups))
        return [(group, place) for group, place in enumerate(places) if place is not None]

    def start(self, positions: PyTree, draw: int = 0) -> Self:
        """Begin with a draw, the first by default, of every chain; compiles everything."""
        return self._begin(carried(self._any.kernel, positions), draw)

    def _begin(self, held: PyTree, draw: int) -> Self:
        """Begin with a draw of chains that carry this."""
        if draw:
            self._places = self._placed(draw)
        parts = _split(held, self._num_groups)
        for group, place in self._here():
            if place.device not in self._programs:
                self._programs[place.device] = self._compile(place, self._words[group], parts[group], draw)
        return self._wait(parts, [np.full(len(words), draw, np.int32) for words in self._words])

    def _wait(self, parts: list[PyTree], draws: list[np.ndarray]) -> Self:
        """Have all chains wait for their trials: groups of them that carry this, at these draws."""
        self._others = dict(enumerate(zip(draws, parts, strict=True)))
        self._lanes = [None] * self._num_groups
        for group, place in self._here():
            draw, part = self._others.pop(group)
            self._lanes[group] = self._waiting(place, part, draw)
        return self

    @property
    def _any(self) -> _Place:
        return self._here()[0][1]

    def _waiting(self, place: _Place, positions: PyTree, draw: np.ndarray) -> Lane:
        return place.put(waiting(place.kernel, self._programs[place.device].lanes, positions, draw))

    def restarted(self, kernel: Machine, draw: int) -> Self:
        """Go on from here, at this draw of every chain, with other numbers in the kernel: the programs are the same."""
        held, self._kernel = self._carried, kernel
        randomness = kernel.randomness(jax.tree.map(lambda leaf: leaf[0], held))
        for device, programs in self._programs.items():
            ahead = partial(programs.draw_ahead.func, jax.device_put(randomness, device))
            self._programs[device] = programs._replace(draw_ahead=ahead)
        return self._begin(held, draw)

    def dispatch(self, *, last: int, turns: int) -> None:
        """Begin a chunk, and do not wait for it; `collect` does."""
        ends = {"last": np.int32(last), "turns": np.int32(turns)}
        if self._crew is not None:
            self._before = self.draw
        here = [(place, lanes, group) for (group, place), lanes in zip(self._here(), self._held, strict=True)]
        for place, lanes, _ in here:
            check_trials(place.kernel, lanes.trial)
            self._make_ready_to_read_on(place, lanes, ends)

        def run_group(place: _Place, lanes: Lane, group: int) -> tuple[Lane, Array]:
            programs = self._programs[place.device]
            if place.device in self._read_on:
                with named_faults():
                    lanes = self._read_on[place.device](*place.shared, lanes, **ends)
            ahead = programs.draw_ahead(self._words[group], lanes.draw)
            return execute(programs.run, *place.shared, ahead, lanes, **ends)

        if len(here) == 1 and jax.default_backend() == "cpu":
            done = run_group(*here[0])
            self._running = [lambda: jax.block_until_ready(done)]
        else:  # on an accelerator too: JAX waits there, turn by turn, for the condition of a loop
            if self._threads is None:
                self._threads = ThreadPoolExecutor(len(here), thread_name_prefix="tallchain-group")
            running = [self._threads.submit(lambda of: jax.block_until_ready(run_group(*of)), each) for each in here]
            self._running = [each.result for each in running]

    def _make_ready_to_read_on(self, place: _Place, lanes: Lane, ends: dict[str, Any]) -> None:
        """Compile the program of a census once it is needed: most runs of a test that asks for one rarely never do."""
        if self._has_census is None:
            self._has_census = census_of(place.kernel) == "apart"
        if place.device in self._read_on or not self._has_census:
            return
        if is_time_now(lanes, ends["last"]):
            self._read_on[place.device] = read_on.trace(*place.shared, lanes, **ends).lower().compile()

    def collect(self, *, is_interrupted: bool = False) -> tuple[np.ndarray, Chunk]:
        """Wait for the chunk; return how many draws each chain has now, and those of the chunk.

        An accelerator still has them: they are to be fetched after the next chunk was dispatched. Processes tell each
        other theirs, and whether they were interrupted.
        """
        with named_faults():
            done = [result() for result in self._running]
        records: list[Any] = [None] * self._num_groups
        for (group, _), (lanes, record) in zip(self._here(), done, strict=True):
            self._lanes[group], records[group] = lanes, record
        self.is_interrupted = is_interrupted
        if self._crew is not None:
            self._exchange(self._crew, records)
        # JAX's own search does not see numbers that are packed.
        unwanted = tuple(what for what in ("nan", "inf") if getattr(jax.config, f"jax_debug_{what}s"))
        own = {group for group, _ in self._here()}
        return self.draw, Chunk(records, self.like, unwanted, tuple(group in own for group in range(len(records))))

    def _exchange(self, crew: Crew, records: list[Any]) -> None:
        """Tell the other processes the draws of a chunk, and learn theirs."""
        firsts = np.cumsum([0, *map(len, self._words)])
        said: list[np.ndarray] = [np.array([self.is_interrupted, *(group for group, _ in self._here())], np.int64)]
        for group, _ in self._here():
            lanes = self._lanes[group]
            assert lanes is not None
            draw = np.asarray(lanes.draw)
            used = int((draw - self._before[firsts[group] : firsts[group + 1]]).max())
            record = np.asarray(records[group])[:, : 0 if self._is_apart else used]
            said += [draw, record, *map(np.asarray, jax.tree.leaves(lanes.position))]
        for rank, (head, *arrays) in enumerate(crew.gather_arrays("a chunk of draws", said)):
            self.is_interrupted |= bool(head[0])
            groups = head[1:].tolist() if rank != crew.rank else []
            size = len(arrays) // max(len(groups), 1)
            for at, group in enumerate(groups):
                draw, record, *leaves = arrays[at * size : (at + 1) * size]
                structure = jax.tree.structure(self._others[group][1])
                self._others[group] = draw, jax.tree.unflatten(structure, leaves)
                slots = 0 if self._is_apart else self.slots
                records[group] = np.zeros((len(record), slots, record.shape[2]), record.dtype)
                records[group][:, : record.shape[1]] = record

    def empty(self) -> Chunk:
        """Return a chunk without draws."""
        here = {group for group, _ in self._here()}
        slots = [0 if self._is_apart and group not in here else self.slots for group in range(self._num_groups)]
        shapes = [(len(words), of, num_words(self.like)) for words, of in zip(self._words, slots, strict=True)]
        own = tuple(group in here for group in range(self._num_groups))
        return Chunk([jnp.zeros(shape, jnp.uint32) for shape in shapes], self.like, is_own=own)

    def __call__(self, *, last: int, turns: int) -> tuple[np.ndarray, Drawn]:
        """Run a chunk; return how many draws each chain has now, and those of the chunk, by chain and slot."""
        before = self.draw
        self.dispatch(last=last, turns=turns)
        draw, chunk = self.collect()
        chunk = chunk.divided(int((draw - before).max()))
        return draw, chunk.unpack(np.concatenate([chunk.fetch(part) for part in range(len(chunk.records))]))

    def _compile(self, place: _Place, words: Any, positions: PyTree, draw: int) -> _Programs:
        """Trace the programs of a group one after another, and compile each while the next is traced."""
        kernel, schedule = place.shared
        words, positions, first = place.put((words, positions, np.int32(draw)))
        lanes, like = shapes_of(kernel, schedule, words, positions, first)
        randomness = place.put(
            kernel.randomness(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), positions))
        )
        with ThreadPoolExecutor(2) as threads:
            noise = jax.eval_shape(lambda words: randomness.draw(wrap(words[0])), words)
            bytes_of_one = sum(map(num_bytes, jax.tree.leaves((noise, like))))
            self.slots = self._find_slots(bytes_of_one * len(words) * len(self._here()))
            # Numbers of a vector that is not full may be rounded otherwise (jaxlib 0.12).
            count = -(-(self.slots + 1) // _FULL) * _FULL
            drawn = self._draw_ahead.trace(randomness, words, lanes.draw, count=count)
            ahead_ = threads.submit(drawn.lower().compile)
            given = {"last": first, "turns": first, "slots": self.slots, "size": num_words(like)}
            looked = self._run.trace(kernel, schedule, drawn.out_info, lanes, **given)
            if len(words) > 1 and calls_lapack(looked):
                looked = self._run.trace(kernel, schedule, drawn.out_info, lanes, **given, one_by_one=True)
            run_ = threads.submit(looked.lower().compile)
        return _Programs(partial(ahead_.result(), randomness), run_.result(), lanes, like)

    @property
    def draw(self) -> np.ndarray:
        """How many draws each chain has."""
        found = [self._others[group][0] if lanes is None else lanes.draw for group, lanes in enumerate(self._lanes)]
        return _joined(found)

    @property
    def positions(self) -> PyTree:
        """Where the chains are."""
        return shown(self._any.kernel, self._carried)

    @property
    def _carried(self) -> PyTree:
        """What the chains carry from draw to draw."""
        return _joined(
            [self._others[group][1] if lanes is None else lanes.position for group, lanes in enumerate(self._lanes)]
        )

    @property
    def _held(self) -> list[Lane]:
        return [lanes for lanes in self._lanes if lanes is not None]

    @property
    def like(self) -> Drawn:
        """The shapes of a recorded draw."""
        return next(iter(self._programs.values())).like

    def like_at(self, positions: PyTree) -> Drawn:
        """Return the same without compiling anything."""
        place = self._any
        return shapes_of(*place.shared, self._words[0], carried(place.kernel, positions), np.int32(0))[1]

    def lanes(self) -> list[np.ndarray]:
        """Copy the draws of the chains, what they carry, and the trials that are open if all are here: by chain."""
        return numbers_of(self._held) if self._crew is None else self._known()

    def _known(self) -> list[np.ndarray]:
        """Copy what every process knows of all chains."""
        return [np.array(of) for of in (self.draw, *jax.tree.leaves(self._carried))]

    def resumed(self, leaves: list[np.ndarray]) -> Self:
        """Go on with what `lanes` returned; trials that are not among it are opened again, with the same noise."""
        known = self._known()
        if self._crew is None and len(leaves) > len(known):
            found = lanes_of(leaves, self._held)
            for (group, place), lanes in zip(self._here(), found, strict=True):
                self._lanes[group] = place.put(lanes)
            return self
        draw, *held = leaves[: len(known)]
        check_shapes([draw, *held], [(leaf.dtype, leaf.shape) for leaf in known])
        parts = _split(jax.tree.unflatten(jax.tree.structure(self._carried), held), self._num_groups)
        return self._wait(parts, np.split(draw, self._num_groups))


def _split(tree: PyTree, count: int) -> list[PyTree]:
    """Divide among groups what has the chains along its first axis."""
    if count == 1:
        return [jax.device_put(tree)]
    leaves, structure = jax.tree.flatten(tree)
    parts = zip(*(np.split(np.asarray(leaf), count) for leaf in leaves), strict=True)
    return [jax.device_put(jax.tree.unflatten(structure, part)) for part in parts]


def _joined(trees: list[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves) if len(leaves) > 1 else np.asarray(*leaves), *trees)


def execute(compiled: Any, *arguments: Any, **ends: Any) -> tuple[Lane, Array]:
    """Run one chunk of one group."""
    with named_faults():
        return compiled(*arguments, **ends)


def num_groups(num_chains: int) -> int:
    """Number of equal groups to divide the chains into: one per core of a CPU if that divides evenly."""
    return divisor(num_chains, min(num_cores(), num_chains // _LEAST_GROUP)) if jax.default_backend() == "cpu" else 1


def num_groups_of(num_chains: int, num_places: int, crew: Crew | None) -> int:
    """As `num_groups`, of all processes: one for each place, or for each core there if a process has no other."""
    if crew is None:
        return num_groups(num_chains) if num_places == 1 else num_places
    cores = num_groups(num_chains // num_places) if num_places == crew.size else 1
    return num_places * min(map(int, crew.gather("the number of cores", str(cores).encode())))
