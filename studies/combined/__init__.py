"""Two tests at each look: may AustereMH's t-test decide before the minibatch test can, and what does that cost?

The constructions differ in the variable that the t-test adds to Delta* before it tests the sign, and in how this
variable depends on the noise of the minibatch test (Z, X_corr), which decides when the t-test could not:

    fresh       X_log drawn separately: a test like Barker's, and another one if that was not sure
    uniform     X_log made from the same uniform as X_corr
    sum         sigma Z + X_corr, which is logistic
    curtailed   X_corr alone, with s2 - sigma^2 for s2: is the decision of the minibatch test almost certain?
    metropolis  -log u: Metropolis' test, and one like Barker's if that was not sure

on the minibatch test that grows its batch until s2 < sigma^2, as printed; and `Combined`, which is "curtailed" on the
minibatch test that plans its batch by a pilot, the default. The study measures rows and two errors: that of detailed
balance at fixed pairs, and that of the draws on the paper's mixture. `early` is the share of decisions made by the
t-test.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.records import table
from studies.combined.constructions import CHOSEN, COUPLED
from studies.combined.fixed import CASES, DELTAS, LAWS, fixed_pairs
from studies.combined.sampled import TIMED, on_mixture, time_ratio
from studies.mixture import with_errors
from studies.study import Keep, Result, forget
from studies.targets import MIXTURE_BATCH, MIXTURE_ROWS, MIXTURE_STEP, SEED, Sizes, mixture

COUPLED_SIZES, CHOSEN_SIZES = Sizes(512, 3000, 1000), Sizes(1024, 4000, 1000)


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    cases: tuple[str, ...] = tuple(CASES)
    """At fixed pairs."""
    laws: tuple[str, ...] = LAWS
    few_tests: int | None = None
    """How many of the tests in each case and on the mixture; None for all."""
    decisions: int = 60_000
    """Each way, at each Delta of a pair."""
    at_once: int = 5_000
    rows: int = MIXTURE_ROWS
    coupled: Sizes = COUPLED_SIZES
    chosen: Sizes = CHOSEN_SIZES
    timed_draws: int = 200
    repetitions: int = 5

    @classmethod
    def quick(cls) -> Config:
        """One test of each kind, few rows, short chains."""
        short = Sizes(8, 20, 5)
        return cls(("planned",), ("normal",), 1, 200, 200, 5000, short, short, timed_draws=5, repetitions=1)


def run(config: Config, keep: Keep = forget) -> Result:
    """Decide at fixed pairs, and sample the mixture."""
    results: dict[str, Any] = {"fixed_pairs": [], "mixture": []}
    for law in config.laws:
        for name in config.cases:
            case = CASES[name]._replace(tests=_some(CASES[name].tests, config))
            results["fixed_pairs"] += fixed_pairs(case, law, config.decisions, config.at_once)
            keep(Result.of(configuration(config), results))
    model, kernel_of = mixture(config.rows)
    grid = model.quadrature()
    for tests, sizes in ((COUPLED, config.coupled), (CHOSEN, config.chosen)):
        for name, test in _some(tests, config).items():
            results["mixture"].append({"test": name} | on_mixture(kernel_of(test()), grid, sizes))
            keep(Result.of(configuration(config), results))
    results["time_over_minibatch"] = time_ratio(
        kernel_of, grid, config.coupled.chains, config.timed_draws, config.repetitions
    )
    return Result.of(configuration(config), results)


def _some(tests: dict[str, Any], config: Config) -> dict[str, Any]:
    return dict(list(tests.items())[: config.few_tests])


def configuration(config: Config) -> dict[str, Any]:
    """Say how it was measured."""
    return {
        "fixed_pairs": f"{config.decisions:,} decisions each way at each Delta of {DELTAS.tolist()}; rows normal, or "
        "gamma with skewness -1.6; `added` is the error less that of the first test with the same law, variance and "
        "batch",
        "mixture": f"N = {config.rows:,}, K = {config.rows // 100:,}, RandomWalk({MIXTURE_STEP}), "
        f"Shuffled(batch_size={MIXTURE_BATCH}); {config.coupled.warmup} draws of warm-up from the exact posterior; "
        "standard errors between independent chains",
        "rules": "the constructions named by a word are on top of `growth`, MinibatchBarker(stopping='growth', "
        "skew=False); Combined(epsilon) is on top of MinibatchBarker()",
        "time_over_minibatch": f"{TIMED[1]} over {TIMED[0]}, {config.coupled.chains} chains x {config.timed_draws} "
        f"draws of the mixture, median of {config.repetitions} ratios of neighbouring runs",
        "seed": SEED,
    }


def page(result: Result) -> dict[str, str]:
    """Rows and draws on the mixture, and the time."""
    rows = [
        [
            f"`{found['test']}`" if "(" in found["test"] else found["test"],
            f"{found['rows']:.1f} ± {found['rows_mcse']:.1f}",
            f"{found['acceptance']:.3f}",
            f"{found['early']:.2f}",
            with_errors(found["variance_ratio"], found["variance_mcse"], ".3f"),
        ]
        for found in result.results["mixture"]
    ]
    header = ["test", "rows per decision", "acceptance", "decided by the t-test", "variance"]
    ratio = result.results["time_over_minibatch"]
    return {"combined": f"{table(header, rows)}\n\nTime of `Combined()` over `MinibatchBarker()`: {ratio:.2f}."}
