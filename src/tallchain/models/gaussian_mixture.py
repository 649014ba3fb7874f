"""The paper's mixture of two Gaussians with a tied mean (its section 5.1, after Welling and Teh 2011)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.cores import in_order, num_cores
from tallchain.functions import shared
from tallchain.models.posterior import Posterior
from tallchain.types import Array

VARIANCE = 2.0
PRIOR_VARIANCES = (10.0, 1.0)
TRUTH = (0.0, 1.0)
_BIN = 4e-3
_CELLS = 2**20  # of (grid point, bin) evaluated at a time


def log_prior(theta: Array) -> Array:
    """theta ~ N(0, diag(10, 1)), up to a constant."""
    return -0.5 * (theta[0] ** 2 / PRIOR_VARIANCES[0] + theta[1] ** 2 / PRIOR_VARIANCES[1])


def flat_log_prior(theta: Array) -> Array:
    """No prior, as for the paper's published numbers."""
    return 0.0 * theta[0]


def log_likelihood(theta: Array, row: Array) -> Array:
    """x ~ 0.5 N(theta_1, 2) + 0.5 N(theta_1 + theta_2, 2), up to a constant."""
    first, second = row - theta[0], row - theta[0] - theta[1]
    return jnp.logaddexp(-(first**2) / (2 * VARIANCE), -(second**2) / (2 * VARIANCE))


class Grid(NamedTuple):
    """The posterior by quadrature."""

    theta_1: np.ndarray
    theta_2: np.ndarray
    log_density: np.ndarray
    """log posterior on the grid (theta_1, theta_2), normalised to a density."""
    mean: np.ndarray
    covariance: np.ndarray

    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        """Draw positions (count, 2), uniform within a cell of the grid."""
        weights = np.exp(self.log_density)
        cells = random.choice(weights.size, count, p=(weights / weights.sum()).ravel())
        at = np.stack(np.unravel_index(cells, weights.shape), -1)
        steps = np.array([self.theta_1[1] - self.theta_1[0], self.theta_2[1] - self.theta_2[0]])
        corner = np.array([self.theta_1[0], self.theta_2[0]])
        return (corner + (at + random.uniform(-0.5, 0.5, at.shape)) * steps).astype(np.float32)


class GaussianMixture(NamedTuple):
    """A ready-made posterior with its data."""

    posterior: Posterior
    data: np.ndarray

    def quadrature(
        self, points: int = 201, reach_1: tuple[float, float] = (-2.5, 3.5), reach_2: tuple[float, float] = (-4, 4)
    ) -> Grid:
        """Integrate the posterior on a grid of points x points over an interval for each parameter.

        The log likelihood of all rows is summed over bins of width 0.004, each with its count at its mean; the error,
        of second order in the width of a bin, is below 1e-4 in the log posterior where N/K = 100.
        """
        theta_1, theta_2 = (np.linspace(*reach, num=points) for reach in (reach_1, reach_2))
        grid = np.stack(np.meshgrid(theta_1, theta_2, indexing="ij"), -1).reshape(-1, 2)
        values, counts = _bins(self.data)
        step = max(1, _CELLS // len(values))
        firsts = range(0, len(grid), step)
        sums = in_order(lambda first: _sums(grid[first : first + step], values, counts), firsts, num_cores())
        priors = np.asarray(jax.vmap(self.posterior.log_prior)(jnp.asarray(grid, jnp.float32)), np.float64)
        log_density = priors + np.concatenate(list(sums)) / float(self.posterior.temperature)
        weights = np.exp(log_density - log_density.max())
        weights /= weights.sum()
        mean = weights @ grid
        covariance = (weights[:, None] * (grid - mean)).T @ (grid - mean)
        cell = (theta_1[1] - theta_1[0]) * (theta_2[1] - theta_2[0])
        log_density = np.log(np.maximum(weights / cell, 1e-300)).reshape(points, points)
        return Grid(theta_1, theta_2, log_density, mean, covariance)


def gaussian_mixture(
    num_rows: int = 1_000_000, temperature: float | None = None, *, flat_prior: bool = False, seed: int = 0
) -> GaussianMixture:
    """Generate the paper's mixture experiment.

    Args:
        num_rows: N, drawn at theta = (0, 1); the paper has 1,000,000.
        temperature: K; None for N/100 (10,000 at the paper's N), which makes the posterior as wide as that of a hundred
            rows.
        flat_prior: leave the prior out, as the paper's published numbers do.
        seed: of the data.
    """
    if num_rows < 1:
        raise ValueError(f"`gaussian_mixture(num_rows=...)` must be at least 1; got {num_rows!r}.")
    random = np.random.default_rng(seed)
    means = TRUTH[0] + TRUTH[1] * (random.random(num_rows) < 0.5)
    data = (means + np.sqrt(VARIANCE) * random.standard_normal(num_rows)).astype(np.float32)
    prior = flat_log_prior if flat_prior else log_prior
    posterior = Posterior(shared(prior), shared(log_likelihood), temperature or num_rows / 100)
    return GaussianMixture(posterior, data)


def _bins(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the count of every bin that is not empty."""
    data = np.asarray(data, np.float64)
    index = np.floor((data - data.min()) / _BIN).astype(int)
    counts = np.bincount(index)
    sums = np.bincount(index, weights=data)
    is_full = counts > 0
    return sums[is_full] / counts[is_full], counts[is_full]


def _sums(thetas: np.ndarray, values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the log likelihood at each theta, in float64 on the host: it does not depend on JAX's precision."""
    x = values[None] - thetas[:, :1]
    second = -((x - thetas[:, 1:]) ** 2) / (2 * VARIANCE)
    return np.logaddexp(-(x**2) / (2 * VARIANCE), second) @ counts
