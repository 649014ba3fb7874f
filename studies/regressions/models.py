"""Regressions with made data, from a fixed seed: the same on every machine (`digest` tells)."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from tallchain.models import Group, Regression, families, priors

SEED = 20
PRIOR = priors.Prior(intercept=priors.Normal(10.0))  # that of the reference
UNEQUAL = 1.5  # standard deviation of the logs of the shares of groups


def make(name: str, rows: int | None = None) -> Regression:
    """Make a model by its name in `SETTINGS`; with fewer rows if asked for."""
    setting = SETTINGS[name]
    return setting.make(np.random.default_rng(SEED), rows or setting.rows)


def digest(model: Regression) -> str:
    """Return a check sum of the rows."""
    found = 0
    for name in sorted(model.data):
        found = zlib.crc32(np.ascontiguousarray(model.data[name]).tobytes(), found)
    return f"{found:08x}"


# ---- parts ---------------------------------------------------------------------------------------


def _features(rng: np.random.Generator, rows: int, count: int, scale: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Return x, and x.beta."""
    x = rng.standard_normal((rows, count), dtype=np.float32)
    return x, x @ (scale * rng.standard_normal(count))


def _groups(
    rng: np.random.Generator, rows: int, levels: int, sd: float, unequal: float = UNEQUAL
) -> tuple[Group, np.ndarray]:
    """Return a factor of unequal groups, each with a row if there are enough, and the effect of every row."""
    shares = np.exp(unequal * rng.standard_normal(levels))
    index = rng.choice(levels, rows, p=shares / shares.sum())
    count = min(levels, rows)
    index[:count] = np.arange(count)
    return Group(index), sd * rng.standard_normal(levels)[index]


# ---- models --------------------------------------------------------------------------------------


def _logistic(levels: int, sd: float, unequal: float = UNEQUAL) -> Callable[[np.random.Generator, int], Regression]:
    def build(rng: np.random.Generator, rows: int) -> Regression:
        x, z = _features(rng, rows, 5)
        group, effect = _groups(rng, rows, levels, sd, unequal)
        y = rng.random(rows) < expit(-1 + z + effect)
        return Regression(families.Bernoulli(), y=y, x=x, groups={"group": group}, prior=PRIOR)

    return build


def _crossed(rng: np.random.Generator, rows: int) -> Regression:
    x, z = _features(rng, rows, 3, 0.3)
    store, of_store = _groups(rng, rows, 200, 0.4)
    product, of_product = _groups(rng, rows, 300, 0.2)
    y = rng.poisson(np.exp(0.2 + z + of_store + of_product))
    return Regression(families.Poisson(), y=y, x=x, groups={"store": store, "product": product}, prior=PRIOR)


def _negative_binomial(rng: np.random.Generator, rows: int) -> Regression:
    x, z = _features(rng, rows, 3, 0.3)
    group, effect = _groups(rng, rows, 500, 0.3)
    shape, mean = 2.0, np.exp(0.5 + z + effect)
    y = rng.poisson(mean * rng.standard_gamma(shape, rows) / shape)
    return Regression(families.NegativeBinomial(), y=y, x=x, groups={"group": group}, prior=PRIOR)


def _weibull(rng: np.random.Generator, rows: int) -> Regression:
    x, z = _features(rng, rows, 3, 0.3)
    group, effect = _groups(rng, rows, 100, 0.3)
    time = np.exp(1 + z + effect) * rng.standard_exponential(rows) ** (1 / 1.5)
    end = np.exp(1.8) * rng.standard_exponential(rows)
    y = np.minimum(time, end), time <= end
    return Regression(families.Weibull(), y=y, x=x, groups={"group": group}, prior=PRIOR)


def _horseshoe(rng: np.random.Generator, rows: int) -> Regression:
    count = 100
    x = rng.standard_normal((rows, count), dtype=np.float32)
    beta = np.zeros(count)
    beta[::10] = np.geomspace(0.02, 0.5, 10) * np.resize([1, -1], 10)
    y = rng.random(rows) < expit(-0.5 + x @ beta)
    prior = dataclasses.replace(PRIOR, coefficients=priors.Horseshoe(scale=1e-3))
    return Regression(families.Bernoulli(), y=y, x=x, prior=prior)


def _ordinal(rng: np.random.Generator, rows: int) -> Regression:
    x, z = _features(rng, rows, 4)
    y = np.searchsorted([-1.5, -0.3, 0.8, 2.0], z + rng.logistic(size=rows))
    return Regression(families.Ordinal(5), y=y, x=x, intercept=False, prior=PRIOR)


def _softmax(rng: np.random.Generator, rows: int) -> Regression:
    x = rng.standard_normal((rows, 4), dtype=np.float32)
    beta = 0.5 * rng.standard_normal((4, 4))
    z = np.column_stack([np.zeros(rows), x @ beta + [0.3, -0.2, 0.1, -1.0]])
    y = np.argmax(z + rng.gumbel(size=z.shape), 1)
    return Regression(families.Categorical(5), y=y, x=x, prior=PRIOR)


class Setting(NamedTuple):
    """A model."""

    words: str
    rows: int
    """N."""
    make: Callable[[np.random.Generator, int], Regression]


SETTINGS = {
    "logistic_1000": Setting("logistic, 1,000 groups", 1_000_000, _logistic(1000, 0.5)),
    "logistic_10000": Setting("logistic, 10,000 groups", 1_000_000, _logistic(10_000, 0.5, 1.0)),
    "poisson_crossed": Setting("Poisson, 200 x 300 crossed groups", 1_000_000, _crossed),
    "negative_binomial": Setting("negative binomial, 500 groups", 200_000, _negative_binomial),
    "weibull": Setting("Weibull, censored times, 100 groups", 200_000, _weibull),
    "horseshoe": Setting("logistic, horseshoe prior of 100 coefficients", 100_000, _horseshoe),
    "ordinal": Setting("ordinal, 5 levels", 200_000, _ordinal),
    "softmax": Setting("softmax, 5 levels", 200_000, _softmax),
    "small_sd": Setting("logistic, 200 groups that hardly differ", 100_000, _logistic(200, 0.04)),
}
