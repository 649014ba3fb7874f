"""AMAGOLD: stochastic-gradient Hamiltonian dynamics with friction, made reversible (Zhang, Cooper and De Sa 2020)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax import random as jr

from tallchain.abilities import Tuning
from tallchain.arrays import as_floats
from tallchain.parts import part, replace, set_fields, static
from tallchain.proposals.gradients import OF_ROWS, SHARE_WAITING, check_rows, check_rows_of, gradient_of, rows_of
from tallchain.proposals.scales import check_scale, check_scale_fits, inner, normals, scaled
from tallchain.types import Array, Population, Proposed, PyTree, Target
from tallchain.validation import brief, is_positive, is_traced, is_whole


class _Noise(NamedTuple):
    momentum: PyTree
    key: Array
    """Of the minibatches, and of the noise of the steps."""


@part
class Amagold:
    """Steps of SGHMC along a NEW minibatch each, in an order that can be run backward with the same minibatches.

    With U = -log p, a momentum p ~ N(0, I), b the friction of a step, and g the gradient of U from the step's rows:
    t += L p/2; then `num_steps` times, with z standard normal,

        p' = ((1 - b) p - L'g(t) + sqrt(4 b) z)/(1 + b),   R += L'g(t).(p + p')/2,   t += L p',

    half of that the last time.

    The log correction is R: the test accepts with the chance of U(t) - U(t') + R. The momentum is drawn anew for every
    decision, which keeps detailed balance as well as turning it around after a rejection does.

    Rows of all minibatches are counted as `rows_scanned`; each has one gradient.

    Args:
        scale: L, a STANDARD DEVIATION times the step size: a number, one for each coordinate, or a d x d matrix.
        num_steps: T.
        rows: m, of each minibatch; 0 for the gradient of the surrogate alone.
        friction: b (the paper's h B), below 1.
    """

    scale: PyTree
    friction: Array | float
    num_steps: int = static()
    rows: int = static()

    def __init__(self, scale: PyTree, num_steps: int = 10, rows: int = 100, friction: float = 0.1) -> None:
        if not is_whole(num_steps, 1):
            raise ValueError(f"`Amagold(num_steps=...)` must be a whole number, at least 1; got {brief(num_steps)}.")
        if not is_traced(friction) and not (is_positive(friction) and friction < 1):
            raise ValueError(f"`Amagold(friction=...)` must be above 0 and below 1; got {brief(friction)}.")
        set_fields(self, scale=scale, friction=friction, num_steps=int(num_steps), rows=check_rows("Amagold", rows))
        check_scale("Amagold(scale=...)", scale)

    @property
    def share_waiting(self) -> float:
        """Gradients are computed for many chains together."""
        return SHARE_WAITING

    @property
    def gradients_per_row(self) -> int:
        """Every step has rows of its own."""
        return 1

    def check(self, position: PyTree) -> None:
        """Refuse a scale that does not fit the position."""
        check_scale("Amagold(scale=...)", self.scale)
        check_scale_fits("Amagold(scale=...)", self.scale, position)

    def check_source(self, population: Population, *, has_surrogate: bool) -> None:
        """Refuse a minibatch that the source cannot give."""
        check_rows_of("Amagold", self.rows, population, has_surrogate=has_surrogate)

    def with_scale(self, scale: PyTree) -> Amagold:
        """Return the same steps with another scale (for schedules)."""
        return replace(self, scale=scale)

    @property
    def tuning(self) -> Tuning:
        """As Hamiltonian trajectories."""
        return Tuning(order=2, speed=2, turns=True)

    def stretched(self, factor: float) -> Amagold:
        """Return the same steps with this many times the scale."""
        return replace(self, scale=jax.tree.map(lambda leaf: factor * as_floats(leaf), self.scale))

    def draw(self, key: Array, position: PyTree) -> _Noise:
        """Draw a momentum in the shape of the position, and a key for the rest."""
        return _Noise(normals(key, position), jr.fold_in(key, OF_ROWS))

    def propose(self, noise: _Noise, position: PyTree, target: Target) -> Proposed:
        """The end of the trajectory, and R."""

        def moved(t: PyTree, p: PyTree, share: Any) -> PyTree:
            return jax.tree.map(lambda x, step: x + jnp.asarray(share, x.dtype) * step, t, scaled(self.scale, p))

        def pushed_by(p: Array, force: Array, z: Array) -> Array:
            b = jnp.asarray(self.friction, p.dtype)
            return ((1 - b) * p + force + jnp.sqrt(4 * b) * z) / (1 + b)

        def step(number: Array, at: tuple[PyTree, PyTree, Array]) -> tuple[PyTree, PyTree, Array]:
            t, p, heat = at
            rows, key = jr.split(jr.fold_in(noise.key, number))
            slope = scaled(self.scale, gradient_of(target, rows, self.rows, t)(t), transposed=True)  # of log p
            pushed = jax.tree.map(pushed_by, p, slope, normals(key, t))
            heat -= 0.5 * inner(slope, jax.tree.map(jnp.add, p, pushed)).astype(heat.dtype)
            share = jnp.where(number == self.num_steps - 1, 0.5, 1.0)
            return moved(t, pushed, share), pushed, heat

        start = moved(position, noise.momentum, 0.5), noise.momentum, jnp.zeros(())
        end, _, heat = lax.fori_loop(0, self.num_steps, step, start)
        return Proposed(end, heat, self.num_steps * rows_of(target, self.rows))
