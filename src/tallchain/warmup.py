"""What changes during the warm-up: the scale of the proposal, and the place of the surrogate."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from tallchain.abilities import ReadingProposal, TunableProposal
from tallchain.checking.trace import Tally
from tallchain.kernel import MetropolisHastings
from tallchain.mixing import Moves, Watch
from tallchain.parts import replace
from tallchain.runner import Runner
from tallchain.schedule import Kernel, Schedule
from tallchain.types import BoundedTest, PlacedSurrogate, PyTree, Surrogate
from tallchain.validation import brief, is_truth

_FAR = 1.0  # of chains from the reference of a surrogate, in their standard deviations
_FEWEST_DRAWS, _FEWEST = 40, 400  # of a chain, and of all chains, for an adaptation
_LOST = "Give one of about the size of the posterior's standard deviations, or more draws of warm-up."

Recentre = Callable[[PyTree], Surrogate]


class Event(NamedTuple):
    """What a change of the kernel was made of: it can be made again."""

    draw: int
    tally: Tally
    """Of the warm-up so far."""
    moves: Moves | None
    positions: list[np.ndarray]
    """Of the chains, leaf by leaf, if the surrogate was to be moved."""


class Warmup:
    """Changes the kernel at some draws of the warm-up, where all chains wait for each other.

    What is changed depends on finished draws alone, so the draws of a key do not depend on the size of chunks.
    """

    def __init__(
        self, kernel: Kernel, num_chains: int, num_warmup: int, recentre: Recentre | None, *, adapt: bool
    ) -> None:
        self.notes: tuple[str, ...] = ()
        self.events: list[Event] = []
        self._recentre, self._half = recentre, num_warmup // 2
        self._tuner: Any = None
        self._given: Any = kernel.proposal
        self._gradients = self._given.gradients_per_row if isinstance(self._given, ReadingProposal) else 1
        self._before = Tally()
        self.watch = Watch(num_chains) if adapt else None
        """The draws since the last round, until the scale is found."""
        self.stops = {self._half} if recentre else set()
        if adapt:
            from tallchain.tuning import Tuner  # SciPy, which only an adaptation needs

            assert isinstance(kernel, MetropolisHastings)
            assert isinstance(self._given, TunableProposal)
            self._appetite = kernel.acceptance.appetite(kernel.source.population)
            self._tuner = Tuner(kernel.acceptance, self._given.tuning, num_warmup)
            self.stops |= set(self._tuner.ends)

    def started(self, kernel: Kernel) -> Kernel:
        """Return the kernel to start with: numbers that will change are arrays from the beginning."""
        return kernel if self._tuner is None else replace(kernel, proposal=self._given.stretched(1.0))

    def changed(
        self, draw: int, kernel: Kernel, run: Runner, tally: Tally, runner: Callable[[Kernel], Runner]
    ) -> tuple[Kernel, Runner]:
        """Return the kernel from this draw on, and what runs it; `tally` is of the warm-up so far."""
        is_round = self._tuner is not None and draw in self._tuner.ends
        moves = self.watch.moves() if is_round and self.watch else None
        positions = run.positions
        event = Event(draw, tally, moves, jax.tree.leaves(positions) if self._is_half(draw) else [])
        self.events.append(event)
        if is_round:
            kernel = self._tuned(kernel, event)
            run = run.restarted(kernel, draw)
        if self._is_half(draw):
            kernel = self._moved(kernel, draw, positions)
            run = runner(kernel).start(positions, draw)
        return kernel, run

    def repeated(self, kernel: Kernel, positions: PyTree) -> Kernel:
        """Return the kernel after the events of an earlier process; positions have the structure of the chains'."""
        structure = jax.tree.structure(positions)
        for event in self.events:
            if self._tuner is not None and event.draw in self._tuner.ends:
                kernel = self._tuned(kernel, event)
            if self._is_half(event.draw):
                kernel = self._moved(kernel, event.draw, jax.tree.unflatten(structure, event.positions))
        return kernel

    def _is_half(self, draw: int) -> bool:
        return self._recentre is not None and draw == self._half

    def _tuned(self, kernel: Kernel, event: Event) -> Kernel:
        """End a round: change the scale."""
        seen, self._before = event.tally - self._before, event.tally
        decisions = max(seen.num_decisions, 1)
        gradients = self._gradients * seen.rows_scanned / decisions
        rows = max(seen.rows_read / decisions + gradients, 1.0)
        share = seen.num_accepted / decisions
        factor = self._tuner.update(share, rows, self._appetite + gradients, event.moves)
        if event.draw == self._tuner.ends[-1]:
            assert self.watch is not None
            self.watch.is_on = False
            self.notes += (self._tuner.words,)
            if self._tuner.is_lost:
                said = f"`sample(adapt=True)` found no scale: {self._tuner.words}. {_LOST}"
                warnings.warn(said, RuntimeWarning, stacklevel=4)
        return replace(kernel, proposal=self._given.stretched(factor))

    def _moved(self, kernel: Kernel, draw: int, positions: PyTree) -> Kernel:
        """Move the surrogate to the chains, if they are far from it."""
        assert self._recentre is not None
        kernel, note = _recentred(kernel, positions, draw, self._recentre)
        self.notes += (note,)
        return kernel

    # ---- what a checkpoint has of it -------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return numbers, and arrays, from which `restore` makes the events."""
        numbers = [[event.draw, dataclasses.astuple(event.tally), event.moves is not None] for event in self.events]
        arrays = {}
        for k, event in enumerate(self.events):
            arrays |= {f"event/{k}/position/{i}": np.asarray(leaf) for i, leaf in enumerate(event.positions)}
            if event.moves is not None:
                arrays |= {f"event/{k}/{name}": of for name, of in event.moves._asdict().items()}
        return {"events": numbers}, arrays

    def restore(self, numbers: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Take over the events of an earlier process."""
        for k, (draw, tally, has_moves) in enumerate(numbers["events"]):
            count = sum(name.startswith(f"event/{k}/position/") for name in arrays)
            positions = [arrays[f"event/{k}/position/{i}"] for i in range(count)]
            moves = Moves(*(arrays[f"event/{k}/{name}"] for name in Moves._fields)) if has_moves else None
            self.events.append(Event(int(draw), Tally(*tally), moves, positions))


def check_warmup(
    kernel: Kernel, num_warmup: int, num_chains: int, schedule: Schedule, recentre: Any, adapt: Any
) -> None:
    """Refuse what cannot be done in this warm-up."""
    _check_recentre(kernel, recentre, num_chains)
    if not is_truth(adapt):
        raise TypeError(f"`sample(adapt=...)` must be True or False; got {brief(adapt)}.")
    if not adapt:
        return
    if not (isinstance(kernel, MetropolisHastings) and isinstance(kernel.proposal, TunableProposal)):
        raise TypeError(
            "`sample(adapt=True)` needs a MetropolisHastings kernel whose proposal has a scale to adapt, as "
            f"RandomWalk, PCN, Langevin and Hamiltonian have; got {type(kernel).__name__} with "
            f"{type(kernel.proposal).__name__}."
        )
    if schedule.scale is not None:
        raise ValueError("`sample(adapt=True, schedule=Schedule(scale=...))`: a scale is either scheduled or adapted.")
    if schedule.temperature is not None:
        raise ValueError(
            "`sample(adapt=True, schedule=Schedule(temperature=...))`: a scale that suits one temperature does not "
            "suit another. Adapt it in a run of its own, and start the next from there with `trace.kernel`."
        )
    fewest = max(_FEWEST_DRAWS, -(-_FEWEST // num_chains))
    if num_warmup < fewest:
        raise ValueError(
            f"`sample(adapt=True, num_warmup={num_warmup})` adapts the scale in 8 rounds: set `num_warmup={fewest}` or "
            "more, e.g. 500."
        )


def _check_recentre(kernel: Kernel, recentre: Any, num_chains: int) -> None:
    if recentre is None:
        return
    if not callable(recentre):
        raise TypeError(f"`sample(recentre=...)` must be a function of a position or None; got {brief(recentre)}.")
    if not isinstance(kernel.surrogate, PlacedSurrogate):
        raise ValueError("`sample(recentre=...)` needs a kernel with a surrogate that has a position, as Taylor does.")
    if num_chains < 2:
        raise ValueError(
            "`sample(recentre=..., num_chains=1)`: the spread of the chains shows how far they are: run more."
        )


def _recentred(kernel: Kernel, positions: PyTree, draw: int, recentre: Recentre) -> tuple[Kernel, str]:
    """Make the surrogate again at the chains' mean, if they are far from its reference; and say so."""
    flat = np.asarray(jax.vmap(lambda position: ravel_pytree(position)[0])(positions), np.float64)
    assert isinstance(kernel.surrogate, PlacedSurrogate)
    if isinstance(kernel.acceptance, BoundedTest):
        return kernel, "the surrogate stayed where it is: the bound of an exact test holds for it alone"
    here = np.asarray(ravel_pytree(kernel.surrogate.position)[0], np.float64)
    spread = flat.std(0)
    far = float(np.sqrt(np.mean(((flat.mean(0) - here) / np.where(spread > 0, spread, 1)) ** 2)))
    words = f"after {draw} warm-up draws the chains were {far:.2g} sd from the reference of the surrogate"
    if far <= _FAR:
        return kernel, f"{words}, which stayed"
    moved = recentre(jax.tree.map(lambda leaf: jnp.mean(leaf, 0), positions))
    return replace(kernel, surrogate=moved), f"{words}, which moved to their mean (a sweep over all rows)"
