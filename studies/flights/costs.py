"""What the models cost: rows a decision, effective draws, and time relative to a fit by scikit-learn in one run."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

import tallchain as tc


def costs(name: str, prepared: Any, model: Any, trace: Any, times: int) -> dict[str, Any]:
    """Measure later calls in the process, in turn with fits; the times of the first call are on record."""
    columns = _columns(model)
    seconds = [(_again(model, trace), _fit(columns, model.data["y"])) for _ in range(times)]
    again, fit = (min(each) for each in zip(*seconds, strict=True))
    return {
        "groups": name,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(model.start)),
        "rows": float(trace.rows_read.mean()),
        "acceptance": float(trace.is_accepted.mean()),
        "draws": trace.is_accepted.size,
        "effective": float(trace.summary().to_pandas()["ess_bulk"].min()),
        "first": prepared.seconds + trace.compile_seconds + trace.seconds + trace.scan_seconds,
        "again": again,
        "fit": fit,
        "columns": columns.shape[1],
    }


def _again(model: Any, trace: Any) -> float:
    """Seconds of `prepare` and `sample`."""
    begun = time.perf_counter()
    prepared = tc.prepare(model, progress=False)
    starts = prepared.starts(jax.random.key(0), trace.num_chains)
    options: dict[str, Any] = {"num_chains": trace.num_chains, "progress": False}
    tc.sample(jax.random.key(1), prepared.kernel(), starts, trace.num_draws, **options)
    return time.perf_counter() - begun


def _columns(model: Any) -> np.ndarray:
    """The features without the intercept, and a column of 0 and 1 for each level."""
    blocks = [model.data["x"][:, 1:]]
    for at, labels in enumerate(model.levels.values()):
        blocks.append((model.data["groups"][:, at, None] == np.arange(len(labels))).astype(np.float32))
    return np.concatenate(blocks, 1)


def _fit(columns: np.ndarray, late: np.ndarray) -> float:
    """Seconds of a penalised fit of the same columns: a point, without intervals."""
    from sklearn.linear_model import LogisticRegression  # ty: ignore[import-not-found]

    begun = time.perf_counter()
    LogisticRegression(solver="newton-cholesky").fit(columns, late)
    return time.perf_counter() - begun
