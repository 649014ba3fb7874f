"""Five rows of a logistic regression on which the exact tests can be enumerated, and decisions on them repeated."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from conftest import SEED
from tallchain import MetropolisHastings, Posterior, RandomWalk, WithReplacement
from tallchain.bounds import Bound
from tallchain.bounds.measures import MEASURES
from tallchain.checking.scan import Pairs
from tallchain.checking.trials import repeat
from tallchain.functions import shared
from tallchain.surrogates import Taylor
from tallchain.types import Array, Source

X = np.array([(1, 0.5), (1, -1), (1, 2), (1, -0.3), (1, 1.2)])
Y = np.array([1.0, 0, 1, 1, 0])
HERE, THERE, REFERENCE = np.array([0.3, -0.2]), np.array([0.8, 0.5]), np.array([0.2, 0.1])
STEEPEST = (1.0, 1 / 4, 1 / (6 * 3**0.5))
FAR = 1e9  # five rows are fewer than some decisions expect: they would read all


class Example(NamedTuple):
    """Five rows of a logistic regression, at an order of the expansion."""

    parts: np.ndarray
    """d_i."""
    bounds: np.ndarray
    """b_i."""
    offset: float


@cache
def example(order: int) -> Example:
    signs, z = 2 * Y - 1, X @ REFERENCE

    def log_likelihoods(t: np.ndarray) -> np.ndarray:
        return np.log(expit(signs * (X @ t)))

    def expansions(t: np.ndarray) -> np.ndarray:
        by = X @ (t - REFERENCE)
        first, second = (Y - expit(z)) * by, -0.5 * expit(z) * expit(-z) * by**2
        return (0 * z, first, first + second)[order]

    known = expansions(THERE) - expansions(HERE)
    parts = log_likelihoods(THERE) - log_likelihoods(HERE) - known
    with jax.enable_x64(True):
        apart = MEASURES["predictor"](order, *map(jnp.asarray, (HERE - REFERENCE, THERE - REFERENCE)), is_concave=True)
    constants = STEEPEST[order] * np.linalg.norm(X, axis=1) ** (order + 1)
    return Example(parts, constants * float(apart), float(known.sum() - (THERE @ THERE - HERE @ HERE) / 2))


def swapped(of: Example) -> Example:
    return Example(-of.parts, of.bounds, -of.offset)


def _log_likelihood(t: Array, row: dict[str, Array]) -> Array:
    return jax.nn.log_sigmoid((2 * row["y"] - 1) * (row["x"] @ t))


POSTERIOR = Posterior(shared(lambda t: -0.5 * jnp.sum(t**2)), shared(_log_likelihood))
DATA = {"x": np.float32(X), "y": np.float32(Y)}


def kernel_of(
    test: Any, order: int, *, scale: float = 1.0, batch_size: int = 5, source: Source | None = None
) -> MetropolisHastings:
    """Rows by weight unless there is a source; bounds that are larger than needed by `scale`."""
    constants = scale * STEEPEST[order] * np.linalg.norm(X, axis=1) ** (order + 1)
    bound = Bound(constants, order, position=np.float32(REFERENCE), measure="predictor", is_concave=True)
    return MetropolisHastings(
        POSTERIOR,
        source or WithReplacement(DATA, batch_size, weights=constants),
        proposal=RandomWalk(0.5),
        acceptance=test,
        surrogate=Taylor(POSTERIOR, DATA, np.float32(REFERENCE), order) if order else None,
        bound=bound,
    )


def chances(kernel: MetropolisHastings, num_trials: int = 40_000) -> tuple[np.ndarray, np.ndarray]:
    """P(accept) there and back, and the standard errors."""
    pairs = Pairs(jnp.float32(HERE)[None], jnp.float32(THERE)[None], jnp.zeros(1))
    trials = repeat(kernel, pairs, num_trials, key=jax.random.key(SEED), interrupt=threading.Event(), progress=False)
    lanes = np.arange(len(trials.chances))[:, None] + np.arange(trials.chances.shape[1])
    found = [trials.chances[lanes % 2 == way] for way in (0, 1)]
    return np.array([each.mean() for each in found]), np.array([each.std() / len(each) ** 0.5 for each in found])
