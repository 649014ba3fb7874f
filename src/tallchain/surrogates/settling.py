"""A reference in the bulk of a posterior that has no mode, and a sampler of its surrogate: expand, sample, move.

The expansion is made where a search ended, with the scales held. The surrogate posterior is sampled without reading a
row, and if the mean of its draws is far from the reference, the expansion is made there instead: one more sweep. It is
over when the mean is within half a standard deviation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jax import random as jr

from tallchain.keys import make_key
from tallchain.progress import shown
from tallchain.proposals.transition import Transition
from tallchain.types import Population, PyTree

_FAR = 0.5  # standard deviations from the reference to the mean: root mean square, and largest of dense parameters
_MOST_MOVES = 4
LEAST_ACCEPTANCE = 0.5
"""Of the steps of a sampler of the surrogate posterior."""


class Settled(NamedTuple):
    """An expansion in the bulk, and what samples it."""

    surrogate: Any
    transition: Transition
    draws: PyTree
    """From the surrogate posterior, along a first axis, in random order."""
    moves: tuple[float, ...]
    """Distance from each reference to the mean of its draws, in standard deviations."""
    acceptance: float
    """Of the transition's own steps."""
    num_rows: int
    """N."""
    num_passes: int
    """Sweeps over all rows."""
    rows_swept: int
    seconds: float

    @property
    def position(self) -> PyTree:
        """The reference."""
        return self.surrogate.position

    @property
    def words(self) -> str:
        """A line for a report."""
        count = sum(leaf[0].size for leaf in jax.tree.leaves(self.draws))
        return (
            f"reference            of {count:,} parameters over {self.num_rows:,} rows, in the bulk of the posterior: "
            f"{self.moves[-1]:.1g} standard deviations from the mean of the surrogate's draws"
        )

    @property
    def complaints(self) -> tuple[str, ...]:
        """What is not as it should be, in words."""
        found = []
        if self.moves[-1] > _FAR:
            found.append(
                f"NOT SETTLED          after {len(self.moves)} expansions the mean of the surrogate's draws is still "
                f"{self.moves[-1]:.2g} standard deviations from the reference"
            )
        if self.acceptance < LEAST_ACCEPTANCE:
            found.append(
                f"SHORT STEPS          {self.acceptance:.0%} of the steps on the surrogate posterior are accepted: it "
                "is far from normal, and chains will move slowly"
            )
        return tuple(found)

    def some_draws(self, key: jax.Array, count: int) -> PyTree:
        """Return some of the draws; some come twice if more are wanted than there are."""
        size = len(jax.tree.leaves(self.draws)[0])
        random = np.random.default_rng(np.asarray(jr.key_data(key)).astype(np.uint32).ravel().tolist())
        order = np.concatenate([random.permutation(size) for _ in range(-(-count // size))])[:count]
        return jax.tree.map(lambda leaf: leaf[order], self.draws)


class Sampled(NamedTuple):
    """Draws from a surrogate posterior, and what made them."""

    transition: Transition
    draws: PyTree
    """By chain and draw, on the host."""
    acceptance: float
    """Share of the steps that moved."""


class Ground(Protocol):
    """What a reference may be moved on: a posterior with all its rows."""

    population: Population

    def place(self, start: PyTree, report: Callable[[int, float], None]) -> Place:
        """Find a place in the bulk; `report` is called with the sweeps so far and the length of the last step."""
        ...

    def expanded(self, position: PyTree) -> Any:
        """Return the surrogate at a position, by a sweep over all rows."""
        ...

    def sampled(self, key: jax.Array, surrogate: Any) -> Sampled:
        """Sample the surrogate posterior; no row is read."""
        ...

    def of_rows(self, position: PyTree) -> tuple[np.ndarray, np.ndarray]:
        """Return the parameters on which every row may depend, and those on which any does, along a last axis."""
        ...


class Place(NamedTuple):
    """Where a search ended, and what it cost."""

    position: PyTree
    surrogate: Any
    """The expansion there."""
    num_passes: int
    rows_swept: int
    seconds: float


def settle(ground: Ground, place: Place, *, seed: int = 0, progress: bool = False) -> Settled:
    """Move from a place until the mean of the surrogate's draws is near the reference."""
    surrogate, moves, begun, key = place.surrogate, [], time.perf_counter(), make_key(seed)
    while True:
        with shown(progress, "sampling the surrogate", is_step=True):
            sampled = ground.sampled(jr.fold_in(key, len(moves)), surrogate)
        moves.append(_distance(ground, surrogate.position, sampled.draws))
        if moves[-1] <= _FAR or len(moves) > _MOST_MOVES:
            break
        mean = jax.tree.map(lambda leaf: np.mean(leaf, (0, 1), dtype=np.float64).astype(leaf.dtype), sampled.draws)
        with shown(progress, "expanding at the mean of the surrogate's draws", is_step=True):
            surrogate = ground.expanded(mean)
    population, more = ground.population, len(moves) - 1
    return Settled(
        surrogate,
        sampled.transition,
        _mixed(sampled.draws, seed),
        tuple(moves),
        sampled.acceptance,
        population.total,
        place.num_passes + more,
        place.rows_swept + more * population.swept,
        place.seconds + time.perf_counter() - begun,
    )


def share_moved(draws: PyTree) -> float:
    """Return the share of steps that moved, given draws by chain and draw."""
    first = next(leaf for leaf in jax.tree.leaves(draws) if leaf.size)
    first = first.reshape(*first.shape[:2], -1)[..., 0]
    return float(np.mean(first[:, 1:] != first[:, :-1]))


def _distance(ground: Ground, position: PyTree, draws: PyTree) -> float:
    """From the reference to the mean of the draws, over the parameters that rows depend on."""
    here, there = ground.of_rows(jax.tree.map(np.asarray, position)), ground.of_rows(draws)
    dense, every = (
        (np.mean(of, (0, 1), dtype=np.float64) - at) / np.maximum(np.std(of, (0, 1), dtype=np.float64), 1e-30)
        for at, of in zip(here, there, strict=True)
    )
    return float(max(np.sqrt(np.mean(every**2)), np.max(np.abs(dense), initial=0.0)))


def flat_of(position: PyTree, like: PyTree) -> np.ndarray:
    """Return a position, or several along first axes, as one vector along the last; `like` is one position."""
    pairs = zip(jax.tree.leaves(position), jax.tree.leaves(like), strict=True)
    return np.concatenate([np.reshape(of, (*of.shape[: of.ndim - np.ndim(one)], -1)) for of, one in pairs], -1)


def _mixed(draws: PyTree, seed: int) -> PyTree:
    """Return the draws of all chains in random order."""
    count = int(np.prod(np.shape(jax.tree.leaves(draws)[0])[:2]))
    order = np.random.default_rng(seed).permutation(count)
    return jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:])[order], draws)
