"""Draws of `MHSS` beside a long run of NUTS on all rows: `benchmarks.peers --make-reference` makes those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import random as jr

import tallchain as tc
from benchmarks.peers.problem import distances, effective, moments
from benchmarks.peers.reference import read_reference
from benchmarks.peers.targets import SEED, Target

WANTED = 100_000  # effective draws of the worst parameter
CHAINS, LENGTH, MOST = 1024, 200, 40


def agreement(target: Target, path: Path) -> dict[str, Any]:
    """Draw until there are enough effective draws, or for 40 rounds of 200 draws of every chain."""
    reference = read_reference(path, target)
    prepared = tc.prepare(target.model, progress=False)
    kernel, starts = prepared.kernel(tc.MHSS()), prepared.starts(jr.key(SEED), CHAINS)
    parts: list[np.ndarray] = []
    accepted, rows, ess, found = [], [], 0.0, {}
    for number in range(-1, MOST):  # the first is a warm-up
        key = jr.fold_in(jr.key(SEED + 1), number + 1)
        trace = tc.sample(key, kernel, starts, LENGTH, num_chains=CHAINS, scan=0, progress=False)
        starts = trace.position[:, -1]
        if number < 0:
            continue
        parts.append(np.asarray(trace.position))
        accepted.append(trace.is_accepted.mean())
        rows.append(trace.rows_read.mean())
        draws = np.concatenate(parts, 1)
        ess = effective(draws) * draws[..., 0].size
        found = moments(draws)
        print(f"{target.name}: {ess:,.0f} effective draws of {draws[..., 0].size:,}", flush=True)
        if ess >= WANTED:
            break
    error = np.max(np.sqrt(1 / ess + (reference["mcse_mean"] / reference["sd"]) ** 2))
    return {
        "rows": float(np.mean(rows)),
        "acceptance": float(np.mean(accepted)),
        "effective": ess,
        "of_reference": float(np.min(reference["ess"])),
        "error": float(error),
        "backend": jax.default_backend(),
    } | distances(found, reference)
