"""Positions of a regression drawn from its prior; the formulas are in `priors.py`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.functions import QUICKLY, program
from tallchain.keys import fold_in
from tallchain.models.layout import COEFFICIENTS, Layout
from tallchain.models.priors import (
    LOG_GLOBAL,
    LOG_LOCAL,
    LOG_SLAB,
    SHARED_SD,
    Flat,
    Horseshoe,
    Normal,
    RegressionLogPrior,
    StudentT,
    log_prior_of,
)
from tallchain.types import Array, Posterior, PyTree


def check_proper(call: str, log_prior: RegressionLogPrior) -> None:
    """Refuse a flat prior: it has no draws."""
    layout, prior = log_prior.layout, log_prior.prior
    has_features = layout.num_features > layout.has_intercept
    for what, of, is_there in (
        ("coefficients", prior.coefficients, has_features),
        ("intercept", prior.intercept, layout.has_intercept),
    ):
        if is_there and isinstance(of, Flat):
            raise ValueError(
                f"`{call}`: the prior of the {what} is flat, and nothing can be drawn from it. Give the regression a "
                f"proper prior, such as Prior({what}=priors.Normal(2.5))."
            )


def draw_positions(posterior: Posterior, key: Array, count: int) -> PyTree:
    """Return draws of a position, (count, ...); the first of them do not depend on how many there are."""
    return _draw(posterior, fold_in(key, np.arange(count)))


@program(compiler_options=QUICKLY)
def _draw(posterior: Posterior, keys: Array) -> PyTree:
    return jax.vmap(lambda key: _position(log_prior_of(posterior), key))(keys)


def _position(of: RegressionLogPrior, key: Array) -> PyTree:
    layout, prior = of.layout, of.prior
    of_coefficients, of_shared, of_groups = jr.split(key, 3)
    assert prior.coefficients is not None
    hyper = _scales(prior.coefficients, of_coefficients, layout)
    coefficients = _coefficients(of, of_coefficients, hyper)
    if layout.is_vector:
        return coefficients
    position = {COEFFICIENTS: coefficients}
    for at, (name, centre) in enumerate(zip(layout.shared, of.centres, strict=True)):
        position[name] = centre + SHARED_SD * jr.normal(jr.fold_in(of_shared, at))
    for at, term in enumerate(layout.terms):
        assert prior.group_sd is not None
        of_sd, of_effects = jr.split(jr.fold_in(of_groups, at))
        sd = prior.group_sd * jnp.abs(jr.normal(of_sd))
        position |= {term.name: sd * jr.normal(of_effects, (term.num_levels,)), term.log_sd: jnp.log(sd)}
    return position | hyper


def _coefficients(of: RegressionLogPrior, key: Array, hyper: dict[str, Array]) -> Array:
    layout, prior = of.layout, of.prior
    lead = () if layout.num_linear == 1 else (layout.num_linear,)
    of_intercept, of_others = jr.split(jr.fold_in(key, 1))
    others = _numbers(prior.coefficients, of_others, (*lead, layout.num_features - layout.has_intercept), hyper)
    if not layout.has_intercept:
        return others
    return jnp.concatenate([_numbers(prior.intercept, of_intercept, (*lead, 1), {}), others], -1)


def _numbers(
    prior: Normal | Flat | StudentT | Horseshoe | None, key: Array, shape: tuple[int, ...], hyper: dict[str, Array]
) -> Array:
    if isinstance(prior, StudentT):
        return prior.scale * jr.t(key, prior.df, shape)
    if isinstance(prior, Horseshoe):
        return jnp.exp(prior.log_scales(hyper)) * jr.normal(key, shape)
    mean, sd = (prior.mean, prior.sd) if isinstance(prior, Normal) else (0.0, 1.0)  # flat: there are none
    return mean + sd * jr.normal(key, shape)


def _scales(prior: Normal | Flat | StudentT | Horseshoe, key: Array, layout: Layout) -> dict[str, Array]:
    """local ~ C+(0, 1), global ~ C+(0, scale), slab^2 ~ inverse gamma(df/2, df slab_scale^2/2), by their logarithms."""
    if not isinstance(prior, Horseshoe):
        return {}
    of_local, of_global, of_slab = jr.split(jr.fold_in(key, 0), 3)
    half = prior.slab_df / 2
    return {
        LOG_LOCAL: jnp.log(jnp.abs(jr.cauchy(of_local, layout.shapes()[LOG_LOCAL]))),
        LOG_GLOBAL: jnp.log(prior.scale) + jnp.log(jnp.abs(jr.cauchy(of_global))),
        LOG_SLAB: jnp.log(prior.slab_scale) + 0.5 * (jnp.log(half) - jr.loggamma(of_slab, half)),
    }
