"""Simulation-based calibration (Talts et al. 2018): the rank of a true parameter among draws of its posterior.

Draw parameters from the prior, rows given the parameters, and positions from the posterior given the rows: each
parameter and its draws then have the same distribution given the rows, so its rank among them is uniform. No closed
form is needed. Here every draw is the end of a chain of its own. A chain starts in the normal approximation of its
posterior, not at the truth, so chains of any length do not favour the truth. Four relaxation times are long enough for
errors to show.
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax import random as jr

from benchmarks.records import table
from studies.calibration.broken import BROKEN, Break
from studies.calibration.chains import end_of_chains
from studies.calibration.models import MODELS, TESTS, kernel_of, simulate
from studies.calibration.pictures import ranks_figure
from studies.calibration.ranks import CHAINS, LEVEL, counts, is_calibrated, p_value, p_values, power
from studies.study import Keep, Result, forget

if TYPE_CHECKING:
    from matplotlib.figure import Figure

START_WIDTH = 2.0  # of the starts, in standard deviations of the normal approximation
FACTORS = (0.67, 0.8, 0.9, 1.1, 1.25, 1.5)  # wrong variances for which to measure how often they are detected


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    models: tuple[str, ...] = tuple(MODELS)
    tests: tuple[str, ...] = tuple(TESTS)
    broken: tuple[str, ...] = tuple(BROKEN)
    """How to break the first of the tests."""
    rows: int = 1000
    """Of a data set."""
    sets: int | None = None
    """Data sets; None for the number that model and test set."""
    relaxations: float = 4.0
    """Length of a chain in relaxation times."""
    power_repetitions: int = 1000
    seed: int = 7

    @classmethod
    def quick(cls) -> Config:
        """One model, one test, and one that is broken; few data sets."""
        first = tuple(MODELS)[:1], tuple(TESTS)[:1], tuple(BROKEN)[1:2]
        return cls(*first, rows=200, sets=20, relaxations=0.3, power_repetitions=5)

    def num_sets(self, model: str, test: str) -> int:
        """Data sets for a model and a test."""
        return TESTS[test].times * MODELS[model].sets if self.sets is None else self.sets


class Ranks(NamedTuple):
    """Ranks, and what they cost."""

    ranks: np.ndarray
    """(set, parameter), from 0 to CHAINS."""
    draws: int
    share: float
    """Of the rows, looked at per decision."""
    scanned: float
    acceptance: float
    memory: float
    """Share of a start that is left at the end of a chain: the largest over parameters."""


def rank(model_name: str, test_name: str, config: Config, broken: Break | None = None) -> Ranks:
    """Simulate data sets, sample each posterior, and rank the truth among the draws."""
    model, test = MODELS[model_name], TESTS[test_name]
    # Each combination has data sets of its own, so that the results are independent.
    words = [config.seed, list(MODELS).index(model_name), list(TESTS).index(test_name)]
    random = np.random.default_rng(words)
    joint = simulate(model, random, config.num_sets(model_name, test_name), config.rows)
    kernel = kernel_of(model, test, joint)
    kernel = kernel if broken is None else broken(kernel, model.step)
    z = random.normal(size=(len(joint.truth), CHAINS, joint.truth.shape[1])).astype(np.float32)
    starts = joint.mode[:, None] + START_WIDTH * np.einsum("sij,scj->sci", joint.root, z)
    keys = jr.split(jr.key(random.integers(2**31)), starts.shape[:2])
    # A random walk with small steps is a diffusion: it forgets at a rate of acceptance step^2 / 2.
    draws = math.ceil(config.relaxations * 2 / (test.acceptance * model.step**2))
    ends, total = end_of_chains(kernel, joint.data, model.step * joint.root, keys, starts, draws)
    standardised = np.linalg.solve(joint.root[:, None], (ends - joint.mode[:, None])[..., None])[..., 0]
    return Ranks(
        (ends < joint.truth[:, None]).sum(1),
        draws,
        total.rows_read / total.num_decisions / config.rows,
        total.rows_scanned / total.num_decisions / config.rows,
        total.num_accepted / total.num_decisions,
        float(np.abs((z * standardised).mean((0, 1))).max()) / START_WIDTH,
    )


# ---- the study ---------------------------------------------------------------------------------


def run(config: Config, keep: Keep = forget) -> Result:
    """Rank with every model and test, and with every way to break the first of the tests."""
    results: dict[str, Any] = {"sound": [], "broken": [], "power": _power(config)}
    for model in config.models:
        for test in config.tests:
            results["sound"].append(_record(model, test, config))
        for broken in config.broken:
            results["broken"].append(_record(model, config.tests[0], config, broken))
        keep(Result.of(configuration(config), results))
    return Result.of(configuration(config), results)


def configuration(config: Config) -> dict[str, Any]:
    """Say how it was measured."""
    return {
        "rows": config.rows,
        "chains": CHAINS,
        "batch_size": {name: TESTS[name].batch for name in config.tests},
        "step": {name: MODELS[name].step for name in config.models},
        "starts": f"normal approximation of the posterior, {START_WIDTH:g} times as wide",
        "relaxation_times": config.relaxations,
        "level": LEVEL,
        "seed": config.seed,
    }


def _power(config: Config) -> dict[str, Any]:
    sets = config.num_sets(config.models[0], config.tests[0])
    refused = {f"{factor:g}": power(sets, factor, config.power_repetitions, config.seed) for factor in FACTORS}
    return {"sets": sets, "refused": refused}


def _record(model: str, test: str, config: Config, broken: str | None = None) -> dict[str, Any]:
    began = time.perf_counter()
    found = rank(model, test, config, None if broken is None else BROKEN[broken])
    record = {
        "model": model,
        "test": test,
        "broken": broken,
        "sets": len(found.ranks),
        "draws": found.draws,
        "share_of_rows": found.share,
        "share_scanned": found.scanned,
        "acceptance": found.acceptance,
        "memory": found.memory,
        "p_value": p_value(found.ranks),
        "p_values": p_values(found.ranks),
        "is_calibrated": is_calibrated(found.ranks),
    }
    print(f"{time.perf_counter() - began:6.1f} s", record, flush=True)
    return record | {"counts": counts(found.ranks).tolist()}


def page(result: Result) -> dict[str, str]:
    """Whether ranks are uniform, by model and test, and for samplers broken on purpose."""
    results, configuration = result.results, result.configuration
    limit = configuration["level"] / len(results["sound"])
    rows = [
        [
            found["model"],
            f"`{found['test']}`",
            f"{found['sets']:,}",
            f"{found['share_of_rows']:.2f}" + (" + all scanned" if found["share_scanned"] else ""),
            f"{found['acceptance']:.2f}",
            f"{found['p_value']:.2g}",
        ]
        for found in results["sound"]
    ]
    p_by = {(found["broken"], found["model"]): found["p_value"] for found in results["broken"]}
    models = list(dict.fromkeys(model for _, model in p_by))
    broken = [
        [name, *(f"{p_by[name, model]:.1g}" for model in models)] for name in dict.fromkeys(name for name, _ in p_by)
    ]
    memory = max(found["memory"] for found in results["sound"])
    seen = ", ".join(f"{share:.2f} at {factor}" for factor, share in results["power"]["refused"].items())
    steps = " or ".join(f"{step:g}" for step in dict.fromkeys(configuration["step"].values()))
    header = ["model", "test", "data sets", "share of rows a decision reads", "acceptance", "p"]
    text = (
        f"{table(header, rows)}\n\n{configuration['rows']:,} rows per data set, steps of {steps} posterior standard "
        f"deviations, {configuration['chains']} chains of {configuration['relaxation_times']:g} relaxation times: "
        f"at most {memory:.2f} of a chain's start is left at its end. The check refuses p < {limit:.1g}, which is "
        f"{configuration['level']:g} divided among all lines (Bonferroni; also Holm's first step). Samplers broken on "
        "purpose, otherwise `MinibatchBarker()`, "
        f"and their p:\n\n{table(['broken', *models], broken)}\n\nHow often the check refuses draws of a wrong "
        f"variance, by its ratio to the right one (one parameter, {results['power']['sets']:,} data sets): {seen}."
    )
    return {"calibration": text}


def pictures(result: Result) -> dict[str, Figure]:
    """Draw the histograms of ranks."""
    return {"calibration": ranks_figure(result.results)}
