"""Records of numbers of several types as words of 32 bits: one array to write to, and to copy, in place of many."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tallchain.types import Array, PyTree

_PART_BYTES = 2**23  # to copy at a time: memory that a process gets back each time, and does not have to ask for


def pack(records: PyTree) -> Array:
    """Return records, whose arrays all have the same first axis, as words: (record, word)."""
    return jnp.concatenate([_words(leaf) for leaf in jax.tree.leaves(records)], 1)


def _words(leaf: Array) -> Array:
    size = leaf.dtype.itemsize
    if leaf.dtype == bool:
        leaf = leaf.astype(jnp.uint32)
    elif size < 4:
        leaf = lax.bitcast_convert_type(leaf, {1: jnp.uint8, 2: jnp.uint16}[size]).astype(jnp.uint32)
    else:
        leaf = lax.bitcast_convert_type(leaf, jnp.uint32)  # 64 bits are two words, along a new last axis
    return leaf.reshape(len(leaf), -1)


def unpack(words: np.ndarray, like: PyTree) -> PyTree:
    """Return the records of words (..., word), without a copy where possible; `like` has the shapes of one record."""
    leaves, structure = jax.tree.flatten(like)
    found, at = [], 0
    for leaf in leaves:
        count = _num_words(leaf)
        found.append(_numbers(words[..., at : at + count], leaf))
        at += count
    return jax.tree.unflatten(structure, found)


def num_words(like: PyTree) -> int:
    """Words of one record of these shapes."""
    return sum(_num_words(leaf) for leaf in jax.tree.leaves(like))


def num_bytes(leaf: Any) -> int:
    """Bytes of an array of this shape."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf.size * (8 if is_key else leaf.dtype.itemsize)  # keys are two words


def _num_words(leaf: Any) -> int:
    return math.prod(leaf.shape) * max(leaf.dtype.itemsize // 4, 1)


def _numbers(words: np.ndarray, leaf: Any) -> np.ndarray:
    if leaf.dtype == bool:
        numbers = words != 0
    elif leaf.dtype.itemsize < 4:
        numbers = words.astype(f"u{leaf.dtype.itemsize}").view(leaf.dtype)
    else:
        # Pairs of words are copied, to where their addresses are multiples of 8.
        numbers = (words if leaf.dtype.itemsize == 4 else np.ascontiguousarray(words)).view(leaf.dtype)
    return numbers.reshape(*words.shape[:-1], *leaf.shape)


def unpack_traced(words: Array, like: PyTree) -> PyTree:
    """As `unpack`, inside a program."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([0, *map(_num_words, leaves)]).tolist()
    found = [
        _traced_numbers(words[..., at:end], leaf) for at, end, leaf in zip(ends[:-1], ends[1:], leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, found)


def _traced_numbers(words: Array, leaf: Any) -> Array:
    shape, size = (*words.shape[:-1], *leaf.shape), leaf.dtype.itemsize
    if leaf.dtype == bool:
        return (words != 0).reshape(shape)
    if size < 4:
        words = words.astype({1: jnp.uint8, 2: jnp.uint16}[size])
    return lax.bitcast_convert_type(words.reshape(*shape, 2) if size == 8 else words.reshape(shape), leaf.dtype)


# ---- the draws of a chunk ----------------------------------------------------------------------


class Chunk(NamedTuple):
    """The draws of a chunk."""

    records: list[Any]
    """Packed, by chain, slot and word: those of some chains, then those of the next. There are no slots of chains that
    another process keeps."""
    like: Any
    """Shapes of a recorded draw."""
    unwanted: tuple[str, ...] = ()
    """What must not be among the log ratios, "nan" or "inf"."""
    is_own: tuple[bool, ...] = ()
    """Which records this process has made; () for all."""

    def divided(self, used: int) -> Chunk:
        """Divide the records into parts of a few megabytes, without most of the slots that no chain has used."""
        return self._replace(records=[part for record in self.records for part in _parts_of(record, max(used, 1))])

    def fetch(self, record: int) -> np.ndarray:
        """Copy a record to the host."""
        words = np.asarray(self.records[record])
        for what in self.unwanted:
            if {"nan": np.isnan, "inf": np.isinf}[what](self.unpack(words).verdict.log_ratio).any():
                raise _not_finite(what)
        return words

    def unpack(self, words: np.ndarray) -> Any:
        """Return the draws that are packed in words."""
        return unpack(words, self.like)


def _parts_of(record: Array, used: int) -> list[Any]:
    is_on_host = jax.default_backend() == "cpu"
    slots = used if is_on_host else next((slots for slots in (4, 16, 64) if slots >= used), record.shape[1])
    size = max(_PART_BYTES // (4 * slots * record.shape[2]), 1)
    if is_on_host:
        words = np.asarray(record)[:, :slots]
        return [words[first : first + size] for first in range(0, len(words), size)]
    return _divided(record, slots=slots, size=size)


@partial(jax.jit, static_argnames=("slots", "size"))
def _divided(record: Array, *, slots: int, size: int) -> list[Array]:
    return [record[first : first + size, :slots] for first in range(0, len(record), size)]


@contextmanager
def named_faults() -> Generator[None]:
    """Say which numbers were not finite: JAX's own message names nothing that a user has written."""
    try:
        yield
    except Exception as error:
        if error.args[1:] not in (("nan",), ("inf",)):
            raise
        raise _not_finite(error.args[1]) from error


def _not_finite(what: str) -> FloatingPointError:
    return FloatingPointError(
        f"a decision gave {what}, and `jax_debug_{what}s` is set: the log prior or the log likelihood is not finite at "
        "some candidate. Without that setting such candidates are rejected and counted."
    )
