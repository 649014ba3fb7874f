"""Coordinates in which the algorithm of a transition runs.

If w has the density pi~(t(w)) |dt/dw|, then t(w) has the density pi~, and a kernel that is reversible for the one is
reversible for the other. So a transition's log correction has no determinant.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from tallchain.functions import QUICKLY
from tallchain.parts import check_registered, part
from tallchain.proposals.laplace import Laplace, check_laplace
from tallchain.types import Array, PyTree
from tallchain.validation import brief


class Coordinates(Protocol):
    """A smooth bijection t(w) in whose coordinates w an algorithm runs; a part."""

    def to(self, position: PyTree) -> Array:
        """w, a flat vector."""
        ...

    def back(self, w: Array) -> PyTree:
        """t(w), the inverse of `to`."""
        ...

    def log_det(self, w: Array) -> Array | float:
        """log |dt/dw|, up to a constant."""
        ...


@part
class Whitened:
    """Coordinates w = L^-1 (t - r) in which a normal approximation N(r, L L') of the posterior is standard normal."""

    laplace: Laplace

    def __post_init__(self) -> None:
        check_laplace("Whitened", self.laplace)

    def to(self, position: PyTree) -> Array:
        """w = L^-1 (t - r)."""
        return self.laplace.whiten(position)

    def back(self, w: Array) -> PyTree:
        """t = r + L w."""
        return self.laplace.colour(w)

    def log_det(self, w: Array) -> float:
        """Constant."""
        return 0.0


class Map:
    """Coordinates, with their types: w is in JAX's default float, and positions in their own."""

    def __init__(self, coordinates: Coordinates | None, like: PyTree) -> None:
        self._dtype = jnp.result_type(float)
        self._types = jax.tree.map(jnp.result_type, like)
        self._coordinates, self._unravel = coordinates, ravel_pytree(jax.tree.map(self._wide, like))[1]

    def to(self, position: PyTree) -> Array:
        """w."""
        wide = jax.tree.map(self._wide, position)
        return self._wide(ravel_pytree(wide)[0] if self._coordinates is None else self._coordinates.to(wide))

    def back(self, w: Array) -> PyTree:
        """t(w)."""
        return jax.tree.map(jnp.asarray, self._back(w), self._types)

    def density(self, log_density: Callable[[PyTree], Array]) -> Callable[[Array], Array]:
        """Return the log density of w, from that of positions."""

        def of(w: Array) -> Array:
            slope = 0.0 if self._coordinates is None else self._coordinates.log_det(w)
            return self._wide(log_density(self._back(w)) + slope)

        return of

    def _back(self, w: Array) -> PyTree:
        return self._unravel(w) if self._coordinates is None else self._coordinates.back(w)

    def _wide(self, leaf: Any) -> Array:
        return jnp.asarray(leaf, self._dtype)


# ---- checks ------------------------------------------------------------------------------------


def check_coordinates(call: str, coordinates: Any) -> None:
    """Refuse what has no maps."""
    if coordinates is None:
        return
    if isinstance(coordinates, type) or not all(hasattr(coordinates, name) for name in ("to", "back", "log_det")):
        raise TypeError(
            f"`{call}(coordinates=...)` must be an object with `to`, `back` and `log_det`, or None; got "
            f"{brief(coordinates)}."
        )
    check_registered(f"{call}(coordinates=...)", coordinates)
    if jax.tree_util.all_leaves([coordinates]):
        raise TypeError(f"`{call}(coordinates=...)` must be a part (`tallchain.parts.part`); got {brief(coordinates)}.")


def check_round_trip(call: str, coordinates: Coordinates | None, position: PyTree) -> int:
    """Refuse coordinates that do not fit a position; return how many there are."""
    if coordinates is None:
        return sum(int(np.size(leaf)) for leaf in jax.tree.leaves(position))
    call = f"`{call}(coordinates=...)`"
    w, log_det, again = jax.tree.map(np.asarray, _there_and_back(coordinates, position))
    shapes = jax.tree.map(np.shape, position)
    if w.ndim != 1:
        raise ValueError(f"{call}: `to(position)` must be a flat vector; got shape {w.shape}.")
    if log_det.shape != ():
        raise ValueError(f"{call}: `log_det(w)` must be one number; got shape {log_det.shape}.")
    is_alike = jax.tree.structure(again) == jax.tree.structure(position)
    if not is_alike or jax.tree.map(np.shape, again) != shapes:
        raise ValueError(
            f"{call}: `back(to(position))` must be of the shapes of the position, {shapes}; got "
            f"{jax.tree.map(np.shape, again)}."
        )
    for one, other in zip(jax.tree.leaves(position), jax.tree.leaves(again), strict=True):
        if not np.allclose(one, other, rtol=1e-3, atol=1e-3 * float(np.max(np.abs(one), initial=0.0)) + 1e-6):
            raise ValueError(
                f"{call}: `back` must be the inverse of `to`; `back(to(position))` is {brief(other)} at the position "
                f"{brief(one)}."
            )
    return int(w.size)


@partial(jax.jit, compiler_options=QUICKLY)
def _there_and_back(coordinates: Coordinates, position: PyTree) -> tuple[Array, Array, PyTree]:
    """Return w, log |dt/dw| and t(w)."""
    w = jnp.asarray(coordinates.to(position))
    return w, jnp.asarray(coordinates.log_det(w)), coordinates.back(w)
