"""A skewed surrogate posterior with exact draws, and transitions for it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import tallchain as tc
from conftest import SEED
from tallchain.functions import shared
from tallchain.parts import part
from tallchain.proposals import Laplace, Whitened
from tallchain.types import Array, Target

SHAPES = np.array([1.0, 2.5])
MAP = np.array([[1.0, 0.6], [-0.3, 0.8]])


@part
class Skewed:
    """Q(t) = sum of a_j s_j - exp(s_j), s = A t, so that exp(s_j) are gamma variables: a density of great skewness."""

    position: Any

    def check(self, position: Any) -> None:
        pass

    def total(self, position: Any, candidate: Any) -> Array:
        return self.at(candidate) - self.at(position)

    def at(self, t: Any) -> Array:
        s = jnp.dot(jnp.asarray(MAP, t.dtype), t, precision="highest")
        return jnp.sum(jnp.asarray(SHAPES, t.dtype) * s - jnp.exp(s))

    def row_difference(self, position: Any, candidate: Any) -> Any:
        return lambda row: jnp.zeros(())


FLAT, NO_ROWS = shared(lambda t: jnp.zeros(())), shared(lambda t, row: jnp.zeros(()))


def target_of(log_prior: Any, surrogate: Any) -> Target:
    """Of a posterior that has no rows."""
    return Target(tc.Posterior(log_prior, NO_ROWS), surrogate, None)


SKEWED = target_of(FLAT, Skewed(jnp.zeros(2)))


def skewed_draws(count: int) -> np.ndarray:
    s = np.log(np.random.default_rng(SEED).gamma(SHAPES, size=(count, 2)))
    return np.linalg.solve(MAP, s.T).T.astype(np.float32)


@part
class Bent:
    """t = sinh(w), which bends the scale."""

    share: Any = 1.0
    """Of the log determinant: 1 is right."""

    def to(self, position: Any) -> Array:
        return jnp.arcsinh(position)

    def back(self, w: Array) -> Any:
        return jnp.sinh(w)

    def log_det(self, w: Array) -> Array:
        return self.share * jnp.sum(jnp.log(jnp.cosh(w)))


@part
class Skewless(Skewed):
    """Q = 0."""

    def at(self, t: Any) -> Array:
        return jnp.zeros((), t.dtype)


MASS, DENSE = np.array([1.0, 0.6]), np.array([[0.9, -0.2], [-0.2, 0.5]])
NUTS = {"step_size": 0.7, "inverse_mass_matrix": MASS}
HMC = {"step_size": 0.5, "inverse_mass_matrix": MASS, "num_integration_steps": 3}
AFFINE = Whitened(Laplace(jnp.array([0.3, -0.5]), DENSE))
