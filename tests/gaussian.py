"""A normal posterior, for which stationary variances are known; and what linear recursions converge to, by NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

import tallchain as tc
from conftest import SEED
from tallchain.stochastic import StochasticGradient

Z_LIMIT = 4.5
ROWS, SIZE, BATCH = 400, 4, 20
CHAINS = 100


class Gaussian(NamedTuple):
    """Rows x_i ~ N(0, spread^2 I), log likelihood -|x_i - t|^2/2, a standard normal prior, temperature K."""

    posterior: tc.Posterior
    data: np.ndarray
    mean: np.ndarray
    precision: float
    """P, of each coordinate."""

    @classmethod
    def make(cls, temperature: float = 1.0, size: int = SIZE, spread: float = 1.0) -> Gaussian:
        data = np.random.default_rng(SEED).normal(0, spread, (ROWS, size)).astype(np.float32)
        posterior = tc.Posterior(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2), temperature)
        precision = ROWS / temperature + 1
        return cls(posterior, data, data.astype(float).sum(0) / temperature / precision, precision)

    def noise(self, rows: int, *, repeats: bool) -> np.ndarray:
        """Variance of the gradient of a minibatch, by coordinate: it does not depend on the position."""
        temperature = ROWS / (self.precision - 1)
        centred = self.data - self.data.astype(float).mean(0)
        variance = (centred**2).sum(0) / (ROWS if repeats else ROWS - 1)
        share = 1.0 if repeats else 1 - rows / ROWS
        return (ROWS / temperature) ** 2 * share * variance / rows


def shuffled(data: Any) -> tc.Shuffled:
    return tc.Shuffled(data, BATCH, windows=False)


def with_replacement(data: Any) -> tc.WithReplacement:
    return tc.WithReplacement(data, BATCH)


def run(kernel: StochasticGradient, start: Any, length: int = 200, **options: Any) -> tc.Trace:
    options = {"num_chains": CHAINS, "num_warmup": 100, "progress": False} | options
    return tc.sample(jr.key(SEED), kernel, jax.tree.map(np.float32, start), length, **options)


def z_scores(trace: tc.Trace, mean: np.ndarray, variance: np.ndarray | float) -> np.ndarray:
    """Means and variances by coordinate against the truth, in standard errors between chains, which are independent."""
    scaled = (trace.position.astype(float) - mean) / np.sqrt(variance)
    by_chain = np.concatenate([scaled.mean(1), (scaled**2).mean(1) - 1], -1)
    return by_chain.mean(0) / (by_chain.std(0, ddof=1) / np.sqrt(len(by_chain)))


def variance_ratio(trace: tc.Trace, mean: np.ndarray, variance: np.ndarray | float) -> float:
    """Of the draws about the true mean, over this variance; mean over coordinates."""
    return float((((trace.position.astype(float) - mean) ** 2).mean((0, 1)) / variance).mean())


# ---- linear recursions ---------------------------------------------------------------------------


def langevin_variance(eps: float, precision: float, noise: np.ndarray | float) -> np.ndarray:
    """Of t' = t - eps (P t + u) + sqrt(2 eps) z, Var u = noise: an autoregression of order 1."""
    slope = 1 - eps * precision
    return (2 * eps + eps**2 * np.asarray(noise)) / (1 - slope**2)


def trajectory_variance(h: float, steps: int, alpha: float, beta: float, *, precision: float, noise: float) -> float:
    """Of t after `steps` of (t, p, u), u the noise of the minibatch, the same for all; p and u are drawn anew."""
    step = np.array([[1, h, 0], [-h * precision, 1 - alpha * h, h], [0, 0, 1]])
    added, spread = np.diag([0, h * (2 * alpha - h * beta), 0]), np.zeros((3, 3))
    for _ in range(steps):
        spread = step @ spread @ step.T + added
    whole = np.linalg.matrix_power(step, steps)[0]
    assert abs(whole[0]) < 1
    return (whole[1] ** 2 + whole[2] ** 2 * noise + spread[0, 0]) / (1 - whole[0] ** 2)


def lyapunov(step: np.ndarray, added: np.ndarray) -> np.ndarray:
    """S = A S A' + Q."""
    size = len(step)
    return np.linalg.solve(np.eye(size**2) - np.kron(step, step), added.ravel()).reshape(size, size)


def friction_variance(h: float, friction: float, alpha: float, *, precision: float, noise: float) -> np.ndarray:
    """Of (t, p) under a friction that stays as it is, with a new minibatch for each step."""
    step = np.array([[1, h], [-h * precision, 1 - friction * h]])
    return lyapunov(step, np.diag([0, 2 * alpha * h + h**2 * noise]))
