"""Poisson and binomial numbers by inversion, as one primitive.

To trace its hundreds of steps would take longer than to compile them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo as hlo
from jax.interpreters import batching, mlir

from tallchain.arrays import along_first_axis
from tallchain.types import Array

PART = 32
"""Rows expected in one part of a Poisson number, the largest that is drawn at a time."""
_TERMS = 88  # of the distribution: beyond, one of mean 32 has a probability of 3e-16


def poisson(uniform: Array, mean: Array) -> Array:
    """Return a Poisson number of a mean of at most 32, by inversion: how many sums of terms are at most a uniform one.

    No loop that ends by chance, in which every chain would wait for the slowest.
    """
    return _inverted.bind(uniform, mean)


def binomial(uniform: Array, trials: Array, times: Array) -> Array:
    """Return how many of some trials succeed, by inversion: each with probability 1 - exp(-times).

    The number of trials times `times` is at most 32: at 0 the sum of terms begins with exp(-32) or more, and the next
    term is (trials - k) (exp(times) - 1)/(k + 1) times the one before it. (jax.random.binomial has loops that end by
    chance.)
    """
    numbers = (uniform, trials.astype(uniform.dtype) * times, trials.astype(uniform.dtype), jnp.expm1(times))
    return jnp.minimum(_inverted.bind(*numbers), trials)  # beyond, all terms are 0


def _write(context: Any, uniform: ir.Value, mean: ir.Value, *binomial: ir.Value) -> list[ir.Value]:
    type_ = ir.RankedTensorType(uniform.type)

    def number(value: float) -> ir.Value:
        return hlo.constant(ir.DenseElementsAttr.get_splat(type_, ir.FloatAttr.get(type_.element_type, value)))

    term = hlo.exponential(hlo.negate(mean))
    one, zero = number(1.0), number(0.0)
    count, total = zero, term
    for k in range(1, _TERMS):
        is_above = hlo.compare(uniform, total, hlo.ComparisonDirectionAttr.get("GE"))
        count = hlo.add(count, hlo.select(is_above, one, zero))
        if binomial:
            trials, odds = binomial
            left = hlo.subtract(trials, number(k - 1))  # exactly 0 after the last one
            term = hlo.multiply(term, hlo.multiply(left, hlo.multiply(odds, number(1 / k))))
        else:
            term = hlo.multiply(term, hlo.multiply(mean, number(1 / k)))
        total = hlo.add(total, term)
    return [hlo.convert(ir.RankedTensorType.get(type_.shape, ir.IntegerType.get_signless(32)), count)]


def _map(numbers: Any, axes: Any) -> tuple[Array, int]:
    return _inverted.bind(*along_first_axis(numbers, axes)), 0


def _alone(*numbers: Array) -> Array:
    """Draw where nothing is compiled, also under `jax.disable_jit`: the only way to run it is to compile it."""
    with jax.disable_jit(False):
        return _compiled(*numbers)


_inverted = Primitive("tallchain_poisson")
_inverted.def_impl(_alone)
_inverted.def_abstract_eval(lambda uniform, *_: uniform.update(dtype=np.dtype(np.int32), weak_type=False))
batching.primitive_batchers[_inverted] = _map
mlir.register_lowering(_inverted, _write, inline=False)
_compiled = jax.jit(_inverted.bind)
