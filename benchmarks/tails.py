"""Where `sample` warns of heavy tails: what the pass over all rows says, beside what an audit measures.

Rows of many laws under the log likelihood t x - t^2/2, N = 300,000. The thresholds of `tallchain.scan` are where audits
begin to find the error of the default test. `python -m benchmarks.tails`, some minutes.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np

import tallchain as tc
from benchmarks.measure import save
from tallchain.functions import shared
from tallchain.types import Array

ROWS, WEIGHT, STEP, BATCH, SEED = 300_000, 10.0, 0.5, 100, 0
CHAINS, WARMUP, DRAWS = 64, 100, 200
PROPOSALS, DECISIONS, TRIALS = 32, 100, 2000


def log_prior(t: Array) -> Array:
    return -(t**2) / 8


def log_likelihood(t: Array, x: Array) -> Array:
    return t * x - t**2 / 2


def laws() -> dict[str, np.ndarray]:
    """Rows with their median at 0."""
    random = np.random.default_rng(SEED)
    rows = {
        "Student's t, 5 degrees of freedom": random.standard_t(5, ROWS),
        "Student's t, 3": random.standard_t(3, ROWS),
        "Student's t, 2.5": random.standard_t(2.5, ROWS),
        "Student's t, 2": random.standard_t(2, ROWS),
        "lognormal, log sd 0.8": np.exp(0.8 * random.standard_normal(ROWS)),
        "lognormal, log sd 1": np.exp(random.standard_normal(ROWS)),
        "lognormal, log sd 1.3": np.exp(1.3 * random.standard_normal(ROWS)),
    }
    for count, size in ((300, 50), (30, 100), (3, 500), (1, 3000)):
        values = random.standard_normal(ROWS)
        values[:count] += size
        rows[f"normal, and {count} rows {size} sd off"] = values
    return {name: (values - np.median(values)).astype(np.float32) for name, values in rows.items()}


def measure(rows: np.ndarray) -> dict[str, Any]:
    posterior = tc.Posterior(shared(log_prior), shared(log_likelihood), ROWS / WEIGHT)
    kernel = tc.MetropolisHastings(posterior, tc.Shuffled(rows, BATCH), proposal=tc.RandomWalk(STEP))
    start = np.float32(rows.mean(dtype=np.float64) * WEIGHT / (WEIGHT + 0.25))
    options: dict[str, Any] = {"num_chains": CHAINS, "num_warmup": WARMUP, "scan": PROPOSALS, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that is what is measured
        trace = tc.sample(jax.random.key(SEED), kernel, start, DRAWS, **options)
    audit = tc.audit(kernel, trace, num_decisions=DECISIONS, num_trials=TRIALS, seed=SEED, progress=False)
    assert trace.scan is not None
    size = audit.log_odds
    return {
        "mean_rows": float(trace.num_rows.mean()),
        "batch": trace.scan.batch,
        "skewness": float(np.max(trace.scan.skewness)),
        "kurtosis": float(np.max(trace.scan.kurtosis)),
        "share_far": float(np.mean(trace.scan.is_far)),
        "warns": bool(trace.scan.complaints()),
        "error": {"value": size.value, "low": size.low, "upper": size.upper},
        "is_error_found": audit.is_error_found,
    }


def main() -> None:
    results = []
    for law, rows in laws().items():
        results.append({"law": law} | measure(rows))
        print(results[-1], flush=True)
    configuration = {
        "model": f"log likelihood t x - t^2/2, prior N(0, 4), N = {ROWS:,}, K = N/{WEIGHT:g}, RandomWalk({STEP}), "
        f"Shuffled(batch_size={BATCH}), MinibatchBarker()",
        "chains": f"{CHAINS} x {DRAWS} after {WARMUP}",
        "scan": f"{PROPOSALS} proposals; the largest of each number",
        "audit": f"{DECISIONS} decisions x {TRIALS} trials each way",
        "seed": SEED,
    }
    save("tails", configuration, results, quiet=True)


if __name__ == "__main__":
    main()
