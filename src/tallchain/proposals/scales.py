"""Linear maps that steps are scaled by: a number, one number per coordinate, or a matrix."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr
from jax.flatten_util import ravel_pytree

from tallchain.arrays import dot
from tallchain.types import Array, PyTree
from tallchain.validation import brief, is_traced


def check_scale(call: str, scale: PyTree) -> None:
    """Refuse what is no scale; `call` is like "RandomWalk(scale=...)"."""
    leaves = jax.tree.leaves(scale)
    if not leaves:
        raise ValueError(f"`{call}` must hold at least one number; got {brief(scale)}.")
    if is_traced(leaves):
        return
    for leaf in leaves:
        try:
            values = np.asarray(leaf, dtype=float)
        except (TypeError, ValueError) as error:
            raise TypeError(f"`{call}` must hold numbers; got {brief(leaf)}.") from error
        could_be_matrix = len(leaves) == 1 and values.ndim == 2 and len(set(values.shape)) == 1
        with np.errstate(over="ignore"):
            held = values.astype(jnp.result_type(float))  # too small a number is 0 there, too large a one infinite
        if not np.all(np.isfinite(held)) or not (could_be_matrix or np.all(held > 0)):
            raise ValueError(
                f"`{call}` is a standard deviation and must be positive and finite (or a square matrix for a linear "
                f"map); got {brief(leaf)}."
            )


def check_scale_fits(call: str, scale: PyTree, position: PyTree) -> None:
    """Refuse a scale that does not fit the position."""
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(position))
    if _is_matrix(scale, position):
        matrix = np.asarray(scale)
        # Coordinates may be of very different size: this alone does not make a matrix singular.
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        if not np.all(lengths) or np.linalg.matrix_rank(matrix / lengths) < size:
            raise ValueError(
                f"`{call}` received a singular {size} x {size} matrix: the steps would never leave a subspace. Use a "
                "Cholesky factor of a positive definite covariance."
            )
        return
    misfit = (
        f"`{call}` must be a number, or fit the position coordinate by coordinate, or be a d x d matrix; got shapes "
        f"{jax.tree.map(np.shape, scale)} for a position of shapes {jax.tree.map(np.shape, position)}."
    )
    try:
        moved = jax.eval_shape(lambda p: scaled(scale, p), position)
    except (TypeError, ValueError) as error:
        raise ValueError(misfit) from error
    if jax.tree.map(jnp.shape, moved) != jax.tree.map(jnp.shape, position):
        raise ValueError(misfit)
    if not all(np.all(np.asarray(leaf, dtype=float) > 0) for leaf in jax.tree.leaves(scale)):
        raise ValueError(f"`{call}` must be positive; got {brief(scale)}.")


def scaled(scale: PyTree, values: PyTree, *, transposed: bool = False) -> PyTree:
    """L v, or L'v, for v in the shape of a position."""
    if _is_matrix(scale, values):
        flat, unravel = ravel_pytree(values)
        matrix = jnp.asarray(scale, flat.dtype)
        return unravel(dot(matrix.T if transposed else matrix, flat))
    if _is_single(scale):
        return jax.tree.map(lambda z: z * jnp.asarray(scale, z.dtype), values)
    return jax.tree.map(lambda z, s: z * jnp.asarray(s, z.dtype), values, scale)


def normals(key: Array, position: PyTree) -> PyTree:
    """Draw standard normals in the shape of the position."""
    leaves, structure = jax.tree.flatten(position)
    keys = [jr.fold_in(key, i) for i in range(len(leaves))] if len(leaves) > 1 else [key]
    drawn = [jr.normal(k, jnp.shape(x), jnp.result_type(x)) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


def inner(a: PyTree, b: PyTree) -> Array:
    """a.b over all coordinates."""
    return sum((jnp.sum(x * y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)), jnp.zeros(()))


def _is_matrix(scale: PyTree, position: PyTree) -> bool:
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(position)]
    size = sum(int(np.prod(shape)) for shape in shapes)
    # A 1 x 1 position may have a 1 x 1 scale: that is one number per coordinate.
    return _is_single(scale) and np.shape(scale) == (size, size) and shapes != [(size, size)]


def _is_single(tree: Any) -> bool:
    return jax.tree_util.all_leaves([tree])
