"""Rows drawn with given probabilities, at the cost of two random words: Walker's alias method (Walker 1977; Vose 1991).

Each of N bins has a row of its own and a row that is its alias. A random word chooses the bin, another one between the
two. What is drawn from is a table of integers, so its law is known exactly: that law, and not the weights asked for, is
what an exact test needs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from tallchain.cores import in_order, num_cores
from tallchain.types import Array

_BITS = 24  # of a threshold
_WORD = 2**32
_BLOCK = 2**16  # rows that may have a table of their own
_ALIKE = 0.05  # difference between means of blocks


class Alias(NamedTuple):
    """A table to draw from: 8 bytes a row."""

    table: Array
    """(N, 2), int32: for each bin, the threshold below which a row of the bin is its own, of 2^24; and the alias."""

    def rows(self, words: Array) -> Array:
        """Return the row for each pair of random words, (..., 2)."""
        bins = _high_product(words[..., 0], self.table.shape[0])
        chosen = jnp.take(self.table, bins, axis=0, mode="clip")
        is_own = (words[..., 1] >> np.uint32(32 - _BITS)).astype(jnp.int32) < chosen[..., 0]
        return jnp.where(is_own, bins, chosen[..., 1])


def make_alias(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the table for positive weights, and the probability that it gives each row.

    Rows in random order have blocks of nearly the same mean weight. Then each block has a table of its own rows: all
    cores can make them, in their caches. A block whose mean is off by a part in a hundred is drawn from as much too
    rarely or too often, which its probabilities say; if one is off by more than five, there is one table of all rows.
    """
    count = len(weights)
    firsts = np.linspace(0, count, max(round(count / _BLOCK), 1) + 1).astype(np.int64)
    relative = weights / weights.max()  # their sum may be beyond the largest float
    means = np.add.reduceat(relative, firsts[:-1], dtype=np.float64) / np.diff(firsts)
    if np.ptp(means) > _ALIKE * means.mean():
        firsts = np.array([0, count])
    table, law = np.empty((count, 2), np.int32), np.empty(count)

    def make(block: int) -> None:
        rows = slice(firsts[block], firsts[block + 1])
        own, alias = _shared_out(relative[rows])
        table[rows, 0], table[rows, 1] = own, alias + rows.start
        # Bin k gets the words w with floor(w N / 2^32) = k.
        ends = (np.arange(rows.start, rows.stop + 1, dtype=np.int64) * _WORD + count - 1) // count  # below 2^63
        words, share = np.diff(ends) / _WORD, own / 2**_BITS
        law[rows] = words * share + np.bincount(alias, words * (1 - share), len(own))

    for _ in in_order(make, range(len(firsts) - 1), num_cores()):
        pass
    return table, law


def _shared_out(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the thresholds of bins, of 2^24, and the aliases.

    Rows with less than the mean weight get the rest of their bin from rows with more, in order: a row with more serves
    rows until it has given all that it has beyond its bin, and a bit more; the next one makes up for that bit. With
    sums of what is missing, D, and of what is over, S, all of it is found by a search.
    """
    count = len(weights)
    scaled = weights * (count / weights.sum(dtype=np.float64))
    is_less = scaled < 1
    less, more = np.flatnonzero(is_less), np.flatnonzero(~is_less)
    missing, over = np.cumsum(1 - scaled[less]), np.cumsum(scaled[more] - 1)
    threshold, alias = np.ones(count), np.arange(count)
    threshold[less] = scaled[less]
    before = np.concatenate([[0.0], missing[:-1]])[: len(less)]
    alias[less] = more[np.minimum(np.searchsorted(over, before, side="right"), len(more) - 1)]
    if len(more) > 1:
        # Of what row j (with more) had, it has given what is missing up to the first sum that reaches S_j.
        given = np.minimum(np.searchsorted(missing, over[:-1], side="left"), max(len(missing) - 1, 0))
        beyond = missing[given] - over[:-1] if len(missing) else np.zeros(len(more) - 1)
        threshold[more[:-1]] = 1 - np.clip(beyond, 0, 1)
        alias[more[:-1]] = more[1:]
    return np.clip(np.rint(threshold * 2**_BITS), 1, 2**_BITS).astype(np.int32), alias


def _high_product(words: Array, count: int) -> Array:
    """floor(w N / 2^32), from products of 16 bits: 64-bit integers need a setting of JAX."""
    low, high = words & np.uint32(0xFFFF), words >> np.uint32(16)
    n_low, n_high = np.uint32(count & 0xFFFF), np.uint32(count >> 16)
    first = low * n_low
    middle = high * n_low + (first >> np.uint32(16))
    carried = low * n_high + (middle & np.uint32(0xFFFF))
    return (high * n_high + (middle >> np.uint32(16)) + (carried >> np.uint32(16))).astype(jnp.int32)
