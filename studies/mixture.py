"""The exact tests on the paper's mixture, against quadrature.

All other settings are in `studies.defaults`. Chains start in the exact posterior (sampled from the quadrature grid),
warm up, and are then compared with quadrature. They are independent, so standard errors come from the spread between
chains.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

import tallchain as tc
from benchmarks.records import table
from studies.study import Keep, Result, forget
from studies.targets import MIXTURE_BATCH, MIXTURE_STEP, SEED, exact_starts, mixture
from tallchain.models.gaussian_mixture import Grid

EXACT: dict[str, Any] = {"Barker()": tc.Barker, "Metropolis()": tc.Metropolis}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    rows: int = 10_000
    chains: int = 256
    warmup: int = 1000
    draws: int = 4000

    @classmethod
    def quick(cls) -> Config:
        """Few rows, and short chains."""
        return cls(500, 8, 10, 40)


def run(config: Config, keep: Keep = forget) -> Result:
    """Sample with every exact test."""
    model, kernel_of = mixture(config.rows)
    grid = model.quadrature()
    results: dict[str, Any] = {"settings": []}
    for name, acceptance in EXACT.items():
        found = measure(kernel_of(acceptance()), grid, config)
        results["settings"].append({"setting": name} | found)
        print(results["settings"][-1], flush=True)
        keep(Result.of(configuration(), results))
    return Result.of(configuration(), results)


def configuration() -> dict[str, Any]:
    """Say how it was measured."""
    return {
        "model": "gaussian_mixture at K = N/100",
        "proposal": f"RandomWalk({MIXTURE_STEP})",
        "source": f"Shuffled(batch_size={MIXTURE_BATCH})",
        "seed": SEED,
        "standard_errors": "between independent chains",
    }


def measure(kernel: tc.MetropolisHastings, grid: Grid, config: Config) -> dict[str, Any]:
    """Sample, and return how far the draws are from the exact posterior."""
    starts = exact_starts(grid, config.chains)
    options: dict[str, Any] = {"num_chains": config.chains, "num_warmup": config.warmup, "progress": False}
    trace = tc.sample(jax.random.key(SEED), kernel, starts, config.draws, **options)
    return {
        "rows": config.rows,
        "chains": config.chains,
        "warmup": config.warmup,
        "draws": config.draws,
        "mean_rows_per_decision": float(trace.rows_read.mean()),
        "acceptance": float(trace.is_accepted.mean()),
    } | bias(trace.position, grid.mean, np.diag(grid.covariance))


def bias(position: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> dict[str, list[float]]:
    """Compare draws (chain, draw, parameter) with the exact mean and variance.

    Means are in posterior standard deviations and variances are ratios, with Monte Carlo errors between chains.
    """
    means, squares = centred_moments(position, mean, variance)
    return {
        "mean_bias_in_sd": means.mean(0).tolist(),
        "mean_mcse_in_sd": error(means).tolist(),
        "variance_ratio": (squares.mean(0) - means.mean(0) ** 2).tolist(),
        "variance_mcse": error(squares).tolist(),
    }


def centred_moments(position: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and second moments of every chain about the exact mean, in exact standard deviations."""
    centred = (position.astype(np.float64) - mean) / np.sqrt(variance)
    return centred.mean(1), (centred**2).mean(1)


def error(values: np.ndarray) -> np.ndarray:
    """Standard error of the mean over chains, which are independent."""
    return values.std(0, ddof=1) / np.sqrt(len(values))


def page(result: Result) -> dict[str, str]:
    """The exact tests."""
    rows = [
        [f"`{found['setting']}`", f"{found['rows']:,} of {found['rows']:,}", *bias_cells(found)]
        for found in result.results["settings"]
    ]
    return {"exact": table(["setting", "rows per decision", "acceptance", "mean", "variance"], rows)}


def bias_cells(found: dict[str, Any]) -> list[str]:
    """Acceptance, means and variances, with their errors."""
    return [
        f"{found['acceptance']:.3f}",
        with_errors(found["mean_bias_in_sd"], found["mean_mcse_in_sd"], "+.3f"),
        with_errors(found["variance_ratio"], found["variance_mcse"], ".3f"),
    ]


def with_errors(values: list[float], errors: list[float], form: str) -> str:
    """Write values with their standard errors."""
    return ", ".join(f"{value:{form}} ± {error:.3f}" for value, error in zip(values, errors, strict=True))
