"""Every setting on the mixture and on logistic regression: rows, acceptance, bias of the posterior's mean and variance.

Chains start in the exact posterior (the mixture's by quadrature, the regression's by long exact chains) and are
independent, so standard errors come from the spread between them. Minutes on a GPU.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

import tallchain as tc
from benchmarks.records import table
from studies import mixture as exact
from studies.study import Keep, Result, forget
from studies.targets import (
    MIXTURE_ROWS,
    PIXEL_ROWS,
    PIXELS,
    SETTINGS,
    MakeKernel,
    Setting,
    Sizes,
    exact_starts,
    mixture,
    pixels,
    sample,
)

MIXTURE_SIZES, PIXEL_SIZES = Sizes(1024, 4000, 2000), Sizes(512, 3000, 500)


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    settings: tuple[str, ...] = tuple(SETTINGS)
    mixture_rows: int = MIXTURE_ROWS
    pixel_rows: int = PIXEL_ROWS
    mixture: Sizes = MIXTURE_SIZES
    pixels: Sizes = PIXEL_SIZES
    few: tuple[int, int] | None = None
    """(chains, draws) of settings that read many rows; None for each setting's own numbers."""

    @classmethod
    def quick(cls) -> Config:
        """One setting, few rows, short chains."""
        short = Sizes(4, 20, 5)
        return cls(("Austere(0.005)",), 5000, 2000, short, short, few=(4, 5))


class Target(NamedTuple):
    """A posterior that is known."""

    kernel_of: MakeKernel
    starts: Any
    """Number of chains -> positions."""
    mean: np.ndarray
    variance: np.ndarray


def run(config: Config, keep: Keep = forget) -> Result:
    """Sample with every setting on both targets."""
    mixtures = {flat: on_mixture(config, flat) for flat in (False, True)}
    regression, reference = on_pixels(config)
    results: dict[str, Any] = {"mixture": {}, "pixels": {"Metropolis()": reference}}
    for name in config.settings:
        setting = SETTINGS[name]
        results["mixture"][name] = measure(setting, mixtures[setting.flat_prior], config.mixture, config)
        results["pixels"][name] = measure(setting, regression, config.pixels, config)
        for target in results:
            _say(target, name, results[target][name])
        keep(Result.of(configuration(config), results))
    return Result.of(configuration(config), results)


def configuration(config: Config) -> dict[str, Any]:
    """Say how it was measured."""
    long = ", ".join(
        f"{name} {sizes.chains} x {sizes.draws} after {sizes.warmup}"
        for name, sizes in (("mixture", config.mixture), ("pixels", config.pixels))
    )
    return {
        "mixture": f"gaussian_mixture(), N = {config.mixture_rows:,}, K = {config.mixture_rows // 100:,}, "
        "RandomWalk(0.15), Shuffled(batch_size=50)",
        "pixels": f"logistic regression, N = {config.pixel_rows:,}, {PIXELS} features like pixels, K = 1000, "
        "RandomWalk(0.15), Shuffled(batch_size=100), prior N(0, 1)",
        "chains": f"{long}; as many as each result says for the slow ones, from the exact posterior without warm-up",
        "pixel_reference": "Metropolis() on all rows, the same number of chains and draws",
        "standard_errors": "between independent chains",
    }


def on_mixture(config: Config, flat_prior: bool) -> Target:
    """Return the mixture, known by quadrature."""
    model, kernel_of = mixture(config.mixture_rows, flat_prior=flat_prior)
    grid = model.quadrature()
    return Target(kernel_of, lambda chains: exact_starts(grid, chains), grid.mean, np.diag(grid.covariance))


def on_pixels(config: Config) -> tuple[Target, dict[str, Any]]:
    """Return the regression, known by long exact chains, and their accuracy."""
    _, kernel_of = pixels(config.pixel_rows)
    chains, draws, warmup = config.pixels
    trace = sample(kernel_of(tc.Metropolis()), np.zeros((chains, PIXELS), np.float32), draws, 2 * warmup)
    ends, drawn = trace.position[:, -1], trace.position.astype(np.float64)
    mean, variance = drawn.mean((0, 1)), drawn.var((0, 1))
    target = Target(kernel_of, lambda chains: np.resize(ends, (chains, PIXELS)), mean, variance)
    return target, cost(trace) | bias(trace.position, mean, variance)


def measure(setting: Setting, target: Target, usual: Sizes, config: Config) -> dict[str, Any]:
    """Sample, and return what it cost and how far the draws are from the exact posterior."""
    chains, draws, warmup = setting.sizes(usual, config.few)
    trace = sample(target.kernel_of(setting.make()), target.starts(chains), draws, warmup)
    return cost(trace) | bias(trace.position, target.mean, target.variance)


def cost(trace: tc.Trace) -> dict[str, Any]:
    """Return what a decision cost."""
    return {
        "chains": trace.num_chains,
        "draws": trace.num_draws,
        "mean_rows": float(trace.rows_read.mean()),
        "mean_scanned": float(trace.rows_scanned.mean()),
        "acceptance": float(trace.is_accepted.mean()),
    }


def bias(position: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> dict[str, Any]:
    """Like `studies.mixture.bias`, with the variance over all parameters."""
    means, squares = exact.centred_moments(position, mean, variance)
    return exact.bias(position, mean, variance) | {
        "mean_variance_ratio": float((squares.mean(0) - means.mean(0) ** 2).mean()),
        "mean_variance_mcse": float(exact.error(squares.mean(1))),
    }


def _say(target: str, name: str, found: dict[str, Any]) -> None:
    print(
        f"{target:8} {name:52} rows {found['mean_rows']:9.1f} scanned {found['mean_scanned']:9.0f} "
        f"acceptance {found['acceptance']:.3f} variance {found['mean_variance_ratio']:.3f} "
        f"+- {found['mean_variance_mcse']:.3f}",
        flush=True,
    )


def page(result: Result) -> dict[str, str]:
    """Rows and bias of every setting, on both targets."""
    rows = [[target, f"`{name}`", *cells(found)] for target, of in result.results.items() for name, found in of.items()]
    return {"defaults": table(["target", "setting", *HEADER], rows)}


HEADER = ("rows", "scanned", "acceptance", "mean", "variance")


def cells(found: dict[str, Any]) -> list[str]:
    """Return the cells under `HEADER`: the mean is that of the parameter with the largest bias."""
    biases = zip(found["mean_bias_in_sd"], found["mean_mcse_in_sd"], strict=True)
    largest, mcse = max(biases, key=lambda pair: abs(pair[0]))
    return [
        f"{found['mean_rows']:,.0f}",
        f"{found['mean_scanned']:,.0f}",
        f"{found['acceptance']:.3f}",
        f"{largest:+.3f} ± {mcse:.3f}",
        "{mean_variance_ratio:.3f} ± {mean_variance_mcse:.3f}".format_map(found),
    ]
