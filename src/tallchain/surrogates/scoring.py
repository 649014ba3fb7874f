"""What a row leaves of log ratios, between pairs of positions: its score, and powers to judge ways to sample by."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tallchain.arrays import dot
from tallchain.parts import part, static
from tallchain.residuals import residual
from tallchain.types import Array, Block, Posterior, PyTree

_LARGE = 1e9  # a residual whose fourth power is a number of float32


class Pairs(NamedTuple):
    """Steps, from here to there, along a first axis."""

    here: PyTree
    there: PyTree


def paired(draws: PyTree) -> tuple[Pairs, Pairs]:
    """Return pairs of draws: some to score with, as many to judge."""
    count = len(jax.tree.leaves(draws)[0]) // 4
    some = [jax.tree.map(lambda leaf, i=i: leaf[i * count : (i + 1) * count], draws) for i in range(4)]
    return Pairs(*some[:2]), Pairs(*some[2:])


@part
class Residuals:
    """Residuals of the rows of a block, by pair and row."""

    posterior: Posterior
    surrogate: Any
    pairs: Pairs
    in_float64: bool = static()

    @property
    def log_likelihood(self) -> Any:
        """Whose programs these are."""
        return self.posterior.log_likelihood

    def residuals(self, rows: PyTree) -> Array:
        """By pair and row."""
        of_pair = partial(residual, self.posterior, self.surrogate, in_float64=self.in_float64)
        return jax.vmap(lambda pair: jax.vmap(of_pair(*pair))(rows))(self.pairs)

    def bounded(self, block: Block) -> tuple[Array, Array]:
        """Return their sums, and themselves; whatever is not a number is large, since infinity times 0 is not 0."""
        r = self.residuals(block.rows)
        large = jnp.where(jnp.isnan(r), _LARGE, jnp.clip(r, -_LARGE, _LARGE))
        return jnp.sum(jnp.where(block.is_valid, r, 0), 1), large


@part
class Score(Residuals):
    """For a block: where it begins, and the root mean square of each row's residuals."""

    def __call__(self, block: Block) -> tuple[Array, Array]:
        """Score a block."""
        return block.index[0], self.of_rows(block.rows)

    def of_rows(self, rows: PyTree) -> Array:
        """By row."""
        return jnp.sqrt(jnp.mean(self.residuals(rows) ** 2, 0))


@part
class PowersAlike(Residuals):
    """For a block: sums of powers 1, 2, 4 of residuals by (proposal, 1, power), and their sums."""

    def __call__(self, block: Block) -> tuple[Array, Array]:
        """Add up a block."""
        total, bounded = self.bounded(block)
        r = jnp.where(block.is_valid, bounded, 0)
        return jnp.stack([jnp.sum(r**power, 1) for power in (1, 2, 4)], -1)[:, None], total


@part
class Powers(Residuals):
    """For a block: sums of powers 1, 2, 4 of residuals by (proposal, way to sample, power), their sums, all copies."""

    scores: Array
    """By row of the source."""
    mean: Array
    """Of the scores."""
    levels: Array
    """By row of the source: how many of the sets of rows to read always contain it."""
    num_sets: int = static()

    def __call__(self, block: Block) -> tuple[Array, Array, Array]:
        """Add up a block."""
        start, width = block.index[0], len(block.index)
        scores, levels = (lax.dynamic_slice_in_dim(leaf, start, width) for leaf in (self.scores, self.levels))
        copies = 1 + jnp.round(scores / self.mean)
        slots = jnp.sum(jnp.where(block.is_valid, copies.astype(jnp.int32), 0))
        # By way to sample and row: 1 if the row is sampled at all. The sets grow: a row of the smallest set is in all
        # of them, a row only of the largest set is in the last.
        is_out = levels <= jnp.arange(self.num_sets)[::-1, None]
        sampled = jnp.concatenate([jnp.ones((2, width), bool), is_out]) & block.is_valid
        share = jnp.concatenate([jnp.ones((1, width)), 1 / copies[None], jnp.ones((self.num_sets, width))])
        total, bounded = self.bounded(block)
        powers = (bounded, sampled), (bounded**2, sampled * share), (bounded**4, sampled * share**3)
        sums = jnp.stack([dot(power, weights.T.astype(bounded.dtype)) for power, weights in powers], -1)
        return sums, total, slots
