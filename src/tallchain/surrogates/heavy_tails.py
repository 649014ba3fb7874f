"""A regression whose coefficients have a Student t prior, for `settle`.

Such a posterior may have several modes, or a ridge where it is not concave. Only the likelihood is expanded, so the
search for a place is made with normal priors instead; the surrogate posterior that is sampled has the prior itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import random as jr

from tallchain.models.likelihood import regression_of
from tallchain.models.posterior import Posterior as MadePosterior
from tallchain.models.priors import Normal, RegressionLogPrior, StudentT, log_prior_of
from tallchain.proposals.coordinates import Whitened
from tallchain.surrogates.grounds import CHAINS, adapted, without_rows
from tallchain.surrogates.passes import dense_places, is_dense_regression
from tallchain.surrogates.predictors import Predictors
from tallchain.surrogates.reference import Reference
from tallchain.surrogates.settling import Place, Sampled, flat_of
from tallchain.surrogates.structure import definite
from tallchain.types import Array, Posterior, PyTree, Source

_SEVERAL = 4.0  # times the information of the prior that the data must have, for a mode to do
_WIDER = 4.0  # than the scale of the t distribution: the standard deviation of the normal one


def has_heavy_tails(posterior: Posterior) -> bool:
    """Whether this is a regression without groups whose coefficients have a Student t prior."""
    if regression_of(posterior) is None or not is_dense_regression(posterior):
        return False
    prior = log_prior_of(posterior).prior
    return isinstance(prior.coefficients, StudentT) or isinstance(prior.intercept, StudentT)


def is_swayed(posterior: Posterior, reference: Reference) -> bool:
    """Whether the prior may make the posterior far from normal, or give it several modes.

    It does not if the data alone say several times more of every coefficient, 1/(H^-1)_jj/K, than the prior does
    anywhere: (df + 1)/(df scale^2) at 0.
    """
    of = log_prior_of(posterior)
    at = dense_places(posterior, reference.position)
    information = -reference.likelihood_hessian[np.ix_(at, at)] / float(posterior.temperature)
    known = 1 / np.diag(np.linalg.inv(definite(information)))[: of.layout.num_linear * of.layout.num_features]
    known = known.reshape(of.layout.num_linear, -1)
    first = int(of.layout.has_intercept)
    for prior, least in ((of.prior.intercept, known[:, :first]), (of.prior.coefficients, known[:, first:])):
        if isinstance(prior, StudentT):
            most = (prior.df + 1) / (prior.df * prior.scale**2)
            if np.min(least, initial=np.inf) < _SEVERAL * most:
                return True
    return False


class HeavyTailedGround:
    """A regression with a Student t prior, and its mode with normal priors."""

    def __init__(self, posterior: Posterior, source: Source, found: Reference) -> None:
        self._posterior, self._source, self._found = posterior, source, found
        self.population, self._laplace = source.population, found.laplace

    def place(self, start: PyTree, report: Callable[[int, float], None]) -> Place:
        """Expand at the mode with normal priors."""
        found = self._found
        surrogate = Predictors.of_reference(self._posterior, found)
        return Place(found.position, surrogate, found.num_passes, found.rows_swept, found.seconds)

    def expanded(self, position: PyTree) -> Predictors:
        """Expand in the predictors."""
        return Predictors(self._posterior, self._source, position)

    def sampled(self, key: Array, surrogate: Predictors) -> Sampled:
        """Adapt the No-U-Turn Sampler."""
        starts = self._laplace.draw_many(jr.fold_in(key, 0), CHAINS)
        return adapted(key, without_rows(self._posterior, surrogate), starts, Whitened(self._laplace))

    def of_rows(self, position: PyTree) -> tuple[np.ndarray, np.ndarray]:
        """All coordinates, twice: every row may depend on each."""
        whole = flat_of(position, self._laplace.mean)
        return whole, whole


def with_normal_priors(posterior: Posterior) -> MadePosterior:
    """Return the posterior with normal priors in place of Student's."""
    of = log_prior_of(posterior)
    changed: dict[str, Any] = {
        name: Normal(_WIDER * prior.scale)
        for name in ("coefficients", "intercept")
        if isinstance(prior := getattr(of.prior, name), StudentT)
    }
    prior = dataclasses.replace(of.prior, **changed)
    log_prior = RegressionLogPrior(prior, of.layout, of.centres)
    return MadePosterior(log_prior, posterior.log_likelihood, posterior.temperature)
