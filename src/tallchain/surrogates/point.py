"""A log posterior at one point, with its derivatives."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallchain.surrogates.passes import Terms


class Point(NamedTuple):
    """The log posterior at a point; derivatives by flat coordinate, in float64."""

    flat: np.ndarray
    """In JAX's default float."""
    prior: Terms
    likelihood: Terms
    temperature: float

    @property
    def log_density(self) -> float:
        """Of the posterior."""
        return float(self.prior.value + self.likelihood.value / self.temperature)

    @property
    def gradient(self) -> np.ndarray:
        """Of the log posterior."""
        return np.asarray(self.prior.gradient + self.likelihood.gradient / self.temperature)

    @property
    def products(self) -> np.ndarray:
        """Of the NEGATIVE Hessian with the directions asked for."""
        return -np.asarray(self.prior.products) - np.asarray(self.likelihood.products) / self.temperature

    @property
    def hessian(self) -> np.ndarray:
        """The NEGATIVE Hessian, if the directions were the axes."""
        return symmetric(self.products)

    @property
    def is_finite(self) -> bool:
        """Whether all of it is finite."""
        return self.prior.is_finite and self.likelihood.is_finite


def symmetric(matrix: Any) -> np.ndarray:
    """Remove the asymmetry by rounding from a matrix that should be symmetric."""
    return np.asarray(matrix + matrix.T) / 2
