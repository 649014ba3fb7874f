"""Every family with outcomes, predictors that suit them, and its log density by scipy. A new family is one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, softmax

from tallchain.models import families
from tallchain.models.families import Family

Outcomes = Callable[[np.random.Generator, int], np.ndarray]


class Case(NamedTuple):
    """A family, how to make outcomes for tests, predictors near which they are likely, and the log density."""

    family: Family
    outcomes: Outcomes
    centre: tuple[float, ...]
    exact: Callable[..., np.ndarray]
    """Of outcomes (N, ...) and predictors, each (N,)."""


def labels(random: np.random.Generator, n: int) -> np.ndarray:
    return random.integers(0, 2, n)


def counts(random: np.random.Generator, n: int) -> np.ndarray:
    return np.where(random.random(n) < 0.1, 0, random.negative_binomial(1.5, 0.3, n))


def successes(random: np.random.Generator, n: int) -> np.ndarray:
    trials = random.integers(1, 30, n)
    return np.stack([random.binomial(trials, random.beta(1, 2, n)), trials], 1)


def reals(random: np.random.Generator, n: int) -> np.ndarray:
    return 1 + 0.8 * random.standard_t(4, n)


def positives(random: np.random.Generator, n: int) -> np.ndarray:
    return random.gamma(2.5, 0.8, n)


def times(random: np.random.Generator, n: int) -> np.ndarray:
    failing, leaving = 2 * random.weibull(1.5, n), random.exponential(3, n)
    return np.stack([np.minimum(failing, leaving), failing < leaving], 1)


def levels(count: int) -> Outcomes:
    return lambda random, n: random.choice(count, n, p=np.arange(1, count + 1) / (count * (count + 1) / 2))


def either(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    return np.where(y > 0, np.log(p), np.log1p(-p))


def of_counts(y: np.ndarray, z: np.ndarray, s: np.ndarray) -> np.ndarray:
    return stats.nbinom.logpmf(y, np.exp(s), np.exp(s) / (np.exp(s) + np.exp(z)))


def of_t(y: np.ndarray, z: np.ndarray, s: np.ndarray, *v: np.ndarray) -> np.ndarray:
    return stats.t.logpdf(y, np.exp(v[0]) if v else 5.0, z, np.exp(s))


def of_times(y: np.ndarray, z: np.ndarray, s: np.ndarray) -> np.ndarray:
    survival = stats.weibull_min(np.exp(s), scale=np.exp(z))
    return np.where(y[:, 1] > 0, survival.logpdf(y[:, 0]), survival.logsf(y[:, 0]))


def of_softmax(y: np.ndarray, *z: np.ndarray) -> np.ndarray:
    logits = np.stack([np.zeros_like(z[0]), *z], 1)
    return np.log(softmax(logits, 1)[np.arange(len(y)), y.astype(int)])


def of_order(y: np.ndarray, z: np.ndarray, c: np.ndarray, *log_gaps: np.ndarray) -> np.ndarray:
    cuts = c[:, None] + np.cumsum(np.stack([np.zeros_like(c), *map(np.exp, log_gaps)], 1), 1)
    bounds = np.pad(expit(cuts - z[:, None]), ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))
    return np.log(np.diff(bounds)[np.arange(len(y)), y.astype(int)])


FAMILIES = {
    "logit": Case(families.Bernoulli(), labels, (0.3,), lambda y, z: either(y, expit(z))),
    "probit": Case(families.Bernoulli("probit"), labels, (0.3,), lambda y, z: either(y, stats.norm.cdf(z))),
    "cloglog": Case(families.Bernoulli("cloglog"), labels, (-0.3,), lambda y, z: either(y, -np.expm1(-np.exp(z)))),
    "binomial": Case(families.Binomial(), successes, (-0.4,), lambda y, z: stats.binom.logpmf(*y.T, expit(z))),
    "poisson": Case(families.Poisson(), counts, (1.0,), lambda y, z: stats.poisson.logpmf(y, np.exp(z))),
    "negative binomial": Case(families.NegativeBinomial(), counts, (1.0, 0.5), of_counts),
    "gaussian": Case(families.Gaussian(), reals, (1.0, 0.2), lambda y, z, s: stats.norm.logpdf(y, z, np.exp(s))),
    "gaussian, known": Case(families.Gaussian(0.7), reals, (1.0,), lambda y, z: stats.norm.logpdf(y, z, 0.7)),
    "t": Case(families.StudentT(), reals, (1.0, -0.2, 1.4), of_t),
    "t, known": Case(families.StudentT(5.0), reals, (1.0, -0.2), of_t),
    "gamma": Case(
        families.Gamma(),
        positives,
        (0.7, 0.9),
        lambda y, z, s: stats.gamma.logpdf(y, np.exp(s), scale=np.exp(z - s)),
    ),
    "weibull": Case(families.Weibull(), times, (0.7, 0.4), of_times),
    "categorical": Case(families.Categorical(4), levels(4), (0.7, 1.1, 1.4), of_softmax),
    "ordinal": Case(families.Ordinal(4), levels(4), (0.2, -2.0, 0.3, 0.1), of_order),
    "ordinal of two": Case(families.Ordinal(2), levels(2), (0.2, -0.5), of_order),
}

COSTLY = ("t", "t, known", "negative binomial", "gamma", "ordinal", "ordinal of two")
COSTLY_SLOW = [pytest.param(name, marks=pytest.mark.slow) if name in COSTLY else name for name in FAMILIES]
"""All families for a test; those that take longest to compile in the slow suite alone."""

EXTREMES = {  # outcomes at which numbers are to stay finite as well
    successes: [[0, 1e7], [1e7, 1e7], [5e6, 1e7], [0, 0]],
    counts: [0, 1, 1e7],
    reals: [-1e6, 0, 1e6],
    positives: [1e-20, 1, 1e20],
    times: [[1e-20, 1], [1e20, 1], [1e20, 0], [1, 1]],
}
