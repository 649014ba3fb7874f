"""Priors of the parameters of a regression.

    Prior(coefficients=Normal(1.0), intercept=Normal(5.0), group_sd=1.0)

Group effects are N(0, sd^2), and the sd of each term is half-normal; positions have its logarithm. The numbers that all
rows share (the log of a noise, of a shape; cutpoints) are N(s, 3^2), s the best value without features: weak, since one
standard deviation of a logarithm is a factor of 20.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from tallchain.models.layout import Layout
from tallchain.parts import part, registered, set_fields, static
from tallchain.types import Array, Posterior, PyTree
from tallchain.validation import brief, is_number, is_positive

SHARED_SD = 3.0
LOG_LOCAL, LOG_GLOBAL, LOG_SLAB = "log_local", "log_global", "log_slab"


@registered
@dataclasses.dataclass(frozen=True)
class Normal:
    """N(mean, sd^2) for each coefficient."""

    sd: float = 1.0
    mean: float = 0.0

    def __post_init__(self) -> None:
        _check("Normal", sd=self.sd)
        if not is_number(self.mean):
            raise ValueError(f"`Normal(mean=...)` must be a finite number; got {brief(self.mean)}.")

    def log_density(self, coefficients: Array, hyper: dict[str, Array]) -> Array:
        """-|t - mean|^2 / (2 sd^2)."""
        return -0.5 * jnp.sum(((coefficients - self.mean) / self.sd) ** 2)


@registered
@dataclasses.dataclass(frozen=True)
class Flat:
    """No prior: the data alone must determine every coefficient."""

    def log_density(self, coefficients: Array, hyper: dict[str, Array]) -> Array:
        """0."""
        return jnp.zeros((), coefficients.dtype)


@registered
@dataclasses.dataclass(frozen=True)
class StudentT:
    """Student's t with `df` degrees of freedom, for each coefficient: heavier tails than a normal distribution."""

    df: float = 4.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check("StudentT", df=self.df, scale=self.scale)

    def log_density(self, coefficients: Array, hyper: dict[str, Array]) -> Array:
        """-(df + 1)/2 sum log(1 + t^2/(df scale^2))."""
        return -0.5 * (self.df + 1) * jnp.sum(jnp.log1p((coefficients / self.scale) ** 2 / self.df))


@registered
@dataclasses.dataclass(frozen=True)
class Horseshoe:
    """The regularised horseshoe (Piironen and Vehtari 2017): most coefficients are nearly 0, a few are not.

    t_j ~ N(0, s_j^2), 1/s_j^2 = 1/(global^2 local_j^2) + 1/slab^2, local_j ~ C+(0, 1), global ~ C+(0, scale),
    slab^2 ~ inverse gamma(df/2, df slab_scale^2/2). Positions have the logarithms of local, global and slab.

    Args:
        scale: of the global scale: about p0/(p - p0)/sqrt(N) times the standard deviation of an outcome, if about p0 of
            p coefficients are not near 0.
        slab_scale: of coefficients that are not near 0.
        slab_df: degrees of freedom of the slab.
    """

    scale: float = 0.1
    slab_scale: float = 2.0
    slab_df: float = 4.0

    def __post_init__(self) -> None:
        _check("Horseshoe", scale=self.scale, slab_scale=self.slab_scale, slab_df=self.slab_df)

    def log_scales(self, hyper: dict[str, Array]) -> Array:
        """log s_j."""
        both = -2 * (hyper[LOG_GLOBAL] + hyper[LOG_LOCAL])
        return -0.5 * jnp.logaddexp(both, -2 * hyper[LOG_SLAB] * jnp.ones_like(both))

    def log_density(self, coefficients: Array, hyper: dict[str, Array]) -> Array:
        """Of the coefficients and the scales, by the logarithms of the latter."""
        log_s = self.log_scales(hyper)
        normal = jnp.sum(-0.5 * (coefficients * jnp.exp(-log_s)) ** 2 - log_s)
        half_cauchy = jnp.sum(_log_half_cauchy(hyper[LOG_LOCAL]))
        half_cauchy += _log_half_cauchy(hyper[LOG_GLOBAL] - jnp.log(self.scale))
        log_slab = hyper[LOG_SLAB] - jnp.log(self.slab_scale)
        slab = -self.slab_df * (log_slab + 0.5 * jnp.exp(-2 * log_slab))
        return normal + half_cauchy + slab


def _log_half_cauchy(log_x: Array) -> Array:
    """log density of log x, x ~ C+(0, 1), up to a constant: log x - log(1 + x^2)."""
    return log_x - jax.nn.softplus(2 * log_x)


CoefficientPrior = Normal | Flat | StudentT | Horseshoe


@registered
@dataclasses.dataclass(frozen=True)
class Prior:
    """Priors of the parameters of a regression.

    Args:
        coefficients: `Normal(sd)`, `StudentT(df, scale)`, `Horseshoe(...)` or `Flat()`; None: N(0, 2.5^2), in units of
            the outcomes for a family whose predictor is in these.
        intercept: the same for the intercept, but no horseshoe; None: N(s, 10^2), in the same units, s the best value
            without features, or 0 for a family with several linear predictors.
        group_sd: scale of the half-normal priors of the standard deviations of group effects; None: 1, in the same
            units.
    """

    coefficients: CoefficientPrior | None = None
    intercept: Normal | Flat | StudentT | None = None
    group_sd: float | None = None

    def __post_init__(self) -> None:
        for name, kinds in (("coefficients", CoefficientPrior), ("intercept", Normal | Flat | StudentT)):
            value = getattr(self, name)
            if not (value is None or isinstance(value, kinds)):
                raise TypeError(
                    f"`Prior({name}=...)` must be a prior such as priors.Normal(1.0), or None; got {brief(value)}."
                )
        if self.group_sd is not None:
            _check("Prior", group_sd=self.group_sd)

    def scaled(self, unit: float, centre: float = 0.0) -> Prior:
        """Return it with the defaults filled in, for a linear predictor in this unit and about this centre."""
        return Prior(
            self.coefficients or Normal(2.5 * unit),
            self.intercept or Normal(10 * unit, centre),
            self.group_sd or float(unit),
        )


@part
class RegressionLogPrior:
    """log p0 of a position. Other numbers, as another data set has, need no other program.

    Args:
        prior: with its defaults filled in.
        layout: of the positions.
        centres: of the numbers that all rows share.
    """

    layout: Layout = static()
    has_one: bool = static()
    """Whether the intercept has the prior of the other coefficients."""
    prior: Prior
    centres: tuple[float, ...]

    def __init__(self, prior: Prior, layout: Layout, centres: tuple[float, ...] = ()) -> None:
        has_one = not layout.has_intercept or prior.intercept == prior.coefficients
        set_fields(self, layout=layout, has_one=has_one, prior=prior, centres=centres)

    def __call__(self, position: PyTree) -> Array:
        """Return the log prior, up to a constant."""
        layout, prior = self.layout, self.prior
        layout.check(position)
        coefficients, total = layout.coefficients(position), 0.0
        if not self.has_one:
            assert prior.intercept is not None
            total += prior.intercept.log_density(coefficients[..., :1], {})
            coefficients = coefficients[..., 1:]
        assert prior.coefficients is not None
        total += prior.coefficients.log_density(coefficients, position if layout.hyper else {})
        for name, centre in zip(layout.shared, self.centres, strict=True):
            total += -0.5 * ((position[name] - centre) / SHARED_SD) ** 2
        for term in layout.terms:
            assert prior.group_sd is not None
            total += _log_effects(position[term.name], position[term.log_sd], prior.group_sd)
        return jnp.asarray(total)

    def __repr__(self) -> str:
        said = [_brief(self.prior.coefficients)]
        said += [] if self.has_one else [f"intercept {_brief(self.prior.intercept)}"]
        said += [f"group_sd {self.prior.group_sd:.4g}"] if self.layout.terms else []
        return ", ".join(said)


def _brief(prior: CoefficientPrior | None) -> str:
    numbers = (f"{name}={value:.4g}" for name, value in vars(prior).items() if (name, value) != ("mean", 0))
    return f"{type(prior).__name__}({', '.join(numbers)})"


def _log_effects(effects: Array, log_sd: Array, scale: float) -> Array:
    """u ~ N(0, sd^2) and sd ~ N+(0, scale^2), by the logarithm of sd."""
    normal = -0.5 * jnp.sum((effects * jnp.exp(-log_sd)) ** 2) - effects.size * log_sd
    return normal - 0.5 * (jnp.exp(log_sd) / scale) ** 2 + log_sd


def log_prior_of(posterior: Posterior) -> RegressionLogPrior:
    """Return the log prior of a regression's posterior."""
    assert isinstance(posterior.log_prior, RegressionLogPrior)
    return posterior.log_prior


def _check(call: str, **values: Any) -> None:
    for name, value in values.items():
        if not is_positive(value):
            raise ValueError(f"`{call}({name}=...)` must be a positive number; got {brief(value)}.")
