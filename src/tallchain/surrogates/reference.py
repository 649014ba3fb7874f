"""The mode of a posterior, by Newton's method over all rows: where surrogates are expanded.

    maximise  log p0(t) + (1/K) sum_i log p(x_i | t)

by Newton's steps, and where these do not lead uphill by a trust-region method (Conn, Gould and Toint 2000). That works
in the coordinates u of t = t0 + W u, in which the Hessian at the start t0, estimated from some of the rows, is the
identity: there a gradient is about the distance to the mode in posterior standard deviations. Convergence is judged
without that estimate, by the Newton decrement

    sqrt(g' H^-1 g),   g the gradient and H the negative Hessian of the log posterior,

which is this distance, and is the same in all coordinates (Boyd and Vandenberghe 2004, section 9.5).
"""

from __future__ import annotations

import dataclasses
import time

import jax
import numpy as np

from tallchain.progress import shown
from tallchain.proposals.laplace import Laplace
from tallchain.surrogates.no_reference import (
    FAR,
    LEAST_EIGENVALUE,
    NoReferenceError,
    not_converged,
    not_definite,
    not_falling,
)
from tallchain.surrogates.objective import Objective
from tallchain.surrogates.passes import unravelled
from tallchain.surrogates.point import Point, symmetric
from tallchain.surrogates.start import check_start
from tallchain.types import Posterior, PyTree, Source
from tallchain.validation import check_switch

_TOLERANCE = 3e-3  # of the optimiser, roughly in standard deviations
_CLOSE = 0.5  # decrement below which the search is over
_NEAR = 1e-2  # decrement to reach by polishing; above FAR it is refused
_POLISHES = 5
_LEAST_DROP = 0.1  # of the log posterior one standard deviation from the mode; 0.5 for a normal distribution


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
    """Sweeps over all rows."""
    rows_swept: int
    """Rows swept, in all."""
    seconds: float

    @property
    def log_density(self) -> float:
        """log p0(t) + (1/K) sum_i log p(x_i | t)."""
        return self.log_prior + self.log_likelihood / self.temperature

    @property
    def laplace(self) -> Laplace:
        """The normal distribution with this mode and curvature."""
        return Laplace.of_precision(self.position, self.hessian)

    @property
    def words(self) -> str:
        """A line for a report."""
        return (
            f"mode                 of {self.gradient.size} parameters over {self.num_rows:,} rows, to within "
            f"{self.decrement:.1g} posterior standard deviations"
        )

    def __str__(self) -> str:
        return (
            f"Reference: the mode of {self.gradient.size} parameters over {self.num_rows:,} rows, to within "
            f"{self.decrement:.1g} posterior standard deviations\n"
            f"log posterior {self.log_density:,.2f}; {self.num_iterations} iterations, {self.num_passes} sweeps "
            f"({self.rows_swept:,} rows), {self.seconds:.2g} s"
        )


def find_reference(
    posterior: Posterior, data: PyTree | Source, initial: PyTree, *, max_iterations: int = 100, progress: bool = True
) -> Reference:
    """Find the mode of a posterior from all rows, and its curvature there.

    Args:
        posterior: log prior, log likelihood of one row, temperature.
        data: a source, or all rows as a source takes them: an array, a pytree of arrays or a frame.
        initial: the position to start from; if there are several modes, the one found depends on it.
        max_iterations: of the trust-region method; each takes one sweep over the rows, or several for more than 200
            coordinates.
        progress: show a progress bar (needs `rich`); without a terminal, a line every ten seconds or more.

    Raises:
        NoReferenceError: if no mode is found; it says what to do about it.
    """
    begun = time.perf_counter()
    progress = check_switch("find_reference", "progress", progress)
    source, start = check_start(posterior, data, initial, max_iterations)
    with shown(progress, "finding the mode", is_step=True) as show:

        def report(num_passes: int, distance: float) -> None:
            away = f", about {distance:.2g} standard deviations away" if np.isfinite(distance) else ""
            show(num_passes, f"sweep {num_passes}{away}")

        objective = Objective(posterior, source, start, report)
        found, iterations = _search(objective, max_iterations)
        point, step, polishes = _polish(objective, found, iterations)
        decrement = _decrement(point, step)
        _check_falls_off(objective, point, step)
        report(objective.passes.num_passes, decrement)
    passes = objective.passes
    return Reference(
        jax.device_put(unravelled(start, point.flat)),
        objective.temperature,
        float(point.prior.value),
        float(point.likelihood.value),
        np.asarray(point.likelihood.gradient),
        symmetric(point.likelihood.products),
        point.gradient,
        point.hessian,
        decrement,
        iterations + polishes,
        passes.num_rows,
        passes.num_passes,
        passes.rows_swept,
        time.perf_counter() - begun,
    )


# ---- the search --------------------------------------------------------------------------------


def _search(objective: Objective, max_iterations: int) -> tuple[np.ndarray, int]:
    """Climb; where that ends without a mode close by, minimise, and again if still far; return the end, and iterations.

    A small gradient alone is not enough: it is small next to a saddle point and a minimum, too. After a bad start the
    posterior may be much wider at its mode, and the whitening at the start misjudges the distance.
    """
    flat, iterations, is_over = _climb(objective, max_iterations)
    if iterations:
        objective.whiten(flat)
    while not is_over and iterations < max_iterations:
        flat, more = _minimise(objective, max_iterations - iterations)
        iterations += more
        objective.whiten(flat)
        distance = np.linalg.norm(objective.whitener.T @ objective.checked(flat).gradient)
        is_over = more == 0 or bool(distance < 1)
    return flat, iterations


def _climb(objective: Objective, max_iterations: int) -> tuple[np.ndarray, int, bool]:
    """Take Newton's own steps while they lead uphill; return the end, how many it took, and whether a mode is close.

    With many rows a posterior is so nearly normal that they suffice, and SciPy's optimisers, whose import takes longer
    than a search over a million rows, are not needed.
    """
    point, steps = objective.checked(objective.start), 0
    while objective.is_dense and steps < max_iterations:
        try:
            step = _newton_step(objective, point)
        except NoReferenceError:  # no mode here, which says nothing of other places
            break
        if _decrement(point, step) < _CLOSE:
            return point.flat, steps, True
        higher = objective.remembered(point.flat + step, objective.axes)
        if not (higher.is_finite and higher.log_density > point.log_density):
            break
        point, steps = higher, steps + 1
    return point.flat, steps, False


def _minimise(objective: Objective, max_iterations: int) -> tuple[np.ndarray, int]:
    """Return the end of the trust-region method, and how many iterations it took."""
    from scipy.optimize import minimize

    u = np.zeros(objective.start.size)
    # The first step may be as long as Newton's: too long costs one sweep, too short several.
    reach = max(1.0, 2 * float(np.linalg.norm(objective.value_and_gradient(u)[1])))
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


def _polish(objective: Objective, flat: np.ndarray, iterations: int) -> tuple[Point, np.ndarray, int]:
    """Take Newton steps until the decrement is small; return the point, the next step, and how many it took."""
    point = objective.checked(flat, is_curved=True)
    step, steps = _newton_step(objective, point), 0
    while _decrement(point, step) > _NEAR and steps < _POLISHES:
        nearer = objective.checked(point.flat + step, is_curved=True)
        further, steps = _newton_step(objective, nearer), steps + 1
        if _decrement(nearer, further) >= _decrement(point, step):
            break
        point, step = nearer, further
    if _decrement(point, step) > FAR:
        raise NoReferenceError(not_converged(objective.initial, point, _decrement(point, step), iterations, steps))
    return point, step, steps


def _decrement(point: Point, step: np.ndarray) -> float:
    """sqrt(g' H^-1 g), for the step H^-1 g."""
    return float(np.sqrt(max(point.gradient @ step, 0.0)))


def _newton_step(objective: Objective, point: Point) -> np.ndarray:
    """H^-1 g, or an error if H is not positive definite."""
    hessian = point.hessian
    scale = np.sqrt(np.maximum(np.diag(hessian), 0))
    if not np.all(scale > 0):
        raise NoReferenceError(not_definite(objective.initial, objective.passes.like, point, -np.inf, None))
    values, vectors = np.linalg.eigh(hessian / np.outer(scale, scale))
    if values[0] < LEAST_EIGENVALUE:
        raise NoReferenceError(not_definite(objective.initial, objective.passes.like, point, values[0], vectors[:, 0]))
    return vectors @ (vectors.T @ (point.gradient / scale) / values) / scale


def _check_falls_off(objective: Objective, point: Point, step: np.ndarray) -> None:
    """Refuse a "mode" at infinity, where gradient and curvature vanish together, or one due to a wrong gradient.

    Where the log posterior is -exp(-m), m being how far the position is, the decrement is exp(-m/2): it can be as small
    as at a mode. But one standard deviation from a mode the log posterior has fallen by 0.5. Where log likelihoods are
    so large (rows of large weights or counts) that rounding hides it, the gradients on both sides say how far.
    """
    sides = (1,)
    if not np.any(step):  # no direction is more suspect than others; functions without a gradient also come here
        step, sides = np.sqrt(1 / np.diag(point.hessian)), (1, -1)
    step = step / np.sqrt(step @ point.hessian @ step)
    rounding = 10 * np.finfo(np.float32).eps * abs(point.log_density) / np.sqrt(objective.passes.num_rows)
    for side in sides:
        beside = objective.beside(point.flat + side * step)
        drop = point.log_density - beside.log_density
        if rounding > _LEAST_DROP:
            drop = -side * step @ (point.gradient + beside.gradient) / 2
        if drop < _LEAST_DROP:
            raise NoReferenceError(not_falling(objective.initial, point, drop))
