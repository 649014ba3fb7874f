"""Control variates: a closed-form part of the log ratio, so that rows are needed only for the rest.

Expand the log likelihood l_i of every row at one point r, q_i(t) = l_i(r) + g_i.(t - r) + (1/2) (t - r)' H_i (t - r).
The sums G of g_i and H of H_i are computed once, so the log ratio is

    Delta = (1/K) (Q(t') - Q(t)) + mean of the residuals R_i = (N/K) (l_i(t') - l_i(t) - q_i(t') + q_i(t)) + offset,

and only the mean of the residuals is estimated from rows. Their variance falls with the third power (the square, for
order 1) of the distance to r, which is of order 1/sqrt(N). (Bardenet, Doucet and Holmes 2017; Quiroz et al. 2019.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from tallchain.arrays import as_floats, dot
from tallchain.checks import check_posterior
from tallchain.parts import part, set_fields, static
from tallchain.sources import as_source, count_rows
from tallchain.surrogates.passes import Passes
from tallchain.surrogates.reference import Reference
from tallchain.surrogates.start import MOST_COORDINATES
from tallchain.types import (
    Array,
    Posterior,
    PyTree,
    RowFunction,
    Source,
)
from tallchain.validation import brief


@part
class Taylor:
    """Expansions of order 1 or 2 at a reference point.

    Per row, differences of q_i are directional derivatives: q_i(t') - q_i(t) = g_i.u + (1/2) u' H_i v with u = t' - t
    and v = t' + t - 2r, one mixed second derivative. No Hessian of a row is ever formed, and no two nearly equal
    quadratics are subtracted. The same holds for their sum.

    Args:
        posterior: whose log likelihood is expanded.
        data: the source of the kernel, or all rows as a source takes them.
        reference: r: a `Reference`, as `find_reference` returns it (its sums are used, and no row is read), or a
            position (which takes one sweep over all rows).
        order: 1 or 2. Order 2 needs a d x d matrix for the sum: d up to 2000.
    """

    log_likelihood: Callable[[PyTree, PyTree], Array] = static()
    order: int = static()
    num_rows: int = static()
    """N, the rows of the sums."""
    rows_swept: int = static()
    """Rows read to make it."""
    position: PyTree
    """r."""
    gradient: Array
    """G, flat."""
    hessian: Array | None
    """H; None for order 1."""

    def __init__(
        self, posterior: Posterior, data: PyTree | Source, reference: Reference | PyTree, order: int = 2
    ) -> None:
        check_posterior("Taylor", posterior)
        if order not in (1, 2):
            raise ValueError(f"`Taylor(order=...)` must be 1 or 2; got {brief(order)}.")
        num_rows = count_rows("Taylor", data)
        if isinstance(reference, Reference):
            if reference.num_rows != num_rows:
                raise ValueError(
                    f"`Taylor(data=..., reference=...)`: the reference was found from {reference.num_rows:,} rows, and "
                    f"the data have {num_rows:,}. Give the same data to both."
                )
            position = reference.position
            gradient, hessian = reference.likelihood_gradient, reference.likelihood_hessian
            rows_swept = 0
        else:
            source = as_source("Taylor", data)
            position = _check_position(posterior, source, reference)
            gradient, hessian, rows_swept = _sums(posterior, source, position, order)
        set_fields(
            self,
            log_likelihood=posterior.log_likelihood,
            order=int(order),
            num_rows=num_rows,
            rows_swept=rows_swept,
            position=position,
            gradient=as_floats(gradient),
            hessian=as_floats(hessian) if order == 2 else None,
        )

    def check(self, position: PyTree) -> None:
        """Refuse a position whose shapes differ from the reference's."""
        mine, its = (jax.tree.map(np.shape, tree) for tree in (self.position, position))
        if jax.tree.structure(self.position) != jax.tree.structure(position) or mine != its:
            raise ValueError(f"`Taylor(reference=...)` has a position of shapes {mine}; the chain's has {its}.")

    def total(self, position: PyTree, candidate: PyTree) -> Array:
        """Q(t') - Q(t), over all rows."""
        here, there, r = (ravel_pytree(tree)[0] for tree in (position, candidate, self.position))
        step = there - here
        if self.hessian is None:
            return dot(self.gradient, step)
        return dot(self.gradient + 0.5 * dot(self.hessian, (there - r) + (here - r)), step)

    def row_difference(self, position: PyTree, candidate: PyTree) -> RowFunction:
        """Return the function of a row q_i(t') - q_i(t)."""
        step = jax.tree.map(jnp.subtract, candidate, position)

        def slope(row: PyTree) -> Callable[[PyTree], Array]:
            return lambda at: jax.jvp(lambda t: self.log_likelihood(t, row), (at,), (step,))[1]

        if self.order == 1:
            return lambda row: slope(row)(self.position)
        both = jax.tree.map(lambda a, b, r: (a - r) + (b - r), candidate, position, self.position)

        def difference(row: PyTree) -> Array:
            first, second = jax.jvp(slope(row), (self.position,), (both,))
            return first + 0.5 * second

        return difference


def _check_position(posterior: Posterior, source: Source, position: Any) -> PyTree:
    try:
        position = jax.tree.map(as_floats, position)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "`Taylor(reference=...)` must be a Reference, as `find_reference` returns it, or a position of the "
            f"posterior; got {brief(position)}."
        ) from error
    row = jax.tree.map(lambda leaf: leaf[0], source.some_rows(1))
    try:
        shape = jax.eval_shape(posterior.log_likelihood, position, row).shape
    except Exception as error:
        raise ValueError(
            f"`Taylor(reference=...)` must be a Reference or a position of the posterior; the log likelihood does not "
            f"take one of shapes {jax.tree.map(np.shape, position)}: {error}"
        ) from error
    if shape != ():
        raise ValueError(
            f"`Taylor(reference=...)`: the log likelihood of one row at a position of shapes "
            f"{jax.tree.map(np.shape, position)} has shape {shape}, and must be one number."
        )
    return position


def _sums(
    posterior: Posterior, source: Source, position: PyTree, order: int
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """G and H by one sweep."""
    flat = np.asarray(ravel_pytree(position)[0])
    if order == 2 and flat.size > MOST_COORDINATES:
        raise ValueError(
            f"`Taylor(order=2)` needs the {flat.size} x {flat.size} matrix of second derivatives, and takes up to "
            f"{MOST_COORDINATES} coordinates. Use order=1."
        )
    passes = Passes(posterior, source, position)
    terms = passes(flat, np.eye(flat.size) if order == 2 else None)
    if not terms.is_finite:
        found = passes.bad_row(flat)
        raise ValueError(
            "`Taylor(...)`: the log likelihood or a derivative is not finite at the reference"
            + ("." if found is None else f", for {found[0]}: {brief(found[1])}.")
        )
    hessian = None if terms.products is None else np.asarray(terms.products)
    return np.asarray(terms.gradient), None if hessian is None else (hessian + hessian.T) / 2, passes.rows_swept
