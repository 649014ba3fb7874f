"""Peak memory of `prepare` and `sample`, over the bytes of the caller's data: `python -m benchmarks.memory`.

In a process of its own, on Linux only. What JAX, the imports and the compiler take for 100,000 rows, which does not
grow with their number, is counted separately.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tallchain as tc

RESULT = Path(__file__).parent / "results" / "memory.json"
NUM_CHAINS, NUM_DRAWS = 64, 200


def gigabytes(what: str) -> float:
    """VmRSS is the present memory, VmHWM the most so far."""
    (found,) = re.findall(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found) * 1024 / 1e9


def log_prior(t: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(t**2)


def log_likelihood(t: jax.Array, row: dict[str, jax.Array]) -> jax.Array:
    logit = row["x"] @ t
    return row["y"] * logit - jnp.logaddexp(0.0, logit)


def simulate(num_rows: int, d: int) -> dict[str, np.ndarray]:
    """Logistic regression, made in place: no temporary array is as large as the data."""
    random = np.random.default_rng(0)
    x, y = np.empty((num_rows, d), np.float32), np.empty(num_rows, np.float32)
    weights = random.normal(size=d).astype(np.float32) / np.sqrt(d)
    for start in range(0, num_rows, 2**16):
        block = slice(start, start + 2**16)
        random.standard_normal(dtype=np.float32, out=x[block])
        y[block] = random.random(len(x[block])) < 1 / (1 + np.exp(-x[block] @ weights))
    return {"x": x, "y": y}


def prepare(data: dict[str, np.ndarray]) -> tc.Prepared:
    start = jnp.zeros(data["x"].shape[1])
    return tc.prepare(tc.Posterior(log_prior, log_likelihood), data, start, progress=False)


def draw_from(prepared: tc.Prepared) -> None:
    starts = prepared.starts(jax.random.key(1), NUM_CHAINS)
    tc.sample(jax.random.key(0), prepared.kernel(), starts, NUM_DRAWS, num_chains=NUM_CHAINS, progress=False)


def run(num_rows: int, d: int) -> dict[str, Any]:
    draw_from(prepare(simulate(100_000, d)))
    before = gigabytes("VmRSS")
    data = simulate(num_rows, d)
    size = sum(leaf.nbytes for leaf in data.values()) / 1e9
    prepared = prepare(data)
    after_prepare = gigabytes("VmHWM")
    draw_from(prepared)
    peak = gigabytes("VmHWM")
    return {
        "rows": num_rows,
        "d": d,
        "data_gb": round(size, 3),
        "before_gb": round(before, 3),
        "prepare": round((after_prepare - before) / size, 3),
        "prepare_and_sample": round((peak - before) / size, 3),
        "peak_over_data": round(peak / size, 3),
        "method": prepared.influence.chosen.method,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--d", type=int, default=20)
    parser.add_argument("--keep", action="store_true", help="write the result file")
    options = parser.parse_args()
    found = run(options.rows, options.d)
    print(json.dumps(found, indent=1))
    if options.keep:
        RESULT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
