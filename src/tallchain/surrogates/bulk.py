"""A place in the bulk of the posterior of a regression with groups or a shrinkage prior, which has no mode of its own.

The joint mode of such a posterior is where a scale is 0. But only the likelihood is expanded, and it needs a place near
the bulk, nothing else. So the scales are held while the other parameters climb,

    (beta, u) = mode given the scales,   sd^2 = mean of u^2 + its variance    (Laird and Ware 1982),

by Newton's steps; the scales are updated on the quadratic expansion, so that a sweep is needed only for the next step.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.functions import QUICKLY, program
from tallchain.models.layout import COEFFICIENTS, Layout
from tallchain.models.likelihood import layout_of, regression_of
from tallchain.models.priors import log_prior_of
from tallchain.surrogates.no_reference import NoReferenceError
from tallchain.surrogates.predictor_sums import Sums, sum_predictors
from tallchain.surrogates.structure import Gradient, Precision, blocks_of, check_sizes, effects_of
from tallchain.types import Array, Posterior, PyTree, Source

_MOST_SWEEPS = 40
_SCALES = 30  # updates of the scales, at most, on one expansion
_SETTLED = 1e-2  # change of the logarithm of a scale below which it stays
_NEAR = 0.25  # root mean square step, in standard deviations, below which the search is over
_SHORTER = 0.25  # of a step that led downhill
_TOO_SHORT = 1e-3  # length of a step that still leads downhill
_MOST_SD = 6.0  # of group effects, in units of the scale of its half-normal prior
_LEAST_SD = 1e-3  # of group effects, in units of their standard deviation given the data


@dataclasses.dataclass(frozen=True)
class Bulk:
    """A place in the bulk of a posterior, and the sums over all rows there."""

    position: PyTree
    sums: Sums
    num_rows: int
    num_passes: int
    rows_swept: int
    distance: float
    """Length of the next step, in standard deviations, root mean square over the parameters."""
    seconds: float


def has_no_mode(posterior: Posterior) -> bool:
    """Whether this is a regression with groups, or with a shrinkage prior: its mode is where a scale is 0."""
    model = regression_of(posterior)
    return model is not None and bool(model.layout.terms or model.layout.hyper)


def find_bulk(
    posterior: Posterior, source: Source, start: PyTree, report: Callable[[int, float], None] = lambda *_: None
) -> Bulk:
    """Climb from a start; `report` is called with the sweeps so far and the length of the last step."""
    begun = time.perf_counter()
    layout = layout_of(posterior)
    check_sizes(layout)
    population, temperature = source.population, float(posterior.temperature)
    position = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), start)
    climb, passes, distance = None, 0, np.inf
    while passes < _MOST_SWEEPS:
        at = jax.tree.map(lambda leaf: np.asarray(leaf, jnp.result_type(float)), position)
        sums, passes = sum_predictors(posterior, source, at), passes + 1
        height = float(sums.value) / temperature + float(_log_prior(posterior, at))
        if climb is not None and not height > climb.height:  # NaN, too
            climb = climb._replace(step=jax.tree.map(lambda leaf: _SHORTER * leaf, climb.step))
            distance *= _SHORTER
            if distance < _TOO_SHORT:
                break
            position = climb.end(layout)
            continue
        if not sums.is_finite:
            raise NoReferenceError(
                "`prepare(...)`: the log likelihood or a derivative of some row is not finite at the start. Look for "
                "extreme values, rescale features and outcomes, and leave `initial` out if it was given."
            )
        step, scales, distance = _newton(posterior, layout, sums, position, temperature)
        report(passes, distance)
        scaled = position | {name: np.float64(value) for name, value in scales.items()}
        if distance < _NEAR:
            found = jax.tree.map(lambda leaf: np.asarray(leaf, jnp.result_type(float)), scaled)
            swept = passes * population.swept
            return Bulk(found, sums, population.total, passes, swept, distance, time.perf_counter() - begun)
        # The step must lead uphill with the scales that go with it.
        height = float(sums.value) / temperature + float(_log_prior(posterior, scaled))
        climb = _Climb(scaled, step, height)
        position = climb.end(layout)
    raise NoReferenceError(
        f"`prepare(...)`: after {passes} sweeps the search for the bulk of the posterior still takes steps of "
        f"{distance:.2g} standard deviations. Look for outcomes that the features and groups fit exactly or, under a "
        "flat prior, separate; else centre and scale the features and the outcomes."
    )


class _Climb(NamedTuple):
    """A step, from where it begins."""

    begin: PyTree
    step: Gradient
    height: float
    """The log posterior where it begins."""

    def end(self, layout: Layout) -> PyTree:
        """Where it leads."""
        here = parameters_of(layout, self.begin)
        there = Gradient(here.head + self.step.head, here.tail + self.step.tail)
        return self.begin | layout.with_dense(there.head[: layout.num_dense]) | effects_of(layout, there)


@program(compiler_options=QUICKLY)
def _log_prior(posterior: Posterior, position: PyTree) -> Array:
    return posterior.log_prior(position)


def _newton(
    posterior: Posterior, layout: Layout, sums: Sums, position: PyTree, temperature: float
) -> tuple[Gradient, dict[str, float], float]:
    """Return a step, the scales that go with it, and its length."""
    gradient, likelihood = blocks_of(layout, sums, temperature)
    prior_first, prior_second = (np.asarray(leaf, np.float64) for leaf in dense_prior(posterior, position))
    here, log_sds = (
        parameters_of(layout, position),
        {term.log_sd: float(position[term.log_sd]) for term in layout.terms},
    )
    size, log_most = layout.num_dense, math.log(_MOST_SD * float(log_prior_of(posterior).prior.group_sd or 1.0))
    for _ in range(_SCALES):
        head, tail = term_precisions(layout, log_sds, len(gradient.head))
        head_matrix = np.diag(head)
        head_matrix[:size, :size] -= prior_second
        precision = likelihood.plus(head_matrix, tail)
        right = Gradient(gradient.head - head * here.head, gradient.tail - tail * here.tail)
        right.head[:size] += prior_first
        step = precision.solve(right)
        if not layout.terms:
            break
        moved = effects_of(layout, Gradient(here.head + step.head, here.tail + step.tail))
        spread, alone = effects_of(layout, precision.variances()), effects_of(layout, likelihood_variances(likelihood))
        changed = {}
        for term in layout.terms:
            variance = float(np.mean(moved[term.name] ** 2 + spread[term.name]))
            least = _LEAST_SD**2 * float(np.median(alone[term.name]))
            # A step that is much too long would take the scales along, and these the next step.
            limit = min(log_most, float(position[term.log_sd]) + 1)
            changed[term.log_sd] = min(0.5 * math.log(max(variance, least)), limit)
        change = max(abs(changed[name] - log_sds[name]) for name in changed)
        log_sds = changed
        if change < _SETTLED:
            break
    length = step.head @ right.head + np.sum(step.tail * right.tail)
    return step, log_sds, math.sqrt(max(float(length), 0.0) / (step.head.size + step.tail.size))


def likelihood_variances(likelihood: Precision) -> Gradient:
    """Return variances of the effects given the head, and the data alone."""
    head = 1 / np.maximum(np.diag(likelihood.head), 1e-12)
    return Gradient(head, 1 / np.maximum(np.diagonal(likelihood.tail, axis1=1, axis2=2), 1e-12))


def term_precisions(layout: Layout, log_sds: dict[str, float], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 1/sd^2 by parameter of the head, 0 for dense ones; and by term of the tail."""
    head, at = np.zeros(size), layout.num_dense
    of = [math.exp(-2 * log_sds[term.log_sd]) for term in layout.terms]
    for number in layout.head:
        head[at : at + layout.terms[number].num_levels] = of[number]
        at += layout.terms[number].num_levels
    return head, np.array([of[number] for number in layout.tail])


def parameters_of(layout: Layout, position: PyTree) -> Gradient:
    """Return a position in blocks."""
    dense = [np.ravel(position[name]) for name in (COEFFICIENTS, *layout.shared)]
    head = [*dense, *(position[layout.terms[at].name] for at in layout.head)]
    tail = [position[layout.terms[at].name] for at in layout.tail]
    return Gradient(np.concatenate(head).astype(np.float64), np.stack(tail, 1) if tail else np.zeros((0, 0)))


@program(compiler_options=QUICKLY)
def dense_prior(posterior: Posterior, position: PyTree) -> tuple[Array, Array]:
    """Gradient and Hessian of the log prior by the dense parameters."""
    layout = layout_of(posterior)

    def of(dense: Array) -> Array:
        return posterior.log_prior(position | layout.with_dense(dense))

    dense = layout.dense(position)
    return jax.grad(of)(dense), jax.hessian(of)(dense)
