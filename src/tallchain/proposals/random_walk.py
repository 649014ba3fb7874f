"""The random walk: t' = t + L z, z standard normal. Symmetric, so its log correction is 0."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr
from jax.flatten_util import ravel_pytree

from tallchain.arrays import dot
from tallchain.parts import part, replace
from tallchain.proposals.laplace import Laplace, check_laplace
from tallchain.types import Array, Proposed, PyTree, Target
from tallchain.validation import brief, is_positive, is_traced

BEST_WALK = 2.38
"""Over sqrt(d), the best scale for Metropolis' test on a standard normal of many dimensions d."""


@part
class RandomWalk:
    """A random walk with Gaussian steps.

    Args:
        scale: a STANDARD DEVIATION, not a variance: one number for every coordinate; or one per coordinate, as an
            array that broadcasts against the position or a pytree of the position's structure; or a d x d matrix L,
            applied to the d standard normals of the flattened position (a Cholesky factor of the step's covariance).
    """

    scale: PyTree

    def __post_init__(self) -> None:
        leaves = jax.tree.leaves(self.scale)
        if not leaves:
            raise ValueError(f"`RandomWalk(scale=...)` must hold at least one number; got {brief(self.scale)}.")
        if is_traced(leaves):
            return
        for leaf in leaves:
            try:
                values = np.asarray(leaf, dtype=float)
            except (TypeError, ValueError) as error:
                raise TypeError(f"`RandomWalk(scale=...)` must hold numbers; got {brief(leaf)}.") from error
            could_be_matrix = len(leaves) == 1 and values.ndim == 2 and len(set(values.shape)) == 1
            if not np.all(np.isfinite(values)) or not (could_be_matrix or np.all(values > 0)):
                raise ValueError(
                    "`RandomWalk(scale=...)` is a standard deviation and must be positive and finite "
                    f"(or a square matrix for a linear map); got {brief(leaf)}."
                )

    @classmethod
    def preconditioned(cls, laplace: Laplace, scale: float | None = None) -> RandomWalk:
        """Walk with the covariance of a Laplace approximation, times scale^2.

        Args:
            laplace: N(r, S), as `find_reference(...).laplace` has it; r is not used.
            scale: None for 2.38/sqrt(d), the best for Metropolis' test on a normal distribution of many dimensions
                (Roberts, Gelman and Gilks 1997).
        """
        check_laplace("RandomWalk.preconditioned", laplace)
        if scale is not None and not is_positive(scale):
            raise ValueError(
                f"`RandomWalk.preconditioned(scale=...)` must be a positive number or None; got {brief(scale)}."
            )
        return cls((BEST_WALK / laplace.d**0.5 if scale is None else scale) * laplace.factor)

    def check(self, position: PyTree) -> None:
        """Refuse a scale that does not fit the position."""
        self.__post_init__()
        size = sum(np.size(leaf) for leaf in jax.tree.leaves(position))
        if self._is_matrix(position):
            matrix = np.asarray(self.scale)
            # Coordinates may be of very different size: this alone does not make a matrix singular.
            lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
            if not np.all(lengths) or np.linalg.matrix_rank(matrix / lengths) < size:
                raise ValueError(
                    f"`RandomWalk(scale=...)` received a singular {size} x {size} matrix: the walk would never leave "
                    "a subspace. Use a Cholesky factor of a positive definite covariance."
                )
            return
        try:
            moved = jax.eval_shape(lambda p: self.propose(p, p).position, position)
        except (TypeError, ValueError) as error:
            raise ValueError(self._misfit(position)) from error
        if jax.tree.map(jnp.shape, moved) != jax.tree.map(jnp.shape, position):
            raise ValueError(self._misfit(position))
        if not all(np.all(np.asarray(leaf, dtype=float) > 0) for leaf in jax.tree.leaves(self.scale)):
            raise ValueError(f"`RandomWalk(scale=...)` must be positive; got {brief(self.scale)}.")

    def with_scale(self, scale: PyTree) -> RandomWalk:
        """Return the same walk with another scale (for schedules)."""
        return replace(self, scale=scale)

    def draw(self, key: Array, position: PyTree) -> PyTree:
        """Draw standard normals in the shape of the position."""
        leaves, structure = jax.tree.flatten(position)
        keys = [jr.fold_in(key, i) for i in range(len(leaves))] if len(leaves) > 1 else [key]
        normals = [jr.normal(k, jnp.shape(x), jnp.result_type(x)) for k, x in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(structure, normals)

    def propose(self, noise: PyTree, position: PyTree, target: Target | None = None) -> Proposed:
        """t' = t + L z."""
        if self._is_matrix(position):
            flat, unravel = ravel_pytree(noise)
            step = unravel(dot(jnp.asarray(self.scale, flat.dtype), flat))
        elif _is_single(self.scale):
            step = jax.tree.map(lambda z: z * jnp.asarray(self.scale, z.dtype), noise)
        else:
            step = jax.tree.map(lambda z, s: z * jnp.asarray(s, z.dtype), noise, self.scale)
        return Proposed(jax.tree.map(jnp.add, position, step), 0.0)

    def _is_matrix(self, position: PyTree) -> bool:
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(position)]
        size = sum(int(np.prod(shape)) for shape in shapes)
        # A 1 x 1 position may have a 1 x 1 scale: that is one number per coordinate.
        return _is_single(self.scale) and np.shape(self.scale) == (size, size) and shapes != [(size, size)]

    def _misfit(self, position: PyTree) -> str:
        return (
            "`RandomWalk(scale=...)` must be a number, or fit the position coordinate by coordinate, or be a d x d "
            f"matrix; got shapes {jax.tree.map(np.shape, self.scale)} for a position of shapes "
            f"{jax.tree.map(np.shape, position)}."
        )


def _is_single(tree: PyTree) -> bool:
    return jax.tree_util.all_leaves([tree])
