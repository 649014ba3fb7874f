"""Rows drawn with given probabilities, at the cost of two random words: Walker's alias method (Walker 1977; Vose 1991).

Each of N bins has a row of its own and a row that is its alias. A random word chooses the bin, another one between the
two. What is drawn from is a table of integers, so its law is known exactly: that law, and not the weights asked for, is
what an exact test needs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from tallchain.types import Array

_BITS = 24  # of a threshold
_WORD = 2**32


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

    Rows with less than the mean weight get the rest of their bin from rows with more, in order: a row with more serves
    rows until it has given all that it has beyond its bin, and a bit more; the next one makes up for that bit. With
    sums of what is missing, D, and of what is over, S, all of it is found by a search.
    """
    count = len(weights)
    relative = weights.astype(np.float64) / weights.max()  # their sum may be beyond the largest float
    scaled = relative * (count / relative.sum())
    is_less = scaled < 1
    less, more = np.flatnonzero(is_less), np.flatnonzero(~is_less)
    missing, over = np.cumsum(1 - scaled[less]), np.cumsum(scaled[more] - 1)
    threshold, alias = np.ones(count), np.arange(count, dtype=np.int32)
    threshold[less] = scaled[less]
    before = np.concatenate([[0.0], missing[:-1]])[: len(less)]
    alias[less] = more[np.minimum(np.searchsorted(over, before, side="right"), len(more) - 1)]
    if len(more) > 1:
        # Of what row j (with more) had, it has given what is missing up to the first sum that reaches S_j.
        given = np.minimum(np.searchsorted(missing, over[:-1], side="left"), max(len(missing) - 1, 0))
        beyond = missing[given] - over[:-1] if len(missing) else np.zeros(len(more) - 1)
        threshold[more[:-1]] = 1 - np.clip(beyond, 0, 1)
        alias[more[:-1]] = more[1:]
    own = np.clip(np.rint(threshold * 2**_BITS), 1, 2**_BITS).astype(np.int64)
    # Bin k gets the words w with floor(w N / 2^32) = k.
    k = np.arange(count + 1, dtype=np.int64)  # k 2^32 < 2^63
    ends = (k * _WORD + count - 1) // count
    words = np.diff(ends).astype(np.float64) / _WORD
    share = own / 2**_BITS
    law = words * share + np.bincount(alias, words * (1 - share), count)
    return np.stack([own.astype(np.int32), alias], 1), law


def _high_product(words: Array, count: int) -> Array:
    """floor(w N / 2^32), from products of 16 bits: 64-bit integers need a setting of JAX."""
    low, high = words & np.uint32(0xFFFF), words >> np.uint32(16)
    n_low, n_high = np.uint32(count & 0xFFFF), np.uint32(count >> 16)
    first = low * n_low
    middle = high * n_low + (first >> np.uint32(16))
    carried = low * n_high + (middle & np.uint32(0xFFFF))
    return (high * n_high + (middle >> np.uint32(16)) + (carried >> np.uint32(16))).astype(jnp.int32)
