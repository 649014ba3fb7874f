"""Where `sample` warns of heavy tails: what the scan finds, and what an audit measures.

Rows from many distributions, with the log likelihood t x - t^2/2. The thresholds of `tallchain.checking.verdict` are
where audits begin to find the error of the default test. Takes some minutes.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import numpy as np

import tallchain as tc
from benchmarks.records import table
from studies.study import Keep, Result, forget
from tallchain.functions import shared
from tallchain.types import Array

WEIGHT, STEP, BATCH = 10.0, 0.5, 100


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    rows: int = 300_000
    chains: int = 64
    warmup: int = 100
    draws: int = 200
    proposals: int = 32
    """Proposals at which `sample` reads all rows."""
    decisions: int = 100
    """Decisions of the chain to audit."""
    repetitions: int = 2000
    """Repeats of each decision, each way."""
    few_laws: int | None = None
    """How many of the laws; None for all."""
    seed: int = 0

    @classmethod
    def quick(cls) -> Config:
        """One law, and few rows."""
        return cls(3000, 8, 5, 20, 4, 10, 32, few_laws=1)


def log_prior(t: Array) -> Array:
    """Log density of N(0, 4), up to a constant."""
    return -(t**2) / 8


def log_likelihood(t: Array, x: Array) -> Array:
    """Log density of N(t, 1) at x, up to a constant in t."""
    return t * x - t**2 / 2


def laws(config: Config) -> dict[str, np.ndarray]:
    """Rows with their median at 0."""
    random = np.random.default_rng(config.seed)
    rows = {
        "Student's t, 5 degrees of freedom": random.standard_t(5, config.rows),
        "Student's t, 3": random.standard_t(3, config.rows),
        "Student's t, 2.5": random.standard_t(2.5, config.rows),
        "Student's t, 2": random.standard_t(2, config.rows),
        "lognormal, log sd 0.8": np.exp(0.8 * random.standard_normal(config.rows)),
        "lognormal, log sd 1": np.exp(random.standard_normal(config.rows)),
        "lognormal, log sd 1.3": np.exp(1.3 * random.standard_normal(config.rows)),
    }
    for count, size in ((300, 50), (30, 100), (3, 500), (1, 3000)):
        values = random.standard_normal(config.rows)
        values[:count] += size
        rows[f"normal, and {count} {'row' if count == 1 else 'rows'} {size} sd off"] = values
    names = list(rows)[: config.few_laws]
    return {name: (rows[name] - np.median(rows[name])).astype(np.float32) for name in names}


def run(config: Config, keep: Keep = forget) -> Result:
    """Sample and audit with rows of every law."""
    results: list[dict[str, Any]] = []
    for law, rows in laws(config).items():
        results.append({"law": law} | measure(rows, config))
        print(results[-1], flush=True)
        keep(Result.of(configuration(config), results))
    return Result.of(configuration(config), results)


def configuration(config: Config) -> dict[str, Any]:
    """Say how it was measured."""
    return {
        "model": f"log likelihood t x - t^2/2, prior N(0, 4), N = {config.rows:,}, K = N/{WEIGHT:g}, "
        f"RandomWalk({STEP}), Shuffled(batch_size={BATCH}), MinibatchBarker()",
        "chains": f"{config.chains} x {config.draws} after {config.warmup}",
        "scan": f"{config.proposals} proposals; the largest of each number",
        "audit": f"{config.decisions} decisions x {config.repetitions} trials each way",
        "seed": config.seed,
    }


def measure(rows: np.ndarray, config: Config) -> dict[str, Any]:
    """Return what the scan finds, and what an audit finds."""
    posterior = tc.Posterior(shared(log_prior), shared(log_likelihood), len(rows) / WEIGHT)
    kernel = tc.MetropolisHastings(posterior, tc.Shuffled(rows, BATCH), proposal=tc.RandomWalk(STEP))
    start = np.float32(rows.mean(dtype=np.float64) * WEIGHT / (WEIGHT + 0.25))
    options: dict[str, Any] = {"num_chains": config.chains, "num_warmup": config.warmup, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the warnings are what is measured
        trace = tc.sample(jax.random.key(config.seed), kernel, start, config.draws, scan=config.proposals, **options)
    numbers = {"num_decisions": config.decisions, "num_trials": config.repetitions, "seed": config.seed}
    audit = tc.audit(kernel, trace, progress=False, **numbers)
    assert trace.scan is not None
    size = audit.log_odds
    return {
        "mean_rows": float(trace.rows_read.mean()),
        "batch": trace.scan.batch,
        "skewness": float(np.max(trace.scan.skewness)),
        "kurtosis": float(np.max(trace.scan.kurtosis)),
        "share_far": float(np.mean(trace.scan.is_far)),
        "warns": bool(trace.scan.complaints()),
        "error": {"value": size.value, "low": size.low, "upper": size.upper},
        "is_error_found": audit.is_error_found,
    }


def page(result: Result) -> dict[str, str]:
    """What the scan finds for every distribution, and the error."""
    rows = [
        [
            found["law"],
            f"{found['mean_rows']:,.0f}",
            f"{found['skewness']:.2g}",
            f"{found['kurtosis']:.2g}",
            f"{found['share_far']:.0%}",
            "yes" if found["warns"] else "no",
            f"{found['error']['value']:.3f}, at most {found['error']['upper']:.3f}",
        ]
        for found in result.results
    ]
    header = ["rows", "read", "skewness", "excess kurtosis", "proposals beyond", "warns", "audited error in log-odds"]
    return {"tails": table(header, rows)}
