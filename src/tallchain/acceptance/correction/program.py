"""The linear programs: the atoms whose worst error in the log-odds of acceptance is least."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy

from tallchain.acceptance.correction.law import Law
from tallchain.acceptance.correction.record import CUT, Array, Correction, measured

# Below this sigma the linear program has nothing left to gain (its floor is reached at 0.8) and becomes hard to solve,
# so part of the normal noise of the table at _BASE is moved into X_corr.
_SMALLEST_SOLVED = 0.5
_BASE = 0.8

# No chain can show errors below this. Asking for less makes the solver unstable and the table less sparse (302
# half-atoms instead of 55 at sigma = 0.7).
_ERROR_FLOOR = 1e-9

_ROW_SPACING = 0.025  # of Delta in the linear program; a finer one changes the third digit
_ATOMS_BEYOND_REACH = 4.0
_MAX_ITERATIONS = 20_000  # six times what any solution took: the solver is cycling
_FINEST_ATOMS = 1e-3


class _Effort(NamedTuple):
    """One way of putting the program to the solver; they differ in rounding, not in meaning."""

    tolerance: float
    scale: float
    spacing: float


_EFFORTS = (
    _Effort(1e-8, 1e3, 0.05),
    _Effort(1e-9, 1e3, 0.05),
    _Effort(1e-8, 1e3, 0.0625),
    _Effort(1e-8, 1e4, 0.05),
    _Effort(1e-9, 1e2, 0.05),
    _Effort(1e-7, 1e3, 0.04),
)


def compute_minimax(sigma: float, reach: float) -> Correction:
    """Make the minimax table from scratch.

    For sigma >= 0.5 by linear programming (`_solve`). Below, from the table C of sigma0 = 0.8,
    whose error is already at the floor: N(0, sigma0^2) is the sum of N(0, sigma^2) and
    N(0, sigma0^2 - sigma^2), so C convolved with the latter serves sigma with the same error.
    """
    if sigma >= _SMALLEST_SOLVED:
        return _best_solution(sigma, reach)
    half_atoms, half_weights = _shift_normal(_best_solution(_BASE, reach), sigma)
    step = min(_ROW_SPACING / 25, (half_atoms[1] - half_atoms[0]) / 10)
    half_atoms, half_weights = _tidy(half_atoms, half_weights, reach)
    return measured(sigma, half_atoms, half_weights, reach=reach, step=step, method="minimax")


def _best_solution(sigma: float, reach: float) -> Correction:
    """Solve the linear program, with another effort wherever one fails (about one time in thirty)."""
    best = None
    step = _rows(reach)[1] / 25
    for effort in _EFFORTS:
        solution = _solve(sigma, reach, effort)
        if solution is None:
            continue
        objective, half_atoms, half_weights = solution
        half_atoms, half_weights = _tidy(half_atoms, half_weights, reach)
        table = measured(sigma, half_atoms, half_weights, reach=reach, step=step, method="minimax")
        if best is None or table.log_odds_error < best.log_odds_error:
            best = table
        # The objective is the solver's own estimate; the fine grid decides.
        if table.log_odds_error <= 1.1 * objective + _ERROR_FLOOR:
            return table
    if best is None:
        raise RuntimeError(
            f"`minimax(sigma={sigma!r}, reach={reach!r})`: the linear program solver returned nothing in "
            f"{len(_EFFORTS)} attempts. A slightly different sigma or reach usually solves; sigma = 0.5, 0.6, ..., "
            "1.6 at reach = 20 ship with the package."
        )
    return best


def _rows(reach: float) -> Array:
    """The values of |Delta| at which the linear program bounds the error."""
    return np.linspace(0.0, reach, max(100, math.ceil(reach / _ROW_SPACING)) + 1)


def _solve(sigma: float, reach: float, effort: _Effort) -> tuple[float, Array, Array] | None:
    """Minimise t over weights p >= 0 of half-atoms y_j (+y_j and -y_j with p_j/2 each), sum p = 1.

    With S the logistic function and x in [0, reach], in the upper tail so that nothing cancels,

        |tail(x) - S(-x)| <= t S(x) S(-x),   tail(x) = sum_j p_j/2 [SF((x-y_j)/sg) + SF((x+y_j)/sg)].

    S(x) S(-x) is the derivative of probability by log-odds, so t is the log-odds error to first order. The weights span
    ten orders of magnitude; the solver sees p_j = c_j z_j with c_j = 2 h S(y_j) S(-y_j) and z_j near 1, rows divided by
    S(x) S(-x). The solver also treats any coefficient below 1e-9 as zero, including the tail of c, hence `scale` on
    every row.
    """
    x = _rows(reach)
    y = np.arange(0.0, reach + _ATOMS_BEYOND_REACH + effort.spacing / 2, effort.spacing)
    c = 2 * effort.spacing * scipy.special.expit(y) * scipy.special.expit(-y)
    tail = (scipy.special.ndtr((y - x[:, None]) / sigma) + scipy.special.ndtr(-(y + x[:, None]) / sigma)) / 2
    rows = effort.scale * tail * c / (scipy.special.expit(x) * scipy.special.expit(-x))[:, None]
    target = effort.scale / scipy.special.expit(x)
    return _least_worst(rows, target, y, c, effort, _ERROR_FLOOR)


def _least_worst(
    rows: Array, target: Array, y: Array, c: Array, effort: _Effort, floor: float
) -> tuple[float, Array, Array] | None:
    """Minimise t over z >= 0, sum c z = 1, with |rows z - target| <= t; return t, the atoms and their weights c z."""
    from scipy.optimize import linprog

    minus_t = np.full((len(rows), 1), -1.0)
    result = linprog(
        np.append(np.zeros(y.size), 1.0),
        A_ub=np.block([[rows, minus_t], [-rows, minus_t]]),
        b_ub=np.concatenate([target, -target]),
        A_eq=effort.scale * np.append(c, 0.0)[None],
        b_eq=[effort.scale],
        bounds=[(0, None)] * y.size + [(effort.scale * floor, None)],
        method="highs",
        options={
            "primal_feasibility_tolerance": effort.tolerance,
            "dual_feasibility_tolerance": effort.tolerance,
            "maxiter": _MAX_ITERATIONS,
        },
    )
    if result.status != 0 or result.x is None:
        return None
    return result.fun / effort.scale, y, np.maximum(result.x[:-1], 0.0) * c


def _shift_normal(base: Correction, sigma: float) -> tuple[Array, Array]:
    """Convolve `base` with N(0, tau^2), tau^2 = base.sigma^2 - sigma^2, on a lattice of step h.

    By Poisson summation the lattice leaves a relative ripple of 2 exp(-2 pi^2 (s/h)^2) in the
    density of the sum, s = sigma tau / base.sigma. At h = 0.8 s that is 8e-14. Below sigma of
    about 1e-3 the step stays at 1e-3 and the error grows to that of a staircase, 5e-4 in log-odds.
    """
    tau = math.sqrt(base.sigma**2 - sigma**2)
    spacing = max(0.8 * sigma * tau / base.sigma, _FINEST_ATOMS)
    y = spacing * np.arange(math.ceil((base.atoms[-1] + CUT * tau) / spacing) + 1)
    density = np.zeros_like(y)
    for atom, weight in zip(base.atoms, base.weights, strict=True):
        density += weight * np.exp(-0.5 * ((y - atom) / tau) ** 2)
    density[1:] *= 2  # a half-atom stands for both signs
    return y, density


def _tidy(half_atoms: Array, half_weights: Array, reach: float) -> tuple[Array, Array]:
    """Drop half-atoms that are negligible in the logistic tail they sit in."""
    tail = scipy.special.expit(-np.minimum(half_atoms, reach))
    keep = half_weights > 1e-12 * tail * half_weights.sum()
    return half_atoms[keep], half_weights[keep]


# ---- Noise that is not quite normal --------------------------------------------------------------

# A first-order law omits terms of order 1/b: an error below this is negligible, and asking for less makes the solver
# unstable.
_LAW_ERROR_FLOOR = 1e-6
_LAW_ROW_SPACING = 0.05


def compute_for_law(law: Law, reach: float) -> Correction:
    """Make the table for noise of another law, with atoms of both signs."""
    best = None
    for effort in _EFFORTS:
        solution = _solve_law(law, reach, effort)
        if solution is None:
            continue
        objective, atoms, weights = solution
        keep = weights > 1e-12 * scipy.special.expit(-np.minimum(np.abs(atoms), reach))
        atoms, weights = atoms[keep], weights[keep] / weights[keep].sum()
        if not law.is_skewed:  # a symmetric program may have an asymmetric solution; its mirror image is as good
            atoms, weights = _symmetric(atoms, weights)
        cdf_error, log_odds_error = measure_law(law, atoms, weights, reach)
        if best is None or log_odds_error < best.log_odds_error:
            best = Correction(
                law.sigma, atoms, weights, cdf_error, log_odds_error, reach, "minimax", is_skewed=law.is_skewed
            )
        if log_odds_error <= 1.2 * objective + _LAW_ERROR_FLOOR:
            break
    if best is None:
        raise RuntimeError(f"no correction found for {law} on |Delta| <= {reach}: the solver returned nothing")
    return best


def _solve_law(law: Law, reach: float, effort: _Effort) -> tuple[float, Array, Array] | None:
    """As `_solve`, with atoms of both signs: the chance to accept below 0, the chance to reject above.

    At Delta = -x the chance to accept is sum_j p_j P(e > x - y_j), at Delta = +x the chance to reject is
    sum_j p_j P(e <= -x - y_j); both should be S(-x).
    """
    x = np.linspace(0.0, reach, math.ceil(reach / _LAW_ROW_SPACING) + 1)
    half = math.ceil((reach + _ATOMS_BEYOND_REACH) / effort.spacing)
    y = effort.spacing * np.arange(-half, half + 1, dtype=np.float64)
    c = effort.spacing * scipy.special.expit(y) * scipy.special.expit(-y)
    chances = np.concatenate([law.upper(x[:, None] - y), law.lower(-x[:, None] - y)])
    x = np.concatenate([x, x])
    rows = effort.scale * chances * c / (scipy.special.expit(x) * scipy.special.expit(-x))[:, None]
    target = np.asarray(effort.scale / scipy.special.expit(x), dtype=float)
    return _least_worst(rows, target, y, c, effort, _LAW_ERROR_FLOOR)


def _symmetric(atoms: Array, weights: Array) -> tuple[Array, Array]:
    every = np.unique(np.concatenate([atoms, -atoms]))
    both = np.zeros_like(every)
    for sign in (1, -1):
        both[np.searchsorted(every, np.sort(sign * atoms))] += (weights if sign > 0 else weights[::-1]) / 2
    return every + 0.0, both


def measure_law(law: Law, atoms: Array, weights: Array, reach: float) -> tuple[float, float]:
    """Return (cdf_error, log_odds_error) of noise + atoms on |Delta| <= reach, by a grid of step 0.005."""
    x = np.arange(0.0, reach + 0.0025, 0.005)
    tails = np.stack(
        [
            np.concatenate([chance(sign * part[:, None] - atoms) @ weights for part in np.array_split(x, 8)])
            for chance, sign in ((law.upper, 1), (law.lower, -1))
        ]
    )
    with np.errstate(divide="ignore", invalid="ignore"):  # a chance of 0 or less is infinitely wrong
        log_odds = np.where(tails > 0, np.log(tails) - np.log1p(-tails), -np.inf)
    return float(np.abs(tails - scipy.special.expit(-x)).max()), float(np.abs(log_odds + x).max())
