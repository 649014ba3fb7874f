"""What to compare of a position, and moments of draws with their Monte Carlo errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallchain.checking.autocorrelation import autocovariance_sums, initial_sequence
from tallchain.models import Regression
from tallchain.models.priors import LOG_LOCAL
from tallchain.types import PyTree

SMALLEST, RANDOM = 20, 20
Moments = dict[str, list[float]]


def compared(model: Regression) -> dict[str, np.ndarray]:
    """Return places by name: every parameter, but of the effects of a factor the smallest groups, then random ones.

    Local scales of a horseshoe are left out.
    """
    places = {name: np.arange(np.size(leaf)) for name, leaf in model.start.items() if name != LOG_LOCAL}
    rng = np.random.default_rng(0)
    for term in model.layout.terms:
        sizes = np.bincount(model.data["groups"][:, term.factor], minlength=term.num_levels)
        by_size = np.argsort(sizes, kind="stable")
        others = rng.permutation(by_size[SMALLEST:])[:RANDOM]
        places[term.name] = np.concatenate([by_size[:SMALLEST], np.sort(others)])
    return places


def chosen(position: PyTree, places: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Take these from draws (chain, draw, ...), in float64."""
    return {
        name: np.asarray(position[name]).reshape(*np.shape(position[name])[:2], -1)[..., at].astype(np.float64)
        for name, at in places.items()
    }


def moments(draws: np.ndarray) -> Moments:
    """Return mean, sd, effective draws and errors of draws (chain, draw, parameter).

    `mean_error` is in units of the sd, `sd_error` relative.
    """
    flat = draws.reshape(-1, draws.shape[-1])
    mean, sd = flat.mean(0), flat.std(0)
    square = (draws - mean) ** 2
    ess, of_square = (_each(effective, values) for values in (draws, square))
    sd_error = 0.5 * square.std((0, 1)) / sd**2 / np.sqrt(of_square)
    found = {"mean": mean, "sd": sd, "ess": ess, "mean_error": 1 / np.sqrt(ess), "sd_error": sd_error}
    return {name: round_all(values) for name, values in found.items()}


def round_all(values: np.ndarray) -> list[float]:
    """Return numbers with 7 digits."""
    return [float(f"{value:.7g}") for value in values]


def effective(draws: np.ndarray) -> float:
    """Return how many independent draws those of several chains (chain, draw) are worth (Stan's, without ranks)."""
    chains, length = draws.shape
    means = draws.mean(1)
    covariance = autocovariance_sums(draws - means[:, None]) / length
    total = covariance[0] + (means.var(ddof=1) if chains > 1 else 0.0)
    if not total > 0:
        return 0.0
    correlation = 1 - (covariance[0] * length / (length - 1) - covariance) / total
    correlation[0] = 1
    sums = initial_sequence(correlation).sums
    time = 2 * np.minimum.accumulate(sums).sum() - 1
    return float(draws.size / max(time, 1 / np.log10(draws.size)))


def _each(function: Any, draws: np.ndarray) -> np.ndarray:
    return np.array([function(draws[..., k]) for k in range(draws.shape[-1])])
