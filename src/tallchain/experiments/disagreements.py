"""Where the paper's text and its numbers disagree, measured on its mixture of Gaussians.

Many chains in lockstep, each from its own draw of the exact posterior: rows per decision, and the posterior's variances
as ratios to the exact ones by quadrature, with standard errors from the spread between chains.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tallchain.acceptance import MinibatchBarker
from tallchain.acceptance.correction import ridge
from tallchain.checking.trace import Trace
from tallchain.experiments.common import Progress, versions
from tallchain.experiments.gaussian_mixture import Target, target_of
from tallchain.experiments.trials import Arrays, Job, config_of, rows_and_verdicts, run_jobs, seconds_of
from tallchain.models.gaussian_mixture import Grid
from tallchain.types import AcceptanceTest

STEP, BATCH = 0.15, 50


@dataclasses.dataclass(frozen=True)
class Setting:
    """One reading of the paper."""

    name: str
    make: Callable[[], AcceptanceTest]
    step: float = STEP
    has_flat_prior: bool = False


def _without_shortcut() -> AcceptanceTest:
    return MinibatchBarker(0.9, correction=ridge(0.9, 2000, 10.0), stopping="growth", skew=False)


def _grown(skew: bool | str = False, delta: float | None = None) -> AcceptanceTest:
    return MinibatchBarker(stopping="growth", skew=skew, delta=delta)


SETTINGS = {
    "printed": Setting("as printed, steps of standard deviation 0.15", MinibatchBarker.paper),
    "variance": Setting("as printed, steps of variance 0.15", MinibatchBarker.paper, step=math.sqrt(STEP)),
    "code": Setting(
        "as the published code: sigma 0.9, shortcut, no prior", MinibatchBarker.as_published_code, STEP, True
    ),
    "code, prior": Setting("the same with the prior", MinibatchBarker.as_published_code),
    "no shortcut": Setting("sigma 0.9 without the shortcut, with the prior", _without_shortcut),
    "growth": Setting("a better table for the correction, and the error bound", partial(_grown, delta=math.inf)),
    "growth, A.5": Setting("the same with skewness corrected as printed (A.5)", partial(_grown, skew="printed")),
    "fresh": Setting("fresh rows, no correction for skewness", partial(MinibatchBarker, skew=False)),
    "default": Setting("fresh rows, skewness corrected: the default", MinibatchBarker),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    rows: int = 1_000_000
    chains: int = 256
    draws: int = 4000
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Seconds a setting."""
        return cls(chains=128, draws=500, seed=seed)

    @classmethod
    def paper(cls, seed: int = 0) -> Config:
        """Errors of a per cent: about a minute on two cores."""
        return cls(seed=seed)


@dataclasses.dataclass(frozen=True)
class Found:
    """What a setting gave."""

    name: str
    rows: float
    acceptance: float
    variances: tuple[float, float]
    """Of theta_1 and theta_2, over the exact ones."""
    errors: tuple[float, float]
    """Standard errors of these."""
    bound: float | None
    """Median over decisions of the paper's error bound, if it was asked for."""


@dataclasses.dataclass(frozen=True)
class Result:
    """What the experiment found."""

    config: Config
    found: dict[str, Found]
    """By key of `SETTINGS`."""
    without_prior: tuple[float, float]
    """Exact variances without the prior, over those with it."""
    seconds: float
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain dictionaries, lists, numbers and strings."""
        return {
            "experiment": "disagreements",
            "config": dataclasses.asdict(self.config),
            "settings": {key: dataclasses.asdict(found) for key, found in self.found.items()},
            "variances_without_prior": self.without_prior,
            "seconds": self.seconds,
            "versions": self.versions,
        }


def run(config: Config | None = None, *, folder: Path | None = None, progress: Progress | None = None) -> Result:
    """Run every setting; those in `folder` are taken from there, and new ones kept there."""
    config = config or Config.paper()
    targets = {is_flat: target_of(config.rows, BATCH, config.seed, is_flat) for is_flat in (False, True)}
    jobs = [
        _job(config, targets[setting.has_flat_prior], setting, number)
        for number, setting in enumerate(SETTINGS.values())
    ]
    measured = run_jobs(jobs, folder, progress)
    found = {key: _found(setting.name, measured[setting.name]) for key, setting in SETTINGS.items()}
    first, second = np.diag(targets[True].grid.covariance) / np.diag(targets[False].grid.covariance)
    without_prior = (float(first), float(second))
    return Result(config, found, without_prior, seconds_of(measured), versions("jax", "numpy", "scipy"))


def _job(config: Config, target: Target, setting: Setting, number: int) -> Job:
    return Job(
        setting.name,
        config_of(config, setting=setting.name),
        config.chains,
        config.draws,
        lambda: (target.kernel(setting.make(), setting.step), target.starts(config.chains)),
        lambda trace: _kept(trace, target.grid),
        (config.seed, number),
        segment=config.draws,
    )


def _kept(trace: Trace, grid: Grid) -> Arrays:
    """Means over the draws of a chain: chains are independent, draws are not."""
    centred = (trace.position.astype(np.float64) - grid.mean) ** 2 / np.diag(grid.covariance)
    kept = rows_and_verdicts(trace) | {"variances": centred}
    bound = trace.extras.get("error_bound")
    return {name: values.mean(1, keepdims=True) for name, values in kept.items()} | {
        "bound": np.full((trace.num_chains, 1), np.nan) if bound is None else np.median(bound, 1, keepdims=True)
    }


def _found(name: str, of: Arrays) -> Found:
    by_chain = of["variances"][:, 0]
    errors = by_chain.std(0, ddof=1) / math.sqrt(len(by_chain))
    bound = float(np.median(of["bound"]))
    return Found(
        name,
        float(of["rows_read"].mean()),
        float(of["is_accepted"].mean()),
        tuple(by_chain.mean(0).tolist()),
        tuple(errors.tolist()),
        None if math.isnan(bound) else bound,
    )
