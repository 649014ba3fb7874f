"""The table itself: atoms, their probabilities, and how far noise + atoms is from logistic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# Beyond ten standard deviations a normal tail (8e-24) is negligible, even times e^16, the largest factor by which an
# atom ten sigma nearer to the centre can outweigh the logistic tail.
CUT = 10.0


@dataclass(frozen=True, eq=False)
class Correction:
    """A distribution on atoms, and how far noise + atoms is from logistic.

    The noise is normal unless `law` says otherwise (`tallchain.acceptance.noise_law`); the atoms are symmetric about 0
    unless the noise is skewed. Both errors are measured on a grid at least ten times finer than the one the table was
    built on. For a symmetric table the log-odds error is also the detailed-balance error of the test.
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
    is_skewed: bool = False
    """Whether it is for skewed noise, and so not symmetric."""

    def __post_init__(self) -> None:
        """Refuse what is not a (symmetric) probability distribution, and keep frozen copies of the arrays."""
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
            and (self.is_skewed or np.array_equal(self.atoms, -self.atoms[::-1]))
            and (self.is_skewed or np.array_equal(self.weights, self.weights[::-1]))
        )
        if not ok:
            raise ValueError(
                "`Correction(atoms=..., weights=...)` needs ascending atoms symmetric about 0 and "
                "symmetric non-negative weights that sum to 1; this does not hold for the atoms of shape "
                f"{self.atoms.shape} and weights of shape {self.weights.shape}."
            )

    def upper_tail(self, x: ArrayLike) -> Array:
        """P(X_norm + X_corr > x), which is also P(accept | Delta = -x)."""
        return _upper_tail(np.asarray(x, dtype=float), self.sigma, self.atoms, self.weights)


def measured(
    sigma: float, half_atoms: Array, half_weights: Array, *, reach: float, step: float, method: str
) -> Correction:
    """Normalise half-atoms, give them both signs, and measure the two errors."""
    atoms, weights = mirror(half_atoms, half_weights / half_weights.sum())
    cdf_error, log_odds_error = measure(sigma, atoms, weights, reach, step)
    return Correction(sigma, atoms, weights, cdf_error, log_odds_error, reach, method)


def mirror(half_atoms: Array, half_weights: Array) -> tuple[Array, Array]:
    """Half-atom y stands for +y and -y with half the weight each; y = 0 keeps its own."""
    at_zero = half_atoms == 0
    atoms = np.concatenate([-half_atoms[::-1], half_atoms[~at_zero]])
    split = np.where(at_zero, half_weights, half_weights / 2)
    return atoms + 0.0, np.concatenate([split[::-1], split[~at_zero]])  # + 0.0: no -0.0


def halve(atoms: Array, weights: Array) -> tuple[Array, Array]:
    """Undo `mirror`."""
    is_half = atoms >= 0
    return atoms[is_half], weights[is_half] * np.where(atoms[is_half] == 0, 1.0, 2.0)


def measure(sigma: float, atoms: Array, weights: Array, reach: float, step: float) -> tuple[float, float]:
    """Return (cdf_error, log_odds_error) of N(0, sigma^2) + symmetric atoms on a grid of `step`.

    By symmetry x >= 0 is enough. There the upper tail is at most 1/2, a sum of positive terms
    that keeps its relative precision where 1 - CDF loses it.
    """
    x = np.append(np.arange(0.0, max(reach, float(atoms[-1]) + CUT * sigma), step), reach)
    if sigma < 10 * step:  # the CDF has steps that the grid may miss: check the ends of each
        x = np.concatenate([x, np.abs(atoms - 5 * sigma), np.abs(atoms + 5 * sigma)])
    x = np.sort(x)
    tail = _upper_tail(x, sigma, atoms, weights)
    cdf_error = np.abs(tail - scipy.special.expit(-x)).max()
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
        low = np.searchsorted(atoms, part.min() - CUT * sigma)
        high = np.searchsorted(atoms, part.max() + CUT * sigma)
        with np.errstate(over="ignore"):  # sigma may be tiny; ndtr handles infinity
            near = scipy.special.ndtr((atoms[low:high] - part[:, None]) / sigma) @ weights[low:high]
        tail[start : start + 512] = near + beyond[high]
    return tail.reshape(x.shape)
