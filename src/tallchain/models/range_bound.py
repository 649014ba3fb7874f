"""A range bound for the logistic model, without reading rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from tallchain.arrays import dot
from tallchain.types import Array

_PART = 2**15  # rows held in float64 at a time
_LEAST_EIGENVALUE = 1e-6  # of the second moments, as a share of their mean
_ROUNDING = 1 + 1e-5  # the bound is computed in float32


@dataclasses.dataclass(frozen=True, eq=False)
class RangeBound:
    """An upper bound on the range over rows of log p(y_i | t') - log p(y_i | t) for the logistic model.

    The slope of log(1/(1 + exp(-s))) is between 0 and 1, so the log ratio of row i is between 0 and +-x_i.(t' - t), and
    the range at most 2 max_i |x_i.(t' - t)|. Two bounds on this need no row:

        by_norm       2 max_i |x_i| |t' - t|                        (Bardenet, Doucet, Holmes 2014)
        by_ellipsoid  2 max_i |A^-1/2 x_i| |A^1/2 (t' - t)|         (Cauchy-Schwarz, for every positive definite A)

    With S the second moments of the features, sum_i x_i x_i' / N, here A = S^1/2: it minimises tr(A) tr(A^-1 S), the
    product of the two mean squares for steps that are alike in all directions. This helps if features are correlated or
    of unequal size; otherwise both bounds are the same. Calling gives the smaller of the two.
    """

    radius: float
    """max |x_i|."""
    axes: np.ndarray
    """max |A^-1/2 x_i| A^1/2, (d, d)."""

    PASSES = 2
    """Sweeps over the rows, to make it."""

    @classmethod
    def of(cls, features: np.ndarray) -> RangeBound:
        """Make the bound from the features (N, d)."""
        moments = sum(rows.T @ rows for rows in _parts(features)) / len(features)
        eigenvalues, vectors = np.linalg.eigh(moments)
        # A floor for features that are constant or repeat one another; 1 if all are zero.
        floor = _LEAST_EIGENVALUE * eigenvalues.mean() or 1.0
        root = np.maximum(eigenvalues, floor) ** 0.25
        norms = [(_largest_norm(rows), _largest_norm(rows @ vectors / root)) for rows in _parts(features)]
        radius, stretched = np.max(norms, axis=0)
        return cls(float(radius), (stretched * root * vectors).T.astype(np.float32))

    def by_norm(self, position: Array, candidate: Array) -> Array:
        """2 max |x_i| |t' - t|."""
        return 2 * _ROUNDING * self.radius * jnp.linalg.norm(candidate - position)

    def by_ellipsoid(self, position: Array, candidate: Array) -> Array:
        """2 max |A^-1/2 x_i| |A^1/2 (t' - t)|."""
        return 2 * _ROUNDING * jnp.linalg.norm(dot(jnp.asarray(self.axes), candidate - position))

    def __call__(self, position: Array, candidate: Array) -> Array:
        """Return the smaller of the two."""
        return jnp.minimum(self.by_norm(position, candidate), self.by_ellipsoid(position, candidate))


def _parts(features: np.ndarray) -> Iterator[np.ndarray]:
    return (features[start : start + _PART].astype(np.float64) for start in range(0, len(features), _PART))


def _largest_norm(rows: np.ndarray) -> float:
    return float(np.sqrt(np.max(np.einsum("ij,ij->i", rows, rows))))
