"""The errors of the corrections that ship with the package."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.records import table
from studies.study import Keep, Result, forget
from tallchain.acceptance.correction import Correction, minimax, ridge


@dataclasses.dataclass(frozen=True)
class Config:
    """The corrections to look at."""

    has_ridge: bool = True
    """Whether to look at the paper's, which take seconds to make."""
    sigmas: tuple[float, ...] = (0.9, 1.0, 1.1, 1.2, 1.4, 1.6)
    """Of ours."""

    @classmethod
    def quick(cls) -> Config:
        """One of ours."""
        return cls(has_ridge=False, sigmas=(1.0,))


def run(config: Config, keep: Keep = forget) -> Result:
    """Find the errors of all corrections."""
    results = [
        {
            "name": name.split(", sigma")[0],
            "sigma": correction.sigma,
            "atoms": len(correction.atoms),
            "reach": correction.reach,
            "log_odds_error": correction.log_odds_error,
            "cdf_error": correction.cdf_error,
        }
        for name, correction in corrections(config).items()
    ]
    return Result.of({"grid": "at least 10 times finer than the one used to build"}, results)


def corrections(config: Config) -> dict[str, Correction]:
    """Make the corrections, by name."""
    found: dict[str, Any] = {}
    if config.has_ridge:
        found["ridge, n = 4000, lambda = 10 (the paper)"] = ridge(1.0)
        found["ridge, n = 2000, lambda = 10 (its published code)"] = ridge(0.9, 2000, 10.0)
    return found | {f"minimax, sigma = {sigma:.1f}": minimax(sigma) for sigma in config.sigmas}


def page(result: Result) -> dict[str, str]:
    """The errors of every correction."""
    rows = [
        [
            f"{found['sigma']:.1f}",
            found["name"],
            f"{found['log_odds_error']:.1e} on {found['reach']:.0f}",
            f"{found['cdf_error']:.1e}",
        ]
        for found in result.results
    ]
    return {"correction": table(["sigma", "correction", "log-odds error", "error of the CDF"], rows)}
