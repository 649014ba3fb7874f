"""The error of the test as it is used, with variance and skewness estimated from the b rows that also give Delta*.

By simulation. All rules and all Delta use the same rows. What is known exactly (the test with known variance, and
moments of the mean and of s2) is regressed out of the chances.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr
from scipy.special import expit, logit

from studies.orders.quadrature import DELTAS, chances, characteristic
from studies.orders.rows import Rows
from studies.targets import SEED
from tallchain.acceptance.correction import minimax
from tallchain.acceptance.evidence import SkewMoments, row_variance
from tallchain.acceptance.stopping.rows import third_cumulant
from tallchain.acceptance.tables import LADDER, Reading, Tables
from tallchain.types import Array, Population

USED_VARIANCE = 1.0
"""Of Delta*: what the default aims at; its tables (`LADDER`) begin at sigma 1.2."""
AT_ONCE = 2**25  # numbers held at a time
RULES: dict[str, bool | str] = {"none": False, "skew": True, "skew, true skewness": True, "printed": "printed"}
"""As in `MinibatchBarker(skew=...)`. The third shows what the ESTIMATE of the skewness costs."""


def used_tables() -> list[Tables]:
    """The tables of the default, by rule; appendix A.5 has its own."""
    return [Tables.of_laws(LADDER, skew=kind) for kind in RULES.values()]


def readings(values: Array, gamma: Array, population: Population) -> list[Reading]:
    """What each rule knows after b rows of skewness gamma."""
    found = SkewMoments.of(values, jnp.ones(values.shape, bool))
    b, variance = found.count, row_variance(found)
    kappa3 = third_cumulant(found.skewness, variance, b, population, of_same_rows=True)
    true = third_cumulant(gamma, jnp.full_like(variance, b * USED_VARIANCE), b, population, of_same_rows=True)
    skews = (jnp.zeros_like(kappa3), kappa3, true, found.skewness / (6 * jnp.sqrt(b)))
    return [Reading(found.mean, variance / b, skew) for skew in skews]


@partial(jax.jit, static_argnames=("b", "count"))
def products(key: Array, rows: Array, gamma: Array, tables: list[Tables], b: int, count: int) -> Array:
    """Sums of the products of all pairs of: 1, the controls, and the chances to accept minus Barker's, by rule."""
    population = Population(len(rows), b, repeats=True)

    def at_deltas(table: Tables, reading: Reading) -> Array:
        return jax.vmap(lambda delta: table.chance(reading._replace(estimate=reading.estimate + delta)))(DELTAS)

    def one(key: Array) -> Array:
        values = jnp.sqrt(b * USED_VARIANCE) * rows[jr.randint(key, (b,), 0, len(rows))]
        found = readings(values, gamma, population)
        mean, extra = found[0].estimate, found[0].s2 - USED_VARIANCE
        simple = at_deltas(tables[0], Reading(mean, jnp.full_like(mean, USED_VARIANCE)))
        powers = jnp.stack([mean, mean**2, extra, mean * extra, mean**2 * extra])
        chosen = [at_deltas(*pair) - expit(DELTAS) for pair in zip(tables, found, strict=True)]
        return jnp.concatenate([jnp.ones(1), simple, powers, *chosen])

    columns = jax.vmap(one)(jr.split(key, count))
    return columns.T @ columns


def expected_controls(rows: Rows, b: int) -> np.ndarray:
    """The known means of the controls of `products`: the test with known variance, and moments of mean and s2."""
    noise = characteristic(rows, b, USED_VARIANCE)
    plain = minimax(LADDER[0])
    simple = chances(noise, (plain.atoms, plain.weights), float(np.sqrt(LADDER[0] ** 2 - USED_VARIANCE)))
    third = rows.moment(3) * USED_VARIANCE**1.5 / np.sqrt(b)
    fourth = (rows.moment(4) - 3) * USED_VARIANCE**2 / b
    return np.concatenate([simple, [0.0, USED_VARIANCE, 0.0, third, fourth]])


def by_simulation(rows: Rows, tables: list[Tables], b: int, decisions: int) -> list[dict[str, Any]]:
    """Error in log-odds of each rule, with its standard errors."""
    values, gamma = jnp.asarray(rows.values), jnp.asarray(rows.moment(3))
    at_once = min(decisions, max(1, AT_ONCE // max(b, 64)))
    turns = -(-decisions // at_once)
    sums: Any = 0.0
    for turn in range(turns):
        key = jr.fold_in(jr.fold_in(jr.key(SEED), b), turn)
        sums = sums + np.asarray(products(key, values, gamma, tables, b, at_once))
    n = turns * at_once
    errors, covariance = regressed(sums / n, expected_controls(rows, b), n)
    return [
        {"rule": rule, "b": b, "trials": n} | _in_log_odds(errors[part], covariance[part, part])
        for rule, part in ((rule, slice(i * len(DELTAS), (i + 1) * len(DELTAS))) for i, rule in enumerate(RULES))
    ]


def _in_log_odds(errors: np.ndarray, covariance: np.ndarray) -> dict[str, Any]:
    """Errors of the chances to accept as errors in log-odds."""
    p = expit(DELTAS) + errors
    scale = 1 / (p * (1 - p))
    off = logit(p) - DELTAS
    signs = np.sign(off) * scale / len(DELTAS)
    return {
        "log_odds_error": off.tolist(),
        "standard_error": (np.sqrt(np.diag(covariance)) * scale).tolist(),
        "standard_error_of_mean": float(np.sqrt(signs @ covariance @ signs)),
    }


def regressed(moments: np.ndarray, controls: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of the last columns with the controls regressed out, and the covariance of these means."""
    centred = moments - np.outer(moments[0], moments[0])
    x, y = slice(1, 1 + len(controls)), slice(1 + len(controls), None)
    units = np.sqrt(np.diag(centred)[x])
    slope = np.linalg.lstsq(centred[x, x] / np.outer(units, units), centred[x, y] / units[:, None], rcond=1e-12)[0]
    slope /= units[:, None]
    means = moments[0, y] - (moments[0, x] - controls) @ slope
    left = centred[y, y] - slope.T @ centred[x, y]
    return means, left / n
