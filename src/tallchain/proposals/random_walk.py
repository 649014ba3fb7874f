"""The random walk: t' = t + L z, z standard normal. Symmetric, so its log correction is 0."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tallchain.abilities import Tuning
from tallchain.arrays import as_floats
from tallchain.parts import part, replace
from tallchain.proposals.laplace import Laplace, check_laplace
from tallchain.proposals.scales import check_scale, check_scale_fits, normals, scaled
from tallchain.types import Array, Proposed, PyTree, Target
from tallchain.validation import brief, is_positive

BEST_WALK = 2.38
"""Over sqrt(d), the best scale for Metropolis' test on a standard normal of many dimensions d."""
_CALL = "RandomWalk(scale=...)"


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
        check_scale(_CALL, self.scale)

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
        check_scale_fits(_CALL, self.scale, position)

    def with_scale(self, scale: PyTree) -> RandomWalk:
        """Return the same walk with another scale (for schedules)."""
        return replace(self, scale=scale)

    @property
    def tuning(self) -> Tuning:
        """The log ratio changes as the position does."""
        return Tuning(order=1, speed=2)

    def stretched(self, factor: float) -> RandomWalk:
        """Return the same walk with this many times the scale."""
        return replace(self, scale=jax.tree.map(lambda leaf: factor * as_floats(leaf), self.scale))

    def draw(self, key: Array, position: PyTree) -> PyTree:
        """Draw standard normals in the shape of the position."""
        return normals(key, position)

    def propose(self, noise: PyTree, position: PyTree, target: Target | None = None) -> Proposed:
        """t' = t + L z."""
        return Proposed(jax.tree.map(jnp.add, position, scaled(self.scale, noise)), 0.0)
