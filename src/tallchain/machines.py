"""What runs in lockstep: see `tallchain.lockstep`."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.kernel import Randomness
from tallchain.schedule import Kernel, Schedule
from tallchain.types import Array, PyTree, Source, Verdict


class Machine(Protocol):
    """What runs in lockstep: decisions of a `MetropolisHastings`, or of an audit; see `tallchain.kernel`."""

    @property
    def log_likelihood(self) -> Any:
        """Whose programs these are."""
        ...

    @property
    def source(self) -> Source:
        """Where the rows come from."""
        ...

    def randomness(self, position: Any, /) -> Randomness:
        """Return what draws the noise of a decision; only the shapes of the position matter."""
        ...

    def open(self, noise: Any, position: Any, /) -> Any:
        """Begin a trial."""
        ...

    def resting(self, trial: Any, position: Any, /) -> Any:
        """Return empty trials of many chains with the positions as candidates: there the posterior is defined."""
        ...

    def look(self, position: Any, trial: Any, /) -> Any:
        """Read one window."""
        ...

    def judge(self, trial: Any, /) -> tuple[Any, Array, Array]:
        """Return the trial, whether it is decided, and whether it is accepted."""
        ...

    def close(self, position: Any, trial: Any, is_accepted: Array, /) -> tuple[Any, Verdict]:
        """End a trial."""
        ...


@runtime_checkable
class CarryingMachine(Machine, Protocol):
    """A machine whose chains carry more from decision to decision than is recorded."""

    def carried(self, positions: PyTree, /) -> Any:
        """Return what chains carry at their start; both have the chains along a first axis."""
        ...

    def shown(self, carried: Any, /) -> PyTree:
        """Return the position in what a chain carries: it is recorded."""
        ...

    def check_trials(self, trials: Any, /) -> None:
        """Raise an error if some chain cannot go on: it never decides, so its finished draws are right."""
        ...


def carried(machine: Machine, positions: PyTree) -> PyTree:
    """Return what chains at these positions carry: the positions, for most machines."""
    return machine.carried(positions) if isinstance(machine, CarryingMachine) else positions


def shown(machine: Machine, position: PyTree) -> PyTree:
    """Return what is recorded of what a chain carries: all, for most machines."""
    return machine.shown(position) if isinstance(machine, CarryingMachine) else position


def check_trials(machine: Machine, trials: Any) -> None:
    """Refuse to go on with chains that cannot."""
    if isinstance(machine, CarryingMachine):
        machine.check_trials(trials)


class Lane(NamedTuple):
    """One chain: the number of the draw it is deciding, where it is, and its trial."""

    draw: Array
    position: PyTree
    trial: Any
    is_waiting: Array
    """The trial is over, and the next is not open yet: its candidate will be made together with others."""


def at(schedule: Schedule, kernel: Machine, draw: Array) -> Machine:
    """Return the kernel of a draw; the decisions of an audit have no schedule."""
    return schedule.at(kernel, draw) if isinstance(kernel, Kernel) else kernel


def numbers_of(groups: list[Lane]) -> list[np.ndarray]:
    """Copy what chains carry, those of all groups: arrays by chain, keys as their words."""
    leaves = zip(*map(jax.tree.leaves, groups), strict=True)
    return [np.concatenate([np.array(_numbers(leaf)) for leaf in each]) for each in leaves]


def lanes_of(leaves: list[np.ndarray], like: list[Lane]) -> list[Lane]:
    """Return groups of chains that carry what `numbers_of` has copied; refuse other shapes than those of `like`."""
    ends = np.cumsum([len(lanes.draw) for lanes in like])
    shapes, structure = jax.tree.flatten(like[0])
    check_shapes(leaves, [(_numbers(leaf).dtype, (ends[-1], *_numbers(leaf).shape[1:])) for leaf in shapes])
    parts = zip(*(np.split(leaf, ends[:-1]) for leaf in leaves), strict=True)
    return [jax.device_put(jax.tree.unflatten(structure, map(_with_numbers, part, shapes))) for part in parts]


def check_shapes(leaves: list[np.ndarray], wanted: list[tuple[Any, tuple[int, ...]]]) -> None:
    """Refuse numbers of other types or shapes."""
    if wanted != [(leaf.dtype, leaf.shape) for leaf in leaves]:
        raise ValueError("the chains of the checkpoint carry other numbers than those of this kernel.")


def _numbers(leaf: Any) -> Any:
    return jr.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _with_numbers(numbers: np.ndarray, like: Any) -> Any:
    is_key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
    return jr.wrap_key_data(jnp.asarray(numbers), impl=like.dtype._impl) if is_key else numbers
