"""Acceptance at fixed pairs: how far the log-odds of each rule are from Delta, by law of the rows and by batch.

A pair (t, t') is made of numbers per row with a known mean (Delta), variance and skewness. Every rule decides it again
and again; its chance to accept given the rows it read is known in closed form, so only the rows are simulated.
`python -m benchmarks.pairs`, about two minutes on a GPU.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

import tallchain as tc
from benchmarks.measure import save
from tallchain.acceptance import MinibatchBarker, Penalty
from tallchain.functions import shared
from tallchain.proposals import Fixed
from tallchain.types import Array

ROWS, BATCH, SEED = 1_000_000, 50, 11
DELTAS = (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0)
TRIALS = 2_000_000
AT_ONCE = 50_000

RULES: dict[str, Any] = {
    "growth": partial(MinibatchBarker, stopping="growth", skew=False),
    "growth, skew": partial(MinibatchBarker, stopping="growth", skew=True),
    "growth, skew as printed": partial(MinibatchBarker, stopping="growth", skew="printed"),
    "stein": partial(MinibatchBarker, stopping="stein", skew=False),
    "pilot": partial(MinibatchBarker, stopping="pilot", skew=False),
    "pilot, skew": partial(MinibatchBarker, stopping="pilot", skew=True),
    "fresh": partial(MinibatchBarker, stopping="fresh", skew=False),
    "fresh, skew": partial(MinibatchBarker, stopping="fresh", skew=True),
    "penalty, growth": partial(Penalty, stopping="growth"),
    "penalty, pilot": partial(Penalty, stopping="pilot"),
    "penalty, fresh": partial(Penalty, stopping="fresh"),
}


def laws() -> dict[str, np.ndarray]:
    """Rows of mean 0 and variance 1."""
    random = np.random.default_rng(SEED)
    rows = {
        "normal": random.standard_normal(ROWS),
        "gamma (skewness 1)": random.standard_gamma(4.0, ROWS),
        "exponential (skewness 2)": random.standard_exponential(ROWS),
        "lognormal (skewness 2.3)": np.exp(0.6 * random.standard_normal(ROWS)),
        "Bernoulli mixture (skewness 1.5)": (random.random(ROWS) < 0.05) + 0.2 * random.standard_normal(ROWS),
    }
    return {name: (values - values.mean()) / values.std() for name, values in rows.items()}


def kernel_of(rows: np.ndarray, needed: float, acceptance: Any) -> tc.MetropolisHastings:
    """Rows whose mean over `needed` of them has variance 1; K = N, so that Lambda_i is the row."""
    data = (np.sqrt(needed) * rows).astype(np.float32)
    posterior = tc.Posterior(shared(jnp.zeros_like), shared(jnp.multiply), temperature=len(data))
    source = tc.WithReplacement(data, BATCH)
    return tc.MetropolisHastings(posterior, source, proposal=Fixed(jnp.ones(())), acceptance=acceptance)


@partial(jax.jit, static_argnames="count")
def decide(kernel: tc.MetropolisHastings, key: Array, count: int) -> dict[str, Array]:
    """Sums over `count` decisions at Delta = 0, from which those at any Delta follow: the rule reads the same rows."""

    def one(key: Array) -> tuple[Array, Array, Array, Array]:
        position = jnp.zeros(())
        trial = kernel.open(kernel.draw(key, position), position)
        no = jnp.zeros((), bool)

        def turn(carry: Any) -> Any:
            before = kernel.look(position, carry[0])
            after, is_decided, _ = kernel.judge(before)
            return after, before, is_decided

        _, last, _ = lax.while_loop(lambda carry: ~carry[2], turn, (trial, trial, no))
        population = kernel.source.population
        chances = jnp.stack(
            [
                kernel.acceptance.chance(last.memory._replace(offset=jnp.float32(delta)), last.evidence, population)
                for delta in DELTAS
            ]
        )
        estimate = last.evidence.mean
        return chances, estimate, last.num_rows, last.evidence.count

    chances, estimate, rows, b = jax.vmap(one)(jr.split(key, count))
    return {
        "chances": chances.sum(0),
        "squares": (chances**2).sum(0),
        "shift": estimate.sum(),
        "shift_squares": (estimate**2).sum(),
        "rows": rows.sum(),
        "root_inverse_b": (1 / jnp.sqrt(b)).sum(),
    }


def measure(kernel: tc.MetropolisHastings, trials: int) -> dict[str, Any]:
    """Average over `trials` decisions: error in log-odds by Delta, rows, and the shift of Delta*."""
    sums: dict[str, np.ndarray] = {}
    at_once = min(trials, AT_ONCE)
    for turn in range(-(-trials // at_once)):
        part_sums = decide(kernel, jr.fold_in(jr.key(SEED), turn), at_once)
        sums = {k: sums.get(k, 0.0) + np.asarray(v, np.float64) for k, v in part_sums.items()}
    n = -(-trials // at_once) * at_once
    p = sums["chances"] / n
    error_p = np.sqrt((sums["squares"] / n - p**2) / n)
    if hasattr(kernel.acceptance, "exact_chance"):
        log_odds, error = np.log(p / (1 - p)) - DELTAS, error_p / (p * (1 - p))
    else:  # no exact counterpart: the balance of a pair and its mirror image, which has the rows of opposite sign
        log_odds, error = np.full(len(p), np.nan), error_p / p
    shift = sums["shift"] / n
    return {
        "chance": p.tolist(),
        "chance_error": error_p.tolist(),
        "log_odds_error": log_odds.tolist(),
        "standard_error": error.tolist(),
        "mean_rows": float(sums["rows"] / n),
        "shift": float(shift),
        "shift_error": float(np.sqrt((sums["shift_squares"] / n - shift**2) / n)),
        "mean_root_inverse_b": float(sums["root_inverse_b"] / n),
    }


def both_ways(rows: np.ndarray, needed: float, rule: Any, trials: int) -> dict[str, Any]:
    """Measure a rule; where it is not Barker's kind, take log a(Delta)/a'(-Delta) - Delta with a' at mirrored rows."""
    kernel = kernel_of(rows, needed, rule())
    result = measure(kernel, trials)
    if not hasattr(kernel.acceptance, "exact_chance"):
        back = measure(kernel_of(-rows, needed, rule()), trials)
        there, return_ = np.asarray(result["chance"]), np.asarray(back["chance"])[::-1]
        result["log_odds_error"] = (np.log(there / return_) - DELTAS).tolist()
        relative = np.asarray(result["chance_error"]) / there, np.asarray(back["chance_error"])[::-1] / return_
        result["standard_error"] = np.hypot(*relative).tolist()
    return result


def skewness(rows: np.ndarray) -> float:
    return float(np.mean(rows**3))


def main() -> None:
    all_laws = laws()
    results: dict[str, Any] = {"rules": [], "by_rows": []}
    for law, rows in all_laws.items():
        for name, rule in RULES.items():
            result = {"law": law, "skewness": skewness(rows), "rule": name, "needed": 150.0}
            results["rules"].append(result | both_ways(rows, 150.0, rule, TRIALS))
            print(law, name, np.round(results["rules"][-1]["log_odds_error"], 4), results["rules"][-1]["mean_rows"])
    for law in list(all_laws)[1:]:
        for needed in (75.0, 150.0, 300.0, 600.0, 1200.0):
            for name in ("growth", "fresh", "fresh, skew", "pilot", "pilot, skew"):
                result = {"law": law, "skewness": skewness(all_laws[law]), "rule": name, "needed": needed}
                measured = both_ways(all_laws[law], needed, RULES[name], TRIALS)
                results["by_rows"].append(result | measured)
                print(law, needed, name, np.round(measured["log_odds_error"], 4))
    configuration = {
        "rows": f"{ROWS:,} drawn from each law, standardised, times sqrt(needed); read with replacement",
        "needed": "rows at which the variance of Delta* is 1",
        "deltas": DELTAS,
        "batch": BATCH,
        "trials": TRIALS,
        "seed": SEED,
    }
    save("pairs", configuration, results)


if __name__ == "__main__":
    main()
