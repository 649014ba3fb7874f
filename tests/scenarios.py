"""Targets with closed forms. Each knows its posterior exactly and can start chains from it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import random as jr
from scipy.special import expit

from tallchain.acceptance.evidence import Moments
from tallchain.functions import shared
from tallchain.kernel import MetropolisHastings
from tallchain.models import Posterior
from tallchain.parts import part
from tallchain.proposals import RandomWalk
from tallchain.sources import Shuffled
from tallchain.types import (
    Array,
    Ask,
    Judgement,
    Population,
    Proposed,
    PyTree,
    Target,
)

NUM_ROWS = 20_000
BATCH_SIZE = 100


COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])


def _vector(t: dict, row: Array) -> Array:
    error = row - jnp.stack([t["a"], t["b"]])
    return -0.5 * error @ jnp.asarray(np.linalg.inv(COVARIANCE), jnp.float32) @ error


# Shared, so that a second scenario of the same kind compiles nothing again.
_WIDE, _NORMAL = shared(lambda t: -(t**2) / 8), shared(lambda t, x: t * x - t**2 / 2)
_UNIT, _VECTOR = shared(lambda t: -0.5 * (t["a"] ** 2 + t["b"] ** 2)), shared(_vector)
_TILT, _PRODUCT = shared(lambda t: 0.3 * t), shared(lambda t, x: t * x)


class Scenario(NamedTuple):
    """A posterior, rows, a proposal that suits it, and the answer."""

    posterior: Posterior
    data: Any
    proposal: Any
    mean: np.ndarray
    covariance: np.ndarray
    starts: Any  # (random, chains) -> positions drawn from the exact posterior


def kernel_of(
    data: np.ndarray | None = None,
    acceptance: Any = None,
    *,
    temperature: Any = None,
    source: Any = Shuffled,
    batch_size: int = BATCH_SIZE,
    scale: float = 0.6,
    **options: Any,
) -> MetropolisHastings:
    """A random walk to the mean of normal rows; N/K is 10 unless a temperature is given."""
    data = normal_mean().data if data is None else data
    temperature = len(data) / 10 if temperature is None else temperature
    options = {"posterior": Posterior(_WIDE, _NORMAL, temperature), "proposal": RandomWalk(scale)} | options
    return MetropolisHastings(source=source(data, batch_size), acceptance=acceptance, **options)


def normal_mean(num_rows: int = NUM_ROWS) -> Scenario:
    """x_i ~ N(t, 1), t ~ N(0, 4): conjugate. The log ratios per row are linear in x_i, hence normal."""
    data = np.random.default_rng(1).normal(0.5, 1.0, num_rows).astype(np.float32)
    temperature = num_rows / 10
    precision = 1 / 4 + num_rows / temperature
    mean, variance = data.mean(dtype=np.float64) * num_rows / temperature / precision, 1 / precision
    return Scenario(
        Posterior(_WIDE, _NORMAL, temperature),
        data,
        RandomWalk(0.6),
        np.array([mean]),
        np.array([[variance]]),
        lambda random, chains: random.normal(mean, np.sqrt(variance), chains).astype(np.float32),
    )


def normal_vector(num_rows: int = NUM_ROWS) -> Scenario:
    """x_i ~ N(t, S) in two dimensions with S known, t ~ N(0, I). The position is a dict, the proposal a linear map."""
    precision = np.linalg.inv(COVARIANCE)
    data = np.random.default_rng(1).multivariate_normal([0.3, -0.5], COVARIANCE, num_rows).astype(np.float32)
    temperature = num_rows / 10
    posterior_covariance = np.linalg.inv(np.eye(2) + num_rows / temperature * precision)
    mean = posterior_covariance @ precision @ data.mean(0, dtype=np.float64) * num_rows / temperature

    def starts(random: np.random.Generator, chains: int) -> dict:
        draws = random.multivariate_normal(mean, posterior_covariance, chains).astype(np.float32)
        return {"a": draws[:, 0], "b": draws[:, 1]}

    return Scenario(
        Posterior(_UNIT, _VECTOR, temperature),
        data,
        RandomWalk(1.2 * np.linalg.cholesky(posterior_covariance)),
        mean,
        posterior_covariance,
        starts,
    )


def two_states(num_rows: int = NUM_ROWS) -> Scenario:
    """t in {0, 1}, log p(x_i | t) = t x_i, and a proposal that is not symmetric: enumerated exactly."""
    data = np.random.default_rng(1).normal(0.05, 1.0, num_rows).astype(np.float32)
    temperature = num_rows / 8
    share = expit(0.3 + data.sum(dtype=np.float64) / temperature)
    return Scenario(
        Posterior(_TILT, _PRODUCT, temperature),
        data,
        Flip(jnp.float32(0.9), jnp.float32(0.3)),
        np.array([share]),
        np.array([[share * (1 - share)]]),
        lambda random, chains: (random.random(chains) < share).astype(np.float32),
    )


SCENARIOS = {"normal mean": normal_mean, "normal vector": normal_vector, "two states": two_states}


@part
class Flip:
    """From 0 propose 1 with probability `up`, from 1 propose 0 with probability `down`, else stay."""

    up: Array
    down: Array

    def check(self, position: PyTree) -> None:
        """Any."""

    def draw(self, key: Array, position: PyTree) -> Array:
        return jr.uniform(key)

    def propose(self, noise: Array, position: Array, target: Target) -> Proposed:
        chance = jnp.where(position == 0, self.up, self.down)
        is_flip = noise < chance
        back = jnp.where(position == 0, self.down, self.up)
        return Proposed(
            jnp.where(is_flip, 1 - position, position), jnp.where(is_flip, jnp.log(back) - jnp.log(chance), 0.0)
        )


# ---- broken on purpose -------------------------------------------------------------------------


@part
class Redrawn:
    """Barker's test on the rows so far, with new noise at every look, until a look accepts or four are over."""

    def appetite(self, population: Population) -> int:
        return population.batch_size

    def draw(self, key: Array) -> Array:
        return key

    def open(self, noise: Array, bound: None, population: Population) -> tuple[Array, Moments, Ask]:
        return noise, Moments.empty(), Ask(population.batch_size)

    def judge(self, memory: Array, offset: Array, evidence: Moments, population: Population) -> Judgement:
        is_accepted = evidence.mean + offset + jr.logistic(jr.fold_in(memory, evidence.count)) > 0
        is_decided = is_accepted | (evidence.count >= 4 * population.batch_size)
        return Judgement(memory, Ask(population.batch_size), is_decided, is_accepted)
