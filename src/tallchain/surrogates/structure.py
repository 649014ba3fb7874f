"""The precision of a regression with groups, without a d x d matrix.

The effects of the factor with the most levels are the TAIL: given all other parameters, the HEAD, its groups are
independent, and each has a small block of its own. So

    M = [[A, C'], [C, D]],   D block diagonal,

is solved by the Schur complement S = A - C' D^-1 C of the head, at a cost of J times the square of the head's size.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallchain.models.layout import Layout, Term
from tallchain.surrogates.predictor_sums import Sums, pairs_of

MOST_HEAD = 3000
"""Parameters of the head: its precision is a dense matrix."""
MOST_PAIRS = 2**25
"""Pairs of levels of two factors."""
_LEAST = 1e-9  # eigenvalue of a matrix scaled to a diagonal of ones
_ROUNDING = 1e-5  # of such an eigenvalue: sums over rows are in float32
_REACH = 6.0  # standard deviations of an effect
_STIFF = 0.2  # of the precision of an effect that must be left
_LARGER = 3.0  # standard deviations of its logarithm: a scale that is as large as it may well be
_PARTS = 48  # of the reach, to look at one after another


def check_sizes(layout: Layout) -> None:
    """Refuse factors that are too large together."""
    head = [layout.terms[at] for at in layout.head]
    size = layout.num_dense + sum(term.num_levels for term in head)
    pairs = max((term.num_levels for term in head), default=0) * max((t.num_levels for t in layout.terms), default=0)
    if size > MOST_HEAD or pairs > MOST_PAIRS:
        raise ValueError(
            f"`prepare(...)`: all parameters but the effects of the factor with the most levels may be at most "
            f"{MOST_HEAD:,}, and two factors may have at most {MOST_PAIRS:,} pairs of levels; got {size:,} and "
            f"{pairs:,}. Merge small groups of the other factors, or leave a factor out."
        )


class Gradient(NamedTuple):
    """Numbers by parameter: of the head, and of the tail (J, m), m its number of terms."""

    head: np.ndarray
    tail: np.ndarray


class Precision(NamedTuple):
    """M, in blocks."""

    head: np.ndarray
    """A."""
    cross: np.ndarray
    """C, (J, m, head)."""
    tail: np.ndarray
    """D, (J, m, m)."""

    def plus(self, head: np.ndarray, tail: np.ndarray) -> Precision:
        """Add a matrix to the head, and a diagonal (m,) to the tail."""
        return Precision(self.head + head, self.cross, self.tail + np.diag(tail))

    @property
    def inner(self) -> np.ndarray:
        """D^-1 C."""
        return np.linalg.solve(self.tail, self.cross) if self.tail.size else self.cross

    @property
    def schur(self) -> np.ndarray:
        """S, made positive definite."""
        size = len(self.head)
        return definite(self.head - self.cross.reshape(-1, size).T @ self.inner.reshape(-1, size))

    def solve(self, right: Gradient) -> Gradient:
        """M^-1 g."""
        if not self.tail.size:
            return Gradient(np.linalg.solve(definite(self.head), right.head), right.tail)
        alone = np.linalg.solve(self.tail, right.tail[..., None])[..., 0]
        head = np.linalg.solve(self.schur, right.head - np.einsum("jmh,jm->h", self.cross, alone))
        return Gradient(head, alone - self.inner @ head)

    def variances(self) -> Gradient:
        """Return about the diagonal of M^-1: that of the tail is given the head."""
        tail = np.linalg.inv(self.tail) if self.tail.size else self.tail
        return Gradient(np.diag(np.linalg.inv(self.schur)), np.diagonal(tail, axis1=1, axis2=2))


def definite(matrix: np.ndarray) -> np.ndarray:
    """Return a symmetric matrix, or several, with negative eigenvalues replaced by their absolute values.

    So a step from a place where the log density is not concave leads uphill, and is as long as the curvature allows.
    Those that are 0 but for rounding become a small number: nothing is known in that direction.
    """
    matrix = (matrix + np.swapaxes(matrix, -1, -2)) / 2
    scale = np.sqrt(np.abs(np.diagonal(matrix, axis1=-2, axis2=-1)))
    scale = np.where(scale > 0, scale, 1.0)
    outer = scale[..., :, None] * scale[..., None, :]
    values, vectors = np.linalg.eigh(matrix / outer)
    if np.all(values > _LEAST):
        return matrix
    values = np.where(values < -_ROUNDING, -values, np.maximum(values, _LEAST))
    return (vectors * values[..., None, :]) @ np.swapaxes(vectors, -1, -2) * outer


def blocks_of(layout: Layout, sums: Sums, temperature: float) -> tuple[Gradient, Precision]:
    """Return the gradient and the NEGATIVE Hessian of the log likelihood over K, in blocks."""
    size = layout.num_dense
    of, terms = sums.terms, layout.terms
    pairs = dict(zip(pairs_of(layout), sums.pairs, strict=True))
    places, total = {}, size
    for at in layout.head:
        places[at] = slice(total, total + terms[at].num_levels)
        total += terms[at].num_levels
    head = np.zeros((total, total))
    head[:size, :size] = sums.second
    first = [np.asarray(sums.first), *(of[at].first for at in layout.head)]
    for at in layout.head:
        place = places[at]
        head[place, :size] = of[at].second_dense
        head[place, place] = np.diag(of[at].second)
        for before in layout.head:
            if before < at:
                head[place, places[before]] = _matrix(pairs[before, at]).T
    head = np.tril(head) + np.tril(head, -1).T
    count, m = (terms[layout.tail[0]].num_levels if layout.tail else 0), len(layout.tail)
    tail, cross, slope = np.zeros((count, m, m)), np.zeros((count, m, total)), np.zeros((count, m))
    for i, at in enumerate(layout.tail):
        slope[:, i], tail[:, i, i], cross[:, i, :size] = of[at].first, of[at].second, of[at].second_dense
        for j, before in enumerate(layout.tail[:i]):
            tail[:, i, j] = tail[:, j, i] = pairs[before, at]
        for other in layout.head:
            one, two = min(other, at), max(other, at)
            matrix = _matrix(pairs[one, two])
            cross[:, i, places[other]] = matrix if one == at else matrix.T
    precision = Precision(-head / temperature, -cross / temperature, -tail / temperature)
    if m:
        precision = precision._replace(tail=_absolute(precision.tail))
    return Gradient(np.concatenate(first) / temperature, slope / temperature), precision


def _matrix(pair: Any) -> np.ndarray:
    return np.diag(pair) if np.ndim(pair) == 1 else np.asarray(pair)


def _absolute(blocks: np.ndarray) -> np.ndarray:
    """Take negative eigenvalues as positive: the outcomes of a small group may be unlikely in any case."""
    if blocks.shape[-1] == 1:
        return np.abs(blocks)
    values, vectors = np.linalg.eigh(blocks)
    return (vectors * np.abs(values)[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def effects_of(layout: Layout, parameters: Gradient) -> dict[str, np.ndarray]:
    """Return numbers by name of the term."""
    found, at = {}, layout.num_dense
    for number in layout.head:
        term: Term = layout.terms[number]
        found[term.name] = parameters.head[at : at + term.num_levels]
        at += term.num_levels
    return found | {layout.terms[number].name: parameters.tail[:, i] for i, number in enumerate(layout.tail)}


def reach_of(layout: Layout, sums: Sums, temperature: float, log_sds: dict[str, float]) -> np.ndarray | None:
    """Return how far from the reference the terms beyond order 2 go on, by group of the tail.

    Six standard deviations; less if the curvature of the expansion would fall below a fifth of its value at the
    reference: with few rows, or outcomes that are all alike, the polynomial is good for a shorter way. The scale of the
    effects is taken as large as it may well be: where it is small at the reference, their prior would make up for any
    polynomial, and the surrogate posterior would have a second mode, at a scale that is far too large.
    """
    if sums.higher is None:
        return None
    term = layout.terms[layout.tail[0]]
    second = np.asarray(sums.terms[layout.tail[0]].second)
    known = np.maximum(-second / temperature, 0)
    log_sd = log_sds[term.log_sd]
    log_sd += _LARGER * spread_of_log_sd(known, log_sd)
    precision = known + np.exp(-2 * log_sd)
    furthest = _REACH / np.sqrt(precision)
    reach, is_good = np.zeros_like(furthest), np.ones(len(furthest), bool)
    for part in np.arange(1, _PARTS + 1) / _PARTS:
        for b in (part * furthest, -part * furthest):
            change = sum(of * b ** (k + 1) / math.factorial(k + 1) for k, of in enumerate(sums.higher.powers))
            is_good &= change / temperature < (1 - _STIFF) * precision
        reach = np.where(is_good, part * furthest, reach)
    return reach


def spread_of_log_sd(known: np.ndarray, log_sd: float) -> float:
    """Return about the standard deviation of the logarithm of a scale, given the precisions of its effects."""
    known = np.maximum(known, 0) * np.exp(2 * log_sd)
    return float(1 / np.sqrt(1 + 2 * np.sum((known / (1 + known)) ** 2)))
