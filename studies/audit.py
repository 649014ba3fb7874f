"""Audits of every setting on the two posteriors of `studies.targets`: the error of its decisions, and the drift.

Compare the drift that an audit predicts from single decisions with the bias that `studies.defaults` measures in long
runs: the two are independent measurements of the same setting. All settings take minutes on a GPU; `python -m studies
audit --only "Penalty()"` leaves the others as they are in the result file.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

import tallchain as tc
from benchmarks.records import table
from studies.study import Keep, Result, forget
from studies.targets import (
    MIXTURE_ROWS,
    PIXEL_ROWS,
    PIXELS,
    SEED,
    SETTINGS,
    Setting,
    Sizes,
    exact_starts,
    mixture,
    pixels,
    sample,
)
from tallchain.surrogates import find_reference

SIZES = Sizes(1024, 50, 300)
STARTS = 4096  # from the exact posterior of the mixture


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    settings: tuple[str, ...] = tuple(SETTINGS)
    mixture_rows: int = MIXTURE_ROWS
    pixel_rows: int = PIXEL_ROWS
    sizes: Sizes = SIZES
    decisions: int = 1000
    """Decisions of the chain to audit."""
    repetitions: int = 2000
    """Repeats of each decision, each way."""
    few: tuple[int, int] | None = None
    """(chains, draws) of settings that read many rows; None for each setting's own numbers."""
    few_decisions: int = 100
    few_repetitions: int = 32

    @classmethod
    def quick(cls) -> Config:
        """One setting, few rows, few decisions."""
        return cls(("MinibatchBarker()",), 5000, 2000, Sizes(8, 5, 2), decisions=20, repetitions=32)


def run(config: Config, keep: Keep = forget) -> Result:
    """Audit every setting on both targets."""
    mixtures = {flat: mixture(config.mixture_rows, flat_prior=flat) for flat in (False, True)}
    starts = {flat: exact_starts(model.quadrature(), STARTS) for flat, (model, _) in mixtures.items()}
    model, regression = pixels(config.pixel_rows)
    ends = regression_starts(model, config.sizes.chains)
    results: dict[str, Any] = {"mixture": {}, "pixels": {}}
    for name in config.settings:
        setting = SETTINGS[name]
        flat = setting.flat_prior
        for target, kernel_of, begin in (("mixture", mixtures[flat][1], starts[flat]), ("pixels", regression, ends)):
            found = measure(kernel_of(setting.make()), begin, setting, config)
            results[target][name] = found
            size, drift = found["audit"]["log_odds"], found["audit"]["drift"]
            print(target, name, size, [d["variance"]["value"] for d in drift], flush=True)
        keep(Result.of(CONFIGURATION, results))
    return Result.of(CONFIGURATION, results)


CONFIGURATION = {
    "targets": "those of studies/defaults.py",
    "starts": "the exact posterior by quadrature on the mixture, its normal approximation on the regression",
    "seed": SEED,
}


def measure(kernel: tc.MetropolisHastings, starts: np.ndarray, setting: Setting, config: Config) -> dict[str, Any]:
    """Sample, starting in the exact posterior, and audit."""
    chains, draws, warmup = setting.sizes(config.sizes, config.few)
    trace = sample(kernel, np.resize(starts, (chains, starts.shape[1])), draws, warmup)
    decisions, repetitions = config.decisions, config.repetitions
    if setting.few:
        decisions, repetitions = config.few_decisions, config.few_repetitions
    audit = tc.audit(kernel, trace, num_decisions=decisions, num_trials=repetitions, seed=SEED, progress=False)
    numbers = audit.to_json()
    numbers["near"] = int(np.sum(audit.decisions.is_near))
    del numbers["decisions"]  # thousands of numbers: the averages are in the record
    return {"chains": chains, "warmup": warmup, "draws": draws, "backend": jax.default_backend(), "audit": numbers}


def regression_starts(model: tc.models.Regression, chains: int) -> np.ndarray:
    """Draw from the normal approximation of the posterior; the warm-up corrects it."""
    start = np.zeros(PIXELS, np.float32)
    laplace = find_reference(model.posterior, model.data, start, progress=False).laplace
    return np.asarray(jax.vmap(laplace.draw)(jax.random.split(jax.random.key(SEED), chains)))


def page(result: Result) -> dict[str, str]:
    """The error of every setting, on both targets."""
    rows = [[target, f"`{name}`", *cells(found)] for target, of in result.results.items() for name, found in of.items()]
    return {"audit": table(["target", "setting", *HEADER], rows)}


HEADER = ("error", "at most")


def cells(found: dict[str, Any]) -> list[str]:
    """Return the cells under `HEADER`."""
    size = found["audit"]["log_odds"]
    return [f"{size['value']:.4f}", f"{size['upper']:.4f}"]
