"""Gradients of a log posterior from a minibatch: what Langevin and Hamiltonian steps drift along.

With xi a random set of m rows, drawn without regard to the position,

    log p_xi(t) = log p0(t) + Q(t)/K + (N/(mK)) sum_{i in xi} (l_i(t) - q_i(t)),

l_i the log likelihood of a row and q_i its surrogate (0 without one), Q their sum. GIVEN xi this is an ordinary
function, and steps along its gradient have an ordinary proposal density, so that their log ratio is exact: there is no
noise in it to account for. The test then reads rows that it draws for itself. It must not read those of xi: a test is
right for a given xi only if its rows do not depend on xi.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tallchain.residuals import residual
from tallchain.types import Array, Ask, Population, PyTree, Target
from tallchain.validation import brief, is_whole

OF_ROWS = 0x6D696E69
"""Folded into a proposal's key for that of its minibatch: the numbers of a position's arrays are folded in too."""
SHARE_WAITING = 0.7
"""Share of the chains that must wait for a candidate before gradients are computed, for all of them together."""


def gradient_of(target: Target, key: Array, rows: int, origin: PyTree) -> Callable[[PyTree], PyTree]:
    """Return the gradient of log p_xi, xi the rows that this key draws; `origin` is any position near."""
    return jax.grad(log_density_of(target, key, rows, origin))


def log_density_of(target: Target, key: Array, rows: int, origin: PyTree) -> Callable[[PyTree], Array]:
    """Return log p_xi, minus its value at the origin."""
    posterior, surrogate, source = target
    population = source.population
    temperature, factor = posterior.temperature, population.scale / posterior.temperature
    width = source.width(max(rows, 1))
    # Rows that every decision reads come first, as for the test.
    looks = -(-population.num_exact // width) + -(-rows // width) if rows else 0

    def log_density(position: PyTree) -> Array:
        value = jnp.asarray(posterior.log_prior(position))
        if surrogate is not None:
            value += surrogate.total(origin, position) / temperature
        if not looks:
            return value
        of_row = residual(posterior, surrogate, origin, position, factor)

        def look(carry: Any, _: None) -> tuple[Any, None]:
            cursor, left, total = carry
            cursor, seen = source.look(cursor, Ask(left), width, of_row, _sum)
            return (cursor, left - seen.taken, total + seen.known + seen.evidence / rows), None

        carry = source.start(source.draw(key)), jnp.full((), rows, jnp.int32), jnp.zeros((), value.dtype)
        carry = look(carry, None)[0] if looks == 1 else lax.scan(look, carry, None, length=looks)[0]
        return value + carry[2]

    return log_density


def rows_of(target: Target, rows: int) -> int:
    """Rows that a minibatch reads: those asked for, and those that every decision reads."""
    return rows + (target.source.population.num_exact if rows else 0)


def _sum(values: Array, is_valid: Array) -> Array:
    return jnp.sum(jnp.where(is_valid, values, 0))


# ---- checks --------------------------------------------------------------------------------------


def check_rows(name: str, rows: Any) -> int:
    """Refuse what is no number of rows."""
    if not is_whole(rows, 0):
        raise ValueError(f"`{name}(rows=...)` must be a whole number, at least 0; got {brief(rows)}.")
    return int(rows)


def check_rows_of(name: str, rows: int, population: Population, *, has_surrogate: bool) -> None:
    """Refuse more rows than there are, and no rows where nothing else knows the likelihood."""
    if rows > population.num_rows:
        raise ValueError(
            f"`{name}(rows={rows})`: the source has {population.num_rows:,} rows to draw from. Use fewer, e.g. "
            f"rows={min(100, population.num_rows)}."
        )
    if rows == 0 and not has_surrogate:
        raise ValueError(
            f"`{name}(rows=0)` takes its gradient from the kernel's surrogate alone, and the kernel has none. Give it "
            "rows, e.g. rows=100, or `MetropolisHastings(surrogate=...)` one."
        )
