"""Real outcomes with normal noise."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.models.families.checks import differing, measured, numbers
from tallchain.models.families.family import Bounds, Derivatives, ScaleFamily, largest, of_one, of_two
from tallchain.models.families.growth import Span, growth_rise
from tallchain.models.families.settings import check_positive
from tallchain.types import Array

LOG_SD = Span(low=-28.0)  # of the log of the noise: exp(56) times a squared residual is still a float32


@dataclasses.dataclass(frozen=True)
class Gaussian(ScaleFamily):
    """y = z + noise, with the standard deviation of the noise `sd`, or exp(log_noise_sd), estimated, without it."""

    sd: float | None = None

    def __post_init__(self) -> None:
        check_positive("Gaussian", "sd", self.sd, "to estimate it")

    @property
    def shared(self) -> tuple[str, ...]:
        """The log of the noise, unless it is known."""
        return ("log_noise_sd",) if self.sd is None else ()

    @property
    def is_concave(self) -> bool:
        """For known noise."""
        return self.sd is not None

    def derivative_bounds(self, low: Array, high: Array, y: Array) -> Bounds:
        """For known noise, the second derivative is -1/sd^2 and the third 0."""
        if self.sd is None:
            return super().derivative_bounds(low, high, y)
        first = largest(low, high, (y - low, y - high)) / self.sd**2
        return Bounds(first, jnp.full_like(low, 1 / self.sd**2), jnp.zeros_like(low))

    def log_density(self, eta: Array, y: Array) -> Array:
        """-(y - z)^2 / (2 sd^2) - log sd."""
        residual = y - eta[0]
        if self.sd is not None:
            return -0.5 * (residual / self.sd) ** 2
        log_sd = LOG_SD.clip(eta[1])
        return -0.5 * residual**2 * jnp.exp(-2 * log_sd) - log_sd

    def short_gain(self, eta: Array, step: Array, y: Array) -> Array:
        """With r = y - z, d the step of z: d (2r - d) / (2 sd'^2) - r^2 (1/sd'^2 - 1/sd^2) / 2 - log(sd'/sd)."""
        residual = y - eta[0]
        less = 0.5 * step[0] * (2 * residual - step[0])
        if self.sd is not None:
            return less / self.sd**2
        log_sd, by = LOG_SD.clip(eta[1]), LOG_SD.step(eta[1], step[1])
        return less * jnp.exp(-2 * (log_sd + by)) - 0.5 * residual**2 * growth_rise(-2 * log_sd, -2 * by, 60.0) - by

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        """With v = 1/sd^2: r v, -v, 0, 0 by z; r^2 v - 1, -2 r^2 v by log sd."""
        residual = y - eta[0]
        zero = jnp.zeros_like(residual)
        if self.sd is not None:
            precision = zero + 1 / self.sd**2
            return of_one(residual * precision, -precision, zero, zero)
        slope, precision = LOG_SD.slope(eta[1]), jnp.exp(-2 * LOG_SD.clip(eta[1]))
        pull, square = residual * precision, residual**2 * precision
        return of_two(
            (pull, slope * (square - 1)),
            (-precision, -2 * slope * pull, -2 * slope * square),
            (zero, 2 * slope * precision),
            zero,
        )

    def higher(self, eta: Array, y: Array) -> Array:
        """0: it is a parabola."""
        return jnp.zeros(4, eta.dtype)

    def mean(self, eta: Array) -> Array:
        """z."""
        return eta[0]

    def draw(self, key: Array, eta: Array, size: Array | float = 1.0) -> Array:
        """Draw a number."""
        sd = self.sd if self.sd is not None else jnp.exp(LOG_SD.clip(eta[1]))
        return eta[0] + sd * jr.normal(key, dtype=eta.dtype)

    def outcomes(self, call: str, y: Any) -> np.ndarray:
        """Return finite numbers, not all the same if the noise is to be estimated."""
        y = measured(call, numbers(call, y))
        return y if self.sd is not None else differing(call, y, "the noise")

    def start(self, y: np.ndarray) -> np.ndarray:
        """The mean, and the log of the standard deviation."""
        mean = float(y.mean(dtype=np.float64))
        return np.array([mean] if self.sd is not None else [mean, np.log(self.unit(y))])

    def unit(self, y: np.ndarray) -> float:
        """sd(y)."""
        return float(y.std(dtype=np.float64)) or self.sd or 1.0
