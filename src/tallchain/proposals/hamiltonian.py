"""Hamiltonian trajectories along the gradient of a minibatch, the same one along the whole trajectory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax import random as jr
from jax.flatten_util import ravel_pytree

from tallchain.abilities import Tuning
from tallchain.arrays import as_floats, dot
from tallchain.parts import part, replace, set_fields, static
from tallchain.proposals.gradients import OF_ROWS, SHARE_WAITING, check_rows, check_rows_of, gradient_of, rows_of
from tallchain.proposals.laplace import Laplace, check_laplace
from tallchain.proposals.scales import check_scale, check_scale_fits, inner, normals, scaled
from tallchain.types import Array, Population, Proposed, PyTree, Target
from tallchain.validation import brief, is_positive, is_traced, is_whole


class _Noise(NamedTuple):
    momentum: PyTree
    """p."""
    rows: Array
    """The key of the minibatch."""


class State(NamedTuple):
    """A point of a trajectory."""

    position: PyTree
    momentum: PyTree


@part
class Hamiltonian:
    """Leapfrog steps along g, the gradient of log p_xi (see `proposals.gradients`), from a momentum p ~ N(0, I).

    p += L'g(t)/2, then `num_steps` times t += L p and p += L'g(t), half of that the last time. Whatever g is, this is
    reversible and keeps volume, so that the log correction is (|p|^2 - |p'|^2)/2 (Duane et al. 1987; Neal 2011). It
    keeps the energy of xi's own estimate; the log ratio of the posterior is then the error of that estimate. Without a
    surrogate it is small only if xi has about as many rows as there are.

    With `laplace` = N(r, S), S = T T', the flow of that normal distribution is split off, which is exact: in v =
    T^-1 (t - r) it is a rotation of (v, p) by an angle, and kicks are by what is left, T'g(t) + v. If the posterior is
    N(r, S) the trajectory is a step of `PCN`.

    Rows of the minibatch are counted as `rows_scanned`, once for a decision; each has `num_steps` + 1 gradients.

    Args:
        scale: L, a STANDARD DEVIATION times the step size: a number, one for each coordinate, or a d x d matrix, as for
            `RandomWalk`. With `laplace` the angle of a step, below pi; None for a quarter turn in all.
        num_steps: leapfrog steps.
        rows: m, of the minibatch; 0 for the gradient of the surrogate alone.
        laplace: N(r, S), or None.
    """

    scale: PyTree
    num_steps: int = static()
    rows: int = static()
    laplace: Laplace | None

    def __init__(
        self, scale: PyTree = None, num_steps: int = 5, rows: int = 100, laplace: Laplace | None = None
    ) -> None:
        if not is_whole(num_steps, 1):
            raise ValueError(
                f"`Hamiltonian(num_steps=...)` must be a whole number, at least 1; got {brief(num_steps)}."
            )
        if laplace is not None:
            check_laplace("Hamiltonian", laplace)
            scale = 0.5 * math.pi / int(num_steps) if scale is None else scale
        set_fields(self, scale=scale, num_steps=int(num_steps), rows=check_rows("Hamiltonian", rows), laplace=laplace)
        self._check_scale()

    def _check_scale(self) -> None:
        if self.laplace is None:
            if self.scale is None:
                raise ValueError("`Hamiltonian(scale=None)` needs `laplace=...`; without it give the scale of a step.")
            check_scale("Hamiltonian(scale=...)", self.scale)
        elif not is_traced(self.scale) and not (is_positive(self.scale) and self.scale < math.pi):
            raise ValueError(
                "`Hamiltonian(scale=..., laplace=...)` is the angle of a step, above 0 and below pi, or None for a "
                f"quarter turn in all; got {brief(self.scale)}."
            )

    @property
    def share_waiting(self) -> float:
        """Gradients are computed for many chains together."""
        return SHARE_WAITING

    @property
    def gradients_per_row(self) -> int:
        """One for each kick."""
        return self.num_steps + 1

    def check(self, position: PyTree) -> None:
        """Refuse a scale, or a Laplace approximation, that does not fit the position."""
        self._check_scale()
        if self.laplace is None:
            check_scale_fits("Hamiltonian(scale=...)", self.scale, position)
            return
        mean = self.laplace.mean
        shapes = [jax.tree.map(jnp.shape, tree) for tree in (mean, position)]
        if jax.tree.structure(mean) != jax.tree.structure(position) or shapes[0] != shapes[1]:
            raise ValueError(
                f"`Hamiltonian(laplace=...)` moves positions of shapes {shapes[0]}; got one of shapes {shapes[1]}."
            )

    def check_source(self, population: Population, *, has_surrogate: bool) -> None:
        """Refuse a minibatch that the source cannot give."""
        check_rows_of("Hamiltonian", self.rows, population, has_surrogate=has_surrogate)

    def with_scale(self, scale: PyTree) -> Hamiltonian:
        """Return the same trajectories with another scale (for schedules)."""
        return replace(self, scale=scale)

    @property
    def tuning(self) -> Tuning:
        """A trajectory leaves an error of second order; longer steps lead further, up to a quarter turn in all."""
        most = math.inf if self.laplace is None else max(0.5 * math.pi / self.num_steps / float(self.scale), 1.0)
        return Tuning(order=2, speed=2, most=most, turns=True)

    def stretched(self, factor: float) -> Hamiltonian:
        """Return the same trajectories with this many times the scale."""
        scale = jax.tree.map(lambda leaf: factor * as_floats(leaf), self.scale)
        return replace(self, scale=scale)

    def draw(self, key: Array, position: PyTree) -> _Noise:
        """Draw a momentum in the shape of the position, and the key of the minibatch."""
        return _Noise(normals(key, position), jr.fold_in(key, OF_ROWS))

    def propose(self, noise: _Noise, position: PyTree, target: Target) -> Proposed:
        """The end of the trajectory."""
        gradient = gradient_of(target, noise.rows, self.rows, position)
        end = self.trajectory(State(position, noise.momentum), gradient)
        both = [jax.tree.map(op, noise.momentum, end.momentum) for op in (jnp.subtract, jnp.add)]
        return Proposed(end.position, 0.5 * inner(*both), rows_of(target, self.rows))

    def trajectory(self, start: State, gradient: Callable[[PyTree], PyTree]) -> State:
        """Follow the leapfrog steps; from the end, with the momentum turned around, they lead back."""
        if self.laplace is not None:
            return self._around(self.laplace, start, gradient)

        def kicked(at: State, share: float) -> State:
            slope = scaled(self.scale, gradient(at.position), transposed=True)
            return at._replace(momentum=jax.tree.map(lambda p, a: p + share * a, at.momentum, slope))

        def moved(at: State) -> State:
            return at._replace(position=jax.tree.map(jnp.add, at.position, scaled(self.scale, at.momentum)))

        return _leapfrog(start, kicked, moved, self.num_steps)

    def _around(self, laplace: Laplace, start: State, gradient: Callable[[PyTree], PyTree]) -> State:
        """The same with rotations, in v = T^-1 (t - r)."""
        unravel = ravel_pytree(start.momentum)[1]
        angle = jnp.asarray(self.scale, laplace.factor.dtype)
        cos, sin = jnp.cos(angle), jnp.sin(angle)

        def kicked(at: State, share: float) -> State:
            slope = dot(laplace.factor.T, ravel_pytree(gradient(laplace.colour(at.position)))[0])
            return at._replace(momentum=at.momentum + share * angle * (slope + at.position))

        def rotated(at: State) -> State:
            v, p = at
            return State(v * cos + p * sin, p * cos - v * sin)

        v = laplace.whiten(start.position)  # wider than the position, if the Laplace approximation is
        p = ravel_pytree(start.momentum)[0].astype(v.dtype)
        end = _leapfrog(State(v, p), kicked, rotated, self.num_steps)
        moved = State(laplace.colour(end.position), unravel(end.momentum))
        return jax.tree.map(lambda new, old: new.astype(old.dtype), moved, start)


def _leapfrog(
    start: State, kicked: Callable[[State, float], State], moved: Callable[[State], State], num_steps: int
) -> State:
    step: Callable[[int, Any], Any] = lambda _, at: kicked(moved(at), 1.0)  # noqa: E731
    return kicked(moved(lax.fori_loop(0, num_steps - 1, step, kicked(start, 0.5))), 0.5)
