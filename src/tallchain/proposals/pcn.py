"""Preconditioned Crank-Nicolson around a normal distribution N(r, S), S = L L' (Cotter, Roberts, Stuart, White 2013).

    t' = r + sqrt(1 - beta^2) (t - r) + beta L z,   z standard normal

leaves N(r, S) unchanged, so log q(t | t') - log q(t' | t) = log N(t; r, S) - log N(t'; r, S). In terms of w = L^-1 (t -
r) this is (|w'|^2 - |w|^2)/2, and w' is known without solving: w' = sqrt(1 - beta^2) w + beta z.

If the posterior has heavier tails than N(r, S), a chain far in the tail rejects nearly all candidates and stays there.
So some of the steps may be those of a random walk, t' = t + 2.38/sqrt(d) L z, which lead back.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr
from jax.flatten_util import ravel_pytree

from tallchain.abilities import Tuning
from tallchain.arrays import as_floats, dot
from tallchain.parts import part, replace, set_fields, static
from tallchain.proposals.laplace import Laplace, check_laplace
from tallchain.proposals.random_walk import BEST_WALK
from tallchain.types import Array, Proposed, PyTree, Target
from tallchain.validation import brief, is_positive, is_traced


class _Noise(NamedTuple):
    normals: Array
    """z."""
    is_walk: Array | bool


@part
class PCN:
    """Crank-Nicolson steps around a Laplace approximation: if that is exact, every candidate is accepted.

    Args:
        laplace: N(r, S), as `find_reference(...).laplace` has it.
        beta: the length of a step, 0 < beta <= 1; 1 draws from N(r, S) independently of the position.
        walk: chance of a random-walk step instead, at least 0 and below 1.
    """

    laplace: Laplace
    beta: Array | float = 1.0
    walk: float = static(0.0)

    def __post_init__(self) -> None:
        check_laplace("PCN", self.laplace)
        if not is_traced(self.beta) and not (is_positive(self.beta) and self.beta <= 1):
            raise ValueError(f"`PCN(beta=...)` must be above 0 and at most 1; got {brief(self.beta)}.")
        if np.ndim(self.walk) or not (self.walk == 0 or (is_positive(self.walk) and self.walk < 1)):
            raise ValueError(f"`PCN(walk=...)` must be a chance, at least 0 and below 1; got {brief(self.walk)}.")
        set_fields(self, walk=float(self.walk))

    def check(self, position: PyTree) -> None:
        """Refuse a position whose shapes differ from the Laplace approximation's."""
        self.__post_init__()
        mean = self.laplace.mean
        is_same = jax.tree.structure(position) == jax.tree.structure(mean)
        if not is_same or jax.tree.map(np.shape, position) != jax.tree.map(np.shape, mean):
            raise ValueError(
                f"`PCN(laplace=...)` moves positions of shapes {jax.tree.map(np.shape, mean)}; got one of shapes "
                f"{jax.tree.map(np.shape, position)}."
            )

    def with_scale(self, scale: Array | float) -> PCN:
        """Return the same proposal with another beta (for schedules)."""
        return replace(self, beta=scale)

    @property
    def tuning(self) -> Tuning:
        """As a walk, in the angle whose sine is beta."""
        return Tuning(order=1, speed=2, most=0.5 * math.pi / math.asin(min(float(self.beta), 1.0)))

    def stretched(self, factor: float) -> PCN:
        """Return the same steps with this many times the angle whose sine is beta, up to a quarter turn."""
        angle = jnp.minimum(factor * jnp.arcsin(as_floats(self.beta)), 0.5 * math.pi)
        return replace(self, beta=jnp.sin(angle))

    def draw(self, key: Array, position: PyTree) -> _Noise:
        """Draw standard normals, one per coordinate, and whether to walk."""
        normals = jr.normal(key, (self.laplace.d,), self.laplace.factor.dtype)
        return _Noise(normals, jr.uniform(jr.fold_in(key, 1)) < self.walk if self.walk else False)

    def propose(self, noise: _Noise, position: PyTree, target: Target | None = None) -> Proposed:
        """t' = r + sqrt(1 - beta^2) (t - r) + beta L z, or t + 2.38/sqrt(d) L z."""
        flat, unravel = ravel_pytree(position)
        mean, z = ravel_pytree(self.laplace.mean)[0], noise.normals
        beta = jnp.asarray(self.beta, z.dtype)
        kept = jnp.sqrt((1 - beta) * (1 + beta))
        deviation = flat - mean
        w = dot(self.laplace.inverse, deviation)
        step = dot(self.laplace.factor, z)
        candidate = mean + kept * deviation + beta * step
        # (|w'|^2 - |w|^2)/2, expanded, so that two nearly equal numbers are not subtracted.
        log_correction = 0.5 * beta**2 * dot(z - w, z + w) + beta * kept * dot(w, z)
        if self.walk:
            walked = flat + BEST_WALK / self.laplace.d**0.5 * step
            candidate = jnp.where(noise.is_walk, walked, candidate)
            log_correction = jnp.where(noise.is_walk, 0.0, log_correction)
        return Proposed(unravel(candidate.astype(flat.dtype)), log_correction)
