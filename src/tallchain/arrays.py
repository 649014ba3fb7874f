"""Numbers on their way to the device. NumPy converts them: every conversion by JAX would be a program of its own."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tallchain.types import Array
from tallchain.validation import is_traced


def as_floats(values: Any) -> Array:
    """Return numbers in JAX's default float."""
    dtype = jnp.result_type(float)
    return jnp.asarray(values if is_traced(values) else np.asarray(values, dtype), dtype)
