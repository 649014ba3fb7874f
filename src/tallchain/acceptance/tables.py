"""Correction tables on the device: X_corr picked, or integrated out, for the law of a decision's noise.

A test that knows more about its noise than its variance needs a table for each law (`correction.Law`). Tables are made
on a few nodes and INTERPOLATED AT RANDOM: a law between two nodes takes one of the two tables with the probabilities of
linear interpolation, so that the chance to accept is interpolated linearly; its error is of second order in the spacing
of the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import random as jr
from jax.scipy.special import ndtr

from tallchain.acceptance import correction as corrections
from tallchain.acceptance.correction import Correction, Law
from tallchain.parts import part, set_fields, static
from tallchain.types import Array

KAPPA3 = (0.0, 0.125, 0.25, 0.375, 0.5)
"""Third cumulants of the noise for which there are tables; negative ones use the mirror image."""
PRINTED = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1)
"""gamma/(6 sqrt b), for appendix A.5 as printed."""
NU = (math.inf, 99.0, 49.0, 19.0)
"""Degrees of freedom of an estimated scale for which there are tables."""
LADDER = (1.2, 1.4, 1.6)
"""Values of sigma to choose from once s2 is known: the smallest that can hold it."""


class Noise(NamedTuple):
    """All the randomness of one decision."""

    normal: Array
    """Z: the padding is X_nc = Z sqrt(sigma^2 - s2)."""
    bits: Array
    """32 random bits, which pick X_corr from its table."""
    choice: Array
    """Two uniforms that choose between neighbouring tables."""


class Reading(NamedTuple):
    """What a decision knows about its estimate when it decides."""

    estimate: Array
    """Delta*."""
    s2: Array
    """The variance of its noise, as estimated."""
    skew: Array | float = 0.0
    """kappa3, the third cumulant of noise and padding (or gamma/(6 sqrt b), for tables of the printed kind)."""
    inverse_nu: Array | float = 0.0
    """1/nu, nu the degrees of freedom of the scale of noise and padding."""


@part
class Tables:
    """X_corr for every sigma of a ladder, every nu and every skewness of a grid."""

    sigmas: tuple[float, ...] = static()
    inverse_nus: tuple[float, ...] = static()
    skews: tuple[float, ...] = static()
    atoms: Array
    """The values of X_corr, by (sigma, nu, skewness, atom); short tables are filled up with their last atom."""
    weights: Array
    """Their probabilities."""
    thresholds: Array
    """Their cumulative probabilities in units of 2^-32."""

    def __init__(self, grid: Sequence[Sequence[Sequence[Correction]]], nus: Sequence[float], skews: Sequence[float]):
        tables = [table for level in grid for row in level for table in row]
        shape = (len(grid), len(nus), len(skews), -1)
        longest = max(len(table.atoms) for table in tables)
        fill = lambda values, last: np.concatenate([values, np.full(longest - len(values), last)])  # noqa: E731
        atoms = np.stack([fill(table.atoms, table.atoms[-1]) for table in tables])
        weights = np.stack([fill(table.weights, 0.0) for table in tables])
        # float32 uniforms stop at 2^-23 and would cut the tail of X_corr at 16: compare 32-bit integers instead.
        thresholds = np.minimum(np.round(np.cumsum(weights, 1) * 2.0**32), 2.0**32 - 1)
        set_fields(
            self,
            sigmas=tuple(level[0][0].sigma for level in grid),
            inverse_nus=tuple(1 / nu for nu in nus),
            skews=tuple(skews),
            atoms=jnp.asarray(atoms.reshape(shape), jnp.result_type(float)),
            weights=jnp.asarray(weights.reshape(shape), jnp.result_type(float)),
            thresholds=jnp.asarray(thresholds.astype(np.uint32).reshape(shape)),
        )

    @classmethod
    def single(cls, table: Correction) -> Tables:
        """One table, for normal noise."""
        return cls([[[table]]], NU[:1], KAPPA3[:1])

    @classmethod
    def of_laws(cls, sigmas: Sequence[float], *, nus: Sequence[float] = NU[:1], skew: bool | str = False) -> Tables:
        """Tables for every sigma, every nu, and (if `skew`) every skewness."""
        skews = PRINTED if skew == "printed" else KAPPA3 if skew else KAPPA3[:1]
        grid = [[[_table(sigma, nu, value, skew) for value in skews] for nu in nus] for sigma in sigmas]
        return cls(grid, nus, skews)

    @property
    def most_skew(self) -> float:
        """The largest |skewness| that the tables can correct."""
        return self.skews[-1]

    @property
    def most_s2(self) -> float:
        """The largest variance that the tables can hold."""
        return self.sigmas[-1] ** 2

    def draw(self, key: Array) -> Noise:
        """Draw Z, the bits and the choices, once for the whole decision."""
        normal, bits, choice = jr.split(key, 3)
        return Noise(jr.normal(normal), jr.bits(bits, (), jnp.uint32), jr.uniform(choice, (2,)))

    def total(self, noise: Noise, reading: Reading) -> Array:
        """X_nc + X_corr."""
        level = self._level(reading.s2)
        padding = noise.normal * self._padding(level, reading.s2)
        i, share_i = _between(reading.inverse_nu, self.inverse_nus)
        j, share_j = _between(jnp.abs(reading.skew), self.skews)
        table = self._flat(level, i + (noise.choice[0] < share_i), j + (noise.choice[1] < share_j))
        is_mirrored = jnp.asarray(reading.skew) < 0
        # The bits are inverted too: X_corr hardly changes where the estimate of a small skewness changes its sign.
        atom = self.atoms.reshape(-1)[self._search(table, jnp.where(is_mirrored, ~noise.bits, noise.bits))]
        return padding + jnp.where(is_mirrored, -atom, atom)

    def chance(self, reading: Reading) -> Array:
        """P(Delta* + X_nc + X_corr > 0), with the randomness of the test integrated out.

        sum_j p_j Phi((Delta* + y_j)/w), w = sqrt(sigma^2 - s2), over the atoms y_j, averaged over neighbouring tables.
        """
        level = self._level(reading.s2)
        w = jnp.maximum(self._padding(level, reading.s2), 1e-6)
        i, share_i = _between(reading.inverse_nu, self.inverse_nus)
        j, share_j = _between(jnp.abs(reading.skew), self.skews)
        sign = jnp.where(reading.skew < 0, -1.0, 1.0)
        chance = jnp.zeros_like(reading.estimate)
        for di in range(min(2, len(self.inverse_nus))):
            for dj in range(min(2, len(self.skews))):
                index = (level, i + di, j + dj)
                share = jnp.where(di == 1, share_i, 1 - share_i) * jnp.where(dj == 1, share_j, 1 - share_j)
                terms = ndtr((reading.estimate + sign * self.atoms[index]) / w)
                chance += share * jnp.sum(self.weights[index] * terms)
        return chance

    def _level(self, s2: Array) -> Array:
        return sum((s2 >= sigma**2).astype(jnp.int32) for sigma in self.sigmas[:-1]) + jnp.zeros((), jnp.int32)

    def _padding(self, level: Array, s2: Array) -> Array:
        return jnp.sqrt(jnp.maximum(jnp.asarray(self.sigmas, s2.dtype)[level] ** 2 - s2, 0))

    def _flat(self, level: Array, i: Array, j: Array) -> Array:
        return (level * len(self.inverse_nus) + i) * len(self.skews) + j

    def _search(self, table: Array, bits: Array) -> Array:
        """Find by bisection how many thresholds of a table are not above `bits`: the place of its atom in `atoms`."""
        thresholds = self.thresholds.reshape(-1)
        length = self.atoms.shape[-1]
        start, count = table * length, jnp.zeros((), jnp.int32)
        for step in (2**power for power in reversed(range(length.bit_length()))):
            ahead = count + step
            is_below = (ahead < length) & (thresholds[start + jnp.minimum(ahead, length) - 1] <= bits)
            count = jnp.where(is_below, ahead, count)
        return start + count


def logistic(bits: Array) -> Array:
    """X_log from 32 random bits.

    The nearer tail is measured in whole numbers, from 1/2 up: in float32, 1 - u would round to 0.
    """
    is_low = bits < jnp.uint32(2**31)
    tail = jnp.where(is_low, bits, ~bits).astype(jnp.result_type(float)) + 0.5
    value = jnp.log(tail / (2.0**32 - tail))
    return jnp.where(is_low, value, -value)


def shipped_laws() -> list[Law]:
    """Every law whose table ships with the package: the defaults, and sigma 1.2 as well as sigma 1."""
    pilot = [Law(sigma, nu, kappa3) for sigma in (1.0, 1.2) for nu in NU for kappa3 in KAPPA3]
    ladder = [Law(sigma, kappa3=kappa3) for sigma in LADDER for kappa3 in KAPPA3]
    printed = [Law(1.0, printed=y) for y in PRINTED]
    return [law for law in dict.fromkeys(pilot + ladder + printed) if law != Law(law.sigma)]


def _table(sigma: float, nu: float, skew: float, kind: bool | str) -> Correction:
    law = Law(sigma, nu, printed=skew) if kind == "printed" else Law(sigma, nu, kappa3=skew)
    return corrections.minimax_for(law)


def _between(value: Array | float, nodes: tuple[float, ...]) -> tuple[Array, Array]:
    """Return the node below a value, and the share of the way to the next; values beyond the ends stay there."""
    if len(nodes) == 1:
        return jnp.zeros((), jnp.int32), jnp.zeros(())
    at = jnp.interp(value, jnp.asarray(nodes), jnp.arange(len(nodes), dtype=jnp.result_type(float)))
    below = jnp.clip(jnp.floor(at).astype(jnp.int32), 0, len(nodes) - 2)
    return below, at - below
