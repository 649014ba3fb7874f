"""Sums over all rows of the derivatives of a regression's log likelihood, in one sweep and without a d x d matrix.

With f1..f6 the derivatives of f(eta_i; y_i) at one position, A_i the dense part of a row's predictors and w_ik its
weight in term k, a sweep makes sum A'f1 and sum A'f2 A; for every level g of a term sums over the rows of the group of
w f1, w^2 f2 and w f2 A; for every two terms sums of w w f2 by pair of levels; and for every group of the factor with
the most levels sums of f3 A and of f3 to f6, derivatives by the first predictor.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tallchain.arrays import as_floats
from tallchain.models.families.family import Derivatives
from tallchain.models.layout import Layout, Term
from tallchain.models.likelihood import layout_of
from tallchain.parts import part
from tallchain.residuals import digits, needs_float64, widened
from tallchain.types import Array, Block, Posterior, PyTree, Source

_PRECISION = lax.Precision.HIGHEST


class TermSums(NamedTuple):
    """Sums over the rows of each level of a term: w f1, w^2 f2, (J,); w f2 A, (J, P)."""

    first: Any
    second: Any
    second_dense: Any


class HigherSums(NamedTuple):
    """Sums over the rows of each group of the tail."""

    powers: Any
    """Of f3, f4, f5 and f6, the derivatives by the first predictor, (4, J)."""
    third_dense: Any
    """Of f3 A, (J, P)."""


class Sums(NamedTuple):
    """Sums over all rows: the log likelihood and its derivatives at one position."""

    value: Any
    first: Any
    """(P,), of the dense parameters."""
    second: Any
    """(P, P)."""
    terms: tuple[TermSums, ...]
    pairs: tuple[Any, ...]
    """For every two terms, in the order of `pairs_of`: (J,) if they are of one factor, else (J, J')."""
    higher: HigherSums | None
    """None without groups."""

    @property
    def is_finite(self) -> bool:
        """Whether all of it is finite."""
        return all(bool(np.all(np.isfinite(leaf))) for leaf in jax.tree.leaves(self))


def pairs_of(layout: Layout) -> list[tuple[int, int]]:
    """Return the numbers of every two terms."""
    return list(combinations(range(len(layout.terms)), 2))


def sum_predictors(
    posterior: Posterior, source: Source, position: PyTree, centre: float = 0.0, *, in_float64: bool = False
) -> Sums:
    """Sweep every row once; the sums over a block are in float32, those of the blocks in float64.

    Of very many rows all is in float64: the log likelihood is compared between places, and N roundings add up. So it
    may be asked to be: equal numbers are all rounded in the same direction, and a sum of them over all rows and those
    over groups then differ by more than is known of an intercept beside the effects of a few groups.

    `centre` is about the log likelihood of a row; subtracting it from each row before summing saves digits.
    """
    layout = layout_of(posterior)
    size, terms = layout.num_dense, layout.terms
    results = 1 + size * (size + 1) + sum(term.num_levels * (6 + 2 * size) for term in terms)
    results += sum(_pair_size(terms[s], terms[t]) for s, t in pairs_of(layout))
    with digits(in_float64 or needs_float64(source.population.total, posterior.temperature)):
        position = jax.tree.map(as_floats, position)
        sums = source.sweep(_BlockSums(posterior, position, as_floats(centre)), results=results)
    return sums._replace(value=sums.value + centre * source.population.total)


def _pair_size(one: Term, other: Term) -> int:
    return one.num_levels if one.factor == other.factor else one.num_levels * other.num_levels


@part
class _BlockSums:
    """The sums of one block."""

    posterior: Posterior
    position: PyTree
    centre: Array

    @property
    def log_likelihood(self) -> Any:
        """Whose programs these are."""
        return self.posterior.log_likelihood

    def __call__(self, block: Block) -> Sums:
        model = self.log_likelihood.function
        layout: Layout = model.layout
        rows = jax.tree.map(widened, block.rows) if self.centre.dtype == jnp.float64 else block.rows
        eta = jax.vmap(layout.predictors, (None, 0))(self.position, rows)
        counted = jnp.where(block.is_valid, block.share, 0)
        counted = counted * rows["weight"] if "weight" in rows else counted
        values = jax.vmap(model.family.log_density)(eta, rows["y"]) * counted - block.share * self.centre
        value = jnp.sum(jnp.where(block.is_valid, values, 0))
        found = jax.vmap(model.family.derivatives)(eta, rows["y"])
        found = Derivatives(*(jnp.where(_like(block.is_valid, d), d * _like(counted, d), 0) for d in found))
        x = rows["x"]
        return Sums(
            value,
            _times_rows(layout, jnp.ones((len(x), 1), x.dtype), found.first, x)[0],
            _curvature(layout, found.second, x),
            tuple(_of_term(layout, term, found, rows) for term in layout.terms),
            tuple(_of_pair(layout.terms[s], layout.terms[t], found, rows) for s, t in pairs_of(layout)),
            self._higher(found, eta, counted, rows, block.is_valid) if layout.tail else None,
        )

    def _higher(self, found: Derivatives, eta: Array, counted: Array, rows: PyTree, is_valid: Array) -> HigherSums:
        family = self.log_likelihood.function.family
        powers = jax.vmap(family.higher)(eta, rows["y"])
        powers = jnp.where(is_valid[:, None], powers * counted[:, None], 0)
        layout = self.log_likelihood.function.layout
        return _higher(layout, layout.terms[layout.tail[0]], found, powers, rows)


def _like(values: Array, other: Array) -> Array:
    return values.reshape(values.shape + (1,) * (other.ndim - 1))


def _times_rows(layout: Layout, weights: Array, by_predictor: Array, x: Array) -> Array:
    """Sum over rows of weights_j (by_predictor . A), (j, P)."""
    linear = [
        jnp.matmul((weights * by_predictor[:, k, None]).T, x, precision=_PRECISION) for k in range(layout.num_linear)
    ]
    shared = jnp.matmul(weights.T, by_predictor[:, layout.num_linear :], precision=_PRECISION)
    return jnp.concatenate([*linear, shared], 1)


def _curvature(layout: Layout, second: Array, x: Array) -> Array:
    """Sum over rows of A' f2 A, (P, P)."""
    ones = jnp.ones((len(x), 1), x.dtype)
    rows = [_times_rows(layout, x, second[:, k], x) for k in range(layout.num_linear)]
    shared = [_times_rows(layout, ones, second[:, k], x) for k in range(layout.num_linear, layout.num_predictors)]
    return jnp.concatenate([*rows, *shared])


def _dense_part(layout: Layout, by_predictor: Array, x: Array) -> Array:
    """by_predictor . A of every row, (rows, P)."""
    linear = [by_predictor[:, k, None] * x for k in range(layout.num_linear)]
    return jnp.concatenate([*linear, by_predictor[:, layout.num_linear :]], 1)


def _of_term(layout: Layout, term: Term, found: Derivatives, rows: PyTree) -> TermSums:
    w = _weights(term, found, rows)[:, None]
    dense = w * _dense_part(layout, found.second[:, 0], rows["x"])
    sums = _by_level(term, rows, w * found.first[:, :1], w**2 * found.second[:, 0, :1], dense)
    return TermSums(sums[:, 0], sums[:, 1], sums[:, 2:])


def _higher(layout: Layout, term: Term, found: Derivatives, powers: Array, rows: PyTree) -> HigherSums:
    dense = _dense_part(layout, found.third, rows["x"])
    sums = _by_level(term, rows, powers, dense)
    return HigherSums(sums[:, : powers.shape[1]].T, sums[:, powers.shape[1] :])


def _by_level(term: Term, rows: PyTree, *columns: Array) -> Array:
    return jax.ops.segment_sum(jnp.concatenate(columns, 1), rows["groups"][:, term.factor], term.num_levels)


def _weights(term: Term, found: Derivatives, rows: PyTree) -> Array:
    return jnp.ones_like(found.first[:, 0]) if term.slope is None else rows["slopes"][:, term.slope]


def _of_pair(one: Term, other: Term, found: Derivatives, rows: PyTree) -> Array:
    w = _weights(one, found, rows) * _weights(other, found, rows)
    values, here, there = w * found.second[:, 0, 0], rows["groups"][:, one.factor], rows["groups"][:, other.factor]
    if one.factor == other.factor:
        return jax.ops.segment_sum(values, here, one.num_levels)
    shape = one.num_levels, other.num_levels
    return jnp.zeros(shape, values.dtype).at[here, there].add(values)
