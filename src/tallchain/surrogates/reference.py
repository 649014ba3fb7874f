"""The mode of a posterior, by Newton's method over all rows: where surrogates are expanded.

    maximise  log p0(t) + (1/K) sum_i log p(x_i | t)

by a trust-region Newton method (Conn, Gould and Toint 2000). It works in the coordinates u of t = t0 + W u, in which
the Hessian at the start t0, estimated from some of the rows, is the identity: there a gradient is a distance to the
mode in posterior standard deviations, about. The end is judged without that estimate, by the Newton decrement

    sqrt(g' H^-1 g),   g the gradient and H the negative Hessian of the log posterior,

which is that distance, and is the same in all coordinates (Boyd and Vandenberghe 2004, section 9.5).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import linalg

from tallchain.functions import program
from tallchain.progress import shown
from tallchain.surrogates.laplace import Laplace
from tallchain.surrogates.no_reference import (
    FAR,
    LEAST_EIGENVALUE,
    not_converged,
    not_definite,
    not_falling,
    not_finite,
)
from tallchain.surrogates.passes import Passes, Terms, as_floats, derivatives
from tallchain.surrogates.start import check_start
from tallchain.types import Array, Posterior, PyTree

_DENSE = 200  # coordinates up to which every iteration takes the whole Hessian
_FEW_ROWS = 8192  # for the Hessian at the start
_TOLERANCE = 3e-3  # of the optimiser, in standard deviations, about
_NEAR = 1e-2  # decrement to polish down to; above FAR it is refused
_POLISHES = 5
_LEAST_DROP = 0.1  # of the log posterior one standard deviation from the mode; a normal's is 0.5

Report = Callable[[int, float], None]


class NoReferenceError(RuntimeError):
    """The posterior has no mode, or none was found, or none with a curvature to speak of."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """The mode of a log posterior, and its derivatives at exactly that point."""

    position: PyTree
    """In JAX's default float: the point at which everything below is evaluated."""
    temperature: float
    """K."""
    log_prior: float
    log_likelihood: float
    """Sum over all rows, not divided by K."""
    likelihood_gradient: np.ndarray
    """Of `log_likelihood`, (d,) in float64, by coordinate of the flattened position (`ravel_pytree`)."""
    likelihood_hessian: np.ndarray
    """Of `log_likelihood`, (d, d) in float64."""
    gradient: np.ndarray
    """Of the log posterior, (d,) in float64: nearly 0."""
    hessian: np.ndarray
    """NEGATIVE Hessian of the log posterior, (d, d) in float64: a precision matrix."""
    decrement: float
    """Distance to the mode itself in posterior standard deviations."""
    num_iterations: int
    num_rows: int
    """N."""
    num_passes: int
    """Over all rows."""
    rows_read: int
    """Rows evaluated, in all."""
    seconds: float

    @property
    def log_density(self) -> float:
        """log p0(t) + (1/K) sum_i log p(x_i | t)."""
        return self.log_prior + self.log_likelihood / self.temperature

    @property
    def laplace(self) -> Laplace:
        """The normal distribution with this mode and curvature."""
        return Laplace.of_precision(self.position, self.hessian)

    def __str__(self) -> str:
        return (
            f"Reference: the mode of {self.gradient.size} parameters over {self.num_rows:,} rows, to within "
            f"{self.decrement:.1g} posterior standard deviations\n"
            f"log posterior {self.log_density:,.2f}; {self.num_iterations} iterations, {self.num_passes} passes "
            f"({self.rows_read:,} rows), {self.seconds:.2g} s"
        )


def find_reference(
    posterior: Posterior, data: PyTree, initial: PyTree, *, max_iterations: int = 100, progress: bool = True
) -> Reference:
    """Find the mode of a posterior from all rows, and its curvature there.

    Args:
        posterior: log prior, log likelihood of one row, temperature.
        data: all rows, as for a source: an array, a pytree of arrays or a frame.
        initial: the position to start from; where there are several modes, the one found depends on it.
        max_iterations: of the trust-region method; each takes one pass over the rows, or several for more than 200
            coordinates.
        progress: show a progress bar (needs `rich`); elsewhere than on a terminal, a line every ten seconds or more.

    Raises:
        NoReferenceError: if there is no mode to be found, with what to do about it.
    """
    begun = time.perf_counter()
    data, start = check_start(posterior, data, initial, max_iterations)
    with shown(bool(progress), "finding the mode") as show:

        def report(num_passes: int, distance: float) -> None:
            show(num_passes, f"pass {num_passes}, about {distance:.2g} standard deviations away")

        objective = _Objective(posterior, data, start, report)
        found, iterations = _search(objective, max_iterations)
        point, step, polishes = _polish(objective, found, iterations)
        decrement = _decrement(point, step)
        _check_falls_off(objective, point, step)
        report(objective.passes.num_passes, decrement)
    passes = objective.passes
    return Reference(
        objective.unravel(as_floats(point.flat)),
        objective.temperature,
        float(point.prior.value),
        float(point.likelihood.value),
        np.asarray(point.likelihood.gradient),
        _symmetric(point.likelihood.products),
        point.gradient,
        point.hessian,
        decrement,
        iterations + polishes,
        passes.num_rows,
        passes.num_passes,
        passes.rows_read + objective.few.rows_read,
        time.perf_counter() - begun,
    )


# ---- the objective -----------------------------------------------------------------------------


class _Point(NamedTuple):
    """The log posterior at a point; derivatives by flat coordinate, in float64."""

    flat: np.ndarray
    """In JAX's default float."""
    prior: Terms
    likelihood: Terms
    temperature: float

    @property
    def log_density(self) -> float:
        """Of the posterior."""
        return float(self.prior.value + self.likelihood.value / self.temperature)

    @property
    def gradient(self) -> np.ndarray:
        """Of the log posterior."""
        return np.asarray(self.prior.gradient + self.likelihood.gradient / self.temperature)

    @property
    def products(self) -> np.ndarray:
        """Of the NEGATIVE Hessian with the directions asked for."""
        return -np.asarray(self.prior.products) - np.asarray(self.likelihood.products) / self.temperature

    @property
    def hessian(self) -> np.ndarray:
        """The NEGATIVE Hessian, if the directions were the axes."""
        return _symmetric(self.products)

    @property
    def is_finite(self) -> bool:
        """Whether all of it is."""
        return self.prior.is_finite and self.likelihood.is_finite


class _Objective:
    """The negative log posterior in whitened coordinates, t = t0 + W u, as SciPy wants it."""

    def __init__(self, posterior: Posterior, data: PyTree, start: PyTree, report: Report) -> None:
        flat, self.unravel = ravel_pytree(start)
        self.posterior, self.report, self.temperature = posterior, report, float(posterior.temperature)
        self.passes = Passes(posterior, data, start)
        every = max(1, self.passes.num_rows // max(_FEW_ROWS, 4 * flat.size))
        self.few = Passes(posterior, jax.tree.map(lambda leaf: leaf[::every], self.passes.data), start)
        self.axes = as_floats(np.eye(flat.size))
        self.is_dense = flat.size <= _DENSE
        self.initial = np.asarray(flat)
        self._last: _Point | None = None
        self.whiten(self.initial)
        self._origin = self.checked(self.initial).log_density

    def whiten(self, flat: np.ndarray) -> None:
        """Take t0 for u = 0, and W from the Hessian there of every so many rows."""
        few = self.few
        point = self._evaluate(few, flat, self.axes)
        if not point.is_finite:
            raise NoReferenceError(not_finite(self.passes, point))
        weight = self.passes.num_rows / few.num_rows / self.temperature
        hessian = -np.asarray(point.prior.products) - weight * np.asarray(point.likelihood.products)
        self.start, self.whitener = point.flat, _whitener(_symmetric(hessian))
        self.passes.centre = float(point.likelihood.value) / few.num_rows

    def at(self, flat: np.ndarray, directions: Any = None) -> _Point:
        """Evaluate, in one pass over all rows."""
        point = self._evaluate(self.passes, flat, directions)
        distance = float(linalg.norm(self.whitener.T @ point.gradient)) if point.is_finite else np.nan
        self.report(self.passes.num_passes, distance)
        return point

    def checked(self, flat: np.ndarray, is_curved: bool = False) -> _Point:
        """Evaluate, with the whole Hessian if asked for; finite, or an error."""
        point = self._remember(flat, self.axes if is_curved or self.is_dense else None)
        if not point.is_finite:
            raise NoReferenceError(not_finite(self.passes, point))
        return point

    def _evaluate(self, passes: Passes, flat: np.ndarray, directions: Any) -> _Point:
        flat = np.asarray(as_floats(flat))
        prior = _prior_terms(self.posterior, passes.like, flat, directions)
        prior = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), prior)
        return _Point(flat, prior, passes(flat, directions), self.temperature)

    def _remember(self, flat: np.ndarray, directions: Any) -> _Point:
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
        """Of the negative log posterior, less its value at the first start; +inf where something is not finite."""
        point = self._remember(self.position(u), self.axes if self.is_dense else None)
        if not point.is_finite:
            return np.inf, np.zeros_like(u)
        return self._origin - point.log_density, -self.whitener.T @ point.gradient

    def hessian(self, u: np.ndarray) -> np.ndarray:
        """By coordinate u; where it is not finite, anything will do, since the value is +inf."""
        point = self._remember(self.position(u), self.axes)
        return self.whitener.T @ point.hessian @ self.whitener if point.is_finite else np.eye(u.size)

    def hessian_product(self, u: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Of the Hessian by coordinate u with a direction."""
        along = self.whitener @ direction
        size = linalg.norm(along) or 1.0  # of order 1 in float32
        point = self.at(self.position(u), as_floats(along / size)[None])
        if not point.is_finite:
            raise NoReferenceError(not_finite(self.passes, point))
        return self.whitener.T @ point.products[0] * size


@program()
def _prior_terms(posterior: Posterior, like: PyTree, flat: Array, directions: Array | None) -> Terms:
    return derivatives(lambda flat: posterior.log_prior(ravel_pytree(like)[1](flat)), flat, directions)


def _symmetric(matrix: Any) -> np.ndarray:
    return np.asarray(matrix + matrix.T) / 2


# ---- the search --------------------------------------------------------------------------------


def _search(objective: _Objective, max_iterations: int) -> tuple[np.ndarray, int]:
    """Minimise, and again from there if that is still far; return the end, and how many iterations it took.

    From a bad start the posterior is much wider at its mode, and the whitening of the start misjudges the distance.
    """
    flat, iterations = _minimise(objective, max_iterations)
    while iterations < max_iterations:
        objective.whiten(flat)
        distance = linalg.norm(objective.whitener.T @ objective.checked(flat).gradient)
        if distance < 1:
            break
        flat, more = _minimise(objective, max_iterations - iterations)
        if more == 0:
            break
        iterations += more
    return flat, iterations


def _whitener(hessian: np.ndarray) -> np.ndarray:
    """Return W with W' H W = 1, for H made positive definite."""
    scale = np.sqrt(np.abs(np.diag(hessian)))
    scale = np.where(scale > 0, scale, scale.max() or 1.0)
    values, vectors = linalg.eigh(hessian / np.outer(scale, scale))
    return vectors / np.sqrt(np.maximum(np.abs(values), LEAST_EIGENVALUE)) / scale[:, None]


def _minimise(objective: _Objective, max_iterations: int) -> tuple[np.ndarray, int]:
    """Return the end of the trust-region method, and how many iterations it took."""
    from scipy.optimize import minimize

    u = np.zeros(objective.start.size)
    # The first step may go all the way that Newton's would: too far costs a pass, too near several.
    reach = max(1.0, 2 * float(linalg.norm(objective.value_and_gradient(u)[1])))
    curvature = {"hess": objective.hessian} if objective.is_dense else {"hessp": objective.hessian_product}
    result = minimize(
        objective.value_and_gradient,
        u,
        jac=True,
        method="trust-exact" if objective.is_dense else "trust-krylov",
        options={
            "gtol": _TOLERANCE,
            "maxiter": max_iterations,
            "initial_trust_radius": reach,
            "max_trust_radius": 1e6 * reach,
        },
        **curvature,
    )
    return objective.position(result.x), int(result.nit)


def _polish(objective: _Objective, flat: np.ndarray, iterations: int) -> tuple[_Point, np.ndarray, int]:
    """Take Newton steps until the decrement is small; return the point, the step on from it, and how many it took."""
    point = objective.checked(flat, is_curved=True)
    step, steps = _newton_step(objective, point), 0
    while _decrement(point, step) > _NEAR and steps < _POLISHES:
        nearer = objective.checked(point.flat + step, is_curved=True)
        further, steps = _newton_step(objective, nearer), steps + 1
        if _decrement(nearer, further) >= _decrement(point, step):
            break
        point, step = nearer, further
    if _decrement(point, step) > FAR:
        raise NoReferenceError(not_converged(objective, point, _decrement(point, step), iterations, steps))
    return point, step, steps


def _decrement(point: _Point, step: np.ndarray) -> float:
    """sqrt(g' H^-1 g), for the step H^-1 g."""
    return float(np.sqrt(max(point.gradient @ step, 0.0)))


def _newton_step(objective: _Objective, point: _Point) -> np.ndarray:
    """H^-1 g, or an error if H is not positive definite."""
    hessian = point.hessian
    scale = np.sqrt(np.maximum(np.diag(hessian), 0))
    if not np.all(scale > 0):
        raise NoReferenceError(not_definite(objective, point, -np.inf, None))
    values, vectors = linalg.eigh(hessian / np.outer(scale, scale))
    if values[0] < LEAST_EIGENVALUE:
        raise NoReferenceError(not_definite(objective, point, values[0], vectors[:, 0]))
    return vectors @ (vectors.T @ (point.gradient / scale) / values) / scale


def _check_falls_off(objective: _Objective, point: _Point, step: np.ndarray) -> None:
    """Refuse a "mode" at infinity, where gradient and curvature vanish together, and one by a wrong gradient.

    Where the log posterior is -exp(-m), m being how far the position is, the decrement is exp(-m/2): it can be as small
    as at a mode. But a standard deviation further on, a mode has lost 0.5.
    """
    sides = (1,)
    if not np.any(step):  # no direction is suspect more than others; functions without a gradient come here as well
        step, sides = np.sqrt(1 / np.diag(point.hessian)), (1, -1)
    step = step / np.sqrt(step @ point.hessian @ step)
    for side in sides:
        drop = point.log_density - objective.at(point.flat + side * step).log_density
        if drop < _LEAST_DROP:
            raise NoReferenceError(not_falling(objective, point, drop))
