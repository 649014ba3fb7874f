"""Every setting on the mixture and on logistic regression: rows, acceptance, bias of the posterior's mean and variance.

Chains start in the exact posterior (the mixture's by quadrature, the regression's by long exact chains) and are
independent, so standard errors come from the spread between them. `python -m benchmarks.defaults`, minutes on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tallchain as tc
from benchmarks.measure import save
from benchmarks.targets import SETTINGS, Setting, exact_starts, mixture, pixels, run

CHAINS, WARMUP, DRAWS = 1024, 2000, 4000
PIXEL_CHAINS, PIXEL_WARMUP, PIXEL_DRAWS = 512, 500, 3000


def bias(position: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> dict[str, Any]:
    """Means in posterior standard deviations and variances as ratios, with Monte Carlo errors between chains."""
    centred = (position.astype(np.float64) - mean) / np.sqrt(variance)
    means, squares = centred.mean(1), (centred**2).mean(1)
    error = lambda values: values.std(0, ddof=1) / np.sqrt(len(values))  # noqa: E731
    return {
        "mean_bias_in_sd": means.mean(0).tolist(),
        "mean_mcse_in_sd": error(means).tolist(),
        "variance_ratio": (squares.mean(0) - means.mean(0) ** 2).tolist(),
        "variance_mcse": error(squares).tolist(),
        "mean_variance_ratio": float((squares.mean(0) - means.mean(0) ** 2).mean()),
        "mean_variance_mcse": float(error(squares.mean(1))),
    }


def cost(trace: tc.Trace) -> dict[str, Any]:
    return {
        "chains": trace.num_chains,
        "draws": trace.num_draws,
        "mean_rows": float(trace.num_rows.mean()),
        "mean_scanned": float(trace.num_scanned.mean()),
        "acceptance": float(trace.is_accepted.mean()),
    }


def on_mixture(setting: Setting, targets: dict[bool, Any]) -> dict[str, Any]:
    grid, kernel = targets[setting.flat_prior]
    chains, draws = setting.few or (CHAINS, DRAWS)
    trace = run(kernel(setting.make()), exact_starts(grid, chains), draws, 0 if setting.few else WARMUP)
    return cost(trace) | bias(trace.position, grid.mean, np.diag(grid.covariance))


def on_pixels(
    setting: Setting, kernel: Any, ends: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> dict[str, Any]:
    chains, draws = setting.few or (PIXEL_CHAINS, PIXEL_DRAWS)
    starts = np.resize(ends, (chains, ends.shape[1]))
    trace = run(kernel(setting.make()), starts, draws, 0 if setting.few else PIXEL_WARMUP)
    return cost(trace) | bias(trace.position, mean, variance)


def reference(kernel: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Long exact chains: where they end, and the mean and variance of their draws."""
    dimension = len(kernel(tc.Metropolis()).source.first_rows(1)["x"][0])
    trace = run(kernel(tc.Metropolis()), np.zeros((PIXEL_CHAINS, dimension), np.float32), PIXEL_DRAWS, 2 * PIXEL_WARMUP)
    draws = trace.position.astype(np.float64)
    mean, variance = draws.mean((0, 1)), draws.var((0, 1))
    return trace.position[:, -1], mean, variance, cost(trace) | bias(trace.position, mean, variance)


CONFIGURATION = {
    "mixture": "gaussian_mixture(), N = 1,000,000, K = 10,000, RandomWalk(0.15), Shuffled(batch_size=50)",
    "pixels": "logistic regression, N = 100,000, 10 features like pixels, K = 1000, RandomWalk(0.15), "
    "Shuffled(batch_size=100), prior N(0, 1)",
    "chains": f"mixture {CHAINS} x {DRAWS} after {WARMUP}, pixels {PIXEL_CHAINS} x {PIXEL_DRAWS} after {PIXEL_WARMUP}; "
    "as many as each result says for the slow ones, from the exact posterior without warm-up",
    "pixel_reference": "Metropolis() on all rows, the same number of chains and draws",
    "standard_errors": "between independent chains",
}


def main() -> None:
    targets = {}
    for flat in (False, True):
        model, kernel = mixture(flat_prior=flat)
        targets[flat] = (model.quadrature(), kernel)
    _, kernel = pixels()
    ends, mean, variance, exact = reference(kernel)
    results: dict[str, Any] = {"mixture": {}, "pixels": {"Metropolis()": exact}}
    for name, setting in SETTINGS.items():
        results["mixture"][name] = on_mixture(setting, targets)
        results["pixels"][name] = on_pixels(setting, kernel, ends, mean, variance)
        for target in results:
            found = results[target][name]
            print(
                f"{target:8} {name:52} rows {found['mean_rows']:9.1f} scanned {found['mean_scanned']:9.0f} "
                f"acceptance {found['acceptance']:.3f} variance {found['mean_variance_ratio']:.3f} "
                f"+- {found['mean_variance_mcse']:.3f}",
                flush=True,
            )
        save("defaults", CONFIGURATION, results, quiet=True)  # so far: a run that ends early is not lost


if __name__ == "__main__":
    main()
