"""The correction distribution: what must be added to a normal variable to make it logistic.

Barker's test accepts when Delta + X_log > 0 with X_log standard logistic. A minibatch estimate of
Delta already carries noise that is nearly normal, so the test needs a variable X_corr with

    X_norm + X_corr ~ standard logistic,      X_norm ~ N(0, sigma^2) independent of X_corr.

No such X_corr exists for any sigma > 0: the logistic characteristic function pi t / sinh(pi t) decays more slowly than
the normal one. An approximation by weighted atoms exists. This package makes them and measures both errors
(`Correction.cdf_error`, `Correction.log_odds_error`):

- `minimax`: non-negative weights from a linear program that minimises the worst error in the
  log-odds of acceptance, because detailed balance is a condition on log-odds. The default.
- `ridge`: the regularised least squares of Seita, Pan, Chen and Canny, "An Efficient Minibatch
  Acceptance Test for Metropolis-Hastings" (section "correction" and its appendix).

- `minimax_for`: the same linear program for noise that is not quite normal (`Law`): skewed, or of an
  estimated scale.

All look for their table in the package, then in a cache folder (`TALLCHAIN_CACHE`, else
`XDG_CACHE_HOME/tallchain`, else `~/.cache/tallchain`), and otherwise compute it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from tallchain.acceptance.correction.law import Law
from tallchain.acceptance.correction.least_squares import SMALLEST_N, V, compute_ridge, printed_error
from tallchain.acceptance.correction.program import compute_for_law, compute_minimax
from tallchain.acceptance.correction.record import Array, Correction
from tallchain.acceptance.correction.store import cached

__all__ = ["Correction", "Law", "minimax", "minimax_for", "ridge", "ridge_printed_error"]

MAX_SIGMA = 1.6
MAX_REACH = 100.0

# Part of every key: raise it when an algorithm changes, so that no stale file is read.
_VERSION = 2


def minimax(sigma: float, reach: float = 20.0) -> Correction:
    """The table whose worst log-odds error on |Delta| <= reach is least; see `compute_minimax`.

    Looks in the package, then in the cache folder, and otherwise computes it (about a second).
    """
    call = f"minimax(sigma={sigma!r}, reach={reach!r})"
    sigma, reach = check_sigma(call, sigma), _check_reach(call, reach, MAX_REACH)
    return cached(minimax_key(sigma, reach), lambda: compute_minimax(sigma, reach))


def ridge(sigma: float, n: int = 4000, ridge: float = 10.0, reach: float = 10.0) -> Correction:
    """The paper's table, clipped and renormalised so that it can be sampled; `compute_ridge`.

    Looks in the package, then in the cache folder, and otherwise computes it (a few seconds). `reach` only sets where
    the log-odds error is measured.
    """
    call = f"ridge(sigma={sigma!r}, n={n!r}, ridge={ridge!r}, reach={reach!r})"
    sigma, n = check_sigma(call, sigma), _check_n(call, n)
    ridge, reach = _check_ridge(call, ridge), _check_reach(call, reach, V)
    key = ridge_key(sigma, n, ridge, reach)
    return cached(key, lambda: compute_ridge(sigma, n, ridge, reach))


def ridge_printed_error(sigma: float, n: int, ridges: Sequence[float]) -> Array:
    """max_i |(M u)_i - v_i| for each ridge: the figure of the paper's appendix table.

    On the paper's own grid, with u clipped at 0 and NOT renormalised.
    """
    call = f"ridge_printed_error(sigma={sigma!r}, n={n!r}, ridges={ridges!r})"
    sigma, n = check_sigma(call, sigma), _check_n(call, n)
    return printed_error(sigma, n, [_check_ridge(call, value) for value in ridges])


def minimax_for(law: Law, reach: float = 20.0) -> Correction:
    """The table whose worst log-odds error is least for noise of this law; see `compute_for_law`.

    For a negative kappa3, mirror the atoms of the positive one. Looks in the package, then in the cache folder, and
    otherwise computes it (a second or two).
    """
    call = f"minimax_for({law!r}, reach={reach!r})"
    reach = _check_reach(call, reach, MAX_REACH)
    law = law._replace(sigma=check_sigma(call, law.sigma))
    if law == Law(law.sigma):
        return minimax(law.sigma, reach)
    return cached(law_key(law, reach), lambda: compute_for_law(law, reach))


def minimax_key(sigma: float, reach: float) -> str:
    """Name of a minimax table, in the shipped file and in the cache folder."""
    return f"minimax-v{_VERSION}-sigma{sigma!r}-reach{reach!r}"


def ridge_key(sigma: float, n: int, ridge: float, reach: float) -> str:
    """Name of a ridge table, in the shipped file and in the cache folder."""
    return f"ridge-v{_VERSION}-sigma{sigma!r}-n{n}-ridge{ridge!r}-reach{reach!r}"


def law_key(law: Law, reach: float) -> str:
    """Name of a table for another law, in the shipped file and in the cache folder."""
    return f"law-v{_VERSION}-sigma{law.sigma!r}-nu{law.nu!r}-kappa{law.kappa3!r}-printed{law.printed!r}-reach{reach!r}"


# ---- Refusals ------------------------------------------------------------------------------------


def check_sigma(call: str, sigma: Any) -> float:
    """Refuse a sigma for which there is no table."""
    value = _number(sigma)
    if not 0 < value <= MAX_SIGMA:
        raise ValueError(
            f"`{call}` needs 0 < sigma <= {MAX_SIGMA}; got sigma = {sigma!r}. A standard logistic variable has "
            "standard deviation pi/sqrt(3) = 1.814, and the larger the normal part, the less is left for X_corr: at "
            "sigma = 1.6 the best table is off by 0.044 in the log-odds of acceptance, at 1.7 by 0.094, at 1.8 by "
            "0.18. Choose a smaller sigma: 1.2 is off by 2e-4, 1.0 by 7e-7."
        )
    return value


def _check_n(call: str, n: Any) -> int:
    try:
        value = operator.index(n)
    except TypeError:
        value = 0
    if value < SMALLEST_N or isinstance(n, bool):
        raise ValueError(
            f"`{call}` needs a whole number n >= {SMALLEST_N}, for the grid has steps of {V:g}/n; got n = {n!r}. "
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
    """The value as a float; NaN, for which every comparison is false, if it is not a real number."""
    if isinstance(value, str | bytes | bool):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
