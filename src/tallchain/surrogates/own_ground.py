"""A user's own posterior with coordinates on which no row depends, for `settle`: scales, hyperparameters.

With a hierarchical or a shrinkage prior the joint mode is where a scale is 0. So these coordinates are held while the
others climb; then the likelihood is expanded, which they have no part in, and the surrogate posterior of all
coordinates is sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from tallchain.arrays import as_floats
from tallchain.functions import QUICKLY, program
from tallchain.models.posterior import Posterior as MadePosterior
from tallchain.parts import part, replace
from tallchain.surrogates.grounds import CHAINS, adapted, without_rows
from tallchain.surrogates.reference import find_reference
from tallchain.surrogates.settling import Place, Sampled, flat_of
from tallchain.surrogates.taylor import Taylor
from tallchain.types import Array, Block, Posterior, PyTree, Source

_ROWS = 256  # to look at first
_AWAY = 0.1  # from the start, at one more place


class Dependence(NamedTuple):
    """Which coordinates of the flattened position rows depend on."""

    is_free: np.ndarray
    rows_swept: int


def rows_depend_on(posterior: Posterior, source: Source, start: PyTree) -> Dependence:
    """Look at some rows; where none of them depends on a coordinate, at all: a rare column is not a scale."""
    like = jax.tree.map(as_floats, start)
    flat = np.asarray(ravel_pytree(like)[0])
    away = flat + (_AWAY * np.random.default_rng(0).normal(size=flat.size)).astype(flat.dtype)
    depends = _Depends(posterior, like, jax.device_put(np.stack([flat, away])))
    is_free = np.asarray(_of_some(depends, source.some_rows(_ROWS)))
    if np.all(is_free):
        return Dependence(is_free, 0)
    population = source.population
    found = source.sweep(depends, _any, lanes=2 * flat.size, results=flat.size)
    return Dependence(found, population.swept)


@part
class _Depends:
    """For a block: whether a row depends on each coordinate, at the start or at another place."""

    posterior: Posterior
    like: PyTree
    places: Array

    @property
    def log_likelihood(self) -> Any:
        """Whose programs these are."""
        return self.posterior.log_likelihood

    def __call__(self, block: Block) -> Array:
        return self.of_rows(block.rows)  # rows that are not valid are rows of another block

    def of_rows(self, rows: PyTree) -> Array:
        """By coordinate."""
        unravel = ravel_pytree(self.like)[1]

        def slopes(flat: Array, row: PyTree) -> Array:
            return jax.grad(lambda flat: self.log_likelihood(unravel(flat), row))(flat) != 0

        return jnp.any(jax.vmap(lambda flat: jnp.any(jax.vmap(slopes, (None, 0))(flat, rows), 0))(self.places), 0)


@program(compiler_options=QUICKLY)
def _of_some(depends: _Depends, rows: PyTree) -> Array:
    return depends.of_rows(rows)


def _any(found: np.ndarray | None, blocks: np.ndarray) -> np.ndarray:
    here = np.any(blocks, 0)
    return here if found is None else found | here


class OwnGround:
    """A posterior, and which coordinates of its flattened position rows depend on."""

    def __init__(self, posterior: Posterior, source: Source, like: PyTree, is_free: np.ndarray) -> None:
        self._posterior, self._source, self._is_free = posterior, source, is_free
        self._like = like
        self.population = source.population

    def place(self, start: PyTree, report: Callable[[int, float], None]) -> Place:
        """Find the mode of the other coordinates, with these held at the start; expand there."""
        flat, unravel = ravel_pytree(jax.tree.map(as_floats, start))
        free, held = np.flatnonzero(self._is_free), np.asarray(flat)
        whole = lambda some: unravel(jnp.asarray(held).at[free].set(some))  # noqa: E731
        posterior = MadePosterior(
            lambda some: self._posterior.log_prior(whole(some)),
            lambda some, row: self._posterior.log_likelihood(whole(some), row),
            self._posterior.temperature,
        )
        found = find_reference(posterior, self._source, held[free], progress=False)
        report(found.num_passes, found.decrement)
        position = whole(found.position)
        swept = found.rows_swept + self.population.swept
        return Place(position, self.expanded(position), found.num_passes + 1, swept, found.seconds)

    def expanded(self, position: PyTree) -> Taylor:
        """Expand in the parameters."""
        return replace(Taylor(self._posterior, self._source, position, 2), rows_swept=0)  # programs are kept by it

    def sampled(self, key: Array, surrogate: Taylor) -> Sampled:
        """Adapt the No-U-Turn Sampler."""
        starts = jax.tree.map(lambda leaf: np.tile(leaf, (CHAINS,) + (1,) * np.ndim(leaf)), surrogate.position)
        return adapted(key, without_rows(self._posterior, surrogate), starts, None)

    def of_rows(self, position: PyTree) -> tuple[np.ndarray, np.ndarray]:
        """Return all coordinates but those held, twice: which of them every row depends on is not known."""
        free = flat_of(position, self._like)[..., self._is_free]
        return free[..., :0], free
