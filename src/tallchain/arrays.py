"""Arrays: numbers on their way to the device, and products there."""

from __future__ import annotations

from typing import Any

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
