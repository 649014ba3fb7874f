"""Langevin steps along the gradient of a minibatch, the same one forward and backward."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random as jr

from tallchain.abilities import Tuning
from tallchain.arrays import as_floats
from tallchain.parts import part, replace, set_fields, static
from tallchain.proposals.gradients import OF_ROWS, SHARE_WAITING, check_rows, check_rows_of, gradient_of, rows_of
from tallchain.proposals.laplace import Laplace, check_laplace
from tallchain.proposals.scales import check_scale, check_scale_fits, inner, normals, scaled
from tallchain.types import Array, Population, Proposed, PyTree, Target
from tallchain.validation import brief, is_positive

BEST_LANGEVIN = 1.65
"""Over d^(1/6), the best scale on a standard normal of many dimensions d (Roberts and Rosenthal 1998)."""


class _Noise(NamedTuple):
    normals: PyTree
    """z."""
    rows: Array
    """The key of the minibatch."""


@part
class Langevin:
    """t' = t + L (z + L'g(t)/2), z standard normal, g the gradient of log p_xi (see `proposals.gradients`).

    The rows of xi are the same on the way back, so with w = L'(g(t) + g(t'))/2 the log ratio of the densities is exact,

        log q_xi(t | t') - log q_xi(t' | t) = -w.z - |w|^2/2,

    and detailed balance holds for every xi, so it does on average (Metropolis-adjusted Langevin, Roberts and Tweedie
    1996, given the rows). Rows of the minibatch are counted as `rows_scanned`, once for a decision; each has two
    gradients.

    Args:
        scale: L, a STANDARD DEVIATION of the step: a number, one for each coordinate, or a d x d matrix, as for
            `RandomWalk`.
        rows: m, of the minibatch; 0 for the gradient of the surrogate alone.
    """

    scale: PyTree
    rows: int = static()

    def __init__(self, scale: PyTree, rows: int) -> None:
        set_fields(self, scale=scale, rows=check_rows("Langevin", rows))
        check_scale("Langevin(scale=...)", scale)

    @classmethod
    def preconditioned(cls, laplace: Laplace, rows: int, scale: float | None = None) -> Langevin:
        """Step with the covariance S of a Laplace approximation: L L' = scale^2 S.

        Args:
            laplace: N(r, S), as `find_reference(...).laplace` has it; r is not used.
            rows: m, of the minibatch.
            scale: None for 1.65/d^(1/6), the best for Metropolis' test on a normal distribution of many dimensions.
        """
        check_laplace("Langevin.preconditioned", laplace)
        if scale is not None and not is_positive(scale):
            raise ValueError(
                f"`Langevin.preconditioned(scale=...)` must be a positive number or None; got {brief(scale)}."
            )
        return cls((BEST_LANGEVIN / laplace.d ** (1 / 6) if scale is None else scale) * laplace.factor, rows)

    @property
    def share_waiting(self) -> float:
        """Gradients are computed for many chains together."""
        return SHARE_WAITING

    @property
    def gradients_per_row(self) -> int:
        """Forward and backward."""
        return 2

    def check(self, position: PyTree) -> None:
        """Refuse a scale that does not fit the position."""
        check_scale("Langevin(scale=...)", self.scale)
        check_scale_fits("Langevin(scale=...)", self.scale, position)

    def check_source(self, population: Population, *, has_surrogate: bool) -> None:
        """Refuse a minibatch that the source cannot give."""
        check_rows_of("Langevin", self.rows, population, has_surrogate=has_surrogate)

    def with_scale(self, scale: PyTree) -> Langevin:
        """Return the same steps with another scale (for schedules)."""
        return replace(self, scale=scale)

    @property
    def tuning(self) -> Tuning:
        """The drift leaves an error of third order."""
        return Tuning(order=3, speed=2)

    def stretched(self, factor: float) -> Langevin:
        """Return the same steps with this many times the scale."""
        return replace(self, scale=jax.tree.map(lambda leaf: factor * as_floats(leaf), self.scale))

    def draw(self, key: Array, position: PyTree) -> _Noise:
        """Draw standard normals in the shape of the position, and the key of the minibatch."""
        return _Noise(normals(key, position), jr.fold_in(key, OF_ROWS))

    def propose(self, noise: _Noise, position: PyTree, target: Target) -> Proposed:
        """Step along the gradient at t; that at t' is needed for the way back."""
        gradient = gradient_of(target, noise.rows, self.rows, position)
        slope = lambda t: scaled(self.scale, gradient(t), transposed=True)  # noqa: E731
        here = slope(position)
        step = scaled(self.scale, jax.tree.map(lambda z, a: z + 0.5 * a, noise.normals, here))
        candidate = jax.tree.map(jnp.add, position, step)
        w = jax.tree.map(lambda a, b: 0.5 * (a + b), here, slope(candidate))
        log_correction = -inner(w, jax.tree.map(lambda z, a: z + 0.5 * a, noise.normals, w))
        return Proposed(candidate, log_correction, rows_of(target, self.rows))
