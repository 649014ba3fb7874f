"""The negative log posterior over all rows, in whitened coordinates, for the search for a mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from tallchain.arrays import as_floats
from tallchain.functions import SOON, program
from tallchain.surrogates.no_reference import LEAST_EIGENVALUE, NoReferenceError, not_finite
from tallchain.surrogates.passes import Passes, Terms, derivatives
from tallchain.surrogates.point import Point, symmetric
from tallchain.types import Array, Posterior, PyTree, Source

_QUICK = 5e7  # numbers to read in a pass: it takes less time than to compile a program
_DENSE = 200  # coordinates up to which every iteration takes the whole Hessian
_FEW_ROWS = 8192  # for the Hessian at the start

Report = Callable[[int, float], None]


class Objective:
    """The negative log posterior in whitened coordinates, t = t0 + W u, as SciPy takes it."""

    def __init__(self, posterior: Posterior, source: Source, start: PyTree, report: Report) -> None:
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(start)])
        self.posterior, self.report, self.temperature = posterior, report, float(posterior.temperature)
        self.passes = Passes(posterior, source, start)
        self.axes = as_floats(np.eye(flat.size))
        self.is_dense = flat.size <= _DENSE
        self.initial = flat
        self.whitener = np.full((flat.size, flat.size), np.nan)
        self._last: Point | None = None
        self.whiten(self.initial)
        self._origin = self.checked(self.initial).log_density

    def whiten(self, flat: np.ndarray) -> None:
        """Set t0, where u = 0, and take W from the Hessian there: of all rows, or of a few if there are many axes."""
        if self.is_dense:
            point, count, weight = self.remembered(flat, self.axes), self.passes.num_rows, 1.0
        else:
            few = self.passes.source.some_rows(max(_FEW_ROWS, 4 * flat.size))
            point, count = self._evaluate(partial(self.passes.of_some, few), flat, self.axes), _count(few)
            weight = self.passes.num_rows / count
        if not point.is_finite:
            raise NoReferenceError(not_finite(self.passes, point))
        prior, likelihood = np.asarray(point.prior.products), np.asarray(point.likelihood.products)
        self.start, self.whitener = point.flat, _whitener(symmetric(-prior - weight / self.temperature * likelihood))
        self.passes.centre = float(point.likelihood.value) / count

    def at(self, flat: np.ndarray, directions: Any = None) -> Point:
        """Evaluate, in one sweep over all rows."""
        point = self._evaluate(self.passes, flat, directions)
        distance = float(np.linalg.norm(self.whitener.T @ point.gradient)) if point.is_finite else np.nan
        self.report(self.passes.num_passes, distance)
        return point

    def beside(self, flat: np.ndarray) -> Point:
        """Evaluate for the value alone; where that is quick, by the program with the Hessian, which is compiled."""
        is_quick = self.is_dense and self.passes.num_rows * flat.size <= _QUICK
        return self.at(flat, self.axes if is_quick else None)

    def checked(self, flat: np.ndarray, is_curved: bool = False) -> Point:
        """Evaluate, with the whole Hessian if asked for; raise an error if it is not finite."""
        point = self.remembered(flat, self.axes if is_curved or self.is_dense else None)
        if not point.is_finite:
            raise NoReferenceError(not_finite(self.passes, point))
        return point

    def _evaluate(self, likelihood: Callable[..., Terms], flat: np.ndarray, directions: Any) -> Point:
        flat = np.asarray(as_floats(flat))
        prior = _prior_terms(self.posterior, self.passes.like, flat, directions)
        prior = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), prior)
        return Point(flat, prior, likelihood(flat, directions), self.temperature)

    def remembered(self, flat: np.ndarray, directions: Any) -> Point:
        """Evaluate, unless it was the last point evaluated."""
        last = self._last
        is_last = last is not None and np.array_equal(last.flat, np.asarray(as_floats(flat)))
        if not (is_last and (directions is None or last.prior.products is not None)):
            last = self._last = self.at(flat, directions)
        return last

    def position(self, u: np.ndarray) -> np.ndarray:
        """t = t0 + W u."""
        return self.start + self.whitener @ u

    def value_and_gradient(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """Of the negative log posterior, minus its value at the first start; +inf if something is not finite."""
        point = self.remembered(self.position(u), self.axes if self.is_dense else None)
        if not point.is_finite:
            return np.inf, np.zeros_like(u)
        return self._origin - point.log_density, -self.whitener.T @ point.gradient

    def hessian(self, u: np.ndarray) -> np.ndarray:
        """By coordinate u; arbitrary if not finite, since the value is then +inf."""
        point = self.remembered(self.position(u), self.axes)
        return self.whitener.T @ point.hessian @ self.whitener if point.is_finite else np.eye(u.size)

    def hessian_product(self, u: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Of the Hessian by coordinate u with a direction."""
        along = self.whitener @ direction
        size = np.linalg.norm(along) or 1.0  # of order 1 in float32
        point = self.at(self.position(u), as_floats(along / size)[None])
        if not point.is_finite:
            raise NoReferenceError(not_finite(self.passes, point))
        return self.whitener.T @ point.products[0] * size


def _count(rows: PyTree) -> int:
    return len(jax.tree.leaves(rows)[0])


@program(compiler_options=SOON)
def _prior_terms(posterior: Posterior, like: PyTree, flat: Array, directions: Array | None) -> Terms:
    return derivatives(lambda flat: posterior.log_prior(ravel_pytree(like)[1](flat)), flat, directions)


def _whitener(hessian: np.ndarray) -> np.ndarray:
    """Return W with W' H W = 1, for H made positive definite."""
    scale = np.sqrt(np.abs(np.diag(hessian)))
    scale = np.where(scale > 0, scale, scale.max() or 1.0)
    values, vectors = np.linalg.eigh(hessian / np.outer(scale, scale))
    return vectors / np.sqrt(np.maximum(np.abs(values), LEAST_EIGENVALUE)) / scale[:, None]
