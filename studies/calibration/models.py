"""The models, the tests, and data sets from their joint distribution."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tallchain as tc
from tallchain.acceptance import Austere, Confidence, MinibatchBarker, Penalty
from tallchain.functions import shared
from tallchain.models.likelihoods import (
    LinearLogLikelihood,
    NormalLogPrior,
    logistic_log_likelihood,
    poisson_log_likelihood,
)
from tallchain.models.range_bound import RangeBound
from tallchain.types import AcceptanceTest, Array, PyTree

_NEWTON = 8


# ---- models -----------------------------------------------------------------------------------


class Model(NamedTuple):
    """A posterior, and how to simulate its parameters and rows."""

    posterior: tc.Posterior
    prior_sd: float
    features: Callable[[np.random.Generator, int], np.ndarray]
    """(random, rows) -> (row, parameter); one design for all data sets."""
    outcomes: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    """(random, linear predictors) -> outcomes of the same shape."""
    bound: Callable[[np.ndarray, np.ndarray], Any]
    """(features, outcomes) -> the kernel's `bound`, one for all data sets, or None."""
    step: float
    """Of the random walk, in posterior standard deviations."""
    sets: int
    """Data sets, for a test that reads most rows."""


@dataclasses.dataclass(frozen=True)
class SpanBound:
    """Range over rows of -(y - t')^2/2 + (y - t)^2/2: the span of y times |t' - t|."""

    span: float

    def __call__(self, position: Array, candidate: Array) -> Array:
        """Return the range bound."""
        return self.span * jnp.abs(candidate - position)[0]


def _posterior(prior_sd: float, log_likelihood: Any, temperature: float = 1.0) -> tc.Posterior:
    return tc.Posterior(shared(NormalLogPrior(prior_sd)), shared(log_likelihood), temperature)


_NOISE_SD = 2.0

MODELS: dict[str, Model] = {
    # Temperature K with a normal likelihood means a variance K times as large, which the rows have.
    "normal mean": Model(
        _posterior(1.0, LinearLogLikelihood(1.0), _NOISE_SD**2),
        1.0,
        lambda random, rows: np.ones((rows, 1)),
        lambda random, eta: random.normal(eta, _NOISE_SD),
        lambda x, y: SpanBound(float(np.ptp(y, axis=1).max()) * (1 + 1e-5)),
        step=0.3,
        sets=1000,
    ),
    "logistic regression": Model(
        _posterior(1.0, logistic_log_likelihood),
        1.0,
        lambda random, rows: np.concatenate([np.ones((rows, 1)), random.normal(size=(rows, 2))], 1),
        lambda random, eta: random.random(eta.shape) < 1 / (1 + np.exp(-eta)),
        lambda x, y: RangeBound.of(x),
        step=0.25,
        sets=400,
    ),
    "Poisson regression": Model(
        _posterior(0.5, poisson_log_likelihood),
        0.5,
        lambda random, rows: np.concatenate([np.ones((rows, 1)), random.uniform(-1.7, 1.7, (rows, 2))], 1),
        lambda random, eta: random.poisson(np.exp(eta)),
        lambda x, y: None,
        step=0.25,
        sets=400,
    ),
}


class Setting(NamedTuple):
    """An acceptance test, and what it takes to run it."""

    make: Callable[[], AcceptanceTest]
    acceptance: float
    """Rough acceptance, for the length of chains."""
    batch: int = 50
    times: int = 1
    """As many data sets as the model says: more where rows are few."""


TESTS: dict[str, Setting] = {
    "MinibatchBarker()": Setting(MinibatchBarker, 0.47, times=2),
    "Penalty()": Setting(Penalty, 0.6, times=2),
    "Austere(0.005)": Setting(partial(Austere, 0.005), 0.8),
    "Confidence(0.1)": Setting(partial(Confidence, 0.1), 0.8, batch=200),
}


# ---- data sets --------------------------------------------------------------------------------


class Joint(NamedTuple):
    """Parameters and rows from their joint distribution, with the normal approximation of each posterior."""

    truth: np.ndarray
    """(set, parameter)."""
    data: dict[str, np.ndarray]
    """{"x": (set, row, parameter), "y": (set, row)}."""
    mode: np.ndarray
    root: np.ndarray
    """(set, parameter, parameter), L with L L' the covariance."""


def simulate(model: Model, random: np.random.Generator, sets: int, rows: int) -> Joint:
    """Draw from the joint distribution of a model."""
    x = model.features(random, rows).astype(np.float32)
    truth = random.normal(0, model.prior_sd, (sets, x.shape[1])).astype(np.float32)
    y = model.outcomes(random, truth @ x.T).astype(np.float32)
    data = {"x": np.broadcast_to(x, (sets, *x.shape)), "y": y}
    mode, root = (np.asarray(found) for found in _approximate(model.posterior, data, truth))
    return Joint(truth, data, mode, root)


@jax.jit
def _approximate(posterior: tc.Posterior, data: PyTree, starts: Array) -> tuple[Array, Array]:
    """Mode and root of the covariance of every posterior, by Newton's method."""

    def density(t: Array, data: PyTree) -> Array:
        log_likelihood = jax.vmap(posterior.log_likelihood, (None, 0))(t, data)
        return posterior.log_prior(t) + log_likelihood.sum() / posterior.temperature

    def one(data: PyTree, t: Array) -> tuple[Array, Array]:
        def newton(_: int, t: Array) -> Array:
            return t - jnp.linalg.solve(jax.hessian(density)(t, data), jax.grad(density)(t, data))

        t = lax.fori_loop(0, _NEWTON, newton, t)
        return t, jnp.linalg.cholesky(jnp.linalg.inv(-jax.hessian(density)(t, data)))

    return jax.vmap(one)(data, starts)


def kernel_of(model: Model, test: Setting, joint: Joint, of_set: int = 0) -> tc.MetropolisHastings:
    """Return the kernel of one of the data sets."""
    x, y = joint.data["x"], joint.data["y"]
    return tc.MetropolisHastings(
        model.posterior,
        tc.Shuffled({"x": x[of_set], "y": y[of_set]}, test.batch, windows=False),
        proposal=tc.RandomWalk(model.step * joint.root[of_set]),
        acceptance=test.make(),
        bound=model.bound(x[0], y),
    )
