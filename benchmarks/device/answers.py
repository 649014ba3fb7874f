"""How long `prepare` and `sample` take after compiling, and effective draws a second beside NumPyro's NUTS."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

import tallchain as tc
from benchmarks.device.throughput import REPETITIONS, log_likelihood, log_prior
from benchmarks.peers.targets import DIMENSION, simulated
from tallchain.surrogates.passes import Passes

ROWS = 100_000_000
CHAINS, DRAWS = 16_384, 400
MANY = 131_072  # chains, for effective draws a second
KEPT = ("draws", "moments")
WARMUP, NUTS_DRAWS = 300, 500
PREPARED, RATES = 3, 2  # runs after the first, which compiles


def prepare() -> dict[str, Any]:
    """All of `prepare`, its stages, and one sweep with the Hessian over one jitted program."""
    weights = jr.normal(jr.key(1), (DIMENSION,)) / np.sqrt(DIMENSION)
    x = jr.normal(jr.key(0), (ROWS, DIMENSION))
    data = {"x": x, "y": (jr.uniform(jr.key(2), (ROWS,)) < jax.nn.sigmoid(x @ weights)).astype(jnp.float32)}
    posterior, runs = tc.Posterior(log_prior, log_likelihood), []
    for _ in range(1 + PREPARED):
        began = time.perf_counter()
        prepared = tc.prepare(posterior, data, jnp.zeros(DIMENSION), progress=False)
        runs.append(
            {
                "seconds": time.perf_counter() - began,
                "mode": prepared.reference.seconds,
                "influence": prepared.influence.seconds,
            }
        )
    passes = Passes(posterior, prepared.source, jnp.zeros(DIMENSION))
    flat, axes = np.asarray(prepared.reference.position), np.eye(DIMENSION, dtype=np.float32)
    swept = _median(lambda: passes(flat, axes))
    plain = _median(lambda: jax.block_until_ready(_at_once(jnp.asarray(flat), data["x"], data["y"])))
    found = {name: statistics.median(run[name] for run in runs[1:]) for name in runs[0]}
    return found | {
        "rows": ROWS,
        "first": runs[0]["seconds"],
        "sweeps": prepared.reference.num_passes,
        "sweep_with_hessian": swept,
        "one_program": plain,
        "ratio": swept / plain,
    }


@jax.jit
def _at_once(weights: Any, x: Any, y: Any) -> Any:
    """Log likelihood, gradient and Hessian of all rows, as one would write it."""
    dot = lambda a, b: jnp.dot(a, b, precision=lax.Precision.HIGHEST)  # noqa: E731
    logits = dot(x, weights)
    p = jax.nn.sigmoid(logits)
    value = jnp.sum(y * logits - jnp.logaddexp(0.0, logits))
    return value, dot(y - p, x), dot(x.T, (p * (1 - p))[:, None] * x)


def sample() -> dict[str, Any]:
    """Whole calls of `sample`, the scan included."""
    prepared = _prepared()
    kernel, starts = prepared.kernel(), prepared.starts(jr.key(1), CHAINS)
    found: dict[str, Any] = {"chains": CHAINS, "num_samples": DRAWS}
    for keep in KEPT:
        traces = []

        def run(keep: Any = keep, traces: list[tc.Trace] = traces) -> None:
            trace = tc.sample(jr.key(2), kernel, starts, DRAWS, num_chains=CHAINS, keep=keep, progress=False)
            traces.append(trace)

        parts = {"sampling": "seconds", "scan": "scan_seconds", "other": "compile_seconds"}
        found[keep] = {"seconds": _median(run)}
        for name, field in parts.items():
            found[keep][name] = statistics.median(getattr(trace, field) for trace in traces[1:])
    return found


def effective() -> dict[str, Any]:
    """Effective draws of the worst parameter a second: of tallchain with moments, of NumPyro's NUTS with one chain."""
    prepared = _prepared()
    starts, rates = prepared.starts(jr.key(1), MANY), []
    for _ in range(1 + RATES):
        trace = tc.sample(
            jr.key(2), prepared.kernel(), starts, DRAWS, num_chains=MANY, keep="moments", scan=0, progress=False
        )
        assert trace.moments is not None
        rates.append(float(np.min(trace.moments.ess)) / trace.seconds)
    ours, nuts = statistics.median(rates[1:]), _nuts()
    return {"chains": MANY, "tallchain": ours, "NumPyro NUTS": nuts, "ratio": ours / nuts["per_second"]}


def _nuts() -> dict[str, float]:
    import numpyro  # ty: ignore[import-not-found]
    import numpyro.distributions as dist  # ty: ignore[import-not-found]
    from numpyro.diagnostics import effective_sample_size  # ty: ignore[import-not-found]
    from numpyro.infer import MCMC, NUTS  # ty: ignore[import-not-found]

    data = simulated().model.data

    def model(x: Any, y: Any) -> None:
        t = numpyro.sample("t", dist.Normal(0.0, 1.0).expand([DIMENSION]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ t), obs=y)

    rows = jnp.asarray(data["x"]), jnp.asarray(data["y"], jnp.float32)
    began = time.perf_counter()
    chain = MCMC(NUTS(model), num_warmup=WARMUP, num_samples=NUTS_DRAWS, progress_bar=False)
    chain.warmup(jr.key(1), *rows)
    chain.run(jr.key(2), *rows)
    first, began = time.perf_counter() - began, time.perf_counter()
    chain.run(jr.key(3), *rows)
    draws = np.asarray(chain.get_samples(group_by_chain=True)["t"])
    seconds = time.perf_counter() - began
    ess = float(np.min(effective_sample_size(draws)))
    return {"effective": ess, "seconds": seconds, "per_second": ess / seconds, "warmup_and_compiling": first}


def _prepared() -> tc.Prepared:
    model = simulated().model
    return tc.prepare(model.posterior, model.data, np.zeros(DIMENSION, np.float32), progress=False)


def _median(run: Callable[[], Any]) -> float:
    """Seconds, after a first run that compiles."""
    seconds = []
    for _ in range(REPETITIONS + 1):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])
