"""Which rows are bright: a list per chain, and how it changes.

Row i is bright with probability 1 - exp(-g_i), independently of the others. Its odds are o_i = exp(g_i) - 1. A step
changes the list so that this law stays as it is (Maclaurin and Adams 2014, section 3.2, implicit resampling):

- a bright row darkens with probability min(1, q/o_i);
- every dark row is proposed with probability q, and a proposed one brightens with probability min(1, o_i/q).

K of the N rows are proposed, K binomial(N, q): the first K of a random permutation, without those already bright.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.arrays import dot
from tallchain.firefly.bound import gap, log_odds, touches
from tallchain.sources.permutation import permute
from tallchain.sources.rows import take_rows
from tallchain.types import Array, PyTree

_WORD = 2**32
NONE = -1
"""In a slot of a list that holds no row."""


class Bright(NamedTuple):
    """The bright rows of a chain, with what a decision needs to know of them; padded."""

    index: Array
    """Where the source keeps each of them; NONE in slots without a row."""
    x: Array
    touch: Array
    """x.r, r where the bound touches."""

    @property
    def is_row(self) -> Array:
        """Slots with a row."""
        return self.index != NONE

    def log_odds(self, from_touch: Array) -> Array:
        """log o of each slot at a position t, given t - r."""
        return log_odds(gap(self.touch, dot(self.x, from_touch)))


class Flipped(NamedTuple):
    """The bright rows after a step."""

    bright: Bright
    count: Array
    """How many there are; more than the list holds if it is full."""
    num_proposed: Array
    """Dark rows whose likelihood was evaluated."""


def darken_chance(log_odds: Array, brighten: Array) -> Array:
    """min(1, q/o), for a bright row."""
    return jnp.exp(jnp.minimum(jnp.log(brighten) - log_odds, 0.0))


def brighten_chance(log_odds: Array, brighten: Array) -> Array:
    """min(1, o/q), for a dark row that was proposed; before that it is proposed with probability q."""
    return jnp.exp(jnp.minimum(log_odds - jnp.log(brighten), 0.0))


def flip(
    key: Array, listed: Array, position: Array, touch: Array, data: PyTree, *, brighten: Array, table: Array, size: int
) -> Flipped:
    """Change the bright rows at a position, all else fixed.

    Args:
        key: all the randomness.
        listed: the bright rows before; NONE in slots without a row.
        position: t.
        touch: r.
        data: the rows.
        brighten: q.
        table: of the number of proposals; see `binomial_table`.
        size: N.
    """
    capacity, most = len(listed), len(table)
    bits = jr.bits(key, (capacity + most + 3,), jnp.uint32)
    proposed = permute(bits[:2], jnp.arange(most, dtype=jnp.int32), size)
    num_proposed = jnp.searchsorted(table, bits[2], side="right")
    # Where the permutation has the rows that are already bright.
    places = jnp.where(listed == NONE, most, permute(bits[:2], jnp.maximum(listed, 0), size, inverse=True))
    is_proposed = (jnp.arange(most) < num_proposed).at[places].set(False, mode="drop")
    index = jnp.concatenate([listed, proposed])
    rows = take_rows(data, jnp.maximum(index, 0))
    seen = Bright(index, rows["x"].astype(position.dtype), touches(touch, rows))
    odds = seen.log_odds(position - touch)
    # In the middle of each of 2^24 equal parts: neither 0 nor 1.
    uniform = ((bits[3:] >> 8).astype(odds.dtype) + 0.5) / 2**24
    stays = seen.is_row[:capacity] & (uniform[:capacity] >= darken_chance(odds[:capacity], brighten))
    joins = is_proposed & (uniform[capacity:] < brighten_chance(odds[capacity:], brighten))
    is_bright = jnp.concatenate([stays, joins])
    # Rows that are bright move to the front; those beyond the last slot are dropped, and counted.
    place = jnp.where(is_bright, jnp.cumsum(is_bright) - 1, capacity)
    order = jnp.full(capacity, -1, jnp.int32).at[place].set(jnp.arange(len(index), dtype=jnp.int32), mode="drop")
    kept = Bright(jnp.where(order < 0, NONE, index[order]), seen.x[order], seen.touch[order])
    return Flipped(kept, jnp.sum(is_bright), jnp.sum(is_proposed))


def binomial_table(size: int, chance: float) -> np.ndarray:
    """P(K <= k) for k = 0, 1, ..., in units of 2^-32, K binomial(N, q): K is how many entries a random word reaches.

    It ends where the rest of the probability is below half a unit; so it is as long as K is at most.
    """
    from scipy.special import bdtrc  # to import SciPy takes long

    sd = np.sqrt(size * chance * (1 - chance))
    end = min(int(size * chance + 8 * sd + 40), size)
    left = bdtrc(np.arange(end), size, chance)  # P(K > k); P(K > N) = 0
    left = left[: int(np.sum(left >= 0.5 / _WORD))]
    table = np.minimum(np.floor((1 - left) * _WORD + 0.5), _WORD - 1).astype(np.uint32)
    return table if len(table) else np.full(1, _WORD - 1, np.uint32)
