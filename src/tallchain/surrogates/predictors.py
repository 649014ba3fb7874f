"""Control variates for regressions: expansions in the predictors of a row, not in the parameters.

A row has l_i(t) = f(eta_i; y_i), eta_i = A_i t in R^q, q small. With d_i = eta_i(t) - eta_i(r) and f1..f6 the
derivatives at the reference r, expansions of order 2 are q_i = f1.d + d'f2 d/2. A group with few rows needs more. With
b_g the mean of d over the rows of a group (of the factor with the most levels), each with weight f2, and e_i what the
dense parameters make of d_i, minus its mean over the group in the same sense,

    q_i = f1.d + d'f2 d/2 + f3 psi2(b_g) e_i/2 + f3 psi3(b_g)/3! + f4 psi4(b_g)/4! + f5 psi5(b_g)/5! + f6 psi6(b_g)/6!.

The mean b_g is linear in the parameters: a row of the Hessian. That b is the deviation of the whole predictor, and not
of the group's effect alone, keeps the expansion right where effects and intercept move against each other.
psi_k(b) = b^k for |b| <= c_g; beyond, it goes on as its tangent, and psi2 is level. The square of b goes on as its
tangent too, f2 (|b| - c_g)^2/2 being subtracted: a group with few rows, whose outcomes are all alike, has a log
likelihood that is nearly linear far out, and a parabola there would make the scale of the effects too small. All this
is the same in q_i and in its sum Q, so that any c_g is right; without it the polynomial would not be the logarithm of a
density. The residual

    f(eta_i') - f(eta_i) - q_i(t') + q_i(t)

needs a row's predictors at t, t' and r alone, and is computed from differences: there is no cancellation of terms of
order 1. (Bardenet, Doucet and Holmes 2017; Quiroz et al. 2019, for expansions in the parameters.)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.arrays import as_floats, dot
from tallchain.models.families.family import Derivatives
from tallchain.models.layout import Layout
from tallchain.models.likelihood import layout_of, regression_of
from tallchain.parts import part, set_fields, static
from tallchain.sources import as_source, count_rows
from tallchain.surrogates.passes import dense_places
from tallchain.surrogates.predictor_sums import Sums, pairs_of, sum_predictors
from tallchain.surrogates.reference import Reference
from tallchain.types import Array, Posterior, PyTree, RowFunction, Source
from tallchain.validation import brief

ORDERS = (2, 3, 4, 5, 6)
_TINY = 1e-20  # a sum of f2 below which a group's mean is taken as 0


class _Deviation(NamedTuple):
    """A position, minus the reference."""

    dense: Array
    terms: tuple[Array, ...]


class _Means(NamedTuple):
    """By group, weighted by f2."""

    all: Array
    """b_g, within its reach."""
    over: Array
    """What is beyond it."""
    dense: Array
    """What the dense parameters make of it."""


@part
class Predictors:
    """Expansions of a regression at a reference: of order 2, and up to order 6 in the effects of groups.

    Args:
        posterior: of a `Regression`.
        data: the source of the kernel, or all rows as a source takes them.
        position: r.
        order: 2 to 6, of the expansion in the effects of groups; without groups it is 2.
        sums: at r, if they are known; otherwise they take one sweep over all rows.
        reach: c_g by group: about 6 standard deviations of its effect, or less; None: no limit.
    """

    log_likelihood: Any = static()
    order: int = static()
    num_rows: int = static()
    """N, the rows of the sums."""
    rows_swept: int = static()
    """Rows read to make it."""
    position: PyTree
    """r."""
    sums: Sums
    reach: Array | None
    """None without groups."""

    def __init__(
        self,
        posterior: Posterior,
        data: PyTree | Source,
        position: PyTree,
        *,
        order: int = 6,
        sums: Sums | None = None,
        reach: Any = None,
    ) -> None:
        if regression_of(posterior) is None:
            raise TypeError(
                f"`Predictors(posterior=...)` must be the posterior of a Regression; got {brief(posterior)}."
            )
        if order not in ORDERS:
            raise ValueError(f"`Predictors(order=...)` must be 2, 3, 4, 5 or 6; got {brief(order)}.")
        num_rows, rows_swept = count_rows("Predictors", data), 0
        position = jax.tree.map(as_floats, position)
        if sums is None:
            sums, rows_swept = sum_predictors(posterior, as_source("Predictors", data), position), num_rows
        if not sums.is_finite:
            raise ValueError("`Predictors(...)`: the log likelihood or a derivative is not finite at the position.")
        _fill(self, posterior, num_rows, position, sums, order=order, rows_swept=rows_swept, reach=reach)

    @classmethod
    def of_reference(cls, posterior: Posterior, reference: Reference) -> Predictors:
        """Make it from the mode of a regression without groups, whose sums are known."""
        at = dense_places(posterior, reference.position)
        first, second = reference.likelihood_gradient[at], reference.likelihood_hessian[np.ix_(at, at)]
        sums = Sums(reference.log_likelihood, first, second, (), (), None)
        return _fill(object.__new__(cls), posterior, reference.num_rows, reference.position, sums)

    @property
    def layout(self) -> Layout:
        """Of the position."""
        return self.log_likelihood.function.layout

    def check(self, position: PyTree) -> None:
        """Refuse a position whose shapes differ from the reference's."""
        self.layout.check(position)

    # ---- the sum over all rows ------------------------------------------------------------------

    def total(self, position: PyTree, candidate: PyTree) -> Array:
        """Q(t') - Q(t), over all rows."""
        here, there = self._deviation(position), self._deviation(candidate)
        step, both = (jax.tree.map(of, there, here) for of in (jnp.subtract, jnp.add))
        sums, curved = self.sums, self._curved(both)
        total = dot(sums.first + 0.5 * curved.dense, step.dense)
        for of, s, b in zip(sums.terms, step.terms, curved.terms, strict=True):
            total += jnp.sum((of.first + 0.5 * b) * s)
        if self.order > 2:
            total += self._higher_total(there) - self._higher_total(here)
        return total

    def _curved(self, by: _Deviation) -> _Deviation:
        """The product of the Hessian of the log likelihood with a deviation."""
        sums, terms = self.sums, by.terms
        dense = dot(sums.second, by.dense)
        effects = [of.second * a + dot(of.second_dense, by.dense) for of, a in zip(sums.terms, terms, strict=True)]
        for of, a in zip(sums.terms, terms, strict=True):
            dense += dot(a, of.second_dense)
        for (one, other), of in zip(pairs_of(self.layout), sums.pairs, strict=True):
            is_one = of.ndim == 1  # of one factor
            effects[one] += of * terms[other] if is_one else dot(of, terms[other])
            effects[other] += of * terms[one] if is_one else dot(terms[one], of)
        return _Deviation(dense, tuple(effects))

    def _higher_total(self, at: _Deviation) -> Array:
        of, means = self.sums.higher, self._means(at)
        assert of is not None
        rest = dot(of.third_dense, at.dense) - of.powers[0] * means.dense
        second = self.sums.terms[self.layout.tail[0]].second
        return jnp.sum(self._higher(second, of.powers, means, rest))

    def _means(self, at: _Deviation) -> _Means:
        """Means over each group of the tail of the deviations of the predictors of its rows, weighted by f2."""
        sums, number = self.sums, self.layout.tail[0]
        assert self.reach is not None
        of = sums.terms[number]
        dense = dot(of.second_dense, at.dense)
        whole = dense + of.second * at.terms[number]
        for pair, values in zip(pairs_of(self.layout), sums.pairs, strict=True):
            if number in pair:
                other = at.terms[pair[1] if pair[0] == number else pair[0]]
                whole += values * other if values.ndim == 1 else dot(values if pair[0] == number else values.T, other)
        scale = 1 / jnp.where(jnp.abs(of.second) > _TINY, of.second, jnp.inf)
        within = jnp.clip(whole * scale, -self.reach, self.reach)
        return _Means(within, whole * scale - within, dense * scale)

    def _higher(self, second: Array, powers: Array, means: _Means, rest: Array) -> Array:
        """The terms beyond order 2, and what f2 (b - c)^2/2 beyond the reach takes away; `rest` is f3 e."""
        b, over = means.all, means.over
        value, slope = jnp.zeros(()), jnp.zeros(())
        for k in range(self.order, 2, -1):  # b^2 (f3/3! + b (f4/4! + ...)) b, and its derivative over b^2
            value = b * (powers[k - 3] / math.factorial(k) + value)
            slope = powers[k - 3] / math.factorial(k - 1) + b * slope
        return b**2 * (value + slope * over + 0.5 * rest) - 0.5 * second * over**2

    def _deviation(self, position: PyTree) -> _Deviation:
        layout, r = self.layout, self.position
        effects = tuple(position[term.name] - r[term.name] for term in layout.terms)
        return _Deviation(layout.dense(position) - layout.dense(r), effects)

    # ---- rows -----------------------------------------------------------------------------------

    def residual(self, position: PyTree, candidate: PyTree) -> RowFunction:
        """Return the function of a row l_i(t') - l_i(t) - q_i(t') + q_i(t)."""
        model, layout, r = self.log_likelihood.function, self.layout, self.position
        # Whatever does not depend on the row is computed once: effects are subtracted after they are looked up.
        dense = [layout.dense(t) - layout.dense(r) for t in (position, candidate)]
        means = [self._means(self._deviation(t)) for t in (position, candidate)] if self.order > 2 else []

        def residual(row: PyTree) -> Array:
            family, y, eta = model.family, row["y"], layout.predictors(r, row)
            of_dense = [layout.of_dense(d, row) for d in dense]
            before, after = (
                self._with_effects(t, d, row) for t, d in zip((position, candidate), of_dense, strict=True)
            )
            at = family.derivatives(eta, y)
            value = family.gain(eta, after, y) - family.gain(eta, before, y)
            value -= _quadratic(at, after - before, after + before)
            if self.order > 2:
                powers = family.higher(eta, y)
                each = zip(means, of_dense, strict=True)
                here, there = (self._higher_of_row(at, powers, of, d, row) for of, d in each)
                value -= there - here
            return value * row["weight"] if "weight" in row else value

        return residual

    def row_difference(self, position: PyTree, candidate: PyTree) -> RowFunction:
        """Return the function of a row q_i(t') - q_i(t)."""
        residual = self.residual(position, candidate)
        return lambda row: self.log_likelihood(candidate, row) - self.log_likelihood(position, row) - residual(row)

    def _with_effects(self, position: PyTree, of_dense: Array, row: PyTree) -> Array:
        """Return a row's predictors, minus those at the reference, given what the dense parameters make of them."""
        step, r = of_dense[0], self.position
        for term in self.layout.terms:
            step += term.weight(row) * (term.effect(position[term.name], row) - term.effect(r[term.name], row))
        return step[None] if len(of_dense) == 1 else of_dense.at[0].set(step)

    def _higher_of_row(self, at: Derivatives, powers: Array, means: _Means, of_dense: Array, row: PyTree) -> Array:
        term = self.layout.terms[self.layout.tail[0]]
        of_row = _Means(*(term.effect(of, row) for of in means))
        rest = _inner(at.third, of_dense) - at.third[0] * of_row.dense
        return self._higher(at.second[0, 0], powers, of_row, rest)


def _inner(a: Array, b: Array) -> Array:
    """a.b of few numbers. Number by number: jaxlib 0.10 compiles sums over short axes wrongly in some programs."""
    return sum((a[k] * b[k] for k in range(len(a))), jnp.zeros((), a.dtype))


def _quadratic(at: Derivatives, step: Array, both: Array) -> Array:
    """f1.u + u'f2 w/2."""
    curved = [_inner(at.second[k], both) for k in range(len(step))]
    return sum((step[k] * (at.first[k] + 0.5 * curved[k]) for k in range(len(step))), jnp.zeros((), step.dtype))


def _fill(
    surrogate: Predictors,
    posterior: Posterior,
    num_rows: int,
    position: PyTree,
    sums: Sums,
    *,
    order: int = 2,
    rows_swept: int = 0,
    reach: Any = None,
) -> Predictors:
    terms = layout_of(posterior).terms
    reach = np.inf if reach is None else reach
    return set_fields(
        surrogate,
        log_likelihood=posterior.log_likelihood,
        order=int(order) if terms else 2,
        num_rows=num_rows,
        rows_swept=rows_swept,
        position=position,
        sums=jax.tree.map(as_floats, sums),
        reach=as_floats(reach) if terms else None,
    )
