"""A keyed permutation of 0..n-1 that is evaluated index by index, in constant memory.

A Feistel network over Z_a x Z_b with a b >= n (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"): each
round adds a hash of one half to the other, so it is a bijection for any hash. Indices that fall outside 0..n-1 are
sent through again until they come back inside (cycle walking), which restricts the bijection to 0..n-1.
"""

from __future__ import annotations

import math
from functools import lru_cache

import jax
import jax.numpy as jnp
from jax import lax

from tallchain.types import Array

_ROUNDS = 4  # of two half-rounds each; the error of a pair probability shrinks by 1/a with every round


def permute(words: Array, index: Array, size: int, *, inverse: bool = False) -> Array:
    """Send `index` (int32, any shape) to its place under the permutation named by two uint32 `words`, or back."""
    if size < 2:
        return index
    a, b = _halves(size)
    # Words that differ in a bit or two must give unrelated orders.
    first = mix(words[0], words[1], words[0])
    words = jnp.stack([first, mix(words[1], first, words[1])])
    index = index.astype(jnp.uint32)
    if a * b == size:
        return _feistel(words, index, a, b, inverse=inverse).astype(jnp.int32)

    def walk(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        at, is_out = carry
        at = lax.select(is_out, _feistel(words, at, a, b, inverse=inverse), at)
        return at, lax.ge(at, jnp.uint32(size))

    # All begin outside, so that the rounds are compiled once.
    placed, _ = lax.while_loop(lambda carry: jnp.any(carry[1]), walk, (index, jnp.ones_like(index, bool)))
    return placed.astype(jnp.int32)


@lru_cache
def _halves(size: int) -> tuple[int, int]:
    """Choose a and b of similar size with a b >= size and as few indices outside as possible."""
    root = math.isqrt(size)
    candidates = range(max(2, root - root // 4), root + root // 4 + 2)
    a = min(candidates, key=lambda a: (a * -(-size // a), abs(a - root)))
    return a, max(2, -(-size // a))


def _feistel(words: Array, index: Array, a: int, b: int, *, inverse: bool) -> Array:
    size_a, size_b = jnp.full_like(index, a), jnp.full_like(index, b)

    # On a CPU rounds are a loop, not unrolled: each uses its numbers several times, and LLVM's vectoriser (jaxlib 0.12)
    # follows every path through all of them: there are 2^50, and the compiler never finishes. On an accelerator a loop
    # starts two kernels a round.
    def one_round(i: Array, halves: tuple[Array, Array]) -> tuple[Array, Array]:
        left, right = halves
        word = 2 * jnp.asarray(i, jnp.uint32)
        # Reduce the hash before adding it: a sum that wraps around 2^32 first would not be a bijection.
        left = lax.rem(left + lax.rem(mix(right, words[0] + word, words[1]), size_a), size_a)
        return left, lax.rem(right + lax.rem(mix(left, words[1] + word + 1, words[0]), size_b), size_b)

    def one_round_back(i: Array, halves: tuple[Array, Array]) -> tuple[Array, Array]:
        left, right = halves
        word = 2 * (rounds - 1 - jnp.asarray(i, jnp.uint32))
        right = lax.rem(right + (size_b - lax.rem(mix(left, words[1] + word + 1, words[0]), size_b)), size_b)
        return lax.rem(left + (size_a - lax.rem(mix(right, words[0] + word, words[1]), size_a)), size_a), right

    halves = lax.div(index, size_b), lax.rem(index, size_b)
    rounds, is_unrolled = max(_ROUNDS, math.ceil(12 / math.log2(a))), jax.default_backend() != "cpu"
    left, right = lax.fori_loop(0, rounds, one_round_back if inverse else one_round, halves, unroll=is_unrolled)
    return left * size_b + right


def mix(value: Array, word: Array, other: Array) -> Array:
    """Hash a value with two words, after the finaliser of MurmurHash3."""
    value = (value * jnp.uint32(0x9E3779B1)) ^ word
    value = (value ^ (value >> 16)) * jnp.uint32(0x85EBCA6B)
    value = ((value ^ (value >> 13)) + other) * jnp.uint32(0xC2B2AE35)
    return value ^ (value >> 16)
