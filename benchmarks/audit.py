"""Audits of every setting on the two posteriors of `benchmarks.targets`: the error of its decisions, and the drift.

The drift that an audit predicts from single decisions is to be compared with the bias that `benchmarks.defaults` sees
in long runs: the two have nothing in common but the setting.

    python -m benchmarks.audit                     all settings, minutes on a GPU
    python -m benchmarks.audit "Penalty()"         some, by name; the others stay as they are in the result file
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import numpy as np

import tallchain as tc
from benchmarks.measure import load, save
from benchmarks.targets import SEED, SETTINGS, Setting, exact_starts, mixture, pixels, run
from tallchain.surrogates import find_reference

CHAINS, WARMUP, DRAWS = 1024, 300, 50
DECISIONS, TRIALS = 1000, 2000
FEW_DECISIONS, FEW_TRIALS = 100, 32  # for the settings that read many rows


def measure(kernel: tc.MetropolisHastings, starts: np.ndarray, setting: Setting) -> dict[str, Any]:
    """Sample from the exact posterior on, and audit."""
    chains, draws, warmup = (*setting.few, 0) if setting.few else (CHAINS, DRAWS, WARMUP)
    trace = run(kernel, np.resize(starts, (chains, starts.shape[1])), draws, warmup)
    decisions, trials = (FEW_DECISIONS, FEW_TRIALS) if setting.few else (DECISIONS, TRIALS)
    audit = tc.audit(kernel, trace, num_decisions=decisions, num_trials=trials, seed=SEED, progress=False)
    numbers = audit.to_json()
    numbers["near"] = int(np.sum(audit.decisions.is_near))
    del numbers["decisions"]  # a thousand of each: the averages are in the record
    return {"chains": chains, "warmup": warmup, "draws": draws, "backend": jax.default_backend(), "audit": numbers}


def regression_starts(model: tc.models.Regression) -> np.ndarray:
    """Draw from the normal approximation of the posterior, which the warm-up mends."""
    zeros = np.zeros(model.data["x"].shape[1], np.float32)
    laplace = find_reference(model.posterior, model.data, zeros, progress=False).laplace
    return np.asarray(jax.vmap(laplace.draw)(jax.random.split(jax.random.key(SEED), CHAINS)))


CONFIGURATION = {
    "targets": "those of benchmarks/defaults.py",
    "starts": "the exact posterior by quadrature on the mixture, its normal approximation on the regression",
    "seed": SEED,
}


def main(names: list[str]) -> None:
    mixtures = {flat: mixture(flat_prior=flat) for flat in (False, True)}
    starts = {flat: exact_starts(model.quadrature(), 4096) for flat, (model, _) in mixtures.items()}
    model, regression = pixels()
    ends = regression_starts(model)
    results: dict[str, Any] = load("audit")["results"] if names else {"mixture": {}, "pixels": {}}
    for name in names or SETTINGS:
        setting = SETTINGS[name]
        flat = setting.flat_prior
        for target, kernel_of, begin in (("mixture", mixtures[flat][1], starts[flat]), ("pixels", regression, ends)):
            found = measure(kernel_of(setting.make()), begin, setting)
            results[target][name] = found
            size, drift = found["audit"]["log_odds"], found["audit"]["drift"]
            print(target, name, size, [d["variance"]["value"] for d in drift], flush=True)
        save("audit", CONFIGURATION, results, quiet=True)  # so far: a run that ends early is not lost


if __name__ == "__main__":
    main(sys.argv[1:])
