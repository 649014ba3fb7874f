"""What errors of decisions do to the posterior: an estimate to first order, and a bound.

Let p be the posterior and p exp(h) the density of the draws. The chain is stationary there if

    int p(t) q(t, t') a(t, t') exp(h(t)) dt = exp(h(t')) p(t') int q(t', t) a(t', t) dt     for all t'.

With S(t, t') = p(t) q(t, t') a(t, t'), symmetric except for the errors, S(t, t') = S(t', t) exp(eta), and to first
order this is int S (eta - (h(t') - h(t))) dt = 0 for all t'. As eta and h(t') - h(t) change sign with the direction,
that is

    int int S (eta - (h(t') - h(t))) (g(t') - g(t)) dt dt' = 0     for all g,

the normal equations of the regression of eta on h(t') - h(t) with weights S. Here h and g are combinations of a few
features of the position. The drift of the expectation of f is then the covariance of f and h over the draws.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import numpy as np
import scipy

from tallchain.checking.autocorrelation import autocovariance_sums, initial_sequence
from tallchain.checking.errors import DELTA_ERROR, bonferroni, interval
from tallchain.checking.records import Bound, Decisions, Drift, Estimate
from tallchain.checking.trace import Trace
from tallchain.types import PyTree

DECISIONS_PER_FEATURE = 5

_RELATIVE_ERROR = 0.45  # of an acceptance probability in a chi-square test: about that of five acceptances
_RANK = 1e-10  # features this close to dependent differ only by rounding
_ENTRIES = 10**7  # of the trace, at most, for the covariances of features
_PARTS = 20  # of the trace, whose differences show how well these covariances are known
_COORDINATES = 100  # of the trace, at most, for its autocorrelation


class Flow(NamedTuple):
    """The flow of probability at each decision, in units of p(t) q(t, t')."""

    net: np.ndarray
    """a(t, t') - exp(Delta) a(t', t): the excess of the flow one way over the other; 0 in detailed balance.

    To first order it is eta times the flow. Unlike eta it is linear in the acceptance probabilities, so the noise of
    the repeats does not bias it, and it is defined where one of them is 0.
    """
    error: np.ndarray
    """Its standard error."""
    size: np.ndarray
    """The mean of the two directions."""
    weight: np.ndarray
    """0 for a step up by more than the reach, 2 for a step down by more, else 1.

    Steps up and down carry the same flow, so the latter can stand for the former, for which exp(Delta) would multiply
    the noise of a(t', t).
    """
    is_near: np.ndarray
    """|Delta| within the reach, and both probabilities known well enough for a chi-square test."""


def flow_of(decisions: Decisions, num_trials: int, reach: float, *, is_integrated: bool) -> Flow:
    """Return the flow at each decision."""
    is_finite = np.isfinite(decisions.log_ratio)
    ratio = np.exp(np.where(is_finite, np.minimum(decisions.log_ratio, reach), 0))
    forward, backward = decisions.forward, decisions.backward
    forward_se, backward_se = decisions.forward_se, decisions.backward_se
    if not is_integrated:
        # Counts: take their variance from both directions together, as if there were no error. Otherwise few
        # acceptances by chance would have a small standard error.
        share = np.minimum((forward + backward) / (1 + 1 / ratio), np.minimum(1, ratio))
        forward_se, backward_se = (np.sqrt(p * (1 - p) / num_trials) for p in (share, share / ratio))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.maximum(forward_se / forward, backward_se / backward)
    is_up, is_down = decisions.log_ratio > reach, decisions.log_ratio < -reach
    return Flow(
        net=forward - ratio * backward,
        error=np.sqrt(forward_se**2 + (ratio * backward_se) ** 2 + (DELTA_ERROR * forward) ** 2),
        size=(forward + ratio * backward) / 2,
        weight=np.where(is_finite, np.select([is_up, is_down], [0.0, 2.0], 1.0), 0.0),
        is_near=decisions.is_near & (relative < _RELATIVE_ERROR),
    )


def error_p_value(flow: Flow) -> float:
    """Chi-square test of no error at any decision."""
    scores = flow.net[flow.is_near] / flow.error[flow.is_near]
    return float(scipy.special.chdtrc(len(scores), np.sum(scores**2))) if len(scores) else 1.0


# ---- the regression ----------------------------------------------------------------------------


class Regression(NamedTuple):
    """Coefficients of h, their covariance and its degrees of freedom, and the p-value of all of them being 0."""

    coefficients: np.ndarray
    covariance: np.ndarray
    freedom: float
    p_value: float


def regress(flow: Flow, steps: np.ndarray) -> Regression:
    """Solve the normal equations; `steps` is (decision, feature), each feature at t' minus the same at t.

    The covariance is the sandwich HC3 (MacKinnon and White 1985), which is valid whatever h leaves unexplained. The
    p-value is that of the score test of no error at all, for which the variance of every decision is known.
    """
    weights = flow.weight * flow.size
    inverse = _inverse((steps * weights[:, None]).T @ steps)
    score = steps.T @ (flow.weight * flow.net)
    coefficients = inverse @ score
    leverage = weights * np.einsum("ij,jk,ik->i", steps, inverse, steps)
    residuals = (flow.weight * flow.net - weights * (steps @ coefficients)) / np.maximum(1 - leverage, 1e-3)
    influence = (steps * residuals[:, None]) @ inverse
    variance = (steps * ((flow.weight * flow.error) ** 2)[:, None]).T @ steps
    rank = int(np.linalg.matrix_rank(variance, rtol=_RANK, hermitian=True)) if len(score) else 0
    p_value = float(scipy.special.chdtrc(rank, score @ _inverse(variance) @ score)) if rank else 1.0
    return Regression(coefficients, influence.T @ influence, float(np.sum(flow.weight > 0)) - rank, p_value)


def _inverse(matrix: np.ndarray) -> np.ndarray:
    return np.linalg.pinv(matrix, rcond=_RANK, hermitian=True)


class Basis(NamedTuple):
    """The features that h is made of, and their covariances over the trace with what may drift."""

    mean: np.ndarray
    sd: np.ndarray
    is_moving: np.ndarray
    """Which of the user's parameters have moved."""
    factors: np.ndarray
    """(feature, 2): the two coordinates whose product a feature is; -1 for a factor of 1."""
    name: str
    covariances: np.ndarray
    """(part, 2 d, feature): with the d standardised parameters, then with their squares, over parts of the trace.

    With constraints, parameters are other functions of the position than features are made of: see `Trace.sampled`.
    """

    @classmethod
    def of(cls, trace: Trace, num_decisions: int) -> Basis:
        """Choose as rich a basis as the decisions can bear."""
        draws, parameters = _thinned(trace.unconstrained, trace), None
        if trace.sampled is not None:
            parameters = _thinned(trace.position, trace)
        factors, name = _factors(draws.shape[1], num_decisions // DECISIONS_PER_FEATURE)
        basis = cls(draws.mean(0), draws.std(0), draws.std(0) > 0, factors, name, np.zeros(0))
        z = basis.standardise(draws)
        if parameters is not None:
            sd = parameters.std(0)
            basis = basis._replace(is_moving=sd > 0)
            z = (parameters - parameters.mean(0)) / np.where(sd > 0, sd, 1)
        drifting = np.concatenate([z, z**2], 1)
        drifting -= drifting.mean(0)
        num_parts = max(min(len(draws), _PARTS), 2)
        pieces = (np.array_split(values, num_parts) for values in (drifting, basis.features(draws)))
        covariances = [some.T @ features / max(len(some), 1) for some, features in zip(*pieces, strict=True)]
        return basis._replace(covariances=np.array(covariances))

    def standardise(self, positions: np.ndarray) -> np.ndarray:
        """Positions (n, d) in standard deviations from the mean of the trace."""
        return (positions - self.mean) / np.where(self.sd > 0, self.sd, 1)

    def features(self, positions: np.ndarray) -> np.ndarray:
        """(n, feature)."""
        z = np.concatenate([self.standardise(positions), np.ones((len(positions), 1))], 1)
        return z[:, self.factors[:, 0]] * z[:, self.factors[:, 1]]

    def steps(self, here: PyTree, there: PyTree) -> np.ndarray:
        """(decision, feature): each feature there minus the same here."""
        return self.features(_flat(there)) - self.features(_flat(here))


def _thinned(positions: PyTree, trace: Trace) -> np.ndarray:
    """Draws (n, d), chain after chain, such that consecutive parts are nearly independent."""
    leaves = [np.reshape(leaf, (trace.is_accepted.size, -1)) for leaf in jax.tree.leaves(positions)]
    entries = trace.is_accepted.size * sum(np.size(leaf[0, 0]) for leaf in jax.tree.leaves(trace.unconstrained))
    return np.concatenate([leaf[:: -(-entries // _ENTRIES)].astype(np.float64) for leaf in leaves], 1)


def _factors(dimension: int, most: int) -> tuple[np.ndarray, str]:
    """The richest of four bases with at most this many features."""
    linear = [(i, -1) for i in range(dimension)]
    squares = [(i, i) for i in range(dimension)]
    if dimension * (dimension + 3) // 2 <= most:
        products = [(i, j) for i in range(dimension) for j in range(i)]
        return np.array(linear + squares + products), "linear and quadratic functions"
    if 2 * dimension <= most:
        return np.array(linear + squares), "linear functions and squares"
    if dimension <= most:
        return np.array(linear), "linear functions"
    return np.zeros((0, 2), int), "no functions"


def _flat(positions: PyTree) -> np.ndarray:
    """Positions along a first axis as (n, d)."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(positions)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], 1)


def drift_of(names: list[str], basis: Basis, regression: Regression) -> tuple[Drift, ...]:
    """Cov(f, h) over the trace, for f each standardised coordinate and its square."""
    if not len(basis.factors):
        return ()
    covariance = basis.covariances.mean(0)
    values = covariance @ regression.coefficients
    of_trace = (basis.covariances @ regression.coefficients).var(0, ddof=1) / len(basis.covariances)
    errors = np.sqrt(np.einsum("fi,ij,fj->f", covariance, regression.covariance, covariance) + of_trace)
    # No estimate for a coordinate that never moved, or for a variance if there are no squares to explain it.
    has_squares = bool(np.any(basis.factors[:, 1] >= 0))
    is_known = np.concatenate([basis.is_moving, basis.is_moving & has_squares])
    means, variances = np.split(np.arange(len(values)), 2)
    estimates = [
        interval(value, error, regression.freedom) if known else Estimate(math.nan, math.nan, math.nan)
        for value, error, known in zip(values, errors, is_known, strict=True)
    ]
    return tuple(
        Drift(name, estimates[mean], estimates[variance])
        for name, mean, variance in zip(names, means, variances, strict=True)
    )


# ---- the bound ---------------------------------------------------------------------------------


def bound_of(decisions: Decisions, trace: Trace) -> Bound | None:
    """epsilon/(1 - contraction); see `Bound`."""
    is_known = np.isfinite(decisions.probability_error)
    if not is_known.any() or trace.thin > 1:  # draws far apart do not show the autocorrelation of adjacent ones
        return None
    tau = max(autocorrelation_time(draws) for draws in _coordinates(trace))
    if not math.isfinite(tau):
        return None
    limits = np.abs(decisions.probability_error) + bonferroni(int(is_known.sum())) * decisions.probability_se
    epsilon = min(float(np.max(limits[is_known])), 1.0)
    contraction = max((tau - 1) / (tau + 1), 0.0)
    return Bound(epsilon, tau, contraction, epsilon / (1 - contraction))


def _coordinates(trace: Trace) -> list[np.ndarray]:
    """Return draws (chain, draw) of the coordinates, or of some evenly spaced ones if there are many."""
    leaves = [np.reshape(leaf, (*trace.is_accepted.shape, -1)) for leaf in jax.tree.leaves(trace.unconstrained)]
    step = -(-sum(leaf.shape[2] for leaf in leaves) // _COORDINATES)
    return [leaf[:, :, i] for leaf in leaves for i in range(0, leaf.shape[2], step)]


def autocorrelation_time(draws: np.ndarray) -> float:
    """tau = 1 + 2 sum of the autocorrelations of draws (chain, draw), by Geyer's initial positive sequence (1992).

    Autocovariances are about the mean of all chains, so that unmixed chains appear slow. Infinite for chains that never
    moved, or are too short to show where the sequence ends.
    """
    length = draws.shape[1]
    centred = np.asarray(draws, np.float64) - np.mean(draws, dtype=np.float64)
    if length < 4 or not np.any(centred):
        return math.inf
    covariance = autocovariance_sums(centred) / np.arange(length, 0, -1)
    sequence = initial_sequence(covariance / covariance[0])
    return float(2 * sequence.sums.sum() - 1) if sequence.is_cut else math.inf
