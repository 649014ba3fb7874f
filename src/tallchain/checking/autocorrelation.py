"""How many draws of a chain are worth one that is independent: autocovariances, and where to cut their sum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


def autocovariance_sums(centred: np.ndarray) -> np.ndarray:
    """Sums of products of draws (chain, draw) by lag, mean over chains, not yet divided by the number of products."""
    length = centred.shape[1]
    spectrum = np.abs(np.fft.rfft(centred, 2 * length, axis=1)) ** 2
    return np.fft.irfft(spectrum.mean(0))[:length]


class InitialSequence(NamedTuple):
    """Geyer's initial positive sequence (1992)."""

    sums: np.ndarray
    """Of autocorrelations at lags 2k and 2k + 1, up to the first that is not positive."""
    is_cut: bool
    """Whether there is such a one."""


def initial_sequence(correlation: np.ndarray) -> InitialSequence:
    """Cut the autocorrelations by lag where only noise is left: for a reversible chain, all these sums are positive."""
    sums = correlation[: len(correlation) // 2 * 2].reshape(-1, 2).sum(1)
    is_over = sums <= 0
    count = int(np.argmax(is_over)) if np.any(is_over) else len(sums)
    return InitialSequence(sums[:count], count < len(sums))
