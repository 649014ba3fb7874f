"""The error with known variance of the rows, by quadrature.

The chance to accept is an integral over the characteristic function of the mean of b rows (Gil-Pelaez 1951), so that
there is no simulation noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, logit

from studies import pairs
from studies.orders.rows import Rows
from tallchain.acceptance.correction import Law, minimax, minimax_for
from tallchain.acceptance.correction.program import compute_for_law
from tallchain.acceptance.tables import KAPPA3, PRINTED

DELTAS = np.array(pairs.DELTAS)
KNOWN_VARIANCE, KNOWN_SIGMA = 0.8, 1.0
"""Of Delta* and of the test."""
REACH = 20.0
_STEP = 0.1
FREQUENCIES = _STEP * (np.arange(300) + 0.5)

Atoms = tuple[np.ndarray, np.ndarray]
"""Values of X_corr and their probabilities."""


def characteristic(rows: Rows, b: int, variance: float) -> np.ndarray:
    """E exp(i t e) at the frequencies t, e the mean of b rows with this variance."""
    t = np.sqrt(variance / b) * FREQUENCIES
    return (np.exp(1j * t[:, None] * rows.points) @ rows.weights) ** b


def chances(noise: np.ndarray, atoms: Atoms, padding: float, deltas: np.ndarray = DELTAS) -> np.ndarray:
    """P(Delta + e + X_nc + X_corr > 0) = 1/2 + (1/pi) int_0^inf Im phi(t)/t dt, phi the characteristic function.

    By the midpoint rule, whose error is the chance that the sum is beyond 2 pi/step = 63, which is negligible.
    """
    t = FREQUENCIES[:, None]
    phi = noise * np.exp(-((padding * FREQUENCIES) ** 2) / 2) * (np.exp(1j * t * atoms[0]) @ atoms[1])
    return 0.5 + _STEP / np.pi * np.imag(phi[:, None] * np.exp(1j * t * deltas) / t).sum(0)


def interpolated(sigma: float, skew: float, nodes: tuple[float, ...], kind: str) -> Atoms:
    """X_corr from the tables at the nodes, as `Tables` interpolates it."""
    size = min(abs(skew), nodes[-1])
    share = np.maximum(1 - np.abs(np.asarray(nodes) - size) / (nodes[1] - nodes[0]), 0)
    found = [minimax_for(Law(sigma)._replace(**{kind: node})) for node in nodes]
    atoms = np.concatenate([table.atoms for table in found])
    weights = np.concatenate([w * table.weights for w, table in zip(share, found, strict=True)])
    return (atoms if skew >= 0 else -atoms), weights


def known_variance(gamma: float, b: int) -> dict[str, Atoms]:
    """X_corr by rule, for rows of known variance and skewness."""
    kappa3 = gamma * KNOWN_VARIANCE**1.5 / np.sqrt(b)
    own = compute_for_law(Law(KNOWN_SIGMA, kappa3=abs(kappa3)), REACH)
    plain = minimax(KNOWN_SIGMA)
    return {
        "none": (plain.atoms, plain.weights),
        "skew": interpolated(KNOWN_SIGMA, kappa3, KAPPA3, "kappa3"),
        "skew, own table": (np.sign(kappa3) * own.atoms, own.weights),
        "printed": interpolated(KNOWN_SIGMA, gamma / (6 * np.sqrt(b)), PRINTED, "printed"),
    }


def by_quadrature(rows: Rows, b: int) -> list[dict[str, Any]]:
    """Error in log-odds of each rule, with known variance of the rows."""
    noise = characteristic(rows, b, KNOWN_VARIANCE)
    padding = float(np.sqrt(KNOWN_SIGMA**2 - KNOWN_VARIANCE))
    fine = np.linspace(-8, 8, 161)
    results = []
    for rule, atoms in known_variance(rows.moment(3), b).items():
        errors = logit(chances(noise, atoms, padding)) - DELTAS
        gap = np.abs(chances(noise, atoms, padding, fine) - expit(fine)).max()
        results.append({"rule": rule, "b": b, "log_odds_error": errors.tolist(), "chance_error": float(gap)})
    return results
