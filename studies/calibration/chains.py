"""Chains of many data sets in lockstep: each data set has a kernel of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallchain import runner
from tallchain.checking.recorder import Recorder
from tallchain.checking.trace import Tally
from tallchain.chunks import fill, slots_within
from tallchain.kernel import MetropolisHastings, Noise, Randomness, Trial
from tallchain.parts import part, replace
from tallchain.schedule import Schedule
from tallchain.sources import Shuffled
from tallchain.types import (
    Array,
    Ask,
    Population,
    PyTree,
    RowFunction,
    Seen,
    Source,
    Verdict,
)


class Ends(NamedTuple):
    """Where chains have ended, and what they have cost."""

    position: np.ndarray
    """(set, chain, parameter)."""
    total: Tally


def end_of_chains(
    kernel: MetropolisHastings, data: PyTree, scale: np.ndarray, keys: Array, positions: np.ndarray, draws: int
) -> Ends:
    """Run `draws` decisions of every chain (set, chain).

    With the same keys, the chains of a data set are those that `sample` draws for it alone from rows that are not
    shuffled before. Data and scale have the data set as their first axis; the kernel is that of one of them, whose rows
    are not used.
    """
    sets, chains, size = positions.shape
    of_set = jnp.repeat(jnp.arange(sets, dtype=jnp.int32), chains)
    start = At(of_set, jnp.asarray(positions.reshape(-1, size)))
    machine, schedule, keys = Many.of(kernel, data, scale), Schedule(), keys.reshape(-1)
    recorder = Recorder(kernel.source.population.total, len(keys), 1, draws - 1)
    run = runner.Runner(machine, schedule, keys, partial(slots_within, draws)).start(start)
    fill(recorder, run, draws, threading.Event(), lambda recorder: None)
    if recorder.num_finished < draws:
        raise KeyboardInterrupt("the chains were interrupted")
    return Ends(recorder.draws().position.position.reshape(sets, chains, size), recorder.total)


class At(NamedTuple):
    """Where a chain is, and in which data set."""

    of_set: Array
    position: Array


@part
class OneOfMany:
    """What a decision needs from a source: the rows of one data set out of many, in the order of row numbers."""

    numbers: Source
    """A source of 0, 1, ..., N - 1."""
    data: PyTree
    """(set, row, ...)."""
    of_set: Array

    @property
    def population(self) -> Population:
        """The population of the row numbers."""
        return self.numbers.population

    def draw(self, key: Array) -> PyTree:
        """As the row numbers do."""
        return self.numbers.draw(key)

    def start(self, noise: PyTree) -> PyTree:
        """Begin like the row numbers."""
        return self.numbers.start(noise)

    def look(
        self,
        cursor: PyTree,
        ask: Ask,
        width: int,
        row_function: RowFunction,
        summarise: Callable[[Array, Array], Any],
    ) -> tuple[PyTree, Seen]:
        """Read the rows of the next numbers."""

        def of_number(number: Array) -> Array:
            return row_function(jax.tree.map(lambda leaf: leaf[self.of_set, number], self.data))

        return self.numbers.look(cursor, ask, width, of_number, summarise)


@part
class Many:
    """Decisions on many data sets with the interface of one kernel; see `lockstep.Machine`."""

    kernel: MetropolisHastings
    """Its source returns row numbers."""
    data: PyTree
    """(set, row, ...)."""
    scale: Array
    """Of the proposals, (set, ...)."""

    @classmethod
    def of(cls, kernel: MetropolisHastings, data: PyTree, scale: np.ndarray) -> Many:
        """Put row numbers in place of the rows of the kernel."""
        population = kernel.source.population
        numbers = Shuffled(np.arange(population.num_rows), population.batch_size, windows=False)
        # In order: the rows of a data set are independent, and every decision reads them in a new order.
        numbers = replace(numbers, data=jnp.arange(population.num_rows))
        return cls(replace(kernel, source=numbers), *jax.tree.map(jnp.asarray, (data, scale)))

    @property
    def log_likelihood(self) -> Any:
        """That of the kernel."""
        return self.kernel.log_likelihood

    @property
    def source(self) -> Source:
        """That of the kernel."""
        return self.kernel.source

    def randomness(self, position: At) -> Randomness:
        """Return what draws the noise of a decision."""
        return self.kernel.randomness(position.position)

    def open(self, noise: Noise, position: At) -> Trial:
        """Begin a trial."""
        return self._of(position).open(noise, position.position)

    def resting(self, trial: Trial, position: At) -> Trial:
        """Return empty trials of many chains with the positions as candidates."""
        return self.kernel.resting(trial, position.position)

    def look(self, position: At, trial: Trial) -> Trial:
        """Read one window."""
        return self._of(position).look(position.position, trial)

    def judge(self, trial: Trial) -> tuple[Trial, Array, Array]:
        """Let the test judge, for which all data sets are the same."""
        return self.kernel.judge(trial)

    def close(self, position: At, trial: Trial, is_accepted: Array) -> tuple[At, Verdict]:
        """End a trial; the chain stays with its data set."""
        moved, verdict = self.kernel.close(position.position, trial, is_accepted)
        return position._replace(position=moved), verdict

    def _of(self, position: At) -> MetropolisHastings:
        """Return the kernel of a data set."""
        kernel = self.kernel.scaled(self.scale[position.of_set])
        return replace(kernel, source=OneOfMany(kernel.source, self.data, position.of_set))
