"""The random numbers of JAX's default generator, from a program that is compiled in a fifth of the time.

On a CPU JAX writes the rounds of Threefry-2x32 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3") as a
loop, and every shape that is drawn costs a third of a second to compile. Written out, the twenty rounds are one fused
kernel, which is also twice as fast. They are one primitive: JAX would trace, map and translate each of their 150
operations by itself, which takes 30 ms a shape. The words are the same to the bit, so keys and draws do not change.
"""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo as hlo
from jax.extend.random import define_prng_impl
from jax.interpreters import batching, mlir

from tallchain.arrays import along_first_axis
from tallchain.types import Array

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def same_key(key: Array) -> Array:
    """Return a key that gives the same numbers as a threefry key of JAX; for use inside a compiled program."""
    return wrap(jr.key_data(key))


def wrap(words: Array) -> Array:
    """Return the key of these two words; for use inside a compiled program."""
    return jr.wrap_key_data(words, impl=_IMPLEMENTATION)


def encrypt(key: tuple[Any, Any], high: Any, low: Any) -> tuple[Any, Any]:
    """Encrypt counters of two words with a key of two words; arrays of NumPy, or operands of a compiled program."""
    keys = (*key, key[0] ^ key[1] ^ _PARITY)
    high, low = high + keys[0], low + keys[1]
    for i in range(5):
        for distance in _ROTATIONS[i % 2]:
            high = high + low
            low = high ^ ((low << np.uint32(distance)) | (low >> np.uint32(32 - distance)))
        high, low = high + keys[(i + 1) % 3], low + keys[(i + 2) % 3] + np.uint32(i + 1)
    return high, low


# ---- as a primitive ------------------------------------------------------------------------------


class _Operand:
    """An array of words in a program that is being written."""

    def __init__(self, value: ir.Value) -> None:
        self.value = value

    def __add__(self, other: Any) -> _Operand:
        return _Operand(hlo.add(self.value, self._like(other)))

    def __xor__(self, other: Any) -> _Operand:
        return _Operand(hlo.xor(self.value, self._like(other)))

    def __or__(self, other: Any) -> _Operand:
        return _Operand(hlo.or_(self.value, self._like(other)))

    def __lshift__(self, other: Any) -> _Operand:
        return _Operand(hlo.shift_left(self.value, self._like(other)))

    def __rshift__(self, other: Any) -> _Operand:
        return _Operand(hlo.shift_right_logical(self.value, self._like(other)))

    def _like(self, other: Any) -> ir.Value:
        """Return an operand, or a number in every place."""
        if isinstance(other, _Operand):
            return other.value
        type_ = ir.RankedTensorType(self.value.type)
        word = ir.IntegerAttr.get(type_.element_type, int(other))
        return hlo.constant(ir.DenseElementsAttr.get_splat(type_, word))


def _write(context: Any, *words: ir.Value) -> list[ir.Value]:
    first, second, high, low = map(_Operand, words)
    return [operand.value for operand in encrypt((first, second), high, low)]


def _map(words: Any, axes: Any) -> tuple[Any, tuple[int, int]]:
    return _encrypt.bind(*along_first_axis(words, axes)), (0, 0)


def _alone(*words: Array) -> list[Array]:
    """Encrypt where nothing is compiled, also under `jax.disable_jit`: the only way to run it is to compile it."""
    with jax.disable_jit(False):
        return _compiled(*words)


_encrypt = Primitive("tallchain_threefry")
_encrypt.multiple_results = True
_encrypt.def_impl(_alone)
_encrypt.def_abstract_eval(lambda *words: [words[0], words[0]])
batching.primitive_batchers[_encrypt] = _map
mlir.register_lowering(_encrypt, _write, inline=False)
_compiled = jax.jit(_encrypt.bind)


def _hash(words: Array, high: Array, low: Array) -> tuple[Array, Array]:
    first, second = (jnp.broadcast_to(word, low.shape) for word in (words[0], words[1]))
    return tuple(_encrypt.bind(first, second, high, low))


# ---- as a generator ------------------------------------------------------------------------------


def _hash_range(words: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Encrypt the numbers 0, 1, 2, ... of an array's entries."""
    size = math.prod(shape)
    if size >= 2**32:
        raise NotImplementedError(f"{size} random numbers at once")
    counts = lax.iota(np.uint32, size).reshape(shape)
    return _hash(words, jnp.zeros_like(counts), counts)


def _split(words: Array, shape: tuple[int, ...]) -> Array:
    return jnp.stack(_hash_range(words, shape), -1)


def _fold_in(words: Array, data: Any) -> Array:
    low = jnp.asarray(data).astype(jnp.uint32)
    return jnp.stack(_hash(words, jnp.zeros_like(low), low))


def _random_bits(words: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    high, low = _hash_range(words, shape)
    if bit_width == 64:
        return (high.astype(jnp.uint64) << np.uint64(32)) | low.astype(jnp.uint64)
    return (high ^ low).astype(f"uint{bit_width}")


def _seed(seed: Array) -> Array:
    raise NotImplementedError("make a key with `jax.random.key`, and take `same_key` of it")


_IMPLEMENTATION: Any = define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_random_bits, fold_in=_fold_in, name="tallchain", tag="tall"
)
if tuple(map(int, version("jaxlib").split(".")[:2])) >= (0, 12):
    # There LLVM's vectoriser follows every path through the rounds of a single number, and never finishes.
    _IMPLEMENTATION = "threefry2x32"
