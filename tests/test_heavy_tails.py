"""Regressions with a Student t prior, from `prepare` to draws, against quadrature."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import expit, log_expit

import tallchain as tc
from checks import Z_LIMIT
from conftest import SEED
from tallchain.models import Prior, Regression, families, priors
from tallchain.proposals import PCN, Transition
from tallchain.surrogates.settling import Settled

CHAINS, DRAWS, ROWS = 100, 150, 200
RANDOM = np.random.default_rng(SEED)
X = RANDOM.normal(size=ROWS)
Y = RANDOM.random(ROWS) < expit(0.5 * X)


def drawn(df: float, scale: float) -> tuple[tc.Prepared, tc.Trace]:
    prior = Prior(priors.StudentT(df, scale), priors.Normal(2.0))
    prepared = tc.prepare(Regression(families.Bernoulli(), y=Y, x=X[:, None], prior=prior), progress=False)
    key = jax.random.key(SEED)
    options = {"num_chains": CHAINS, "num_warmup": 50, "scan": 0, "progress": False}
    return prepared, tc.sample(key, prepared.kernel(), prepared.starts(key, CHAINS), DRAWS, **options)


def scores(trace: tc.Trace, df: float, scale: float) -> np.ndarray:
    """Means of t and t^2 against quadrature, in standard errors between chains."""
    a, b = np.meshgrid(np.linspace(-1.2, 1.2, 161), np.linspace(-1.0, 1.8, 1401), indexing="ij")
    log_posterior = -0.5 * (a / 2) ** 2 - 0.5 * (df + 1) * np.log1p((b / scale) ** 2 / df)
    for x, y in zip(X, Y, strict=True):
        log_posterior += log_expit((1 if y else -1) * (a + b * x))
    weight = np.exp(log_posterior - log_posterior.max())
    weight /= weight.sum()
    found: list[Any] = []
    for k, grid in enumerate((a, b)):
        for power in (1, 2):
            of_chain = np.mean(np.asarray(trace.position[..., k], np.float64) ** power, 1)
            found.append((of_chain.mean() - np.sum(weight * grid**power)) / (of_chain.std(ddof=1) / np.sqrt(CHAINS)))
    return np.array(found)


@pytest.mark.parametrize(("df", "scale"), [pytest.param(1.0, 0.05, marks=pytest.mark.slow), (2.0, 0.03)])
def test_a_prior_that_makes_the_posterior_far_from_normal(df: float, scale: float) -> None:
    """By transitions of the surrogate posterior; and the findings say why."""
    prepared, trace = drawn(df, scale)
    assert isinstance(prepared.proposal, Transition)
    assert "NUTS on the surrogate posterior" in str(prepared)
    assert np.all(np.abs(scores(trace, df, scale)) < Z_LIMIT)
    assert np.any(np.abs(scores(trace, df, 3 * scale)) > Z_LIMIT)


def test_a_prior_that_makes_no_difference() -> None:
    prepared, trace = drawn(3.0, 10.0)
    assert isinstance(prepared.proposal, PCN)
    assert np.all(np.abs(scores(trace, 3.0, 10.0)) < Z_LIMIT)


@pytest.mark.slow
def test_a_posterior_without_a_mode_is_expanded_in_its_bulk() -> None:
    """The data and the prior are of equal weight, and the log posterior is nearly level between their modes."""
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 12))
    y = random.random(400) < expit(x @ np.r_[1, -0.8, np.zeros(10)])
    prior = Prior(priors.StudentT(1.0, 0.05))
    prepared = tc.prepare(Regression(families.Bernoulli(), y=y, x=x, prior=prior), progress=False)
    assert isinstance(prepared.reference, Settled)
    assert "in the bulk" in str(prepared)
