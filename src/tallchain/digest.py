"""What a device makes of the draws of a chunk, so that not all of them have to come to the host.

Every function takes a record (chain, slot, word) as `lockstep` writes it, and the numbers of draws that each chain
had finished before and after, warm-up included. Counts and sizes that depend on the length of a run are arguments, not
shapes: runs of different lengths share a program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tallchain.arrays import dot
from tallchain.coordinates import Coordinates
from tallchain.packing import Chunk, unpack_traced
from tallchain.types import Array

COUNTED = ("is_accepted", "rows_read", "rows_scanned", "is_invalid", "is_infinite")
"""What is added up of a verdict."""


class Shapes(NamedTuple):
    """The shapes of a recorded draw, to be a static argument."""

    leaves: tuple[Any, ...]
    structure: Any
    coordinates: Coordinates | None = None
    """Of a posterior with constraints, whose parameters are to be summarised."""

    @classmethod
    def of(cls, like: Any, coordinates: Coordinates | None = None) -> Shapes:
        """Return the shapes of a tree."""
        leaves, structure = jax.tree.flatten(like)
        return cls(tuple(leaves), structure, coordinates)

    @property
    def like(self) -> Any:
        """The tree."""
        return jax.tree.unflatten(self.structure, self.leaves)

    @property
    def parameters(self) -> Any:
        """The shapes of what users see of a position."""
        position = self.like.position
        return position if self.coordinates is None else jax.eval_shape(self.coordinates.constrain, position)

    @property
    def num_coordinates(self) -> int:
        """Numbers of it."""
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.parameters))

    @property
    def dtype(self) -> Any:
        """In which to compute with them."""
        return jnp.result_type(jnp.float32, *(leaf.dtype for leaf in jax.tree.leaves(self.parameters)))


class Span(NamedTuple):
    """Draws finished by each chain before a chunk and after it, and the length of the warm-up."""

    before: Any
    after: Any
    num_warmup: Any

    @classmethod
    def by_record(cls, chunk: Chunk, before: np.ndarray, after: np.ndarray, num_warmup: int) -> Iterator[Group]:
        """Yield for every record of a chunk that has slots which chains it has, and their draws."""
        firsts = np.cumsum([0, *map(len, chunk.records)]).tolist()
        is_own = chunk.is_own or (True,) * len(chunk.records)
        for record, chains, own in zip(chunk.records, map(slice, firsts[:-1], firsts[1:]), is_own, strict=True):
            # As int32, whatever JAX's settings are.
            numbers = (np.asarray(of, np.int32) for of in (before[chains], after[chains], num_warmup))
            if record.shape[1]:
                yield Group(record, chains, cls(*numbers), own)

    def numbers(self, slots: int) -> tuple[Array, Array]:
        """Return by chain and slot the number of the draw, from 0 after the warm-up, and whether it was made."""
        slot = jnp.arange(slots)
        return (self.before - self.num_warmup)[:, None] + slot, slot < (self.after - self.before)[:, None]


class Group(NamedTuple):
    """The chains of one record."""

    record: Array
    chains: slice
    span: Span
    is_own: bool = True
    """Whether this process has made its draws."""


def power_of_two(number: int) -> int:
    """The least power of 2 that is not below: sizes that differ little share a program."""
    return 1 << max(number - 1, 0).bit_length()


# ---- every k-th draw -----------------------------------------------------------------------------


@partial(jax.jit, static_argnames="kept")
def thinned(record: Array, span: Span, thin: Array, *, kept: int) -> Array:
    """Take the draws whose number is a multiple of `thin`, (chain, draw, word); `kept` slots are enough for all."""
    begin = span.before - span.num_warmup
    first = -(-jnp.maximum(begin, 0) // thin) * thin - begin
    chosen = jnp.minimum(first[:, None] + thin * jnp.arange(kept), record.shape[1] - 1)
    return jnp.take_along_axis(record, chosen[:, :, None], 1)


@partial(jax.jit, static_argnames="shapes")
def sums(record: Array, span: Span, *, shapes: Shapes) -> Array:
    """Add up the fields `COUNTED`: (chain, phase, field, byte), the warm-up and the rest.

    Byte by byte, the lowest first: sums of whole numbers might overflow, and these do not for 2^24 slots.
    """
    index, is_made = span.numbers(record.shape[1])
    verdict = unpack_traced(record, shapes.like).verdict
    phases = jnp.stack([is_made & (index < 0), is_made & (index >= 0)], 1)  # (chain, phase, slot)
    numbers = jnp.stack([getattr(verdict, name).astype(jnp.uint32) for name in COUNTED], 1)  # (chain, field, slot)
    parts = jnp.stack([numbers >> bits & 0xFF for bits in (0, 8, 16, 24)], 2)  # (chain, field, byte, slot)
    return jnp.sum(jnp.where(phases[:, :, None, None], parts[:, None], 0), -1, dtype=jnp.uint32)


# ---- moments -------------------------------------------------------------------------------------


class Grid(NamedTuple):
    """Bins of equal width, by coordinate; bin k of n begins at middle + (k - n/2) width."""

    middle: Any
    width: Any


class Batches(NamedTuple):
    """Moments of the draws after the warm-up by batch of each chain, coordinates flattened."""

    unit: Array
    """(coordinate): in which the others are, except the origin. Squares of very large and small numbers overflow."""
    origin: Array
    """(chain, coordinate): the chain's first draw. Numbers far from 0 would cancel."""
    mean: Array
    """(chain, batch, coordinate): of the deviations from the origin."""
    scatter: Array
    """(chain, batch, coordinate): sums of squared deviations from that mean."""

    @classmethod
    def empty(cls, num_chains: int, num_batches: int, shapes: Shapes) -> Batches:
        """No draws yet."""
        unit = jnp.full(shapes.num_coordinates, jnp.finfo(shapes.dtype).tiny, shapes.dtype)
        origin = jnp.zeros((num_chains, shapes.num_coordinates), shapes.dtype)
        nothing = jnp.zeros((num_chains, num_batches, shapes.num_coordinates), shapes.dtype)
        return cls(unit, origin, nothing, nothing)


class Spread(NamedTuple):
    """Of the draws of a chunk after the warm-up, over all chains of a record."""

    origin: Array
    """(coordinate): one of the draws."""
    mean: Array
    """(coordinate): of the deviations from the origin, in the width of a bin."""
    products: Array | None
    """(coordinate, coordinate): sums of products of deviations from the mean, in that unit; None if not wanted."""
    counts: Array
    """(coordinate, bin): finite draws."""


@partial(jax.jit, static_argnames="shapes")
def extent(record: Array, span: Span, *, shapes: Shapes) -> tuple[Array, Array]:
    """Return least and greatest draw after the warm-up by coordinate, of the finite ones; least > greatest if none."""
    draws, _, is_counted = _counted(record, span, shapes)
    # Not infinity: `jax_debug_infs` would take offence.
    most, where = jnp.finfo(shapes.dtype).max, is_counted[:, :, None] & jnp.isfinite(draws)
    return jnp.min(draws, (0, 1), where=where, initial=most), jnp.max(draws, (0, 1), where=where, initial=-most)


@partial(jax.jit, static_argnames=("shapes", "spanned", "bins", "with_products"))
def moments(
    batches: Batches,
    record: Array,
    span: Span,
    size: Array,
    grid: Grid,
    *,
    shapes: Shapes,
    spanned: int,
    bins: int,
    with_products: bool,
) -> tuple[Batches, Spread]:
    """Add the draws of a chunk (Chan, Golub and LeVeque 1979); describe them.

    A batch has `size` draws, and no chain may be in more than `spanned` of them in one chunk. Bins may have become
    wider since the last chunk, not narrower.
    """
    draws, index, is_counted = _counted(record, span, shapes)
    begin = jnp.maximum(span.before - span.num_warmup, 0)
    # Of the chains that have none yet, the first draw after the warm-up.
    first = jnp.take_along_axis(draws, jnp.argmax(is_counted, 1)[:, None, None], 1)[:, 0]
    origin = jnp.where((begin == 0)[:, None], first, batches.origin)
    deviation = jnp.where(is_counted[:, :, None], (draws - origin[:, None]) / grid.width, 0)
    batch = index // size - (begin // size)[:, None]
    weight = ((batch[:, :, None] == jnp.arange(spanned)) & is_counted[:, :, None]).astype(draws.dtype)
    new = jnp.sum(weight, 1)
    product = partial(jnp.einsum, "csb,csd->cbd", precision=lax.Precision.HIGHEST)
    mean = product(weight, deviation) / jnp.maximum(new, 1)[:, :, None]
    within = deviation[:, :, None] - mean[:, None]
    scatter = jnp.sum(weight[..., None] * within**2, 1)
    place = (begin // size)[:, None] + jnp.arange(spanned)
    old = jnp.clip(begin[:, None] - place * size, 0, size).astype(draws.dtype)
    at = (jnp.arange(len(record))[:, None], place)
    ratio = batches.unit / grid.width
    old_mean, old_scatter = batches.mean * ratio, batches.scatter * ratio**2
    apart = mean - old_mean.at[at].get(mode="fill", fill_value=0)
    share = (new / jnp.maximum(old + new, 1))[:, :, None]
    added = Batches(
        grid.width,
        origin,
        old_mean.at[at].add(share * apart, mode="drop", unique_indices=True),
        old_scatter.at[at].add(scatter + old[:, :, None] * share * apart**2, mode="drop", unique_indices=True),
    )
    some = first[jnp.argmax(jnp.any(is_counted, 1))]  # of a chain that has a draw
    flat = jnp.where(is_counted[:, :, None], (draws - some) / grid.width, 0)
    middle = jnp.sum(flat, (0, 1)) / jnp.maximum(jnp.sum(is_counted), 1)
    products = None
    if with_products:
        flat = jnp.where(is_counted[:, :, None], flat - middle, 0).reshape(-1, draws.shape[2])
        products = dot(flat.T, flat)
    return added, Spread(some, middle, products, _histogram(draws, is_counted, grid, bins))


def _histogram(draws: Array, is_counted: Array, grid: Grid, bins: int) -> Array:
    """Count draws, (coordinate, bin)."""
    size = draws.shape[2]
    place = jnp.clip(jnp.floor((draws - grid.middle) / grid.width) + bins // 2, 0, bins - 1)
    in_bin = is_counted[:, :, None] & ~jnp.isnan(place)
    place = jnp.where(in_bin, place, 0).astype(jnp.int32) + bins * jnp.arange(size)
    place = jnp.where(in_bin, place, bins * size)  # out of bounds, and dropped
    return jnp.zeros(bins * size, jnp.uint32).at[place.reshape(-1)].add(1, mode="drop").reshape(size, bins)


def _counted(record: Array, span: Span, shapes: Shapes) -> tuple[Array, Array, Array]:
    """Return the draws (chain, slot, coordinate), NaN in place of infinity; their numbers; and which of them count."""
    position = unpack_traced(record, shapes.like).position
    if shapes.coordinates is not None:
        position = jax.vmap(jax.vmap(shapes.coordinates.constrain))(position)
    leaves = jax.tree.leaves(position)
    flat = [leaf.reshape(*record.shape[:2], -1).astype(shapes.dtype) for leaf in leaves]
    index, is_made = span.numbers(record.shape[1])
    draws = jnp.concatenate(flat, 2)
    return jnp.where(jnp.isfinite(draws), draws, jnp.nan), index, is_made & (index >= 0)
