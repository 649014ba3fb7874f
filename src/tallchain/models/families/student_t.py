"""Real outcomes with outliers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import random as jr

from tallchain.models.families.checks import differing, measured, numbers
from tallchain.models.families.family import Derivatives, ScaleFamily
from tallchain.models.families.gamma_function import gamma_rest, gamma_rest_rise
from tallchain.models.families.gaussian import LOG_SD
from tallchain.models.families.growth import STEEPEST, Span, growth_rise, softplus_rise
from tallchain.models.families.settings import check_positive
from tallchain.types import Array

_LOG_NU = Span(-10.0, STEEPEST)  # beyond, the tails are normal to the last digit
_LOG_2 = math.log(2)
_ROWS = 1_000_000  # that quantiles are taken of


@dataclasses.dataclass(frozen=True)
class StudentT(ScaleFamily):
    """y = z + sd t, t of Student's distribution with `nu` degrees of freedom, or exp(log_nu), estimated, without it.

    With x = (y - z) / (sd sqrt nu), f = C(nu) - log sd - (nu + 1)/2 log(1 + x^2).
    """

    nu: float | None = None

    def __post_init__(self) -> None:
        check_positive("StudentT", "nu", self.nu, "to estimate it")

    @property
    def shared(self) -> tuple[str, ...]:
        """The log of the scale, and of the degrees of freedom unless they are known."""
        return ("log_noise_sd", "log_nu") if self.nu is None else ("log_noise_sd",)

    def log_density(self, eta: Array, y: Array) -> Array:
        """f."""
        a = self._terms(eta, y)
        return _constant(a.log_nu) - a.log_sd - 0.5 * (a.nu + 1) * _log1p_square(a.residual, a.log_factor)

    def short_gain(self, eta: Array, step: Array, y: Array) -> Array:
        """Of log x^2, if the step is short against the residual: log(1 - d/r)^2 and what scale and nu add."""
        a = self._terms(eta, y)
        by_sd = LOG_SD.step(eta[1], step[1])
        by_nu = _LOG_NU.step(eta[2], step[2]) if self.nu is None else jnp.zeros_like(by_sd)
        by_factor, after = -2 * by_sd - by_nu, a.residual - step[0]
        is_near = jnp.abs(step[0]) < 0.5 * jnp.abs(a.residual)
        residual = jnp.where(is_near, a.residual, 1.0)
        by_square = by_factor + 2 * jnp.log1p(-jnp.where(is_near, step[0], 0.0) / residual)
        near = softplus_rise(a.log_factor + 2 * jnp.log(jnp.abs(residual)), by_square)
        there = _log1p_square(after, a.log_factor + by_factor)
        rise = jnp.where(is_near, near, there - _log1p_square(a.residual, a.log_factor))
        more = growth_rise(a.log_nu, by_nu)
        return _constant_rise(a.log_nu, by_nu) - by_sd - 0.5 * (a.nu + 1) * rise - 0.5 * more * there

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        """With c = 1/(1 + x^2), log(1 + x^2) has 2xc, 2c (2c - 1), 4xc^2 (1 - 4c), -12c^2 (1 - 8c + 8c^2)."""
        a = self._terms(eta, y)
        root = jnp.exp(0.5 * a.log_factor)
        x = root * a.residual
        c = 1 / (1 + x**2)
        rest = x * (x * c)  # 1 - c
        half, more = 0.5 * (a.nu + 1), 0.5 * a.nu
        g, xg, xxg = _log1p_square(a.residual, a.log_factor), 2 * rest, 2 * rest * (c - rest)
        pull, curve = 2 * root * x * c, 2 * root * (root * c) * (c - rest)
        turn = 4 * root * (root * c) * rest * (rest - 3 * c)  # x g''', in units of y
        rate, rise = jax.grad(_constant), jax.grad(jax.grad(_constant))
        by_sd, by_nu = LOG_SD.slope(eta[1]), _LOG_NU.slope(eta[2]) if self.nu is None else jnp.zeros_like(x)
        slopes = jnp.stack([jnp.ones_like(x), by_sd, by_nu])
        first = jnp.stack([half * pull, half * xg - 1, rate(a.log_nu) - more * g + 0.5 * half * xg])
        zz, zs, ss = -half * curve, -half * (pull + root * x * 2 * c * (c - rest)), -half * (xg + xxg)
        zv, sv = more * pull + 0.5 * zs, more * xg + 0.5 * ss
        vv = rise(a.log_nu) - more * g + more * xg + 0.25 * ss
        second = jnp.stack([jnp.stack([zz, zs, zv]), jnp.stack([zs, ss, sv]), jnp.stack([zv, sv, vv])])
        zzs = half * (2 * curve + turn)
        third = jnp.stack(
            [4 * half * (root * x * c) * (root * (root * c)) * (rest - 3 * c), zzs, 0.5 * zzs - more * curve]
        )
        fourth = 12 * half * (root * (root * c)) ** 2 * (1 - 8 * c + 8 * c**2)
        q = self.num_predictors
        return Derivatives(
            (slopes * first)[:q], (slopes * slopes[:, None] * second)[:q, :q], (slopes * third)[:q], fourth
        )

    def mean(self, eta: Array) -> Array:
        """z, also where there is no mean."""
        return eta[0]

    def draw(self, key: Array, eta: Array, size: Array | float = 1.0) -> Array:
        """Draw a number."""
        a = self._terms(eta, eta[0])
        return eta[0] + jnp.exp(a.log_sd) * jr.t(key, a.nu, dtype=eta.dtype)

    def outcomes(self, call: str, y: Any) -> np.ndarray:
        """Return finite numbers, not all the same."""
        return differing(call, measured(call, numbers(call, y)), "the noise")

    def start(self, y: np.ndarray) -> np.ndarray:
        """The median; nu by the range of nine tenths of the outcomes against that of a half, which gives the scale."""
        low, quarter, median, three, high = _quantiles(y, (0.05, 0.25, 0.5, 0.75, 0.95))
        nus = np.geomspace(0.5, 50.0, 60)
        outer, inner = (scipy.special.stdtrit(nus, share) for share in (0.95, 0.75))
        ratio = (high - low) / max(three - quarter, 1e-6 * (high - low)) if high > low else math.inf
        nu = float(np.interp(-ratio, -outer / inner, nus)) if self.nu is None else self.nu
        log_sd = math.log((three - quarter) / (2 * scipy.special.stdtrit(nu, 0.75)) or self.unit(y))
        return np.array([median, log_sd, math.log(nu)][: self.num_predictors])

    def unit(self, y: np.ndarray) -> float:
        """The range of the middle half, as a standard deviation of normal outcomes; sd(y) where it is 0."""
        quarter, three = _quantiles(y, (0.25, 0.75))
        return (three - quarter) / (2 * float(scipy.special.ndtri(0.75))) or float(y.std(dtype=np.float64)) or 1.0

    def _terms(self, eta: Array, y: Array) -> _Terms:
        log_sd = LOG_SD.clip(eta[1])
        log_nu = _LOG_NU.clip(eta[2] if self.nu is None else jnp.full_like(log_sd, math.log(self.nu)))
        return _Terms(y - eta[0], log_sd, log_nu, jnp.exp(log_nu), -2 * log_sd - log_nu)


class _Terms(NamedTuple):
    """What f is made of."""

    residual: Array
    log_sd: Array
    log_nu: Array
    nu: Array
    log_factor: Array
    """log of 1/(sd^2 nu)."""


def _log1p_square(residual: Array, log_factor: Array) -> Array:
    """log(1 + x^2), x^2 = exp(log_factor) r^2, by log x^2 for large x: x^4 of its second derivative would overflow."""
    is_large = jnp.exp(0.5 * log_factor) * jnp.abs(residual) > 1
    large, small = jnp.where(is_large, residual, 1.0), jnp.where(is_large, 0.0, residual)
    by_log = jax.nn.softplus(log_factor + 2 * jnp.log(jnp.abs(large)))
    return jnp.where(is_large, by_log, jnp.log1p(jnp.exp(log_factor) * small**2))


def _constant(log_nu: Array) -> Array:
    """log Gamma((nu + 1)/2) - log Gamma(nu/2) - log(nu)/2, up to a number; about -1/(4 nu) for large nu."""
    rest = gamma_rest(jax.nn.softplus(log_nu) - _LOG_2) - gamma_rest(log_nu - _LOG_2)
    return 0.5 * (jnp.exp(log_nu) + 1) * jax.nn.softplus(-log_nu) - 0.5 + rest


def _constant_rise(log_nu: Array, step: Array) -> Array:
    """The rise of `_constant`."""
    main = 0.5 * (jnp.exp(log_nu) + 1) * softplus_rise(-log_nu, -step)
    main += 0.5 * growth_rise(log_nu, step) * jax.nn.softplus(-log_nu - step)
    upper = gamma_rest_rise(jax.nn.softplus(log_nu) - _LOG_2, softplus_rise(log_nu, step))
    return main + upper - gamma_rest_rise(log_nu - _LOG_2, step)


def _quantiles(y: np.ndarray, shares: tuple[float, ...]) -> list[float]:
    """Quantiles, of every k-th row where there are very many."""
    return np.quantile(y[:: -(-len(y) // _ROWS)].astype(np.float64), shares).tolist()
