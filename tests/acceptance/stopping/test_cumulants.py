"""Third moments of rows, and the third cumulant of noise and padding."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from conftest import SEED
from tallchain.acceptance.evidence import SkewMoments
from tallchain.acceptance.stopping.rows import third_cumulant
from tallchain.types import Population


def test_third_moments_merge() -> None:
    random = np.random.default_rng(SEED)
    rows = random.standard_exponential((7, 30)).astype(np.float32) + 5
    seen = SkewMoments.empty()
    for i, window in enumerate(rows):
        is_valid = np.arange(30) < 30 - 3 * i
        seen = seen.merge(SkewMoments.of(jnp.asarray(window), jnp.asarray(is_valid)))
    kept = np.concatenate([window[: 30 - 3 * i] for i, window in enumerate(rows)]).astype(np.float64)
    assert int(seen.count) == len(kept)
    assert float(seen.mean) == pytest.approx(kept.mean(), rel=1e-5)
    assert float(seen.cubes) == pytest.approx(((kept - kept.mean()) ** 3).sum(), rel=1e-3)
    assert float(seen.skewness) == pytest.approx(stats.skew(kept, bias=False), rel=1e-3)


def test_rows_all_the_same_have_no_skewness() -> None:
    assert float(SkewMoments.of(jnp.full(30, 2.5), jnp.ones(30, bool)).skewness) == 0


@pytest.mark.parametrize("of_same_rows", [True, False])
@pytest.mark.parametrize("repeats", [True, False])
def test_third_cumulant_of_noise_and_padding(of_same_rows: bool, repeats: bool) -> None:
    """kappa3(e + X_nc) = E e^3 - 3 E e s2, simulated with numpy on a small population of skewed rows."""
    random = np.random.default_rng(SEED)
    population = Population(60, 20, repeats=repeats)
    rows = random.standard_exponential(population.num_rows)
    b, trials = 20, 300_000
    if repeats:
        first, other = (random.integers(0, len(rows), (trials, b)) for _ in range(2))
    else:
        order = random.permuted(np.tile(np.arange(len(rows)), (trials, 1)), axis=1)
        first, other = order[:, :b], order[:, b : 2 * b]
    factor = 1 / b if repeats else (1 - b / len(rows)) / b
    e = rows[first].mean(1) - rows.mean()
    s2 = rows[first if of_same_rows else other].var(1, ddof=1) * factor
    terms = e**3 - 3 * e * s2
    gamma, variance = stats.skew(rows), rows.var()
    predicted = float(
        third_cumulant(jnp.float32(gamma), jnp.float32(variance), jnp.int32(b), population, of_same_rows=of_same_rows)
    )
    error = terms.std() / np.sqrt(trials)
    slack = 0.1 * abs(predicted)  # terms of order 1/N
    if not (repeats or of_same_rows):
        slack += 3 * abs(np.mean(e * s2))  # other rows without replacement are a little dependent
    assert abs(terms.mean() - predicted) < 4.5 * error + slack
