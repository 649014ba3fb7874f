"""The paper's mixture: the exact tests against quadrature.

All settings are in `benchmarks.defaults`. Chains start in the exact posterior (sampled from the quadrature grid), warm
up, and are then compared with quadrature; they are independent: standard errors come from the spread between chains.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import tallchain as tc
from benchmarks.measure import save
from benchmarks.targets import exact_starts
from tallchain.models.gaussian_mixture import GaussianMixture, Grid

STEP, BATCH, SEED = 0.15, 50, 7
EXACT_ROWS, CHAINS, WARMUP, DRAWS = 10_000, 256, 1000, 4000

EXACT: dict[str, Any] = {"Barker()": tc.Barker, "Metropolis()": tc.Metropolis}


def kernel_of(mixture: GaussianMixture, acceptance) -> tc.MetropolisHastings:
    source = tc.Shuffled(mixture.data, BATCH)
    return tc.MetropolisHastings(mixture.posterior, source, proposal=tc.RandomWalk(STEP), acceptance=acceptance())


def bias(position: np.ndarray, grid: Grid) -> dict[str, list[float]]:
    """Mean (in posterior standard deviations) and variance (as a ratio) against quadrature, with Monte Carlo errors."""
    sd = np.sqrt(np.diag(grid.covariance))
    centred = (position.astype(np.float64) - grid.mean) / sd
    means, squares = centred.mean(1), (centred**2).mean(1)
    error = lambda values: (values.std(0, ddof=1) / np.sqrt(len(values))).tolist()  # noqa: E731
    return {
        "mean_bias_in_sd": means.mean(0).tolist(),
        "mean_mcse_in_sd": error(means),
        "variance_ratio": (squares.mean(0) - means.mean(0) ** 2).tolist(),
        "variance_mcse": error(squares),
    }


def measure(name: str, mixture: GaussianMixture, grid: Grid, acceptance: Any) -> dict[str, Any]:
    kernel = kernel_of(mixture, acceptance)
    starts = exact_starts(grid, CHAINS)
    trace = tc.sample(jax.random.key(SEED), kernel, starts, DRAWS, num_chains=CHAINS, num_warmup=WARMUP)
    result = {
        "setting": name,
        "rows": len(mixture.data),
        "chains": CHAINS,
        "warmup": WARMUP,
        "draws": DRAWS,
        "mean_rows_per_decision": float(trace.num_rows.mean()),
        "acceptance": float(trace.is_accepted.mean()),
    } | bias(trace.position, grid)
    print(result)
    return result


def main() -> None:
    results: dict[str, Any] = {"settings": []}
    small = tc.models.gaussian_mixture(EXACT_ROWS)
    grid = small.quadrature()
    for name, acceptance in EXACT.items():
        results["settings"].append(measure(name, small, grid, acceptance))
    configuration = {
        "model": "gaussian_mixture at K = N/100",
        "proposal": f"RandomWalk({STEP})",
        "source": f"Shuffled(batch_size={BATCH})",
        "seed": SEED,
        "standard_errors": "between independent chains",
    }
    save("mixture", configuration, results)


if __name__ == "__main__":
    main()
