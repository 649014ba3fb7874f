"""Our tests beside those of PyMHSS, the package of the authors of MH-SS, on the regression that it simulates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jax import random as jr

import tallchain as tc
from benchmarks.peers.pymhss import import_quietly, quiet
from benchmarks.peers.targets import SEED
from tallchain.acceptance import MHSS, ScalableMH, TunaMH
from tallchain.bounds import regression_bound
from tallchain.surrogates import Predictors, Taylor, find_reference

ROWS, D = 10_000, 5
KAPPA = 1.5  # of the walk, over sqrt d: the package's
CHI = 1e-5
DRAWS, CHAINS, EACH = 200_000, 200, 2_000


class Case(NamedTuple):
    """One algorithm of the package, and ours."""

    name: str
    function: str
    options: dict[str, Any]
    order: int
    measure: str
    make: Callable[[], Any]


CASES = [
    *(Case("MHSS(two_stages=True)", "MH_SS", {}, order, "pymhss", partial(MHSS, two_stages=True)) for order in (1, 2)),
    *(Case("ScalableMH()", "SMH", {"bound": "orig"}, order, "scalable", ScalableMH) for order in (1, 2)),
    Case(
        f"TunaMH({CHI:g})",
        "MH_SS",
        {"chi": CHI, "control_variates": False, "phi_function": "half"},
        0,
        "pymhss",
        partial(TunaMH, CHI),
    ),
]


def compared() -> list[dict[str, Any]]:
    """Acceptance, and means and standard deviations of the draws, of both; flat prior."""
    package = import_quietly()
    np.random.seed(SEED)
    simulated = package.simulate_data(ROWS, D, "logistic")
    x, y = simulated["x"], np.asarray(simulated["y"]).ravel()
    model = tc.models.logistic_regression(x, y, prior_sd=None, bound=False)
    laplace = find_reference(model.posterior, model.data, np.zeros(D, np.float32), progress=False).laplace
    covariance = np.asarray(laplace.factor, float) @ np.asarray(laplace.factor, float).T
    surrogates = {
        0: None,
        1: Taylor(model.posterior, model.data, laplace.mean, 1),
        2: Predictors(model.posterior, model.data, laplace.mean, order=2),
    }
    records = []
    for case in CASES:
        np.random.seed(SEED)
        with quiet():
            theirs = getattr(package, case.function)(
                y.astype(float),
                x,
                covariance,
                np.asarray(laplace.mean, float),
                nburn=1000,
                npost=DRAWS,
                model="logistic",
                implementation="vectorised",
                kappa=KAPPA,
                taylor_order=case.order,
                **case.options,
            )
        bound = regression_bound(model.posterior, model.data, laplace, case.order, measure=case.measure)
        kernel = tc.MetropolisHastings(
            model.posterior,
            tc.WithReplacement(model.data, 32, weights=bound.weights),
            proposal=tc.RandomWalk.preconditioned(laplace, KAPPA / D**0.5),
            acceptance=case.make(),
            surrogate=surrogates[case.order],
            bound=bound,
        )
        starts = laplace.draw_many(jr.key(SEED), CHAINS)
        ours = tc.sample(jr.key(SEED + 1), kernel, starts, EACH, num_chains=CHAINS, num_warmup=200, progress=False)
        records.append(_record(case, theirs, ours))
        print(records[-1], flush=True)
    return records


def _record(case: Case, theirs: dict[str, Any], ours: tc.Trace) -> dict[str, Any]:
    mine, other = np.asarray(ours.position, float), np.asarray(theirs["parameters"], float)[None]
    sd = mine.std((0, 1))
    differences = (other.mean((0, 1)) - mine.mean((0, 1))) / sd
    error = np.sqrt(_error(mine) ** 2 + _error(other) ** 2) / sd
    return {
        "test": case.name,
        "function": case.function,
        "order": case.order,
        "acceptance": float(ours.is_accepted.mean()),
        "their_acceptance": float(theirs["acc_rate"]),
        "rows": float(ours.rows_read.mean()),
        "their_rows": float(np.mean(theirs["BoverN"])) * ROWS,
        "worst_difference_of_means": float(np.abs(differences).max()),
        "worst_z": float(np.abs(differences / error).max()),
        "sd_ratios": [float(f(other.std((0, 1)) / sd)) for f in (np.min, np.max)],
    }


def _error(draws: np.ndarray) -> np.ndarray:
    from arviz_stats.base import array_stats

    return np.asarray(array_stats.mcse(draws, chain_axis=0, draw_axis=1, method="mean"))
