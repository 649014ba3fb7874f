"""Cholesky factors of small matrices, written out: many of them at once, and no call of LAPACK inside a program.

XLA makes a loop of LAPACK calls of a batch of matrices, and several at once may wait for each other for ever.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tallchain.arrays import dot
from tallchain.types import Array

Triangle = list[list[Array]]
"""A lower triangle by its rows; each entry may be a vector, with a number for every group."""


def cholesky(blocks: Triangle) -> Triangle:
    """Return L of lower triangles."""
    rows: Triangle = []
    for i, row in enumerate(blocks):
        made: list[Array] = []
        for j, value in enumerate(row):
            left = value - sum((made[k] * (made if j == i else rows[j])[k] for k in range(j)), jnp.zeros(()))
            made.append(jnp.sqrt(left) if i == j else left / rows[j][j])
        rows.append(made)
    return rows


def substituted(factors: Triangle, right: list[Array]) -> list[Array]:
    """Return L^-1 b."""
    found: list[Array] = []
    for row, value in zip(factors, right, strict=True):
        found.append((value - sum((row[k] * found[k] for k in range(len(found))), jnp.zeros(()))) / row[-1])
    return found


def back_substituted(factors: Triangle, right: list[Array]) -> list[Array]:
    """Return L^-T b."""
    found: list[Array] = []
    for i in reversed(range(len(right))):
        done = sum((factors[i + 1 + k][i] * value for k, value in enumerate(found)), jnp.zeros(()))
        found.insert(0, (right[i] - done) / factors[i][i])
    return found


def times_transposed(factors: Triangle, values: list[Array]) -> list[Array]:
    """Return L' b."""
    return [sum((factors[k][i] * values[k] for k in range(i, len(values))), jnp.zeros(())) for i in range(len(values))]


def inverses(factors: Triangle) -> Triangle:
    """Return the lower triangle of (L L')^-1."""
    count = len(factors)
    units = [[jnp.full_like(row[-1], i == at) for at, row in enumerate(factors)] for i in range(count)]
    columns = [back_substituted(factors, substituted(factors, unit)) for unit in units]
    return [[columns[j][i] for j in range(i + 1)] for i in range(count)]


@jax.custom_jvp
def inverse_factor(matrix: Array) -> Array:
    """Return M = L^-1 of a positive definite matrix S = L L', by halves."""
    size = len(matrix)
    if size == 1:
        return lax.rsqrt(matrix)
    half = size // 2
    first = inverse_factor(matrix[:half, :half])
    below = dot(matrix[half:, :half], first.T)
    second = inverse_factor(matrix[half:, half:] - dot(below, below.T))
    zeros = jnp.zeros((half, size - half), matrix.dtype)
    return jnp.block([[first, zeros], [-dot(second, dot(below, first)), second]])


@inverse_factor.defjvp
def _derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """dM = -F M, F the lower triangle of M dS M', half of its diagonal: both programs are short."""
    (matrix,), (change,) = primals, tangents
    inverse = inverse_factor(matrix)
    both = dot(inverse, dot(change, inverse.T))
    half = jnp.tril(both, -1) + 0.5 * jnp.diag(jnp.diagonal(both))
    return inverse, -dot(half, inverse)
