"""A regression with groups or a shrinkage prior, for `settle`.

Its surrogate is sampled by Hamiltonian Monte Carlo in coordinates in which the surrogate posterior is nearly standard
normal (`Conditional`): there a trajectory of length pi/2, a quarter of a turn, ends at a point that is nearly
independent of where it began, and the step size for d coordinates is known in advance, since the error of the energy
has a standard deviation of about step^2 sqrt(d/32) (Beskos et al. 2013). With a shrinkage prior, whose posterior is far
from normal in any coordinates, the No-U-Turn Sampler is adapted instead.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax import random as jr

from tallchain.arrays import dot
from tallchain.functions import QUICKLY, program
from tallchain.models.layout import COEFFICIENTS, Layout
from tallchain.models.likelihood import layout_of
from tallchain.models.priors import LOG_GLOBAL, LOG_LOCAL
from tallchain.proposals.adapting import adapt_transition, sample_surrogate
from tallchain.proposals.coordinates import Coordinates
from tallchain.proposals.laplace import Laplace
from tallchain.proposals.transition import SurrogatePosterior, Transition
from tallchain.surrogates.bulk import Bulk, find_bulk
from tallchain.surrogates.conditional import Conditional
from tallchain.surrogates.decoupled import Decoupled, is_decoupled
from tallchain.surrogates.predictor_sums import Sums, sum_predictors
from tallchain.surrogates.predictors import Predictors
from tallchain.surrogates.settling import LEAST_ACCEPTANCE, Place, Sampled, share_moved
from tallchain.surrogates.structure import reach_of, spread_of_log_sd
from tallchain.types import Array, PlacedSurrogate, Posterior, PyTree, Source, Target

CHAINS, _WARMUP, _DRAWS = 8, 10, 40  # of the surrogate, at each place
_ENERGY = 0.32  # standard deviation of the error of the energy, if it were as said: best with 10,000 groups
_LARGE = 2000  # coordinates of which a candidate costs more than waiting until all chains want one
_LEAST_STEPS = 3
_SHORTENINGS = 4
_ADAPTATION = 300  # steps of the No-U-Turn Sampler
_VAGUE = 0.1  # standard deviation of the logarithm of a scale
_COMPARED = 1024  # draws of a normal approximation


class RegressionGround:
    """A regression with groups or a shrinkage prior."""

    def __init__(self, posterior: Posterior, source: Source) -> None:
        self._posterior, self._source, self._layout = posterior, source, layout_of(posterior)
        self.population = source.population
        self._in_float64 = False

    def place(self, start: PyTree, report: Any) -> Place:
        """Find a place in the bulk."""
        bulk = find_bulk(self._posterior, self._source, start, report)
        position = bulk.position | (_local_scales(self._layout, bulk) if self._layout.hyper else {})
        self._in_float64 = self._is_vague(position, bulk.sums)
        if not self._in_float64:
            surrogate = self._with_sums(position, bulk.sums)
            return Place(position, surrogate, bulk.num_passes, bulk.rows_swept, bulk.seconds)
        swept = bulk.rows_swept + self.population.swept
        return Place(position, self.expanded(position), bulk.num_passes + 1, swept, bulk.seconds)

    def expanded(self, position: PyTree) -> Predictors:
        """Expand in the predictors."""
        in_float64 = self._in_float64
        return self._with_sums(position, sum_predictors(self._posterior, self._source, position, in_float64=in_float64))

    def _is_vague(self, position: PyTree, sums: Sums) -> bool:
        """Whether a scale of groups is not known well: sums over groups and over all rows must then agree."""
        temperature = float(self._posterior.temperature)
        known = (
            (term, -np.asarray(of.second) / temperature)
            for term, of in zip(self._layout.terms, sums.terms, strict=True)
        )
        return any(spread_of_log_sd(each, float(position[term.log_sd])) > _VAGUE for term, each in known)

    def _with_sums(self, position: PyTree, sums: Sums) -> Predictors:
        log_sds = {term.log_sd: float(position[term.log_sd]) for term in self._layout.terms}
        reach = reach_of(self._layout, sums, float(self._posterior.temperature), log_sds)
        return Predictors(self._posterior, self._source, position, sums=sums, reach=reach)

    def sampled(self, key: Array, surrogate: Predictors) -> Sampled:
        """Sample by quarters of a turn, or adapt the No-U-Turn Sampler."""
        coordinates = self._coordinates(surrogate)
        size, target = coordinates.size, without_rows(self._posterior, surrogate)
        starts = coordinates.many(jr.normal(jr.fold_in(key, 0), (CHAINS, size)))
        if self._layout.hyper:
            return adapted(key, target, starts, coordinates)
        steps = max(_LEAST_STEPS, math.ceil(math.pi / 2 / (32 * _ENERGY**2 / size) ** 0.25))
        for shortening in range(_SHORTENINGS):
            parameters = {"step_size": math.pi / 2 / steps, "inverse_mass_matrix": np.ones(size)}
            transition = Transition(
                "hmc",
                parameters | {"num_integration_steps": steps},
                coordinates,
                share_waiting=1.0 if size > _LARGE else 0.7,
            )
            some = _on_host(sample_surrogate(jr.fold_in(key, 2), target, transition, starts, _WARMUP + _DRAWS))
            draws = jax.tree.map(lambda leaf: leaf[:, _WARMUP:], some)
            acceptance = share_moved(draws)
            if acceptance >= LEAST_ACCEPTANCE or shortening == _SHORTENINGS - 1:
                break
            steps = math.ceil(1.5 * steps)
        return Sampled(transition, draws, acceptance)

    def _coordinates(self, surrogate: Predictors) -> Conditional | Decoupled:
        """Return those that cost more only where a scale is not known well: there they are needed."""
        found = Conditional(self._posterior, surrogate)
        is_vague = bool(np.any(found.spread > _VAGUE))
        return Decoupled(self._posterior, surrogate) if is_vague and is_decoupled(self._layout) else found

    def of_rows(self, position: PyTree) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients and what all rows share; and the effects of groups."""
        layout, shapes = self._layout, self._layout.shapes()
        names = ("coefficients", *layout.shared)
        dense = [np.reshape(of := position[name], (*of.shape[: of.ndim - len(shapes[name])], -1)) for name in names]
        effects = [position[term.name] for term in layout.terms]
        return np.concatenate(dense, -1), np.concatenate([*dense, *effects], -1)


def _local_scales(layout: Layout, bulk: Bulk) -> dict[str, np.ndarray]:
    """Scales of a horseshoe of the size of the coefficients: the search holds them at the start, wide."""
    shape, first = layout.shapes()[LOG_LOCAL], int(layout.has_intercept)
    known = -np.diag(np.asarray(bulk.sums.second))[: layout.num_linear * layout.num_features]
    error = np.maximum(known, 1e-30).reshape(layout.num_linear, -1) ** -0.5
    size = np.abs(np.reshape(bulk.position[COEFFICIENTS], error.shape)) + error
    log_local = np.log(size[:, first:]).reshape(shape) - bulk.position[LOG_GLOBAL]
    return {LOG_LOCAL: log_local.astype(bulk.position[LOG_LOCAL].dtype)}


def adapted(key: Array, target: Target, starts: PyTree, coordinates: Coordinates | None) -> Sampled:
    """Adapt the No-U-Turn Sampler to a surrogate posterior, and draw from it."""
    found = adapt_transition(
        jr.fold_in(key, 1), target, starts, coordinates=coordinates, num_steps=_ADAPTATION, progress=False
    )
    draws = _on_host(sample_surrogate(jr.fold_in(key, 2), target, found.transition, found.positions, _DRAWS))
    return Sampled(found.transition, draws, share_moved(draws))


def acceptance_of_normal(key: Array, target: Target, laplace: Laplace) -> float:
    """Return what share of independent proposals from a normal approximation the surrogate posterior accepts.

    With the ratios w of the densities at draws from the approximation: E[min(w, w')] / E[w].
    """
    log_weights = np.asarray(_log_weights(SurrogatePosterior.of("prepare", target), laplace, key), np.float64)
    weights = np.sort(np.exp(log_weights - log_weights.max()))
    count = len(weights)
    least = weights @ (2.0 * np.arange(count)[::-1] + 1) / count**2  # of every two
    return float(least / weights.mean())


@program(compiler_options=QUICKLY)
def _log_weights(surrogate: SurrogatePosterior, laplace: Laplace, key: Array) -> Array:
    w = jr.normal(key, (_COMPARED, laplace.d))
    return jax.vmap(lambda w: surrogate.log_density(laplace.colour(w)) + 0.5 * dot(w, w))(w)


def without_rows(posterior: Posterior, surrogate: PlacedSurrogate) -> Target:
    """Return a target for what reads no row."""
    return Target(posterior, surrogate, None)  # ty: ignore[invalid-argument-type]


def _on_host(tree: PyTree) -> PyTree:
    return jax.tree.map(np.asarray, tree)
