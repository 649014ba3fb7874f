"""Poisson numbers by inversion, as one primitive: to trace its hundreds of steps takes longer than to compile them."""

from __future__ import annotations

from typing import Any

import jax
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
    return _poisson.bind(uniform, mean)


def _write(context: Any, uniform: ir.Value, mean: ir.Value) -> list[ir.Value]:
    type_ = ir.RankedTensorType(uniform.type)

    def number(value: float) -> ir.Value:
        return hlo.constant(ir.DenseElementsAttr.get_splat(type_, ir.FloatAttr.get(type_.element_type, value)))

    term = hlo.exponential(hlo.negate(mean))
    one, zero = number(1.0), number(0.0)
    count, total = zero, term
    for k in range(1, _TERMS):
        is_above = hlo.compare(uniform, total, hlo.ComparisonDirectionAttr.get("GE"))
        count = hlo.add(count, hlo.select(is_above, one, zero))
        term = hlo.multiply(term, hlo.multiply(mean, number(1 / k)))
        total = hlo.add(total, term)
    return [hlo.convert(ir.RankedTensorType.get(type_.shape, ir.IntegerType.get_signless(32)), count)]


def _map(numbers: Any, axes: Any) -> tuple[Array, int]:
    return _poisson.bind(*along_first_axis(numbers, axes)), 0


def _alone(*numbers: Array) -> Array:
    """Draw where nothing is compiled, also under `jax.disable_jit`: the only way to run it is to compile it."""
    with jax.disable_jit(False):
        return _compiled(*numbers)


_poisson = Primitive("tallchain_poisson")
_poisson.def_impl(_alone)
_poisson.def_abstract_eval(lambda uniform, mean: uniform.update(dtype=np.dtype(np.int32), weak_type=False))
batching.primitive_batchers[_poisson] = _map
mlir.register_lowering(_poisson, _write, inline=False)
_compiled = jax.jit(_poisson.bind)
