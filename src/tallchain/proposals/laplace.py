"""The Laplace approximation: the normal distribution N(r, S) with a posterior's mode and curvature."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr
from jax.flatten_util import ravel_pytree

from tallchain.arrays import as_floats, dot, inverse_of_lower
from tallchain.functions import SOON
from tallchain.keys import as_threefry
from tallchain.parts import part, set_fields
from tallchain.threefry import same_key
from tallchain.types import Array, PyTree
from tallchain.validation import brief

_ASYMMETRY = 1e-4  # of the entries of a matrix, in units of its diagonal


@part
class Laplace:
    """N(r, S), with S = L L' and L lower triangular (Tierney and Kadane 1986 for its use).

    The factor and its inverse are computed in float64 on the host and kept in JAX's default float.

    Args:
        mean: r, a position: an array, or a pytree of arrays.
        covariance: S, d x d for the d coordinates of the flattened position (`jax.flatten_util.ravel_pytree`).
    """

    mean: PyTree
    factor: Array
    """L."""
    inverse: Array
    """L^-1."""

    def __init__(self, mean: PyTree, covariance: Any) -> None:
        call = "Laplace(covariance=...)"
        mean = _position(mean)
        factor = _cholesky(call, _matrix(call, covariance, ravel_pytree(mean)[0].size))
        inverse = inverse_of_lower(factor)
        _fill(self, mean, factor, inverse)

    @classmethod
    def of_precision(cls, mean: PyTree, precision: Any) -> Laplace:
        """Make it from S^-1, without inverting it: with J the reversal of order and J S^-1 J = C C', L^-1 = J C' J.

        Args:
            mean: r, a position: an array, or a pytree of arrays.
            precision: S^-1, d x d: the negative Hessian of a log posterior.
        """
        call = "Laplace.of_precision(precision=...)"
        mean = _position(mean)
        matrix = _matrix(call, precision, ravel_pytree(mean)[0].size)
        inverse = _cholesky(call, matrix[::-1, ::-1])[::-1, ::-1].T
        factor = inverse_of_lower(inverse)
        return _fill(object.__new__(cls), mean, factor, inverse)

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return self.factor.shape[0]

    @property
    def standard_deviations(self) -> PyTree:
        """Of each coordinate, in the shape of a position."""
        return self._shaped(jnp.linalg.norm(self.factor, axis=1))

    def whiten(self, position: PyTree) -> Array:
        """w = L^-1 (t - r), flat: standard normal if t is from N(r, S)."""
        return dot(self.inverse, ravel_pytree(position)[0] - ravel_pytree(self.mean)[0])

    def colour(self, w: Array) -> PyTree:
        """t = r + L w, the inverse of `whiten`."""
        return self._shaped(ravel_pytree(self.mean)[0] + dot(self.factor, w))

    def draw(self, key: Array) -> PyTree:
        """Draw a position from N(r, S)."""
        return self.colour(jr.normal(key, (self.d,), self.factor.dtype))

    def draw_many(self, key: Array, count: int) -> PyTree:
        """Draw some positions, along a first axis."""
        return _draw_many(self, as_threefry(key), count=count)

    def _shaped(self, flat: Array) -> PyTree:
        return ravel_pytree(self.mean)[1](flat)


@partial(jax.jit, static_argnames="count", compiler_options=SOON)
def _draw_many(laplace: Laplace, key: Array, *, count: int) -> PyTree:
    return jax.vmap(laplace.draw)(jr.split(same_key(key), count))


def _fill(laplace: Laplace, mean: PyTree, factor: np.ndarray, inverse: np.ndarray) -> Laplace:
    return set_fields(laplace, mean=mean, factor=as_floats(factor), inverse=as_floats(inverse))


# ---- checks ------------------------------------------------------------------------------------


def check_laplace(call: str, laplace: Any) -> None:
    """Refuse what is no Laplace approximation."""
    if isinstance(laplace, type) or not hasattr(laplace, "factor"):
        raise TypeError(
            f"`{call}(laplace=...)` must be a Laplace(...), e.g. `find_reference(...).laplace`; got {brief(laplace)}."
        )


def _position(mean: PyTree) -> PyTree:
    """Return the mean in JAX's default float."""
    for leaf in jax.tree.leaves(mean):
        values = np.asarray(leaf)
        if values.dtype.kind not in "iuf" or not np.all(np.isfinite(values)):
            raise ValueError(f"`Laplace(mean=...)` must be a position of finite numbers; got {brief(leaf)}.")
    return jax.tree.map(as_floats, mean)


def _matrix(call: str, matrix: Any, d: int) -> np.ndarray:
    """Return a symmetric d x d matrix in float64, or raise an error that says what is wrong with it."""
    try:
        values = np.asarray(matrix, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`{call}` must hold numbers; got {brief(matrix)}.") from error
    if d == 0 or values.shape != (d, d):
        raise ValueError(
            f"`{call}` must be a d x d matrix, d the number of coordinates of the mean, here {d}; got shape "
            f"{values.shape}."
        )
    if not np.all(np.isfinite(values)):
        at = tuple(int(index[0]) for index in np.nonzero(~np.isfinite(values)))
        raise ValueError(f"`{call}` must be finite; got {values[at]} at index {at}.")
    scale = np.sqrt(np.abs(np.diag(values)))
    asymmetry = np.abs(values - values.T) > _ASYMMETRY * np.outer(scale, scale)
    if np.any(asymmetry):
        i, j = (int(index[0]) for index in np.nonzero(asymmetry))
        raise ValueError(
            f"`{call}` must be symmetric; got {values[i, j]:g} at index ({i}, {j}) and {values[j, i]:g} at "
            f"({j}, {i}). Did you give a Cholesky factor?"
        )
    return (values + values.T) / 2


def _cholesky(call: str, matrix: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError as error:
        least = np.linalg.eigvalsh(matrix)[0]
        raise ValueError(f"`{call}` must be positive definite; its least eigenvalue is {least:.3g}.") from error
