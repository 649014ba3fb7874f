"""The model: a Gaussian mean at temperature 1, and decisions from states of its posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.acceptance.austere_design import Design
from tallchain.checking.trace import Trace
from tallchain.experiments.worst_case.contenders import BATCH, Contender
from tallchain.functions import shared
from tallchain.kernel import MetropolisHastings
from tallchain.keys import make_key
from tallchain.models.posterior import Posterior
from tallchain.proposals import RandomWalk
from tallchain.sample import sample
from tallchain.sources import Shuffled, WithReplacement
from tallchain.types import Array


def log_prior(theta: Array) -> Array:
    """Flat."""
    return jnp.zeros_like(theta)


def log_likelihood(theta: Array, x: Array) -> Array:
    """log N(x; theta, 1), up to a constant in theta; x and theta are measured from the mean of the rows.

    N differences of this are added up, and in float32 they must be accurate to better than 1/N. At theta = 0.5 with
    steps of 1/sqrt(N) they are not: t' x and t x agree in most of their digits, and for N = 10^6 Delta is wrong by more
    than 0.01. Measured from the mean, theta is as small as the steps themselves, nothing cancels, and Delta is accurate
    to 1e-4. The posterior is the same, shifted.
    """
    return theta * x - theta * theta / 2


@dataclass(frozen=True)
class LogRatioRange:
    """The range over rows of log p(x | t') - log p(x | t): exactly |t' - t| (max x - min x).

    A dataclass and not a closure: two equal ones share what JAX has compiled.
    """

    rows_range: float

    def __call__(self, position: Array, candidate: Array) -> Array:
        """|t' - t| (max x - min x)."""
        return self.rows_range * jnp.abs(candidate - position)


@dataclass(frozen=True)
class WorstCase:
    """The rows, measured from their mean, and states of the posterior."""

    x: np.ndarray
    """float64."""
    states: np.ndarray
    """Standard normal draws y; the state is y sqrt(K/N)."""
    key: Array

    @classmethod
    def make(cls, num_rows: int, num_states: int, seed: int) -> WorstCase:
        """Draw them; the same rows and the same first states for the same N and seed."""
        random = np.random.default_rng([seed, num_rows])
        x = random.normal(0.5, 1.0, num_rows)
        key = jr.fold_in(make_key(seed), num_rows)
        return cls(x - x.mean(), random.standard_normal(num_states), key)

    def decide(
        self,
        contender: Contender,
        design: Design,
        num_decisions: int,
        *,
        temperature: float = 1.0,
        step: float = 1.0,
        stream: int = 0,
    ) -> Trace:
        """Make decisions, each from its own state: chains of one draw.

        Tests with the same stream see the same states, steps and u, which makes differences between them easier to see.
        """
        num_rows = len(self.x)
        x = self.x.astype(np.float32)
        source = WithReplacement(x, BATCH) if contender.repeats else Shuffled(x, BATCH)
        kernel = MetropolisHastings(
            Posterior(shared(log_prior), shared(log_likelihood), temperature),
            source,
            proposal=RandomWalk(step / math.sqrt(num_rows)),
            acceptance=contender.make(design),
            bound=LogRatioRange(float(np.ptp(x))) if contender.is_bounded else None,
        )
        states = self.states[:num_decisions] * math.sqrt(temperature / num_rows)
        starts = jnp.asarray(states, jnp.result_type(float))
        return sample(jr.fold_in(self.key, stream), kernel, starts, 1, num_chains=num_decisions, progress=False)
