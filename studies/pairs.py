"""Acceptance at fixed pairs: how far the log-odds of each rule are from Delta, by law of the rows and by batch.

A pair (t, t') is made of numbers per row with a known mean (Delta), variance and skewness. Every rule decides it many
times. The chance to accept given the rows read is known in closed form, so only the rows are simulated. About two
minutes on a GPU.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

import tallchain as tc
from benchmarks.records import table
from studies.study import Keep, Result, forget
from studies.targets import given_ratios
from tallchain.acceptance import MinibatchBarker, Penalty
from tallchain.plots.style import BLUE, GREEN, GREY, VERMILION, panels, shared_legend
from tallchain.proposals import Fixed
from tallchain.types import Array, IntegratedTest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH, SEED = 50, 11
DELTAS = (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0)

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
USUAL = 150.0
"""Rows needed, for all rules and laws."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    rows: int = 1_000_000
    decisions: int = 2_000_000
    """Decisions of each rule at each pair."""
    at_once: int = 50_000
    rules: tuple[str, ...] = tuple(RULES)
    by_rows: tuple[str, ...] = ("growth", "fresh", "fresh, skew", "pilot", "pilot, skew")
    """Rules to follow as the rows needed grow."""
    needed: tuple[float, ...] = (75.0, 150.0, 300.0, 600.0, 1200.0)
    few_laws: int | None = None
    """How many of the laws; None for all."""

    @classmethod
    def quick(cls) -> Config:
        """Three rules, two laws, few rows."""
        rules = ("growth", "fresh", "pilot")
        return cls(10_000, 200, 200, rules, rules, needed=(150.0, 300.0), few_laws=3)


# ---- the pairs ---------------------------------------------------------------------------------


def laws(rows: int = Config.rows) -> dict[str, np.ndarray]:
    """Rows of mean 0 and variance 1."""
    random = np.random.default_rng(SEED)
    drawn = {
        "normal": random.standard_normal(rows),
        "gamma (skewness 1)": random.standard_gamma(4.0, rows),
        "exponential (skewness 2)": random.standard_exponential(rows),
        "lognormal (skewness 2.3)": np.exp(0.6 * random.standard_normal(rows)),
        "Bernoulli mixture (skewness 1.5)": (random.random(rows) < 0.05) + 0.2 * random.standard_normal(rows),
    }
    return {name: (values - values.mean()) / values.std() for name, values in drawn.items()}


def skewness(rows: np.ndarray) -> float:
    """Of rows of mean 0 and variance 1."""
    return float(np.mean(rows**3))


def kernel_of(rows: np.ndarray, needed: float, acceptance: Any) -> tc.MetropolisHastings:
    """Rows whose mean over `needed` of them has variance 1."""
    data = (np.sqrt(needed) * rows).astype(np.float32)
    source = tc.WithReplacement(data, BATCH)
    proposal = Fixed(jnp.ones(()))
    return tc.MetropolisHastings(given_ratios(len(data)), source, proposal=proposal, acceptance=acceptance)


# ---- decisions ---------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="count")
def decide(kernel: tc.MetropolisHastings, key: Array, count: int) -> dict[str, Array]:
    """Sums over `count` decisions at Delta = 0, from which those at any Delta follow: the rule reads the same rows."""
    test, population, position = kernel.acceptance, kernel.source.population, jnp.zeros(())
    assert isinstance(test, IntegratedTest)
    chance = test.chance

    def one(key: Array) -> tuple[Array, Array, Array, Array]:
        seen = kernel.decide(kernel.draw(key, position), position).seen
        chances = [chance(seen.memory, jnp.float32(delta), seen.evidence, population) for delta in DELTAS]
        return jnp.stack(chances), seen.evidence.mean, seen.rows_read, seen.evidence.count

    chances, estimate, rows, b = jax.vmap(one)(jr.split(key, count))
    return {
        "chances": chances.sum(0),
        "squares": (chances**2).sum(0),
        "shift": estimate.sum(),
        "shift_squares": (estimate**2).sum(),
        "rows": rows.sum(),
        "root_inverse_b": (1 / jnp.sqrt(b)).sum(),
    }


def measure(kernel: tc.MetropolisHastings, decisions: int, at_once: int = Config.at_once) -> dict[str, Any]:
    """Average over decisions: error in log-odds by Delta, rows, and the shift of Delta*."""
    sums: dict[str, np.ndarray] = {}
    at_once = min(decisions, at_once)
    turns = -(-decisions // at_once)
    for turn in range(turns):
        part_sums = decide(kernel, jr.fold_in(jr.key(SEED), turn), at_once)
        sums = {k: sums.get(k, 0.0) + np.asarray(v, np.float64) for k, v in part_sums.items()}
    n = turns * at_once
    p = sums["chances"] / n
    error_p = np.sqrt((sums["squares"] / n - p**2) / n)
    if hasattr(kernel.acceptance, "exact_chance"):
        log_odds, error = np.log(p / (1 - p)) - DELTAS, error_p / (p * (1 - p))
    else:  # no exact counterpart: use the balance of a pair and its mirror image, whose rows have the opposite sign
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


def both_ways(rows: np.ndarray, needed: float, rule: Any, config: Config) -> dict[str, Any]:
    """Measure a rule; if it is not like Barker's, take log a(Delta)/a'(-Delta) - Delta with a' at mirrored rows."""
    kernel = kernel_of(rows, needed, rule())
    result = measure(kernel, config.decisions, config.at_once)
    if not hasattr(kernel.acceptance, "exact_chance"):
        back = measure(kernel_of(-rows, needed, rule()), config.decisions, config.at_once)
        there, return_ = np.asarray(result["chance"]), np.asarray(back["chance"])[::-1]
        result["log_odds_error"] = (np.log(there / return_) - DELTAS).tolist()
        relative = np.asarray(result["chance_error"]) / there, np.asarray(back["chance_error"])[::-1] / return_
        result["standard_error"] = np.hypot(*relative).tolist()
    return result


# ---- the study ---------------------------------------------------------------------------------


def run(config: Config, keep: Keep = forget) -> Result:
    """Measure every rule with every law, and some as the rows needed grow."""
    every = dict(list(laws(config.rows).items())[: config.few_laws])
    results: dict[str, Any] = {"rules": [], "by_rows": []}

    def add(part: str, law: str, rule: str, needed: float) -> None:
        found = both_ways(every[law], needed, RULES[rule], config)
        results[part].append({"law": law, "skewness": skewness(every[law]), "rule": rule, "needed": needed} | found)
        print(law, rule, needed, np.round(found["log_odds_error"], 4), found["mean_rows"], flush=True)

    for law in every:
        for rule in config.rules:
            add("rules", law, rule, USUAL)
        keep(Result.of(configuration(config), results))
    for law in list(every)[1:]:
        for needed in config.needed:
            for rule in config.by_rows:
                add("by_rows", law, rule, needed)
        keep(Result.of(configuration(config), results))
    return Result.of(configuration(config), results)


def configuration(config: Config) -> dict[str, Any]:
    """Say how it was measured."""
    return {
        "rows": f"{config.rows:,} drawn from each law, standardised, times sqrt(needed); read with replacement",
        "needed": "rows at which the variance of Delta* is 1",
        "deltas": DELTAS,
        "batch": BATCH,
        "trials": config.decisions,
        "seed": SEED,
    }


def mean_error(found: dict[str, Any]) -> float:
    """Mean absolute error in log-odds over Delta."""
    return float(np.mean(np.abs(found["log_odds_error"])))


# ---- results ------------------------------------------------------------------------------

SHOWN = ("growth", "growth, skew as printed", "stein", "pilot, skew", "fresh", "fresh, skew", "penalty, fresh")
FINE = 300.0
"""Rows needed (6 batches) above which the steps of growth are fine."""


def page(result: Result) -> dict[str, str]:
    """The error of the rules, its fall with the rows needed, and the shift of Delta*."""
    return {"pairs": _rules(result), "stopped": _stopped(result), "shift": _shift(result)}


def _rules(result: Result) -> str:
    shown = [
        found
        for found in result.results["rules"]
        if found["rule"] in SHOWN and found["law"].startswith(("normal", "exp"))
    ]
    rows = [
        [found["law"], found["rule"], f"{found['mean_rows']:.0f}", f"{found['shift']:+.3f}"]
        + [f"{error:+.3f}" for error in found["log_odds_error"]]
        for found in shown
    ]
    worst = max(max(found["standard_error"]) for found in shown)
    deltas = result.configuration["deltas"]
    header = ["rows", "rule", "read", "shift of Delta*", *(f"Delta = {delta:g}" for delta in deltas)]
    return table(header, rows) + f"\n\nStandard errors of the last columns: at most {worst:.4f}."


def _stopped(result: Result) -> str:
    """Mean |error| over Delta against the rows needed, by stopping rule, for exponential rows."""
    results = [found for found in result.results["by_rows"] if found["law"].startswith("exponential")]
    needed = sorted({found["needed"] for found in results})
    cells = {(found["rule"], found["needed"]): f"{mean_error(found):.4f}" for found in results}
    rows = [[rule, *(cells[rule, b] for b in needed)] for rule in dict.fromkeys(found["rule"] for found in results)]
    return table(["exponential rows", *(f"b near {b:.0f}" for b in needed)], rows)


def _shift(result: Result) -> str:
    results = result.results["by_rows"]
    growth = [r["shift"] / shift_law(r) for r in results if r["rule"] == "growth" and r["needed"] >= FINE]
    most = {rule: max(abs(r["shift"]) for r in results if r["rule"] == rule) for rule in ("fresh", "pilot")}
    noise = max(r["shift_error"] for r in results)
    return (
        f'Measured over predicted shift of "growth", for b of {FINE:.0f} and more: {min(growth):.2f} to '
        f'{max(growth):.2f}. Largest shift of "fresh": {most["fresh"]:.4f}, of "pilot": {most["pilot"]:.4f}; '
        f"standard errors at most {noise:.4f}."
    )


def shift_law(found: dict[str, Any]) -> float:
    """-gamma sqrt(s2/b), s2 = 1."""
    return -found["skewness"] * found["mean_root_inverse_b"]


SHIFT_STYLES: dict[str, dict[str, Any]] = {
    "growth": {"color": VERMILION, "marker": "s"},
    "pilot": {"color": GREEN, "marker": "^"},
    "fresh": {"color": BLUE, "marker": "o"},
}


def pictures(result: Result) -> dict[str, Figure]:
    """Mean of Delta* - Delta against its predicted shift by growth; hollow where the steps of growth are coarse."""
    figure, [[axes]] = panels((6.8, 4.8), grid=True)
    for rule, style in SHIFT_STYLES.items():
        series = [found for found in result.results["by_rows"] if found["rule"] == rule]
        for is_coarse in (False, True):
            part = [found for found in series if (found["needed"] < FINE) == is_coarse]
            look = style | ({"markerfacecolor": "white"} if is_coarse else {"label": rule})
            law, shift = [shift_law(found) for found in part], [found["shift"] for found in part]
            axes.errorbar(law, shift, [2 * r["shift_error"] for r in part], lw=0, elinewidth=1.2, ms=5, **look)
    low, _ = axes.get_xlim()
    axes.plot([low, 0], [low, 0], color=GREY, zorder=0, label=r"$-\gamma\sqrt{s^2/b}$")
    axes.axhline(0, color=GREY, ls="--", zorder=0)
    axes.set(xlabel=r"$-\gamma\sqrt{s^2/b}$ at $s^2 = \sigma^2 = 1$", ylabel=r"measured mean of $\Delta^* - \Delta$")
    shared_legend(figure, axes, 4, fontsize=9)
    return {"shift": figure}
