"""Audits of the tests on the paper's mixture (N = 1,000,000), beside what their draws show against quadrature.

The drift that an audit predicts from single decisions is to be compared with the distance of the draws from the exact
posterior: the two have only the trace in common, from which the audit takes where decisions are made.

    python -m benchmarks.audit                     all settings
    python -m benchmarks.audit "Penalty()"         some, by name
"""

from __future__ import annotations

import sys
from typing import Any

import tallchain as tc
from benchmarks.measure import save
from benchmarks.mixture import bias
from benchmarks.targets import MIXTURE_BATCH, MIXTURE_STEP, SEED, SETTINGS, Setting, exact_starts, mixture, run

CHAINS, WARMUP, DRAWS = 1024, 2000, 2000
DECISIONS, TRIALS = 1000, 1000
FEW_DECISIONS, FEW_TRIALS = 200, 64  # for the settings that read many rows

NAMES = tuple(SETTINGS)
"""The settings to audit, of those in `benchmarks.targets`: by default all."""


def measure(name: str, setting: Setting) -> dict[str, Any]:
    """Sample from the exact posterior on, compare with quadrature, and audit."""
    model, kernel_of = mixture(flat_prior=setting.flat_prior)
    kernel, grid = kernel_of(setting.make()), model.quadrature()
    chains, draws = setting.few or (CHAINS, DRAWS)
    trace = run(kernel, exact_starts(grid, chains), draws, 0 if setting.few else WARMUP)
    decisions, trials = (FEW_DECISIONS, FEW_TRIALS) if setting.few else (DECISIONS, TRIALS)
    audit = tc.audit(kernel, trace, num_decisions=decisions, num_trials=trials, seed=SEED, progress=False)
    print(f"{name}\n{audit}\n", flush=True)
    numbers = audit.to_json()
    del numbers["decisions"]  # a thousand of each: the averages are in the record
    return {
        "setting": name,
        "chains": chains,
        "warmup": 0 if setting.few else WARMUP,
        "draws": draws,
        "mean_rows_per_decision": float(trace.num_rows.mean() + trace.num_scanned.mean()),
        "acceptance": float(trace.is_accepted.mean()),
        "measured": bias(trace.position, grid),
        "predicted": {
            "mean_bias_in_sd": [drift.mean.value for drift in audit.drift],
            "mean_limits": [(drift.mean.low, drift.mean.high) for drift in audit.drift],
            "variance_ratio": [1 + drift.variance.value for drift in audit.drift],
            "variance_limits": [(1 + drift.variance.low, 1 + drift.variance.high) for drift in audit.drift],
        },
        "audit": numbers,
    }


def main(names: list[str]) -> None:
    results = [measure(name, SETTINGS[name]) for name in names or NAMES]
    configuration = {
        "model": "gaussian_mixture at K = N/100",
        "proposal": f"RandomWalk({MIXTURE_STEP})",
        "source": f"Shuffled(batch_size={MIXTURE_BATCH})",
        "seed": SEED,
        "measured": "by the draws, against quadrature; a setting that reads many rows has no warm-up and few draws",
    }
    save("audit", configuration, results, quiet=True)


if __name__ == "__main__":
    main(sys.argv[1:])
