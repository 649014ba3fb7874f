"""The correction distribution: what a normal variable lacks of being logistic.

Barker's test accepts when Delta + X_log > 0 with X_log standard logistic. A minibatch estimate of
Delta already carries noise that is nearly normal, so the test wants a variable X_corr with

    X_norm + X_corr ~ standard logistic,      X_norm ~ N(0, sigma^2) independent of X_corr.

No such X_corr exists for any sigma > 0: the logistic characteristic function pi t / sinh(pi t)
decays more slowly than the normal one. What exists is an approximation by weighted atoms, and
this module makes two and measures both (`Correction.cdf_error`, `Correction.log_odds_error`):

- `minimax`: non-negative weights from a linear program that minimises the worst error in the
  log-odds of acceptance, because detailed balance lives in log-odds. The default.
- `ridge`: the regularised least squares of Seita, Pan, Chen and Canny, "An Efficient Minibatch
  Acceptance Test for Metropolis-Hastings" (section "correction" and its appendix).

Both look for their table in the package, then in a cache folder (`TALLCHAIN_CACHE`, else
`XDG_CACHE_HOME/tallchain`, else `~/.cache/tallchain`), and compute it only then.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtr

Array = NDArray[np.float64]

MAX_SIGMA = 1.6
MAX_REACH = 100.0
SHIPPED = Path(__file__).with_name("correction_tables.npz")

# Part of every key: raise it when an algorithm below changes, so that no stale file is read.
_VERSION = 1

# Beyond ten standard deviations a normal tail (8e-24) is nothing, even times e^16, the most by
# which an atom ten sigma nearer to the centre can outweigh the logistic tail.
_CUT = 10.0


@dataclass(frozen=True, eq=False)
class Correction:
    """A symmetric distribution on atoms, and how far normal + atoms is from logistic.

    Both errors are measured on a grid at least ten times finer than the one the table was built
    on. By symmetry the log-odds error is also the detailed-balance error of the test.
    """

    sigma: float
    """Standard deviation of the normal part."""
    atoms: Array
    """Every atom with its sign, ascending and symmetric about 0."""
    weights: Array
    """Probability of each atom: non-negative, symmetric, summing to 1."""
    cdf_error: float
    """Largest |P(X_norm + X_corr <= x) - logistic(x)| over all x."""
    log_odds_error: float
    """Largest |logit P(accept | Delta) - Delta| over |Delta| <= reach."""
    reach: float
    """The interval |Delta| <= reach on which `log_odds_error` holds."""
    method: str
    """What made the table: "minimax" or "ridge"."""

    def __post_init__(self) -> None:
        """Refuse what is not a symmetric probability distribution, and keep frozen copies of the arrays."""
        for name in ("atoms", "weights"):
            frozen = np.array(getattr(self, name), dtype=np.float64)
            frozen.setflags(write=False)
            object.__setattr__(self, name, frozen)
        ok = (
            self.atoms.ndim == 1
            and self.atoms.shape == self.weights.shape
            and self.atoms.size > 0
            and bool(np.all(np.diff(self.atoms) > 0))
            and bool(np.all(self.weights >= 0))
            and abs(self.weights.sum() - 1) < 1e-9
            and np.array_equal(self.atoms, -self.atoms[::-1])
            and np.array_equal(self.weights, self.weights[::-1])
        )
        if not ok:
            raise ValueError(
                "`Correction(atoms=..., weights=...)` needs ascending atoms symmetric about 0 and "
                "symmetric non-negative weights that sum to 1; got atoms of shape "
                f"{self.atoms.shape} and weights of shape {self.weights.shape} that are not."
            )

    def upper_tail(self, x: ArrayLike) -> Array:
        """P(X_norm + X_corr > x), which is also P(accept | Delta = -x)."""
        return _upper_tail(np.asarray(x, dtype=float), self.sigma, self.atoms, self.weights)


def minimax(sigma: float, reach: float = 20.0) -> Correction:
    """The table whose worst log-odds error on |Delta| <= reach is least; see `compute_minimax`.

    Looks in the package, then in the cache folder, and computes (about a second) only then.
    """
    call = f"minimax(sigma={sigma!r}, reach={reach!r})"
    sigma, reach = _check_sigma(call, sigma), _check_reach(call, reach, MAX_REACH)
    return _cached(minimax_key(sigma, reach), lambda: compute_minimax(sigma, reach))


def ridge(sigma: float, n: int = 4000, ridge: float = 10.0, reach: float = 10.0) -> Correction:
    """The paper's table, clipped and renormalised so that it can be sampled; `compute_ridge`.

    Looks in the package, then in the cache folder, and computes (a few seconds) only then. `reach`
    says where the log-odds error is measured and changes nothing else.
    """
    call = f"ridge(sigma={sigma!r}, n={n!r}, ridge={ridge!r}, reach={reach!r})"
    sigma, n = _check_sigma(call, sigma), _check_n(call, n)
    ridge, reach = _check_ridge(call, ridge), _check_reach(call, reach, _V)
    key = ridge_key(sigma, n, ridge, reach)
    return _cached(key, lambda: compute_ridge(sigma, n, ridge, reach))


# ---- The linear program --------------------------------------------------------------------------

# Below this sigma the linear program has nothing left to gain (its floor is reached at 0.8) and
# becomes hard on the solver, so part of the normal of the table at _BASE is moved into X_corr.
_SMALLEST_SOLVED = 0.5
_BASE = 0.8

# Errors below this are invisible to any chain. Asking for less costs the solver its stability
# and the table its sparsity (302 half-atoms instead of 55 at sigma = 0.7).
_ERROR_FLOOR = 1e-9

_ROW_SPACING = 0.025  # of Delta in the linear program; a finer one changes the third digit
_ATOMS_BEYOND_REACH = 4.0
_MAX_ITERATIONS = 20_000  # six times what any solution took: the solver is going round in circles
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
    return _measured(sigma, half_atoms, half_weights, reach=reach, step=step, method="minimax")


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
        table = _measured(sigma, half_atoms, half_weights, reach=reach, step=step, method="minimax")
        if best is None or table.log_odds_error < best.log_odds_error:
            best = table
        # The objective is what the solver believes; the fine grid has the last word.
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

    S(x) S(-x) is the derivative of probability by log-odds, so t is the log-odds error to first
    order. The weights span ten orders of magnitude; the solver sees p_j = c_j z_j with
    c_j = 2 h S(y_j) S(-y_j) and z_j near 1, rows divided by S(x) S(-x). It also takes any
    coefficient below 1e-9 for zero, the tail of c among them, hence `scale` on every row.
    """
    from scipy.optimize import linprog

    x = _rows(reach)
    y = np.arange(0.0, reach + _ATOMS_BEYOND_REACH + effort.spacing / 2, effort.spacing)
    c = 2 * effort.spacing * expit(y) * expit(-y)
    tail = (ndtr((y - x[:, None]) / sigma) + ndtr(-(y + x[:, None]) / sigma)) / 2
    rows = effort.scale * tail * c / (expit(x) * expit(-x))[:, None]
    target = effort.scale / expit(x)
    minus_t = np.full((x.size, 1), -1.0)
    result = linprog(
        np.append(np.zeros(y.size), 1.0),
        A_ub=np.block([[rows, minus_t], [-rows, minus_t]]),
        b_ub=np.concatenate([target, -target]),
        A_eq=effort.scale * np.append(c, 0.0)[None],
        b_eq=[effort.scale],
        bounds=[(0, None)] * y.size + [(effort.scale * _ERROR_FLOOR, None)],
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
    y = spacing * np.arange(math.ceil((base.atoms[-1] + _CUT * tau) / spacing) + 1)
    density = np.zeros_like(y)
    for atom, weight in zip(base.atoms, base.weights, strict=True):
        density += weight * np.exp(-0.5 * ((y - atom) / tau) ** 2)
    density[1:] *= 2  # a half-atom stands for both signs
    return y, density


def _tidy(half_atoms: Array, half_weights: Array, reach: float) -> tuple[Array, Array]:
    """Drop half-atoms that are nothing beside the logistic tail they sit in."""
    tail = expit(-np.minimum(half_atoms, reach))
    keep = half_weights > 1e-12 * tail * half_weights.sum()
    return half_atoms[keep], half_weights[keep]


# ---- The paper's regularised least squares -------------------------------------------------------

_V = 20.0
_SMALLEST_N = 10


def compute_ridge(sigma: float, n: int, ridge: float, reach: float) -> Correction:
    """Solve the paper's problem from scratch; clip, renormalise and measure.

    The solution is even but for what shrinkage takes from its sum, which is nothing on the paper's
    grids (1e-7 of its peak); the two halves are averaged.
    """
    u = _solve_ridge(sigma, n, ridge)
    half_weights = u[n:] + u[n::-1]
    half_weights[0] /= 2
    half_atoms = np.linspace(0.0, _V, n + 1)
    return _measured(sigma, half_atoms, half_weights, reach=reach, step=_V / n / 10, method="ridge")


def ridge_printed_error(sigma: float, n: int, ridges: Sequence[float]) -> Array:
    """max_i |(M u)_i - v_i| for each ridge: the figure of the paper's appendix table.

    On the paper's own grid, u clipped at 0 and NOT renormalised. See `_solve_ridge`.
    """
    call = f"ridge_printed_error(sigma={sigma!r}, n={n!r}, ridges={ridges!r})"
    sigma, n = _check_sigma(call, sigma), _check_n(call, n)
    ridges = [_check_ridge(call, value) for value in ridges]
    kernel, v = _kernel(sigma, n), _target(n)
    products = (np.convolve(kernel, _solve_ridge(sigma, n, value), "valid") for value in ridges)
    return np.array([np.abs(product - v).max() for product in products])


def _kernel(sigma: float, n: int) -> Array:
    """Phi(m V / (n sigma)) for m = -3n..3n: every entry that the Toeplitz matrix M has."""
    with np.errstate(over="ignore"):  # sigma may be tiny; ndtr knows what infinity is
        return ndtr(np.arange(-3 * n, 3 * n + 1) * (_V / n) / sigma)


def _target(n: int) -> Array:
    """v_i = logistic(X_i)."""
    return expit(np.arange(-2 * n, 2 * n + 1) * (_V / n))


def _solve_ridge(sigma: float, n: int, ridge: float) -> Array:
    """u = max(0, argmin |M u - v|^2 + ridge |u|^2), equal to (M'M + ridge I)^-1 M'v before clipping.

    X_i = i V/n for |i| <= 2n, Y_j = j V/n for |j| <= n, V = 20,
    M_ij = Phi((X_i - Y_j)/sigma), v_i = logistic(X_i).

    M is never formed: M u and M'r are convolutions, and M smooths so much that some hundred steps
    of LSQR (Paige and Saunders 1982) reach rounding error, which is smaller than that of the normal
    equations, whose condition number is the square.
    """
    from scipy.sparse.linalg import lsqr

    solution = lsqr(_Convolution(sigma, n), _target(n), math.sqrt(ridge), atol=1e-14, btol=1e-14, conlim=0)
    return np.maximum(solution[0], 0.0)


class _Convolution:
    """M for `lsqr`: products with it and with its transpose by fast Fourier transform.

    The transform is as long as the kernel, 6n + 1, or longer. What wraps around falls outside the
    entries kept.
    """

    def __init__(self, sigma: float, n: int) -> None:
        kernel = _kernel(sigma, n)
        self.shape = (4 * n + 1, 2 * n + 1)
        self._n = n
        self._size = 1 << kernel.size.bit_length()
        self._forward = np.fft.rfft(kernel, self._size)
        self._backward = np.fft.rfft(kernel[::-1], self._size)

    def matvec(self, u: Array) -> Array:
        """Return M u."""
        return self._convolve(self._forward, u)[2 * self._n : 6 * self._n + 1]

    def rmatvec(self, r: Array) -> Array:
        """Return M'r."""
        return self._convolve(self._backward, r)[4 * self._n : 6 * self._n + 1]

    def _convolve(self, transformed: NDArray[np.complex128], x: Array) -> Array:
        return np.fft.irfft(transformed * np.fft.rfft(x, self._size), self._size)


# ---- Measuring -----------------------------------------------------------------------------------


def _measured(
    sigma: float, half_atoms: Array, half_weights: Array, *, reach: float, step: float, method: str
) -> Correction:
    """Normalise half-atoms, give them both signs, and measure the two errors."""
    atoms, weights = _mirror(half_atoms, half_weights / half_weights.sum())
    cdf_error, log_odds_error = measure(sigma, atoms, weights, reach, step)
    return Correction(sigma, atoms, weights, cdf_error, log_odds_error, reach, method)


def _mirror(half_atoms: Array, half_weights: Array) -> tuple[Array, Array]:
    """Half-atom y stands for +y and -y with half the weight each; y = 0 keeps its own."""
    at_zero = half_atoms == 0
    atoms = np.concatenate([-half_atoms[::-1], half_atoms[~at_zero]])
    split = np.where(at_zero, half_weights, half_weights / 2)
    return atoms + 0.0, np.concatenate([split[::-1], split[~at_zero]])  # + 0.0: no -0.0


def measure(sigma: float, atoms: Array, weights: Array, reach: float, step: float) -> tuple[float, float]:
    """Return (cdf_error, log_odds_error) of N(0, sigma^2) + symmetric atoms on a grid of `step`.

    By symmetry x >= 0 is enough. There the upper tail is at most 1/2, a sum of positive terms
    that keeps its relative precision where 1 - CDF has none left.
    """
    x = np.append(np.arange(0.0, max(reach, float(atoms[-1]) + _CUT * sigma), step), reach)
    if sigma < 10 * step:  # the CDF has stairs that the grid may miss: look at the ends of every one
        x = np.concatenate([x, np.abs(atoms - 5 * sigma), np.abs(atoms + 5 * sigma)])
    x = np.sort(x)
    tail = _upper_tail(x, sigma, atoms, weights)
    cdf_error = np.abs(tail - expit(-x)).max()
    within = x <= reach
    with np.errstate(divide="ignore"):  # a tail that ends before `reach` is infinitely wrong there
        log_odds = np.log(tail[within]) - np.log1p(-tail[within])
    return float(cdf_error), float(np.abs(log_odds + x[within]).max())


def _upper_tail(x: Array, sigma: float, atoms: Array, weights: Array) -> Array:
    """sum_j w_j Phi((y_j - x)/sigma), leaving out the terms that are 0 or w_j to the last bit."""
    beyond = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    flat = x.ravel()
    tail = np.empty_like(flat)
    for start in range(0, flat.size, 512):
        part = flat[start : start + 512]
        low = np.searchsorted(atoms, part.min() - _CUT * sigma)
        high = np.searchsorted(atoms, part.max() + _CUT * sigma)
        with np.errstate(over="ignore"):  # as in `_kernel`
            near = ndtr((atoms[low:high] - part[:, None]) / sigma) @ weights[low:high]
        tail[start : start + 512] = near + beyond[high]
    return tail.reshape(x.shape)


# ---- Shipped tables and the cache folder ---------------------------------------------------------


def minimax_key(sigma: float, reach: float) -> str:
    """Name of a minimax table, in the shipped file and in the cache folder."""
    return f"minimax-v{_VERSION}-sigma{sigma!r}-reach{reach!r}"


def ridge_key(sigma: float, n: int, ridge: float, reach: float) -> str:
    """Name of a ridge table, in the shipped file and in the cache folder."""
    return f"ridge-v{_VERSION}-sigma{sigma!r}-n{n}-ridge{ridge!r}-reach{reach!r}"


def cache_folder() -> Path | None:
    """Where computed tables are kept, or None on a machine without a home."""
    if chosen := os.environ.get("TALLCHAIN_CACHE"):
        return Path(chosen)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "tallchain"
    try:
        return Path.home() / ".cache" / "tallchain"
    except RuntimeError:
        return None


def _cached(key: str, compute: Callable[[], Correction]) -> Correction:
    """Read `key` from the package, else from the cache folder, else compute and keep it."""
    folder = cache_folder()
    cached = folder / f"{key}.npz" if folder else None
    for path in filter(None, (SHIPPED, cached)):
        if (table := _load(path, key)) is not None:
            return table
    table = compute()
    if cached:
        # A folder that cannot be written costs the time of computing again, nothing else.
        with contextlib.suppress(OSError):
            save(cached, {key: table})
    return table


def save(path: Path, tables: dict[str, Correction]) -> None:
    """Write tables to `path` under a temporary name first, so that no reader sees half a file."""
    arrays: dict[str, Any] = {}
    for key, table in tables.items():
        positive = table.atoms >= 0
        atoms = table.atoms[positive]
        arrays[f"{key}/atoms"] = atoms
        arrays[f"{key}/weights"] = table.weights[positive] * np.where(atoms == 0, 1.0, 2.0)
        numbers = (table.sigma, table.cdf_error, table.log_odds_error, table.reach)
        arrays[f"{key}/numbers"] = np.array(numbers)
        arrays[f"{key}/method"] = np.array(table.method)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, **arrays)
        os.chmod(temporary, 0o644)  # mkstemp makes files for one reader
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _load(path: Path, key: str) -> Correction | None:
    """The table `key` of a file, or None where there is none that can be used."""
    try:
        # Opened here: of a truncated archive np.load itself leaves the file open.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            atoms, weights = _mirror(file[f"{key}/atoms"], file[f"{key}/weights"])
            sigma, cdf_error, log_odds_error, reach = map(float, file[f"{key}/numbers"])
            method = str(file[f"{key}/method"])
        return Correction(sigma, atoms, weights, cdf_error, log_odds_error, reach, method)
    except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile, zlib.error):
        return None


# ---- Refusals ------------------------------------------------------------------------------------


def _check_sigma(call: str, sigma: Any) -> float:
    value = _number(sigma)
    if not 0 < value <= MAX_SIGMA:
        raise ValueError(
            f"`{call}` needs 0 < sigma <= {MAX_SIGMA}; got sigma = {sigma!r}. A standard logistic variable has "
            "standard deviation pi/sqrt(3) = 1.814, and what the normal part takes is not left for X_corr: at "
            "sigma = 1.6 the best table is off by 0.044 in the log-odds of acceptance, at 1.7 by 0.094, at 1.8 by "
            "0.18. Choose a smaller sigma: 1.2 is off by 2e-4, 1.0 by 7e-7."
        )
    return value


def _check_n(call: str, n: Any) -> int:
    try:
        value = operator.index(n)
    except TypeError:
        value = 0
    if value < _SMALLEST_N or isinstance(n, bool):
        raise ValueError(
            f"`{call}` needs a whole number n >= {_SMALLEST_N}, for the grid has steps of {_V:g}/n; got n = {n!r}. "
            "The paper uses 2000 and 4000."
        )
    return value


def _check_ridge(call: str, ridge: Any) -> float:
    value = _number(ridge)
    if not 0 < value < math.inf:
        raise ValueError(
            f"`{call}` needs ridge > 0, without which the normal equations have no stable solution; got "
            f"ridge = {ridge!r}. The paper uses 0.01 to 100, and 10 for its experiments."
        )
    return value


def _check_reach(call: str, reach: Any, largest: float) -> float:
    value = _number(reach)
    if not 0 < value <= largest:
        raise ValueError(
            f"`{call}` needs 0 < reach <= {largest:g}, the largest |Delta| for which the log-odds error is stated; "
            f"got reach = {reach!r}. At |Delta| = 20 the acceptance probability is 2e-9: 20 is enough for any chain."
        )
    return value


def _number(value: Any) -> float:
    """The value as a float; NaN, which every comparison refuses, for what is not a real number."""
    if isinstance(value, str | bytes | bool):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
