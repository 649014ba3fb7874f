"""The number per row that a decision averages: its log ratio, minus the surrogate's."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from tallchain.types import Array, Posterior, PyTree, RowFunction, Surrogate
from tallchain.validation import is_traced

_MOST_FACTOR = 2.0**25
"""N/K up to which float32 is enough: log likelihoods of order 1 have rounding errors of 1e-7, multiplied by N/K."""


@runtime_checkable
class ResidualSurrogate(Surrogate, Protocol):
    """A surrogate that knows the log likelihood of a row, and makes residuals of it without cancellation."""

    @property
    def log_likelihood(self) -> Any:
        """That of the posterior."""
        ...

    def residual(self, position: PyTree, candidate: PyTree) -> RowFunction:
        """Return the function of a row l_i(t') - l_i(t) - q_i(t') + q_i(t)."""
        ...


def needs_float64(num_rows: int, temperature: Any, surrogate: Surrogate | None = None) -> bool:
    """Whether the rounding of a row's float32 log ratio, times N/K, is noise that matters."""
    if isinstance(surrogate, ResidualSurrogate):
        return False
    return not is_traced(temperature) and num_rows / float(temperature) > _MOST_FACTOR


def digits(in_float64: bool) -> AbstractContextManager[Any]:
    """Give JAX 64 bits for all that is traced and run inside; not for use within a program, which JAX may retrace."""
    return jax.enable_x64(True) if in_float64 else nullcontext()


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

    If JAX has 64 bits, the terms may be in float64, and their difference is rounded once.
    """
    if isinstance(surrogate, ResidualSurrogate):
        left = surrogate.residual(position, candidate)
        return lambda row: factor * left(row)
    likelihood = posterior.log_likelihood
    if in_float64 and jnp.result_type(float) == jnp.float64:
        surrogate, position, candidate, factor = jax.tree.map(widened, (surrogate, position, candidate, factor))
    else:
        in_float64 = False
    known = None if surrogate is None else surrogate.row_difference(position, candidate)

    def number(row: PyTree) -> Array:
        row = jax.tree.map(widened, row) if in_float64 else row
        difference = likelihood(candidate, row) - likelihood(position, row)
        return factor * (difference if known is None else difference - known(row))

    return number


def widened(leaf: Any) -> Any:
    """Return floats in float64, anything else as it is."""
    return jnp.asarray(leaf, jnp.float64) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf
