"""ESS, R-hat and Monte Carlo errors as Vehtari et al. (2021) define them, of many coordinates at a time.

Chains are split in halves. With W the mean variance within the M halves of n draws, B/n the variance of their means and
V = (n - 1)/n W + B/n,

    R-hat = sqrt(V/W),     rho_t = 1 - (W - mean autocovariance at lag t)/V,     ESS = M n/(1 + 2 sum rho_t),

the sum by Geyer's initial monotone sequence (1992). Bulk ESS and R-hat are of normal scores of the ranks, tail ESS is
the smaller one of the indicators of the 5 and 95 per cent quantiles, and R-hat is also of the distances from the
median. They are those of ArviZ, which takes one coordinate at a time: mixed models have thousands.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from tallchain.cores import in_order, num_cores

_TAILS = (0.05, 0.95)
_TOGETHER = 2**16  # numbers that a core works on at a time
_RESOLUTION = 1e-15  # of values: what differs less is constant


class Diagnostics(NamedTuple):
    """By coordinate."""

    mcse_mean: np.ndarray
    mcse_sd: np.ndarray
    ess_bulk: np.ndarray
    ess_tail: np.ndarray
    r_hat: np.ndarray


def diagnostics(draws: np.ndarray) -> Diagnostics:
    """Return them for draws (chain, draw, coordinate); at least 4 draws of each chain."""
    size = draws.shape[0] * draws.shape[1]
    width = max(1, _TOGETHER // size)
    firsts = range(0, draws.shape[2], width)
    parts = in_order(lambda first: _of_block(draws[:, :, first : first + width]), firsts, num_cores())
    return Diagnostics(*(np.concatenate(of) for of in zip(*parts, strict=True)))


def _of_block(draws: np.ndarray) -> Diagnostics:
    draws = draws.astype(np.float64)
    halves = _halves(draws)
    scores = _normal_scores(halves)
    folded = _normal_scores(np.abs(halves - np.median(halves, (0, 1))))
    low, high = np.quantile(draws, _TAILS, axis=(0, 1))
    squares = (draws - draws.mean((0, 1))) ** 2
    size, variance = draws.shape[0] * draws.shape[1], squares.mean((0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):  # a coordinate that never moved has no R-hat: NaN says so
        of_mean = effective(halves)
        of_sd = ((squares**2).mean((0, 1)) - variance**2) / of_mean / variance / 4
        return Diagnostics(
            np.sqrt(variance * size / (size - 1) / of_mean),
            np.sqrt(of_sd),
            effective(scores),
            np.minimum(*(effective((halves <= end).astype(np.float64)) for end in (low, high))),
            np.maximum(_r_hat(scores), _r_hat(folded)),
        )


def _halves(draws: np.ndarray) -> np.ndarray:
    length = draws.shape[1] // 2
    return np.concatenate([draws[:, :length], draws[:, -length:]])


def _normal_scores(draws: np.ndarray) -> np.ndarray:
    """Normal quantiles of the ranks of all draws of a coordinate; equal draws share their mean rank."""
    flat = draws.reshape(-1, draws.shape[2])
    scores = np.empty_like(flat)
    for at in range(flat.shape[1]):
        order = np.argsort(flat[:, at])
        values = flat[order, at]
        is_new = np.concatenate([[True], values[1:] != values[:-1]])
        starts = np.flatnonzero(is_new)
        ends = np.append(starts[1:], len(values))
        by_value = scipy.special.ndtri((0.5 * (starts + ends + 1) - 0.375) / (len(values) + 0.25))
        scores[order, at] = np.repeat(by_value, ends - starts)
    return scores.reshape(draws.shape)


def _r_hat(halves: np.ndarray) -> np.ndarray:
    within, length = halves.var(1, ddof=1).mean(0), halves.shape[1]
    return np.sqrt((length - 1) / length + halves.mean(1).var(0, ddof=1) / within)


def effective(halves: np.ndarray) -> np.ndarray:
    """ESS of each coordinate of draws (half-chain, draw, coordinate)."""
    count, length = halves.shape[:2]
    means = halves.mean(1)
    spectrum = np.abs(np.fft.rfft(halves - means[:, None], 2 * length, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum.mean(0), axis=0)[:length] / length
    within = covariance[0] * length / (length - 1)
    total = covariance[0] + means.var(0, ddof=1)
    rho = 1 - (within - covariance) / total
    rho[0] = 1.0
    num_pairs = max((length - 1) // 2, 1)  # as far as ArviZ looks
    pairs = rho[: 2 * num_pairs].reshape(num_pairs, 2, -1).sum(1)
    is_over = pairs <= 0
    cut = np.where(is_over.any(0), is_over.argmax(0), num_pairs - 1)
    before = np.arange(num_pairs)[:, None] < cut
    tau = 2 * np.sum(np.where(before, np.minimum.accumulate(pairs), 0), 0) - 1
    tau += np.maximum(np.take_along_axis(rho, 2 * cut[None], 0)[0], 0)
    is_constant = np.ptp(halves, (0, 1)) < _RESOLUTION
    return np.where(is_constant, count * length, count * length / np.maximum(tau, 1 / np.log10(count * length)))
