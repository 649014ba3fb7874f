"""Bounds for regressions: constants by row, from one sweep."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.arrays import as_floats, dot
from tallchain.bounds.bound import Bound, check_order
from tallchain.bounds.measures import MEASURES
from tallchain.checks import check_likelihood, check_posterior
from tallchain.models.likelihood import RegressionLogLikelihood, regression_of
from tallchain.parts import part, set_fields, static
from tallchain.progress import shown
from tallchain.proposals import Laplace
from tallchain.proposals.laplace import check_laplace
from tallchain.sources import as_source
from tallchain.sources.copying import allocate
from tallchain.types import Array, Block, Posterior, PyTree, Source
from tallchain.validation import brief, check_switch

_BEYOND = 5.0  # standard deviations beyond the root of d: a normal vector is further out with probability 2e-9 or less


def is_bounded(posterior: Posterior) -> bool:
    """Whether this is a regression that may have a bound: no groups, and nothing that all rows share."""
    model = regression_of(posterior)
    return model is not None and not model.layout.terms and not model.layout.shared and not model.layout.hyper


def regression_bound(
    posterior: Posterior,
    data: PyTree | Source,
    laplace: Laplace,
    order: int = 2,
    *,
    measure: str | None = None,
    ball: bool = True,
    progress: bool = False,
) -> Bound:
    """Make the bound of a regression, by one sweep over the rows; see `bounds.measures` for the formulas.

    With l_i = f(x_i.t; y_i) and S = T T' the covariance of the Laplace approximation, c_i = sup |f^(k+1)| |T'x_i|^(k+1)
    at order k. With a ball the supremum is over the predictors of a row where |T^-1 (t - r)| <= sqrt(d) + 5, which is
    less, and finite for Poisson regression too; outside it the supremum over all predictors counts.

    Args:
        posterior: of a `Regression` without groups, and without a scale to estimate.
        data: a source, or all rows as a source takes them.
        laplace: at the mode, where the surrogate was expanded.
        order: of the surrogate, 0 for none.
        measure: "predictor" by default, "norm" for several predictors a row; "scalable" and "pymhss" are the bounds of
            the papers, without ball and in the coordinates of the position.
        ball: whether constants may hold near the mode only.
        progress: show a progress bar (needs `rich`).
    """
    check_posterior("regression_bound", posterior)
    model = regression_of(posterior)
    if model is None or not is_bounded(posterior):
        what = brief(posterior) if model is None else f"{model.family!r} with groups, scales or a shrinkage prior"
        raise ValueError(
            "`regression_bound(posterior=...)` must be of a Regression without groups, estimated scales and shrinkage "
            f"priors, whose derivatives no constant bounds; got {what}. Give `Bound(constants, order)` for your own."
        )
    order = check_order("regression_bound", order)
    check_laplace("regression_bound", laplace)
    if laplace.d != model.layout.num_dense:
        raise ValueError(
            f"`regression_bound(laplace=...)` must have {model.layout.num_dense} coefficients, as the posterior has; "
            f"got {laplace.d}."
        )
    ball, progress = (check_switch("regression_bound", *each) for each in (("ball", ball), ("progress", progress)))
    is_single = model.layout.num_linear == 1
    measure = ("predictor" if is_single else "norm") if measure is None else measure
    if not (isinstance(measure, str) and measure in MEASURES) or (measure != "norm" and not is_single):
        one_of = ", ".join(MEASURES) if is_single else "norm, since a row has several predictors"
        raise ValueError(f"`regression_bound(measure=...)` must be one of {one_of}; got {brief(measure)}.")
    is_ours = measure in ("predictor", "norm")
    source = as_source("regression_bound", data)
    check_likelihood(posterior.log_likelihood, laplace.mean, source)
    has_ball = ball and is_ours and is_single
    radius = math.sqrt(laplace.d) + _BEYOND if has_ball else math.inf
    kind = {"scalable": "largest", "pymhss": "identity"}.get(measure, "laplace")
    of = _Constants(model, order, kind, jax.tree.map(as_floats, laplace.mean), laplace.factor, as_floats(radius))
    values = allocate((3, source.population.total), np.dtype(np.float32))

    def keep(_: Any, found: tuple[np.ndarray, np.ndarray]) -> None:
        for start, block in zip(*found, strict=True):
            values[:, start : start + block.shape[1]] = block

    with shown(progress, "bounding the rows", source.population.total, is_step=True) as show:
        source.sweep(of, keep, results=3, report=show)
    coordinates: dict[str, Any] = {"laplace": laplace} if is_ours else {"position": laplace.mean}
    if np.isnan(values.max()):
        values[np.isnan(values)] = np.inf
    inside, outside, sizes = values
    bound = Bound(
        inside,
        order,
        measure=measure,
        is_concave=model.family.is_concave,
        radius=radius,
        outside=outside if has_ball and np.all(np.isfinite(outside)) else None,
        sizes=sizes,
        **coordinates,
    )
    return set_fields(bound, words=getattr(source, "words", None), rows_swept=source.population.total)


@part
class _Constants:
    """For a block: where it begins, the constants of its rows inside and outside of the ball, and their sizes."""

    model: RegressionLogLikelihood = static()
    order: int = static()
    kind: str = static()
    position: PyTree
    factor: Array
    radius: Array

    def __call__(self, block: Block) -> tuple[Array, Array]:
        return block.index[0], jax.vmap(self._of_row, out_axes=1)(block.rows)

    def _of_row(self, row: PyTree) -> Array:
        layout, family, y = self.model.layout, self.model.family, row["y"]
        x = row["x"]
        if self.kind == "largest":
            size = jnp.max(jnp.abs(x))
        elif self.kind == "identity":
            size = jnp.sqrt(jnp.sum(x**2))
        else:
            size = jnp.sqrt(jnp.sum(self._whitened(x) ** 2))
        infinite = jnp.full((), jnp.inf, size.dtype)
        everywhere = family.derivative_bounds(-infinite, infinite, y)
        near = everywhere
        if layout.num_linear == 1:
            eta, reach = layout.predictors(self.position, row)[0], self.radius * size
            # Where x = 0 the radius may be infinite.
            reach = jnp.where(size > 0, reach, 0)
            is_near = jnp.isfinite(reach)
            within = family.derivative_bounds(eta - reach, eta + reach, y)
            near = jax.tree.map(lambda a, b: jnp.where(is_near, a, b), within, everywhere)
        power = size ** (self.order + 1)
        # A row that does not move has no part in a log ratio, whatever its derivatives.
        bounds = jnp.where(power > 0, jnp.stack([near[self.order], everywhere[self.order]]) * power, 0)
        # Of a count of 10,000 a log likelihood has rounding errors 10,000 times as large.
        slopes = jnp.stack(near[:2])
        values = jnp.append(bounds, 1 + jnp.max(jnp.where(jnp.isfinite(slopes), 4 * slopes, 0)))
        return values * row["weight"] if "weight" in row else values

    def _whitened(self, x: Array) -> Array:
        """The part of T that a row's predictors see, x'T, for all predictors."""
        layout = self.model.layout
        if layout.num_linear == 1:
            return dot(x, self.factor)
        # Coefficients are (predictor, feature), flattened: a row sees the same block of features for each predictor.
        return dot(x, self.factor.reshape(layout.num_linear, layout.num_features, -1))
