"""Langevin steps of a firefly kernel: the drift is that of the prior, the bound and the bright rows."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.arrays import as_floats, dot
from tallchain.parts import part, replace, set_fields
from tallchain.proposals.laplace import Laplace, check_laplace
from tallchain.types import Array, Proposed, PyTree, Target
from tallchain.validation import brief, is_positive, is_traced

BEST_LANGEVIN = 1.65
"""Over d^(1/6), the best scale on a standard normal of many dimensions d (Roberts and Rosenthal 1998)."""
_ELSEWHERE = (
    "`Langevin(...)` takes its drift from the bright rows of a FireflyMC(...), and another kernel has none. "
    "Use `RandomWalk.preconditioned(laplace)` or `PCN(laplace)` there."
)


@part
class Langevin:
    """t' = t + (h^2/2) S a(t) + h L z, S = LL', z standard normal, a(t) the gradient of log p(t, bright rows).

    The bright rows are the same on the way back, so with w = L'(a(t) + a(t'))

        log q(t | t') - log q(t' | t) = (|z|^2 - |z + h w/2|^2)/2

    (Roberts and Tweedie 1996, given the bright rows). The drift of a bright row is about 2 x/(x.(t - r)), r where the
    bounds touch: very long near there. Such a candidate is mostly rejected.

    Args:
        laplace: N(r, S), as `find_reference(...).laplace` has it; r is not used. None for the posterior given the
            bright rows, as the kernel expects it.
        scale: h; None for 1.65/d^(1/6), the best on a normal distribution of many dimensions.
    """

    laplace: Laplace | None = None
    scale: Array | float | None = None

    def __post_init__(self) -> None:
        if not (self.scale is None or is_traced(self.scale) or is_positive(self.scale)):
            raise ValueError(f"`Langevin(scale=...)` must be a positive number or None; got {brief(self.scale)}.")
        if self.laplace is not None:
            check_laplace("Langevin", self.laplace)
            if self.scale is None:
                set_fields(self, scale=as_floats(BEST_LANGEVIN / self.laplace.d ** (1 / 6)))

    def placed(self, laplace: Laplace) -> Langevin:
        """Return the same steps with this covariance, if they have none."""
        return self if self.laplace is not None else Langevin(laplace, self.scale)

    def check(self, position: PyTree) -> None:
        """Refuse a position whose shapes differ from the Laplace approximation's."""
        self.__post_init__()
        if self.laplace is None:
            raise TypeError(_ELSEWHERE)
        if jax.tree.map(np.shape, position) != jax.tree.map(np.shape, self.laplace.mean):
            raise ValueError(
                f"`Langevin(laplace=...)` moves positions of shapes {jax.tree.map(np.shape, self.laplace.mean)}; got "
                f"one of shapes {jax.tree.map(np.shape, position)}."
            )

    def with_scale(self, scale: Array | float) -> Langevin:
        """Return the same steps with another scale."""
        return replace(self, scale=scale)

    def draw(self, key: Array, position: PyTree) -> Array:
        """Draw standard normals, one per coordinate."""
        assert self.laplace is not None
        return jr.normal(key, (self.laplace.d,), self.laplace.factor.dtype)

    def propose(self, noise: Array, position: PyTree, target: Target) -> Proposed:
        """Refuse: these steps need a gradient of few rows."""
        raise TypeError(_ELSEWHERE)

    def propose_along(self, noise: Array, position: Array, gradient: Callable[[Array], Array]) -> Proposed:
        """Make the candidate; `gradient` is that of log p(t, bright rows) by t."""
        assert self.laplace is not None
        assert self.scale is not None
        h, factor = jnp.asarray(self.scale, noise.dtype), self.laplace.factor
        here = dot(factor.T, gradient(position))
        candidate = position + dot(factor, h * noise + 0.5 * h**2 * here).astype(position.dtype)
        drift = 0.5 * h * (here + dot(factor.T, gradient(candidate)))
        return Proposed(candidate, -dot(drift, noise + 0.5 * drift))
