"""The number per row that a decision averages: its log ratio, less what a surrogate knows of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tallchain.types import Array, Posterior, PyTree, RowFunction, Surrogate, is_traced

_MOST_FACTOR = 2.0**25
"""N/K up to which float32 will do: log likelihoods of order 1 differ by their rounding errors, 1e-7, N/K times."""


def needs_float64(num_rows: int, temperature: Any) -> bool:
    """Whether the rounding of a row's float32 log ratio, times N/K, is noise to speak of."""
    return not is_traced(temperature) and num_rows / float(temperature) > _MOST_FACTOR


def residual(
    posterior: Posterior,
    surrogate: Surrogate | None,
    position: PyTree,
    candidate: PyTree,
    factor: Array | float = 1.0,
    *,
    in_float64: bool = False,
) -> RowFunction:
    """Return the function of a row factor (l_i(t') - l_i(t) - q_i(t') + q_i(t)), l_i its log likelihood.

    In float64 the terms are, and their difference is rounded once; the positions are what they are.
    """
    if in_float64:
        return lambda row: _in_float64(posterior, surrogate, position, candidate, factor, row)
    likelihood = posterior.log_likelihood
    if surrogate is None:
        return lambda row: factor * (likelihood(candidate, row) - likelihood(position, row))
    known = surrogate.row_difference(position, candidate)
    return lambda row: factor * (likelihood(candidate, row) - likelihood(position, row) - known(row))


def _in_float64(posterior: Posterior, surrogate: Any, *arguments: Any) -> Array:
    with jax.enable_x64(True):
        surrogate, *rest, row = jax.tree.map(widened, (surrogate, *arguments))
        value = residual(posterior, surrogate, *rest)(row)
    return jnp.asarray(value, jnp.result_type(float))


def widened(leaf: Any) -> Any:
    """Return floats in float64, anything else as it is."""
    return jnp.asarray(leaf, jnp.float64) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf
