"""Coordinates in which the posterior of a regression with groups is nearly standard normal, for any scales.

With a quadratic expansion of the likelihood and normal effects, the effects of a group of the tail are normal given the
head h and the scales: their precision is D_g + 1/sd^2, their mean m_g(h, sd). In

    u_g = m_g(h, sd) + L_g^-T v_g,   L_g L_g' = D_g + 1/sd^2,

v_g is standard normal whatever the scales are: for a small sd that is the non-centred parametrisation, for a large one
the centred one, and the head is not tied to the mean of the effects. (Papaspiliopoulos, Roberts and Skoeld 2007, for
the two of them.) Parameters of the head that have a scale of their own, effects of other factors and coefficients under
a horseshoe, are treated alike, but one by one: with D what the data say of each, 1/(its variance at the reference r)
less 1/sd_r^2, and T T' the covariance of the head at the reference,

    h = k h_r + sqrt(k) T w,   k = (D + 1/sd_r^2)/(D + 1/sd^2).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.arrays import as_floats, dot
from tallchain.models.layout import Layout
from tallchain.models.priors import LOG_GLOBAL, LOG_LOCAL, LOG_SLAB, Horseshoe, log_prior_of
from tallchain.parts import part, set_fields, static
from tallchain.surrogates.bulk import dense_prior, term_precisions
from tallchain.surrogates.predictors import Predictors
from tallchain.surrogates.small_blocks import back_substituted, cholesky, substituted, times_transposed
from tallchain.surrogates.structure import Precision, blocks_of, spread_of_log_sd
from tallchain.types import Array, Posterior, PyTree

_HYPER = (LOG_LOCAL, LOG_GLOBAL, LOG_SLAB)


@part
class Conditional:
    """The coordinates above, around the reference of a surrogate.

    Args:
        posterior: of a `Regression` with groups or a horseshoe prior.
        surrogate: its expansion; the scales at its position are those of the reference.
    """

    layout: Layout = static()
    horseshoe: Horseshoe | None
    position: PyTree
    """The reference."""
    factor: Array
    """T of the head."""
    inverse: Array
    known: Array
    """D by parameter of the head; 0 where it has no scale."""
    spread: Array
    """Of the logarithms of the scales of the terms."""
    gradient: Array
    """Of the tail, (m, J)."""
    cross: Array
    """C, (m, J, head)."""
    tail: Array
    """D, (m, m, J)."""

    def __init__(self, posterior: Posterior, surrogate: Predictors) -> None:
        layout, position = surrogate.layout, surrogate.position
        prior = log_prior_of(posterior).prior.coefficients
        sums = surrogate.sums
        host = _on_host(sums)
        gradient, likelihood = blocks_of(layout, host, float(posterior.temperature))
        at = _on_host(position)
        log_sds = {term.log_sd: float(at[term.log_sd]) for term in layout.terms}
        head, tail = term_precisions(layout, log_sds, len(gradient.head))
        matrix = np.diag(head)
        matrix[: layout.num_dense, : layout.num_dense] -= np.asarray(dense_prior(posterior, position)[1], np.float64)
        precision = likelihood.plus(matrix, tail)
        factor = np.linalg.inv(np.linalg.cholesky(precision.schur)).T
        set_fields(
            self,
            layout=layout,
            horseshoe=prior if isinstance(prior, Horseshoe) else None,
            position=position,
            factor=as_floats(factor),
            inverse=as_floats(np.linalg.inv(factor)),
            known=as_floats(_known(layout, np.sum(factor**2, 1), np.diag(matrix))),
            spread=as_floats(_spreads(layout, likelihood, log_sds)),
            gradient=as_floats(gradient.tail.T),
            cross=as_floats(np.moveaxis(likelihood.cross, 1, 0)),
            tail=as_floats(np.moveaxis(likelihood.tail, 0, -1)),
        )

    @property
    def size(self) -> int:
        """Number of coordinates."""
        sizes = [len(self.factor), len(self.layout.terms), *(np.size(self.position[name]) for name in self._hyper)]
        return int(sum(sizes) + self.gradient.size)

    def many(self, w: Array) -> PyTree:
        """t(w) for every row of w."""
        return _many(self, w)

    # ---- both ways ------------------------------------------------------------------------------

    def back(self, w: Array) -> PyTree:
        """t(w)."""
        return self._both(w)[0]

    def log_det(self, w: Array) -> Array:
        """log |dt/dw|, up to a constant: of sqrt(k), and of L_g^-T."""
        return self._both(w)[1]

    def _both(self, w: Array) -> tuple[PyTree, Array]:
        """By the same operations for both, so that a program that needs both does them once."""
        layout, r = self.layout, self.position
        sizes = [len(self.factor), len(layout.terms), *(int(np.size(r[name])) for name in self._hyper)]
        head, scales, *hyper, rest = jnp.split(w, np.cumsum(sizes))
        position = {term.log_sd: r[term.log_sd] + self.spread[k] * scales[k] for k, term in enumerate(layout.terms)} | {
            name: r[name] + values.reshape(r[name].shape) for name, values in zip(self._hyper, hyper, strict=True)
        }
        log_k = self._log_k(position)
        head = jnp.exp(log_k) * self._head_of(r) + jnp.exp(0.5 * log_k) * dot(self.factor, head)
        position |= layout.with_dense(head[: layout.num_dense])
        at = layout.num_dense
        for number in layout.head:
            term = layout.terms[number]
            position[term.name] = head[at : at + term.num_levels]
            at += term.num_levels
        factors, means = self._given(position, head)
        effects = back_substituted(factors, list(rest.reshape(len(layout.tail), -1))) if layout.tail else []
        for number, mean, effect in zip(layout.tail, means, effects, strict=True):
            position[layout.terms[number].name] = mean + effect
        log_det = 0.5 * jnp.sum(log_k) - sum(jnp.sum(jnp.log(row[-1])) for row in factors)
        return {name: position[name] for name in r}, log_det

    def to(self, position: PyTree) -> Array:
        """w."""
        layout, r = self.layout, self.position
        head = self._head_of(position)
        log_k = self._log_k(position)
        plain = dot(self.inverse, jnp.exp(-0.5 * log_k) * head - jnp.exp(0.5 * log_k) * self._head_of(r))
        scales = [
            (position[term.log_sd] - r[term.log_sd]) / s for term, s in zip(layout.terms, self.spread, strict=True)
        ]
        hyper = [(position[name] - r[name]).ravel() for name in self._hyper]
        factors, means = self._given(position, head)
        apart = [position[layout.terms[at].name] - mean for at, mean in zip(layout.tail, means, strict=True)]
        rest = times_transposed(factors, apart)
        return jnp.concatenate([plain, jnp.stack(scales) if scales else jnp.zeros(0), *hyper, *rest])

    # ---- its parts ------------------------------------------------------------------------------

    @property
    def _hyper(self) -> tuple[str, ...]:
        return _HYPER if self.horseshoe else ()

    def _head_of(self, position: PyTree) -> Array:
        layout = self.layout
        return jnp.concatenate([layout.dense(position), *(position[layout.terms[at].name] for at in layout.head)])

    def _log_k(self, position: PyTree) -> Array:
        """log k by parameter of the head: 0 for those that have no scale."""
        before, after = (self.known + jnp.exp(-2 * self._log_scales(at)) for at in (self.position, position))
        return jnp.log(before / after)

    def _log_scales(self, position: PyTree) -> Array:
        """By parameter of the head; 0 for those that have no scale."""
        layout = self.layout
        dense = jnp.zeros(layout.num_dense)
        if self.horseshoe is not None and layout.num_linear == 1:
            dense = dense.at[layout.has_intercept : layout.num_features].set(self.horseshoe.log_scales(position))
        terms = [layout.terms[at] for at in layout.head]
        return jnp.concatenate([dense, *(jnp.full(term.num_levels, position[term.log_sd]) for term in terms)])

    def _given(self, position: PyTree, head: Array) -> tuple[list[list[Array]], list[Array]]:
        """L of the effects of the tail, by row, and their means, given the head and the scales."""
        layout, r = self.layout, self.position
        terms = [layout.terms[at] for at in layout.tail]
        step = head - self._head_of(r)
        blocks = [[self.tail[i, j] for j in range(i + 1)] for i in range(len(terms))]
        right = [self.gradient[i] - dot(self.cross[i], step) for i in range(len(terms))]
        for i, term in enumerate(terms):
            blocks[i][i] = blocks[i][i] + jnp.exp(-2 * position[term.log_sd])
            for j, other in enumerate(terms):
                right[i] += self.tail[i, j] * r[other.name]
        factors = cholesky(blocks)
        return factors, back_substituted(factors, substituted(factors, right))


@jax.jit
def _many(coordinates: Conditional, w: Array) -> PyTree:
    return jax.vmap(coordinates.back)(w)


def _on_host(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def _known(layout: Layout, variances: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """D by parameter of the head, given variances and the diagonal of the prior's precision."""
    has_scale = np.arange(len(prior)) >= layout.num_dense
    if layout.hyper and layout.num_linear == 1:
        has_scale[layout.has_intercept : layout.num_features] = True
    return np.where(has_scale, np.maximum(1 / variances - prior, 0.0), 0.0)


def _spreads(layout: Layout, likelihood: Precision, log_sds: dict[str, float]) -> np.ndarray:
    """About the standard deviation of the logarithm of each scale."""
    found, at = np.ones(len(layout.terms)), layout.num_dense
    diagonals = {number: likelihood.tail[:, i, i] for i, number in enumerate(layout.tail)}
    for number in layout.head:
        diagonals[number] = np.diag(likelihood.head)[at : at + layout.terms[number].num_levels]
        at += layout.terms[number].num_levels
    for number, term in enumerate(layout.terms):
        found[number] = spread_of_log_sd(diagonals[number], log_sds[term.log_sd])
    return found
