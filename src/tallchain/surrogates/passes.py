"""Sums over all rows in bounded memory: of the log likelihood, its gradient, and products with its Hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from tallchain.functions import program
from tallchain.surrogates.residual import digits, needs_float64, widened
from tallchain.types import Array, Posterior, PyTree

_BLOCK_BYTES = 2**22  # of data in a block of rows
_NARROWEST, _WIDEST = 128, 8192  # blocks, in rows
_BLOCKS = 64  # in one dispatch, at most
_RESULTS = 2**24  # numbers that one dispatch may return
_DIRECTIONS = 64  # in which a block is differentiated twice at a time


class Terms(NamedTuple):
    """A function and its derivatives at one point."""

    value: Array | np.ndarray
    gradient: Array | np.ndarray
    products: Array | np.ndarray | None
    """Of the Hessian with each of some directions, (k, d); the Hessian itself, if they are those of the axes."""

    @property
    def is_finite(self) -> bool:
        """Whether all of it is."""
        return all(bool(np.all(np.isfinite(leaf))) for leaf in self if leaf is not None)


def derivatives(function: Callable[[Array], Array], flat: Array, directions: Array | None) -> Terms:
    """Evaluate a function, its gradient, and the products of its Hessian with the directions, if any."""
    if directions is None:
        return Terms(*jax.value_and_grad(function)(flat), None)
    (value, gradient), push = jax.linearize(jax.value_and_grad(function), flat)
    size = min(_DIRECTIONS, len(directions))
    return Terms(value, gradient, lax.map(lambda direction: push(direction)[1], directions, batch_size=size))


class Passes:
    """All rows of a posterior, to be summed over at one position after another.

    The numbers per row and their sums over one block of rows are as JAX has them (in float32, unless told otherwise or
    N is so large that the bias of float32 functions matters); the blocks are added up in float64 on the host.

    Args:
        posterior: of which the log likelihood is summed.
        data: arrays with the rows along the first axis; converted once.
        like: a position, for its shapes.
        centre: about the log likelihood of a row; taken off each row before rows are added, it saves digits.
    """

    def __init__(self, posterior: Posterior, data: PyTree, like: PyTree, centre: float = 0.0) -> None:
        self.posterior, self.like, self.centre = posterior, like, centre
        self.data = jax.tree.map(jnp.asarray, data)
        leaves = jax.tree.leaves(self.data)
        self.num_rows = len(leaves[0])
        row_bytes = sum(leaf.nbytes for leaf in leaves) // self.num_rows
        self.width = min(self.num_rows, _WIDEST, max(_NARROWEST, _BLOCK_BYTES // max(row_bytes, 1)))
        self.in_float64 = needs_float64(self.num_rows, posterior.temperature)
        self.num_passes = 0

    @property
    def rows_read(self) -> int:
        """Rows evaluated so far."""
        return self.num_passes * self.num_rows

    def __call__(self, flat: np.ndarray, directions: np.ndarray | None = None) -> Terms:
        """Sum the log likelihood of all rows and its derivatives, in float64."""
        results = 1 + flat.size * (1 if directions is None else 1 + len(directions))
        total = None
        with digits(self.in_float64):
            like = jax.tree.map(as_floats, self.like)
            where, along = as_floats(flat), None if directions is None else as_floats(directions)
            for blocks, first in self._dispatches(results):
                sums = _add_blocks(
                    self.posterior, like, where, self.data, along, self.centre, first, self.width, blocks
                )
                with np.errstate(invalid="ignore"):  # inf - inf: the caller asks whether it is finite
                    sums = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).sum(0), sums)
                    total = sums if total is None else jax.tree.map(np.add, total, sums)
        assert total is not None
        self.num_passes += 1
        return total._replace(value=total.value + self.centre * self.num_rows)

    def first_bad_row(self, flat: np.ndarray) -> int | None:
        """Return the first row of which the log likelihood or a derivative is not finite; None if all are."""
        self.num_passes += 1
        for blocks, first in self._dispatches(1):
            row = int(_bad_row(self.posterior, self.like, as_floats(flat), self.data, first, self.width, blocks))
            if row < self.num_rows:
                return row
        return None

    def row(self, index: int) -> PyTree:
        """Return one row, for a message."""
        return jax.tree.map(lambda leaf: np.asarray(leaf[index]), self.data)

    def _dispatches(self, results: int) -> list[tuple[int, int]]:
        """Return (blocks, first block) of each dispatch: all of one size, so that they share a program."""
        num_blocks = -(-self.num_rows // self.width)
        most = min(max(_RESULTS // results, 1), _BLOCKS)
        blocks = -(-num_blocks // -(-num_blocks // most))
        return [(blocks, first) for first in range(0, num_blocks, blocks)]


def as_floats(values: np.ndarray) -> Array:
    """In JAX's default float."""
    return jnp.asarray(values, jnp.result_type(float))


# ---- on the device -----------------------------------------------------------------------------
# The posterior and the data are arguments, never constants, so that one program serves all calls.


@program(static_argnames=("width", "blocks"))
def _add_blocks(
    posterior: Posterior,
    like: PyTree,
    flat: Array,
    data: PyTree,
    directions: Array | None,
    centre: float,
    first: int,
    width: int,
    blocks: int,
) -> Terms:
    """Sum over each of some blocks; those beyond the last row come to 0."""
    unravel = ravel_pytree(like)[1]

    def one(rows: PyTree, index: Array, is_new: Array) -> Terms:
        if flat.dtype == jnp.float64:
            rows = jax.tree.map(widened, rows)

        def add_up(flat: Array) -> Array:
            values = jax.vmap(posterior.log_likelihood, (None, 0))(unravel(flat), rows)
            return jnp.sum(jnp.where(is_new, values - centre, 0))

        return derivatives(add_up, flat, directions)

    return map_blocks(one, data, first, width, blocks)


@program(static_argnames=("width", "blocks"))
def _bad_row(
    posterior: Posterior, like: PyTree, flat: Array, data: PyTree, first: int, width: int, blocks: int
) -> Array:
    unravel = ravel_pytree(like)[1]

    def one(rows: PyTree, index: Array, is_new: Array) -> Array:
        def is_bad(row: PyTree) -> Array:
            terms = derivatives(
                lambda flat: posterior.log_likelihood(unravel(flat), row), flat, jnp.ones_like(flat)[None]
            )
            return ~jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(terms)]))

        return jnp.min(jnp.where(is_new & jax.vmap(is_bad)(rows), index, jnp.iinfo(jnp.int32).max))

    return jnp.min(map_blocks(one, data, first, width, blocks))


def map_blocks(
    one: Callable[[PyTree, Array, Array], PyTree], data: PyTree, first: int, width: int, blocks: int
) -> PyTree:
    """Map a function of (rows, their indices, whether they were in no block before) over blocks, one after another."""
    num_rows = len(jax.tree.leaves(data)[0])

    def block(_: None, k: Array) -> tuple[None, PyTree]:
        # The last block begins early, to be as wide as the others; one beyond it has nothing new.
        begin = jnp.minimum(first + k, -(-num_rows // width)) * width
        start = jnp.minimum(begin, num_rows - width)
        index = start + jnp.arange(width)
        rows = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, width), data)
        return None, one(rows, index, index >= begin)

    return lax.scan(block, None, jnp.arange(blocks))[1]
