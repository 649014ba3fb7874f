"""Arrays: numbers on their way to the device, and products there."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tallchain.types import Array
from tallchain.validation import is_traced


def as_floats(values: Any) -> Array:
    """Return numbers in JAX's default float. NumPy converts them: a conversion by JAX would be a program of its own."""
    dtype = jnp.result_type(float)
    return jnp.asarray(values if is_traced(values) else np.asarray(values, dtype), dtype)


def dot(a: Array, b: Array) -> Array:
    """a @ b in full precision: by default a GPU may round float32 factors to 10 bits (TF32)."""
    return jnp.dot(a, b, precision=lax.Precision.HIGHEST)


def along_first_axis(arrays: Any, axes: Any) -> list[Array]:
    """Return the arguments of a primitive that `vmap` maps, all with the mapped axis first."""
    size = next(array.shape[axis] for array, axis in zip(arrays, axes, strict=True) if isinstance(axis, int))
    return [
        jnp.moveaxis(array, axis, 0) if isinstance(axis, int) else jnp.broadcast_to(array, (size, *array.shape))
        for array, axis in zip(arrays, axes, strict=True)
    ]


def once(values: Array, most: int) -> Array:
    """Return whole numbers from 0 to `most` as they are, computed once.

    XLA fuses cheap steps into everything that uses their result, on a CPU even across its barriers: the random bits of
    a row's index would be computed again for every number of the row. A division is not cheap enough for that; the
    compiler does not see that this one is by 1. (Floats up to 2^24 are exact, and divided several at a time.)
    """
    if jax.default_backend() != "cpu":
        return values
    numbers = values if most > 2**24 else values.astype(jnp.float32)
    return lax.div(numbers, jnp.where(numbers < 0, 2, 1).astype(numbers.dtype)).astype(values.dtype)


def inverse_of_lower(matrix: np.ndarray) -> np.ndarray:
    """Invert a lower triangular matrix: [[A, 0], [B, C]]^-1 = [[A^-1, 0], [-C^-1 B A^-1, C^-1]], by halves.

    SciPy has it too, but to import `scipy.linalg` takes as long as `prepare` needs for several sweeps.
    """
    if len(matrix) == 1:
        return 1 / matrix
    half = len(matrix) // 2
    inverse = np.zeros_like(matrix)
    inverse[:half, :half], inverse[half:, half:] = map(inverse_of_lower, (matrix[:half, :half], matrix[half:, half:]))
    inverse[half:, :half] = -inverse[half:, half:] @ matrix[half:, :half] @ inverse[:half, :half]
    return inverse
