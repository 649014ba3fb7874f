"""Mixed models: a logistic regression with groups over a million rows, beside NumPyro's NUTS on all rows.

`python -m benchmarks.mixed`, with the packages of the extra `peers`. Each method has a process of its own, one after
the other: from `import` to the draws, everything included. NUTS makes few draws, and its time to 1000 effective draws
is extrapolated from their rate. Both sample the same posterior: the effects of NUTS are centred around the intercept,
which suits groups with many rows. With 10,000 groups NUTS is helped: it starts at the parameters that made the rows,
and is given about the posterior variances, so that a short warm-up has only the step size to find. It also runs without
help, as with 1000 groups.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np

FEATURES, GROUP_SD, WANTED = 5, 0.5, 1000
CHAINS, DRAWS = 64, {1000: 100, 10_000: 60}  # of ours
SIZES = {
    1000: {"warmup": 200, "draws": 200, "is_helped": False},
    10_000: {"warmup": 60, "draws": 500, "is_helped": True},
}
UNHELPED = SIZES[1000]  # for NUTS on 10,000 groups without help
PATIENCE = 21  # it is stopped when it has taken this many times our time


class Truth(NamedTuple):
    """What the rows are made from."""

    slopes: np.ndarray
    effects: np.ndarray


def rows(groups: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Truth]:
    """Features, group and outcome of each row, and what they are made from."""
    random = np.random.default_rng(0)
    x = random.standard_normal((count, FEATURES)).astype(np.float32)
    group = np.r_[np.arange(groups), random.integers(0, groups, count - groups)]
    effects, slopes = GROUP_SD * random.normal(size=groups), 0.5 * random.normal(size=FEATURES)
    chance = 1 / (1 + np.exp(1 - x @ slopes - effects[group]))
    return x, group, random.random(count) < chance, Truth(slopes, effects)


def ours(groups: int, count: int) -> dict[str, Any]:
    """`prepare` and `sample`, and their second call in the process."""
    x, group, y, _ = rows(groups, count)
    began = time.perf_counter()
    import jax

    import tallchain as tc
    from tallchain.models import Prior, Regression, families, priors

    times = []
    for call in range(2):
        prior = Prior(priors.Normal(2.5), priors.Normal(10.0), 1.0)
        model = Regression(families.Bernoulli(), y=y, x=x, groups={"clinic": group}, prior=prior)
        prepared = tc.prepare(model, progress=False)
        prepared_at = time.perf_counter()
        key = jax.random.key(call)
        starts = prepared.starts(key, CHAINS)
        trace = tc.sample(key, prepared.kernel(), starts, DRAWS[groups], num_chains=CHAINS, progress=False)
        ended = time.perf_counter()
        times.append({"seconds": ended - began, "prepare": prepared_at - began, "drawing": trace.seconds})
        began = ended
    found = effective({name: np.asarray(trace.position[name]) for name in ("coefficients", "clinic", "log_sd(clinic)")})
    return {
        "first": times[0],
        "again": times[1],
        "rows_per_decision": float(trace.rows_read.mean()),
        "acceptance": float(trace.is_accepted.mean()),
        "rows_swept": int(prepared.rows_swept),
        "sweeps_for_the_reference": int(prepared.reference.num_passes),
        "draws": trace.is_accepted.size,
        **found,
        "per_second": found["effective"] / times[1]["drawing"],
        "to_wanted": times[0]["seconds"] + max(WANTED / found["effective"] - 1, 0) * times[1]["drawing"],
    }


def nuts(groups: int, count: int, *, is_unhelped: bool = False) -> dict[str, Any]:
    """NumPyro, one chain on all cores."""
    x, group, y, truth = rows(groups, count)
    began = time.perf_counter()
    import jax
    import jax.numpy as jnp
    import numpyro  # ty: ignore[import-not-found]
    import numpyro.distributions as dist  # ty: ignore[import-not-found]
    from jax import random as jr
    from numpyro.infer import MCMC, NUTS, init_to_value  # ty: ignore[import-not-found]

    def model(x: Any, group: Any, y: Any) -> None:
        intercept = numpyro.sample("intercept", dist.Normal(0, 10))
        slopes = numpyro.sample("slopes", dist.Normal(0, 2.5).expand([FEATURES]))
        sd = numpyro.sample("sd", dist.HalfNormal(1.0))
        # Around the intercept: effects around 0 would be tied to it, and chains would hardly move.
        effects = jnp.asarray(numpyro.sample("clinic", dist.Normal(intercept, sd).expand([groups])))
        numpyro.sample("y", dist.Bernoulli(logits=x @ slopes + effects[group]), obs=y)

    size = UNHELPED if is_unhelped else SIZES[groups]
    start = {"intercept": -1.0, "slopes": jnp.zeros(FEATURES), "sd": GROUP_SD, "clinic": -jnp.ones(groups)}
    # Shorter trees in the warm-up: before the step size is found they would take minutes each.
    options: dict[str, Any] = {"max_tree_depth": (8, 10)}
    if size["is_helped"]:
        start |= {"slopes": jnp.asarray(truth.slopes), "clinic": jnp.asarray(truth.effects - 1)}
        curvature = float(np.mean(y) * (1 - np.mean(y)))  # about the mean of p (1 - p)
        of_effects = 1 / (curvature * np.bincount(group) + GROUP_SD**-2)
        # In the order of the names: clinic, intercept, sd (its log), slopes.
        variances = [of_effects, [GROUP_SD**2 / groups], [0.5 / groups], np.full(FEATURES, 1 / (curvature * count))]
        options |= {"inverse_mass_matrix": jnp.asarray(np.concatenate(variances)), "adapt_mass_matrix": False}
    chain = MCMC(
        NUTS(model, init_strategy=init_to_value(values=start), **options),
        num_warmup=size["warmup"],
        num_samples=size["draws"],
        progress_bar=False,
    )
    data = jnp.asarray(x), jnp.asarray(group), jnp.asarray(y)
    chain.warmup(jr.key(0), *data, extra_fields=("num_steps",))
    jax.block_until_ready(chain.post_warmup_state)
    warmed = time.perf_counter()
    chain.run(chain.post_warmup_state.rng_key, *data, extra_fields=("num_steps",))
    draws = {name: np.asarray(values)[None] for name, values in chain.get_samples().items()}
    ended = time.perf_counter()
    found = effective({name: np.log(of) if name == "sd" else of for name, of in draws.items()})
    return {
        "warmup_and_compiling": warmed - began,
        "drawing": ended - warmed,
        "leapfrogs": float(np.mean(chain.get_extra_fields()["num_steps"])),
        **size,
        **found,
        "per_second": found["effective"] / (ended - warmed),
        "to_wanted": warmed - began + WANTED / found["effective"] * (ended - warmed),
    }


def effective(draws: dict[str, np.ndarray]) -> dict[str, Any]:
    """Effective draws of the worst parameter, of each kind and of all; by chain, at most as many as there are."""
    from arviz_stats.base import array_stats

    worst = {}
    for name, values in draws.items():
        flat = values.reshape(*values.shape[:2], -1).astype(np.float64)[..., :1000]
        found = array_stats.ess(flat, chain_axis=0, draw_axis=1)
        worst[name] = float(min(np.min(found), values.shape[0] * values.shape[1]))
    return {"effective": min(worst.values()), "worst": worst}


def main() -> None:
    """Run every method in a process of its own, and write results/mixed.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--method", choices=METHODS, help="in this process, printing JSON")
    options = parser.parse_args()
    if options.method:
        print(json.dumps(METHODS[options.method](options.groups[0], options.rows)))
        return
    from benchmarks.measure import save

    results = {}
    for groups in options.groups:
        found = {}
        for method in METHODS:
            if method == "unhelped" and not SIZES[groups]["is_helped"]:
                continue
            limit = PATIENCE * found["ours"]["to_wanted"] if method == "unhelped" else None
            found[method] = in_a_process(method, groups, options.rows, limit)
            print(groups, method, found[method], flush=True)
        found["effective_per_second"] = found["ours"]["per_second"] / found["nuts"]["per_second"]
        found["time_to_wanted"] = found["nuts"]["to_wanted"] / found["ours"]["to_wanted"]
        results[str(groups)] = found
        save("mixed", configuration(options.rows), results, quiet=True)  # as they come: NUTS takes long


def in_a_process(method: str, groups: int, count: int, limit: float | None) -> dict[str, Any]:
    """What a method finds; if it takes longer than the limit, only how long it was given."""
    command = [sys.executable, "-m", "benchmarks.mixed", "--method", method, "--groups", str(groups)]
    command += ["--rows", str(count)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {**UNHELPED, "stopped_after": limit}
    return json.loads(done.stdout.splitlines()[-1])


def configuration(count: int) -> dict[str, Any]:
    """How it was measured."""
    return {
        "rows": count,
        "features": FEATURES,
        "group_sd": GROUP_SD,
        "effective_draws_wanted": WANTED,
        "statistic": "one run of each method, one after the other; worst of the coefficients, the log of the sd, and "
        "the first 1000 group effects",
    }


METHODS: dict[str, Any] = {"ours": ours, "nuts": nuts, "unhelped": partial(nuts, is_unhelped=True)}

if __name__ == "__main__":
    main()
