"""What the draws of one coordinate say: moments, quantiles, Monte Carlo errors, and whether the chains agree.

ESS, MCSE and R-hat are those of Vehtari et al. (2021): ranks, and halves of chains. R-hat itself has an error. With M
half-chains of n draws, W the mean of their variances and V the variance of their means,

    R-hat^2 = 1 - 1/n + V/W.

Chains that agree have V = W tau/n on average, tau being the autocorrelation time within a half-chain, and (V/W) n/tau
is then about F(M - 1, infinity). So R-hat is about 1 + tau/(2n) by chance alone: 1.01 with 50 effective draws to a
half-chain. Chains DISAGREE where R-hat is above 1.01 and that F is beyond chance. tau must come from within the
half-chains: the ESS of all chains falls where they differ, and would hide the difference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy

from tallchain.checking.autocorrelation import autocovariance_sums, initial_sequence
from tallchain.checking.diagnostics import Diagnostics, diagnostics

MOST_R_HAT = 1.01  # Vehtari et al. 2021
FALSE_ALARM = 1e-3  # over all parameters, nominally; about 1 % with 20 effective draws per chain

_LEAST_DRAWS = 4  # there is no effective sample size below
_BLOCK = 2**18  # numbers in float64 at a time
_FREEDOM = 1e6  # practically infinite
_REFINEMENTS = 3


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One number of the position."""

    name: str
    mean: float
    sd: float
    q5: float
    """5 per cent of the draws are below."""
    median: float
    q95: float
    mcse_mean: float
    mcse_sd: float
    ess_bulk: float
    ess_tail: float
    r_hat: float
    r_hat_chance: float = 1.0
    """Chance of such an R-hat if the chains agree; computed where R-hat is above 1.01."""


class Convergence(NamedTuple):
    """By coordinate; NaN for one that never moved."""

    ess: np.ndarray
    """Effective draws, in bulk or in the tails, whichever are fewer."""
    r_hat: np.ndarray


def convergence_of(draws: list[np.ndarray]) -> Convergence:
    """Return what tells whether draws, arrays (chain, draw, ...), are enough."""
    found = [_diagnostics(block) for leaf in draws for block in _blocks(leaf)]
    return Convergence(
        np.concatenate([np.minimum(of.ess_bulk, of.ess_tail) for of in found]),
        np.concatenate([of.r_hat for of in found]),
    )


def parameters_of(labels: list[str], draws: np.ndarray) -> list[Parameter]:
    """Summarise draws (chain, draw, ...)."""
    found: list[Parameter] = []
    for some in _blocks(draws):
        block = some.astype(np.float64)
        quantiles = np.quantile(block, [0.05, 0.5, 0.95], axis=(0, 1))
        statistics = np.stack([block.mean((0, 1)), block.std((0, 1)), *quantiles, *_diagnostics(block)], 1)
        for i, values in enumerate(statistics.tolist()):
            is_high = values[-1] > MOST_R_HAT
            chance = chance_of_r_hat(block[:, :, i]) if is_high else 1.0
            found.append(Parameter(labels[len(found)], *values, chance))
    return found


def _blocks(draws: np.ndarray) -> Iterator[np.ndarray]:
    """Yield some coordinates of draws (chain, draw, ...) at a time: copies of all in float64 would not fit."""
    flat = draws.reshape(*draws.shape[:2], -1)
    width = max(1, _BLOCK // max(flat.shape[0] * flat.shape[1], 1))
    yield from (flat[:, :, first : first + width] for first in range(0, max(flat.shape[2], 1), width))


def _diagnostics(block: np.ndarray) -> Diagnostics:
    """Of draws (chain, draw, coordinate)."""
    if block.shape[1] < _LEAST_DRAWS:
        return Diagnostics(*[np.full(block.shape[2], np.nan)] * 5)
    return diagnostics(block)


def chance_of_r_hat(draws: np.ndarray) -> float:
    """Chance of an R-hat at least as large as that of draws (chain, draw), if all chains have the same distribution."""
    folded = np.abs(draws - np.median(draws))
    return min(1.0, 2 * min(_chance(_normal_scores(values)) for values in (draws, folded)))


def _normal_scores(draws: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata  # heavy

    ranks = rankdata(draws, method="average").reshape(draws.shape)
    return scipy.special.ndtri((ranks - 0.375) / (ranks.size + 0.25))


def _chance(draws: np.ndarray) -> float:
    length = draws.shape[1] // 2
    halves = draws[:, : 2 * length].reshape(-1, length)
    means = halves.mean(1)
    covariance = autocovariance_sums(halves - means[:, None]) / length
    if covariance[0] <= 0:
        return 0.0 if np.ptp(means) > 0 else 1.0
    tau, within = 1.0, covariance
    for _ in range(_REFINEMENTS):  # deviations from the chains' own means lack the variance of these means
        within = covariance + covariance[0] * min(tau / length, 1)
        tau = _positive_sequence(within / within[0])
    f = means.var(ddof=1) / within[0] * length / tau
    return float(scipy.special.fdtrc(len(halves) - 1, _FREEDOM, f))


def _positive_sequence(correlation: np.ndarray) -> float:
    """tau = 1 + 2 sum of autocorrelations, by Geyer's initial monotone sequence (1992)."""
    sums = initial_sequence(correlation).sums
    return max(float(2 * np.minimum.accumulate(sums).sum() - 1), 1 / len(correlation)) if len(sums) else 1.0
