"""The paper's mixture: rows per decision of each setting, and how far its draws are from its own target.

Chains start in the exact posterior (sampled from the quadrature grid), warm up, and are then compared with quadrature;
they are independent, so standard errors come from the spread between chains.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import tallchain as tc
from benchmarks.measure import save
from tallchain.models.gaussian_mixture import GaussianMixture, Grid

STEP, BATCH, SEED = 0.15, 50, 7
CHAINS, WARMUP, DRAWS = 1024, 4000, 4000
EXACT_ROWS, EXACT_CHAINS, EXACT_WARMUP = 10_000, 256, 1000
TRIALS, TRIAL_DRAWS = 10, 3000

SETTINGS: dict[str, dict[str, Any]] = {
    "as_published_code(), flat prior": {"acceptance": tc.MinibatchBarker.as_published_code, "flat_prior": True},
    "paper()": {"acceptance": tc.MinibatchBarker.paper},
    "MinibatchBarker(sigma=1.0)": {"acceptance": tc.MinibatchBarker},
    "MinibatchBarker(sigma=1.2)": {"acceptance": lambda: tc.MinibatchBarker(sigma=1.2)},
    "MinibatchBarker(sigma=1.0, batch=500)": {"acceptance": lambda: tc.MinibatchBarker(batch=500)},
}
EXACT: dict[str, dict[str, Any]] = {
    "Barker()": {"acceptance": tc.Barker},
    "Metropolis()": {"acceptance": tc.Metropolis},
}


def exact_starts(grid: Grid, chains: int) -> np.ndarray:
    """Draw positions from the quadrature posterior, uniform within a cell."""
    random = np.random.default_rng(SEED)
    weights = np.exp(grid.log_density)
    cells = random.choice(weights.size, chains, p=(weights / weights.sum()).ravel())
    at = np.stack(np.unravel_index(cells, weights.shape), -1)
    steps = np.array([grid.theta_1[1] - grid.theta_1[0], grid.theta_2[1] - grid.theta_2[0]])
    corner = np.array([grid.theta_1[0], grid.theta_2[0]])
    return (corner + (at + random.uniform(-0.5, 0.5, at.shape)) * steps).astype(np.float32)


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


def measure(name: str, mixture: GaussianMixture, grid: Grid, acceptance, *, chains: int, warmup: int) -> dict[str, Any]:
    kernel = kernel_of(mixture, acceptance)
    starts = exact_starts(grid, chains)
    trace = tc.sample(jax.random.key(SEED), kernel, starts, DRAWS, num_chains=chains, num_warmup=warmup)
    result = {
        "setting": name,
        "rows": len(mixture.data),
        "chains": chains,
        "warmup": warmup,
        "draws": DRAWS,
        "mean_rows_per_decision": float(trace.num_rows.mean()),
        "acceptance": float(trace.is_accepted.mean()),
    } | bias(trace.position, grid)
    print(result)
    return result


def table_1(mixture: GaussianMixture, grid: Grid, acceptance) -> dict[str, float]:
    """Mean batch over trials of 3000 draws, and its standard deviation over the trials: the paper's Table 1."""
    kernel = kernel_of(mixture, acceptance)
    starts = exact_starts(grid, TRIALS)
    trace = tc.sample(jax.random.key(SEED + 1), kernel, starts, TRIAL_DRAWS, num_chains=TRIALS, progress=False)
    means = trace.num_rows.mean(1)
    return {"mean_batch": float(means.mean()), "sd_over_trials": float(means.std(ddof=1))}


def main() -> None:
    mixtures = {flat: tc.models.gaussian_mixture(flat_prior=flat) for flat in (False, True)}
    grids = {flat: mixture.quadrature() for flat, mixture in mixtures.items()}
    small = tc.models.gaussian_mixture(EXACT_ROWS)
    small_grid = small.quadrature()
    results = {"settings": [], "table_1": {}}
    for name, setting in SETTINGS.items():
        target = (mixtures[setting.get("flat_prior", False)], grids[setting.get("flat_prior", False)])
        results["table_1"][name] = table_1(*target, setting["acceptance"])
        results["settings"].append(measure(name, *target, setting["acceptance"], chains=CHAINS, warmup=WARMUP))
    for name, setting in EXACT.items():
        run = measure(name, small, small_grid, setting["acceptance"], chains=EXACT_CHAINS, warmup=EXACT_WARMUP)
        results["settings"].append(run)
    configuration = {
        "model": "gaussian_mixture at K = N/100",
        "proposal": f"RandomWalk({STEP})",
        "source": f"Shuffled(batch_size={BATCH})",
        "table_1": f"{TRIALS} trials of {TRIAL_DRAWS} draws; the paper prints 182.3 +- 11.4",
        "seed": SEED,
        "standard_errors": "between independent chains",
    }
    save("mixture", configuration, results)


if __name__ == "__main__":
    main()
