"""What an exact test would read: the bound of a regression, the rows by its weights, and what they show."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.acceptance import MHSS
from tallchain.bounds import Bound, regression_bound
from tallchain.bounds.regression import is_bounded
from tallchain.functions import QUICKLY, program
from tallchain.kernel import MetropolisHastings
from tallchain.keys import make_key
from tallchain.proposals import PCN, Laplace
from tallchain.sources import WithReplacement
from tallchain.sources.stored import Stored
from tallchain.surrogates import Predictors, Taylor
from tallchain.threefry import same_key
from tallchain.types import Array, Ask, Posterior, PyTree, Source

_PAIRS = 128  # independent proposals to judge by
_ROWS = 256  # to estimate the log ratio of each by
_LOOKS = (4, 8, 16, 32, 64)  # rows of one look, to choose from: powers of 2 are read much faster than others


@dataclasses.dataclass(frozen=True)
class Exact:
    """The rows and the bound for an exact test, and what it would do with them."""

    bound: Bound
    source: WithReplacement
    """The rows of the prepared source, drawn by weight; no copy."""
    rows: float
    """L: rows to expect of a decision of `MHSS` at independent proposals."""
    log_ratios: np.ndarray
    """Delta of these proposals, estimated."""
    residuals: np.ndarray
    """The part of it that rows make."""
    rows_swept: int

    @property
    def acceptance(self) -> float:
        """Of Metropolis' test, at independent proposals from the Laplace approximation."""
        return float(np.mean(np.exp(np.minimum(self.log_ratios, 0))))

    @property
    def acceptance_of_transitions(self) -> float:
        """About the same, if these were independent draws from the surrogate posterior."""
        return float(np.mean(np.exp(np.minimum(self.residuals, 0))))


def weigh_exact(
    posterior: Posterior,
    source: Source,
    surrogate: Taylor | Predictors,
    laplace: Laplace,
    *,
    seed: int,
    progress: bool,
) -> Exact | None:
    """Bound the rows, and see what `MHSS` would read; None if there is no bound."""
    if not (is_bounded(posterior) and isinstance(source, Stored)):
        return None
    bound = regression_bound(posterior, source, laplace, surrogate.order, progress=progress)
    if not np.all(np.isfinite(bound.constants)):
        return None
    drawn = WithReplacement.of_stored(source, _LOOKS[0], bound.weights_of(source))
    parts: dict[str, Any] = {"proposal": PCN(laplace), "acceptance": MHSS(), "surrogate": surrogate, "bound": bound}
    judged = _judge(MetropolisHastings(posterior, drawn, **parts), laplace, make_key(seed))
    most, offsets, residuals = (np.asarray(leaf, np.float64) for leaf in judged)
    rows = float(np.mean(most))
    if not np.isfinite(rows):
        return None
    enough = rows + 1.5 * rows**0.5
    width = next((look for look in _LOOKS if look >= enough), _LOOKS[-1])
    drawn = drawn.reweighted(batch_size=min(width, drawn.num_rows))
    return Exact(bound, drawn, rows, offsets + residuals, residuals, bound.rows_swept + _PAIRS * _ROWS)


class _Judged(NamedTuple):
    most: Array
    """L."""
    offset: Array
    residual: Array


@program(compiler_options=QUICKLY)
def _judge(kernel: MetropolisHastings, laplace: Laplace, key: Array) -> _Judged:
    """Return L, the offset and an estimate of the rest of Delta at some independent proposals."""
    keys, bound = jax.random.split(same_key(key), _PAIRS), kernel.bound
    assert bound is not None

    def one(key: Array) -> _Judged:
        here, there, rows = jax.random.split(key, 3)
        position, candidate = laplace.draw(here), laplace.draw(there)
        v, v2 = laplace.whiten(position), laplace.whiten(candidate)
        population, source = kernel.source.population, kernel.source
        most = bound(position, candidate) / 2 * population.num_rows / kernel.posterior.temperature
        offset = kernel.offset(position, candidate, 0.5 * jnp.sum((v2 - v) * (v2 + v)))
        log_ratio = kernel.row_log_ratio(position, candidate)
        ask = Ask(jnp.int32(_ROWS))
        _, seen = source.look(source.start(source.draw(rows)), ask, _ROWS, log_ratio, _mean)
        return _Judged(most, offset, seen.evidence)

    return jax.lax.map(one, keys)  # one by one, which is traced in half the time


def _mean(values: Array, is_valid: Array) -> PyTree:
    return jnp.mean(values)
