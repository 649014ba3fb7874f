"""Are ranks uniform?"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats
from scipy.special import ndtri

from studies.calibration.models import MODELS, TESTS

CHAINS = 9  # per data set, one draw of each: a rank is one of 0, ..., 9
LEVEL = 0.01  # chance that some combination is refused although all are sound


def p_values(ranks: np.ndarray) -> dict[str, float]:
    """p-values of uniform ranks (set, parameter), by statistic; the smallest over parameters, times their number.

    A chi-square test can see any shape of histogram, but none well. The mean of the ranks' normal scores sees draws
    that are off to one side, and their mean square sees draws that are too wide or too narrow. The mean square is also
    summed over parameters, with standard errors between data sets, because the parameters of one data set are not
    independent.
    """
    num_sets, size = ranks.shape
    every = ndtri((np.arange(CHAINS + 1) + 0.5) / (CHAINS + 1))
    scores = every[ranks]
    excess = scores**2 - np.mean(every**2)
    found = {
        "chi-square": stats.chisquare(counts(ranks), axis=1).pvalue,
        "mean": _two_sided(scores.mean(0) / np.sqrt(np.mean(every**2) / num_sets)),
        "spread": _two_sided(excess.mean(0) / np.sqrt(np.var(every**2) / num_sets)),
    }
    found = {name: float(min(1.0, size * np.min(p))) for name, p in found.items()}
    if size > 1:
        total = excess.sum(1)
        found["spread of all"] = float(_two_sided(total.mean() / (total.std(ddof=1) / np.sqrt(num_sets))))
    return found


def p_value(ranks: np.ndarray) -> float:
    """Bonferroni's p-value for all of `p_values`."""
    found = p_values(ranks)
    return min(1.0, len(found) * min(found.values()))


def is_calibrated(ranks: np.ndarray) -> bool:
    """Whether ranks pass, at Bonferroni's level for one of all combinations."""
    return p_value(ranks) > LEVEL / (len(MODELS) * len(TESTS))


def counts(ranks: np.ndarray) -> np.ndarray:
    """How often each rank occurred: (parameter, rank)."""
    return np.stack([np.bincount(column, minlength=CHAINS + 1) for column in ranks.T])


def _two_sided(z: np.ndarray) -> np.ndarray:
    return 2 * stats.norm.sf(np.abs(z))


def power(sets: int, variance: float, repetitions: int, seed: int) -> float:
    """Chance that one normal parameter is refused, with draws whose variance is off by this factor."""
    random = np.random.default_rng(seed)
    refused = 0
    for _ in range(repetitions):
        draws = random.normal(0, math.sqrt(variance), (sets, CHAINS, 1))
        refused += not is_calibrated((draws < random.normal(size=(sets, 1, 1))).sum(1))
    return refused / repetitions
