"""What to expect, by formula."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from tallchain.acceptance.austere_design import sequential_error
from tallchain.experiments.worst_case.contenders import SIGMA

_DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi) - 1 / math.sqrt(10 * math.pi)
_QUANTILES = 20_000
_DRAWS, _DRIFTS = 2**20, 2**10  # enough for three digits of a mean


def expected_minibatch(num_rows: int, batch: int, spread: float) -> tuple[float, float]:
    """Return P(all N rows) and E[rows]/N of the minibatch and the penalty test, with s2 replaced by its expectation.

    `spread` is that of the log ratios: V/N = N (t'-t)^2 Var(x)/K^2 = (spread z)^2, z standard normal. The rows are
    b = V / (sigma^2 + V/N), rounded up to whole batches.
    """
    v = (spread * ndtri((np.arange(_QUANTILES) + 0.5) / _QUANTILES)) ** 2
    batches = np.maximum(np.ceil(num_rows * v / (SIGMA**2 + v) / batch), 1)
    rows = np.minimum(batches * batch, num_rows)
    # All rows iff b > N - m, that is (V/N) (m/N) > sigma^2 (1 - m/N): rarer than quantiles can show.
    last = (-(-num_rows // batch) - 1) * batch
    edge = SIGMA * math.sqrt(last / (num_rows - last)) / spread
    return float(2 * ndtr(-edge)), float(rows.mean() / num_rows)


def expected_austere(num_rows: int, batch: int, epsilon: float) -> tuple[float, float]:
    """Return a ceiling of P(all N rows), and E[rows]/N, of AustereMH without replacement.

    The mean is that of `sequential_error` over the distribution of mu_std = (Delta - log u)/|z| in the worst case.
    """
    random = np.random.default_rng(0)
    y, z = random.standard_normal((2, _DRAWS))
    mu_std = np.abs((random.standard_exponential(_DRAWS) - z * (y + z / 2)) / z)
    mu_std = np.quantile(mu_std, (np.arange(_DRIFTS) + 0.5) / _DRIFTS)
    share = sequential_error(num_rows, batch, epsilon, mu_std).share
    return austere_ceiling(num_rows, batch, epsilon), float(np.mean(share))


def austere_ceiling(num_rows: int, batch: int, epsilon: float) -> float:
    """2 G f(0) sqrt(r/N): an upper limit on the share of decisions that read all rows, without replacement.

    r is the number of rows left before the last look, and f(0) the density of mu_std at 0. Fewer decisions than this
    read everything, because some stop earlier by chance.
    """
    left = num_rows - (-(-num_rows // batch) - 1) * batch
    return min(float(-2 * ndtri(epsilon)) * _DENSITY_AT_0 * math.sqrt(left / num_rows), 1.0)
