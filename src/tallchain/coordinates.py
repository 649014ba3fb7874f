"""The coordinates in which a sampler works, where they are not the user's parameters: those of constrained posteriors.

A scale is positive, and steps of a sampler go anywhere: it works with the logarithm. Everything that a user gives
(starts) and gets (draws, names, summaries) is in parameters; kernels, proposals, surrogates and chains work in
coordinates. A posterior without constraints has none of this: its parameters are its coordinates.
"""

from __future__ import annotations

import weakref
from typing import Any

import jax
import numpy as np

from tallchain.names import in_order_of
from tallchain.types import Posterior, PyTree


class Coordinates:
    """A one-to-one map between coordinates without limits and parameters."""

    def constrain(self, position: PyTree) -> PyTree:
        """Return the parameters at one position: works inside programs."""
        raise NotImplementedError

    def unconstrain(self, parameters: PyTree) -> PyTree:
        """Return the position of parameters, or of many along leading axes; their arrays hold floats.

        Raises:
            ValueError: a parameter violates its constraint; its name comes first.
        """
        raise NotImplementedError

    def chosen(self, parameters: PyTree) -> PyTree:
        """Return those of the parameters that have a position: others may be functions of them.

        Raises:
            ValueError: some are missing.
        """
        return parameters

    def log_prior(self, function: Any) -> Any:
        """Return the log prior by position, given that of the user."""
        return function

    def log_likelihood(self, function: Any) -> Any:
        """Return the log likelihood of a row by position, given that of the user."""
        return function

    def own(self, function: Any) -> Any:
        """Return the function of the user that such a function was made of."""
        return function

    def in_order(self, parameters: PyTree, like: PyTree) -> PyTree:
        """Return the same parameters in the user's order: that of the position `like`."""
        return in_order_of(parameters, like)

    def of_draws(self, positions: PyTree) -> PyTree:
        """Return the parameters of draws (chain, draw, ...), as arrays of NumPy, in the order of `positions`."""
        if self not in _OF_DRAWS:
            _OF_DRAWS[self] = _of_draws(weakref.ref(self))
        return self.in_order(jax.tree.map(np.asarray, _OF_DRAWS[self](positions)), positions)


_OF_DRAWS: weakref.WeakKeyDictionary[Coordinates, Any] = weakref.WeakKeyDictionary()
"""Programs; not kept with the coordinates, by whose fields a checkpoint tells them apart."""


def _of_draws(coordinates: weakref.ref[Coordinates]) -> Any:
    def one(position: PyTree) -> PyTree:
        found = coordinates()
        assert found is not None
        return found.constrain(position)

    return jax.jit(jax.vmap(jax.vmap(one)))


def coordinates_of(posterior: Posterior) -> Coordinates | None:
    """Return the coordinates of a constrained posterior; None for others."""
    found = getattr(posterior, "constraints", None)
    return found if isinstance(found, Coordinates) else None


def parameters_of(posterior: Posterior, positions: PyTree) -> PyTree:
    """Return what users see of positions along a first axis."""
    coordinates = coordinates_of(posterior)
    if coordinates is None:
        return positions
    one_draw = in_order_of(jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], positions), positions)
    found = coordinates.of_draws(one_draw)
    return in_order_of(jax.tree.map(lambda leaf: leaf[:, 0], found), found)


def shapes_of_parameters(posterior: Posterior, position: PyTree) -> PyTree:
    """Return the shapes of what users see of one position."""
    coordinates = coordinates_of(posterior)
    return position if coordinates is None else jax.eval_shape(coordinates.constrain, position)


def as_given(posterior: Posterior, position: PyTree) -> tuple[Any, Any, PyTree]:
    """Return log prior and log likelihood as the user gave them, and what they take: to quote them in errors."""
    log_prior, log_likelihood, coordinates = posterior.log_prior, posterior.log_likelihood, coordinates_of(posterior)
    if coordinates is None or coordinates.own(log_prior) is log_prior:
        return log_prior, log_likelihood, position
    return coordinates.own(log_prior), coordinates.own(log_likelihood), jax.eval_shape(coordinates.constrain, position)
