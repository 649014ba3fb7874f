"""Sums over all rows of the log likelihood, its gradient, and products with its Hessian, by sweeps of a source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from tallchain.arrays import as_floats
from tallchain.functions import program
from tallchain.models.likelihood import layout_of, regression_of
from tallchain.parts import part
from tallchain.residuals import digits, needs_float64, widened
from tallchain.surrogates.predictor_sums import sum_predictors
from tallchain.types import Array, Block, Posterior, PyTree, Source

_DIRECTIONS = 64  # in which a block is differentiated twice at a time


class Terms(NamedTuple):
    """A function and its derivatives at one point."""

    value: Array | np.ndarray
    gradient: Array | np.ndarray
    products: Array | np.ndarray | None
    """Of the Hessian with each of some directions, (k, d); the Hessian itself, if they are those of the axes."""

    @property
    def is_finite(self) -> bool:
        """Whether all of it is finite."""
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

    The numbers per row and their sums over one block of rows are in JAX's precision (float32 by default, unless N is so
    large that the bias of float32 functions matters); the blocks are added up in float64.

    Args:
        posterior: whose log likelihood is summed.
        source: of the rows.
        like: a position, for its shapes.
        centre: about the log likelihood of a row; subtracting it from each row before summing saves digits.
    """

    def __init__(self, posterior: Posterior, source: Source, like: PyTree, centre: float = 0.0) -> None:
        self.posterior, self.source, self.like, self.centre = posterior, source, like, centre
        population = source.population
        self.num_rows = population.total
        self.rows_a_pass = population.swept
        self.in_float64 = needs_float64(self.num_rows, posterior.temperature)
        self.num_passes = 0
        self.rows_swept = 0

    def __call__(self, flat: np.ndarray, directions: np.ndarray | None = None) -> Terms:
        """Sum the log likelihood of all rows and its derivatives, in float64."""
        self.num_passes += 1
        self.rows_swept += self.rows_a_pass
        if is_dense_regression(self.posterior):
            return self._of_predictors(flat, directions)
        results = 1 + flat.size * (1 if directions is None else 1 + len(directions))
        with digits(self.in_float64):
            total = self.source.sweep(self._terms(flat, directions), results=results)
        return total._replace(value=total.value + self.centre * self.num_rows)

    def _of_predictors(self, flat: np.ndarray, directions: np.ndarray | None) -> Terms:
        """Sum derivatives in the predictors, which is quicker, and takes nothing more for the Hessian."""
        position = unravelled(self.like, flat)
        sums = sum_predictors(self.posterior, self.source, position, self.centre)
        gradient, hessian = np.zeros(flat.size), np.zeros((flat.size, flat.size))
        at = dense_places(self.posterior, self.like)
        gradient[at], hessian[np.ix_(at, at)] = sums.first, sums.second
        with np.errstate(invalid="ignore", over="ignore"):  # whatever is not finite is found by its user
            return Terms(sums.value, gradient, None if directions is None else np.asarray(directions) @ hessian)

    def of_some(self, rows: PyTree, flat: np.ndarray, directions: np.ndarray | None = None) -> Terms:
        """Sum over some rows only."""
        count = len(jax.tree.leaves(rows)[0])
        self.rows_swept += count
        with digits(self.in_float64):
            terms = _sum_of(self._terms(flat, directions), rows)
        total = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), terms)
        return total._replace(value=total.value + self.centre * count)

    def bad_row(self, flat: np.ndarray) -> tuple[str, PyTree] | None:
        """Return a row whose log likelihood or a derivative is not finite, and its name; None if all are finite."""
        self.rows_swept += self.rows_a_pass
        index, row = self.source.sweep(_BadRow(self.posterior, self.like, as_floats(flat)), _least)
        if index == _NOWHERE:
            return None
        order = self.source.order()
        return ("a row" if order is None else f"row {order[index]}"), row

    def _terms(self, flat: np.ndarray, directions: np.ndarray | None) -> _Terms:
        along = None if directions is None else as_floats(directions)
        like = jax.tree.map(as_floats, self.like)
        return _Terms(self.posterior, like, as_floats(flat), along, as_floats(self.centre))


def is_dense_regression(posterior: Posterior) -> bool:
    """Whether this is a regression without groups."""
    model = regression_of(posterior)
    return model is not None and not model.layout.terms


def dense_places(posterior: Posterior, like: PyTree) -> np.ndarray:
    """Return where in the flattened position of a regression its dense parameters are."""
    numbered = unravelled(like, np.arange(sum(map(np.size, jax.tree.leaves(like)))))
    return np.asarray(layout_of(posterior).dense(numbered)).astype(int)


def unravelled(like: PyTree, flat: np.ndarray) -> PyTree:
    """As `ravel_pytree(like)[1]`, by NumPy: every step of JAX's own would be a program."""
    leaves, structure = jax.tree.flatten(like)
    parts = np.split(flat, np.cumsum([np.size(leaf) for leaf in leaves])[:-1])
    shaped = zip(leaves, parts, strict=True)
    return jax.tree.unflatten(structure, [part.reshape(np.shape(leaf)).astype(leaf.dtype) for leaf, part in shaped])


# ---- on the device -----------------------------------------------------------------------------


@part
class _Terms:
    """For a block: the sum of the log likelihoods and its derivatives."""

    posterior: Posterior
    like: PyTree
    flat: Array
    directions: Array | None
    centre: Array

    @property
    def log_likelihood(self) -> Any:
        """Whose programs these are."""
        return self.posterior.log_likelihood

    def __call__(self, block: Block) -> Terms:
        rows = jax.tree.map(widened, block.rows) if self.flat.dtype == jnp.float64 else block.rows
        unravel = ravel_pytree(self.like)[1]

        def add_up(flat: Array) -> Array:
            values = jax.vmap(self.log_likelihood, (None, 0))(unravel(flat), rows)
            return jnp.sum(jnp.where(block.is_valid, block.share * (values - self.centre), 0))

        return derivatives(add_up, self.flat, self.directions)


@program()
def _sum_of(terms: _Terms, rows: PyTree) -> Terms:
    """Sum over rows that fit into one block."""
    count = len(jax.tree.leaves(rows)[0])
    all_ = jnp.ones(count, bool)
    return terms(Block(rows, jnp.arange(count), all_, jnp.ones(count, jnp.result_type(float)), all_))


_NOWHERE = np.iinfo(np.int32).max


@part
class _BadRow:
    """For a block: a row whose value or a derivative is not finite, and its index."""

    posterior: Posterior
    like: PyTree
    flat: Array

    @property
    def log_likelihood(self) -> Any:
        """Whose programs these are."""
        return self.posterior.log_likelihood

    def __call__(self, block: Block) -> tuple[Array, PyTree]:
        unravel = ravel_pytree(self.like)[1]

        def is_bad(row: PyTree) -> Array:
            terms = derivatives(
                lambda flat: self.log_likelihood(unravel(flat), row), self.flat, jnp.ones_like(self.flat)[None]
            )
            return ~jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(terms)]))

        index = jnp.where(block.is_valid & jax.vmap(is_bad)(block.rows), block.index, _NOWHERE)
        first = jnp.argmin(index)
        return index[first], jax.tree.map(lambda leaf: leaf[first], block.rows)


def _least(found: tuple[int, PyTree] | None, blocks: tuple[np.ndarray, PyTree]) -> tuple[int, PyTree]:
    """Keep the row that comes first."""
    index, rows = blocks
    first = int(np.argmin(index))
    if found is not None and found[0] <= index[first]:
        return found
    return int(index[first]), jax.tree.map(lambda leaf: leaf[first], rows)
