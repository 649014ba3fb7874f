"""Coordinates in which scales of groups are independent of all else, and nearly normal: for a head that is not large.

With a quadratic expansion of the likelihood and normal effects, all parameters but the scales are normal given the
scales. With D_g the precision of the effects u_g of a group of the tail, C_g that of them with the head h, t = 1/sd^2,

    A_g = D_g + t,   S = H + t_head - sum C_g' A_g^-1 C_g,   u_g | h ~ N(A_g^-1 (...), A_g^-1),   h ~ N(m, S^-1).

With M M' = S^-1 the numbers M^-1 (h - m) and L_g' (u_g - m_g), L_g L_g' = A_g, are standard normal WHATEVER the scales
are: neither a scale near 0, nor one of which a few groups say little, makes a funnel or a ridge. S is computed from its
difference to that at very large scales, in units T of the head in which that one is the identity: for smaller scales
something positive is added, and nothing cancels. A scale itself goes by the quantiles of its own distribution, given
the other scales at the reference: the logarithm of one near 0 has a long tail to the left.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.arrays import as_floats, dot
from tallchain.models.layout import Layout
from tallchain.models.priors import log_prior_of
from tallchain.parts import part, set_fields, static
from tallchain.surrogates.bulk import dense_prior
from tallchain.surrogates.predictors import Predictors
from tallchain.surrogates.quantiles import Quantiles
from tallchain.surrogates.small_blocks import (
    Triangle,
    back_substituted,
    cholesky,
    inverse_factor,
    inverses,
    substituted,
    times_transposed,
)
from tallchain.surrogates.structure import blocks_of, definite
from tallchain.types import Array, Posterior, PyTree

_MOST_HEAD = 64
_MOST_NUMBERS = 2**24
_LARGER = 30.0  # times the scale of the prior of a scale: larger than a chain ever comes


def is_decoupled(layout: Layout) -> bool:
    """Whether the head is small enough."""
    size = layout.num_dense + sum(layout.terms[at].num_levels for at in layout.head)
    m = len(layout.tail)
    numbers = size**2 * m * (m + 1) // 2 * (layout.terms[layout.tail[0]].num_levels if m else 0)
    return bool(layout.terms) and not layout.hyper and size <= _MOST_HEAD and numbers <= _MOST_NUMBERS


@part
class Decoupled:
    """The coordinates above, around the reference of a surrogate.

    Args:
        posterior: of a `Regression` with groups, `is_decoupled`.
        surrogate: its expansion; the scales at its position are those of the reference.
    """

    layout: Layout = static()
    position: PyTree
    """The reference."""
    largest: Array
    """Logarithms of the very large scales, by term."""
    factor: Array
    """T."""
    inverse: Array
    """Its inverse."""
    first: Array
    """T' b of the data and the prior of dense parameters."""
    priors: tuple[tuple[Array, Array], ...]
    """By term of the head: T_k' T_k, and T_k' u_r, T_k the rows of T that its effects are."""
    gradient: Array
    """Of the tail, (m, J)."""
    cross: Array
    """C T, (m, J, head)."""
    tail: Array
    """D, (m, m, J)."""
    outer: Array
    """(C T)_i' (C T)_j by pair of terms and group, (pairs, J, head^2)."""
    scales: tuple[Quantiles, ...]

    def __init__(self, posterior: Posterior, surrogate: Predictors) -> None:
        layout, position = surrogate.layout, jax.tree.map(_wide, surrogate.position)
        data = _Data.of(posterior, layout, position, jax.tree.map(_wide, surrogate.sums))
        log_sds = [float(position[term.log_sd]) for term in layout.terms]
        largest = [max(math.log(_LARGER * data.group_sd), log_sd + 1) for log_sd in log_sds]
        factor = np.linalg.inv(np.linalg.cholesky(definite(data.schur(largest)))).T
        data = data.in_units(factor, largest)
        cross = data.cross
        m, count, size = cross.shape
        outer = [cross[i][:, :, None] * cross[j][:, None, :] for i in range(m) for j in range(i + 1)]
        set_fields(
            self,
            layout=layout,
            position=surrogate.position,
            largest=as_floats(largest),
            factor=as_floats(factor),
            inverse=as_floats(np.linalg.inv(factor)),
            first=as_floats(data.first),
            priors=tuple(
                (as_floats(rows.T @ rows), as_floats(rows.T @ position[layout.terms[number].name]))
                for number, rows in data.effects.items()
            ),
            gradient=as_floats(data.gradient),
            cross=as_floats(cross),
            tail=as_floats(np.moveaxis(data.tail, 0, -1)),
            outer=as_floats(np.reshape(outer, (-1, count, size * size))),
            scales=tuple(
                Quantiles.of(lambda values, k=k: data.log_density(log_sds, k, values), log_sds[k])
                for k in range(len(layout.terms))
            ),
        )

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.factor) + len(self.layout.terms) + int(self.gradient.size)

    def many(self, w: Array) -> PyTree:
        """t(w) for every row of w."""
        return _many(self, w)

    # ---- both ways ------------------------------------------------------------------------------

    def back(self, w: Array) -> PyTree:
        """t(w)."""
        return self._both(w)[0]

    def log_det(self, w: Array) -> Array:
        """log |dt/dw|, up to a constant."""
        return self._both(w)[1]

    def _both(self, w: Array) -> tuple[PyTree, Array]:
        """By the same operations for both, so that a program that needs both does them once."""
        layout, r = self.layout, self.position
        head, scales, rest = jnp.split(w, [len(self.factor), len(self.factor) + len(layout.terms)])
        found = [quantiles.back(of) for quantiles, of in zip(self.scales, scales, strict=True)]
        given = self._given({term.log_sd: log_sd for term, (log_sd, _) in zip(layout.terms, found, strict=True)})
        z = dot(given.inverse.T, head + dot(given.inverse, given.right))
        position = given.log_sds | self._with_head(dot(self.factor, z))
        means = self._means(given, z)
        effects = back_substituted(given.factors, list(rest.reshape(len(layout.tail), -1)))
        for number, mean, effect in zip(layout.tail, means, effects, strict=True):
            position[layout.terms[number].name] = mean + effect
        log_det = sum((slope for _, slope in found), jnp.sum(jnp.log(jnp.diagonal(given.inverse))))
        log_det -= sum(jnp.sum(jnp.log(row[-1])) for row in given.factors)
        return {name: position[name] for name in r}, log_det

    def to(self, position: PyTree) -> Array:
        """w."""
        layout, r = self.layout, self.position
        given = self._given({term.log_sd: position[term.log_sd] for term in layout.terms})
        z = dot(self.inverse, self._head_of(position) - self._head_of(r))
        head = dot(given.inverse, dot(given.precision, z) - given.right)
        scales = [of.to(position[term.log_sd]) for of, term in zip(self.scales, layout.terms, strict=True)]
        means = self._means(given, z)
        apart = [position[layout.terms[at].name] - mean for at, mean in zip(layout.tail, means, strict=True)]
        return jnp.concatenate([head, jnp.stack(scales), *times_transposed(given.factors, apart)])

    # ---- given the scales -----------------------------------------------------------------------

    def _given(self, log_sds: dict[str, Array]) -> _Given:
        """S and T' b of the head, and L of the tail."""
        layout, r = self.layout, self.position
        size, m = len(self.factor), len(layout.tail)
        precision, right = jnp.eye(size, dtype=self.factor.dtype), self.first
        for number, (matrix, vector) in zip(layout.head, self.priors, strict=True):
            name = layout.terms[number].log_sd
            change = _change(log_sds[name], self.largest[number])
            precision += change * matrix
            right -= jnp.exp(-2 * log_sds[name]) * vector
        names = [layout.terms[at].log_sd for at in layout.tail]
        largest = [self.largest[number] for number in layout.tail]
        here, there = self._factors(largest), self._factors([log_sds[name] for name in names])
        before, after = inverses(here), inverses(there)
        changes = [_change(log_sds[name], most) for name, most in zip(names, largest, strict=True)]
        at = 0
        for i in range(m):
            for j in range(i + 1):
                parts = [_entry(after, i, k) * changes[k] * _entry(before, k, j) for k in range(m)]
                weights = jnp.sum(jnp.stack(parts), 0)
                added = dot(weights, self.outer[at]).reshape(size, size)
                precision += added if i == j else added + added.T
                at += 1
        # What the tail says, with h where it is at the reference.
        apart = [
            self.gradient[i] - jnp.exp(-2 * log_sds[n]) * r[layout.terms[k].name]
            for i, (n, k) in enumerate(zip(names, layout.tail, strict=True))
        ]
        moved = back_substituted(there, substituted(there, apart))
        right -= sum(dot(of, self.cross[i]) for i, of in enumerate(moved))
        return _Given(log_sds, precision, right, inverse_factor(precision), there, moved)

    def _factors(self, log_sds: list[Array]) -> Triangle:
        """L of the effects of the tail."""
        blocks = [[self.tail[i, j] for j in range(i + 1)] for i in range(len(log_sds))]
        for i, log_sd in enumerate(log_sds):
            blocks[i][i] = blocks[i][i] + jnp.exp(-2 * log_sd)
        return cholesky(blocks)

    def _means(self, given: _Given, z: Array) -> list[Array]:
        """Of the effects of the tail, given the head."""
        layout, r = self.layout, self.position
        along = back_substituted(given.factors, substituted(given.factors, [dot(of, z) for of in self.cross]))
        return [
            r[layout.terms[at].name] + moved - step
            for at, moved, step in zip(layout.tail, given.moved, along, strict=True)
        ]

    def _head_of(self, position: PyTree) -> Array:
        layout = self.layout
        return jnp.concatenate([layout.dense(position), *(position[layout.terms[at].name] for at in layout.head)])

    def _with_head(self, step: Array) -> dict[str, Array]:
        """Return the parameters of the head, a step from the reference."""
        layout = self.layout
        head = self._head_of(self.position) + step
        found, at = dict(layout.with_dense(head[: layout.num_dense])), layout.num_dense
        for number in layout.head:
            term = layout.terms[number]
            found[term.name] = head[at : at + term.num_levels]
            at += term.num_levels
        return found


class _Given(NamedTuple):
    """What the scales determine."""

    log_sds: dict[str, Array]
    precision: Array
    """T' S T."""
    right: Array
    """T' b, S m = b."""
    inverse: Array
    """M' = L^-1 of the precision."""
    factors: Triangle
    """L of the tail."""
    moved: list[Array]
    """How far the means of the tail are from the reference, if the head is there."""


class _Data(NamedTuple):
    """The quadratic expansion of the log posterior, around the reference, in float64 on the host."""

    layout: Layout
    head: np.ndarray
    """H, with the prior of dense parameters."""
    first: np.ndarray
    """Gradient of the head, with that prior."""
    effects: dict[int, np.ndarray]
    """By term of the head: its effects by the numbers of the head."""
    cross: np.ndarray
    """C, (m, J, head)."""
    tail: np.ndarray
    """D, (J, m, m)."""
    gradient: np.ndarray
    """(m, J)."""
    position: PyTree
    group_sd: float

    @classmethod
    def of(cls, posterior: Posterior, layout: Layout, position: PyTree, sums: Any) -> _Data:
        gradient, likelihood = blocks_of(layout, sums, float(posterior.temperature))
        first, head = gradient.head.copy(), likelihood.head.copy()
        slope, curvature = (np.asarray(leaf, np.float64) for leaf in dense_prior(posterior, position))
        first[: layout.num_dense] += slope
        head[: layout.num_dense, : layout.num_dense] -= curvature
        effects, at = {}, layout.num_dense
        for number in layout.head:
            count = layout.terms[number].num_levels
            effects[number] = np.eye(len(first))[at : at + count]
            at += count
        cross, group_sd = np.moveaxis(likelihood.cross, 1, 0), log_prior_of(posterior).prior.group_sd
        assert group_sd is not None
        return cls(layout, head, first, effects, cross, likelihood.tail, gradient.tail.T, position, float(group_sd))

    def in_units(self, factor: np.ndarray, log_sds: list[float]) -> _Data:
        """Return the same for z, h = h_r + T z, in which S is the identity at these scales.

        Sums of many rows in float32 may contradict each other by more than all that is known of an intercept beside
        the effects of groups.
        """
        found = self._replace(
            head=np.eye(len(factor)),
            first=factor.T @ self.first,
            effects={number: rows @ factor for number, rows in self.effects.items()},
            cross=self.cross @ factor,
        )
        return found._replace(head=2 * np.eye(len(factor)) - found.schur(log_sds))

    def schur(self, log_sds: list[float]) -> np.ndarray:
        """S."""
        return self._schur(log_sds, self._inverse(log_sds)[1])

    def log_density(self, log_sds: list[float], term: int, values: np.ndarray) -> np.ndarray:
        """Of the log sd of a term, the others held and all other parameters integrated out, up to a constant."""
        return np.array(
            [self._log_density([*log_sds[:term], float(value), *log_sds[term + 1 :]], term) for value in values]
        )

    def _inverse(self, log_sds: list[float]) -> tuple[np.ndarray, np.ndarray]:
        """A, and A^-1, (J, m, m)."""
        blocks = self.tail + np.diag([math.exp(-2 * log_sds[at]) for at in self.layout.tail])
        return blocks, 1 / blocks if len(self.layout.tail) == 1 else np.linalg.inv(blocks)

    def _schur(self, log_sds: list[float], inverse: np.ndarray) -> np.ndarray:
        size, cross = len(self.first), np.moveaxis(self.cross, 0, 1)
        found = self.head - cross.reshape(-1, size).T @ (inverse @ cross).reshape(-1, size)
        for number, rows in self.effects.items():
            found += math.exp(-2 * log_sds[number]) * rows.T @ rows
        return (found + found.T) / 2

    def _log_density(self, log_sds: list[float], term: int) -> float:
        blocks, inverse = self._inverse(log_sds)
        here = np.stack([self.position[self.layout.terms[at].name] for at in self.layout.tail], 1)
        right = self.gradient.T + np.einsum("gij,gj->gi", self.tail, here)
        means = np.einsum("gij,gj->gi", inverse, right)
        slope = self.first - np.einsum("igh,gi->h", self.cross, means - here)
        log_sd, count = log_sds[term], self.layout.terms[term].num_levels
        found = (1 - count) * log_sd - 0.5 * (math.exp(log_sd) / self.group_sd) ** 2  # the prior, where effects are 0
        for number, rows in self.effects.items():
            precision, effects = math.exp(-2 * log_sds[number]), self.position[self.layout.terms[number].name]
            slope = slope - precision * rows.T @ effects
            found -= 0.5 * precision * float(effects @ effects)
        sign, log_det = np.linalg.slogdet(schur := self._schur(log_sds, inverse))
        if not sign > 0:
            return -math.inf
        log_dets = np.log(blocks) if blocks.shape[-1] == 1 else np.linalg.slogdet(blocks)[1]
        found += 0.5 * float(np.sum(right * means)) - 0.5 * float(np.sum(log_dets))
        return found + 0.5 * float(slope @ np.linalg.solve(schur, slope)) - 0.5 * float(log_det)


@jax.jit
def _many(coordinates: Decoupled, w: Array) -> PyTree:
    return jax.vmap(coordinates.back)(w)


def _wide(leaf: Any) -> np.ndarray:
    return np.asarray(leaf, np.float64)


def _change(log_sd: Array, before: Array) -> Array:
    """1/sd^2 less its value at the reference."""
    return jnp.exp(-2 * before) * jnp.expm1(2 * (before - log_sd))


def _entry(triangle: Triangle, i: int, j: int) -> Array:
    return triangle[max(i, j)][min(i, j)]
