"""A posterior with its mode, what a sampler must do, and how draws are compared."""

from __future__ import annotations

import dataclasses
import time
import warnings
from functools import cached_property
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from benchmarks.peers.targets import Target
from tallchain.arrays import dot
from tallchain.surrogates import Laplace, Reference, find_reference

MOST_NUMBERS = 2**22  # for one effective sample size
NORMAL_95 = 1.6448536


class Run(NamedTuple):
    """Draws, and what they cost."""

    draws: np.ndarray
    """(chain, draw, parameter)."""
    seconds: float
    acceptance: float
    rows: float
    """Per draw; a gradient of a row counts as a row."""


class Sampler(Protocol):
    """One sampler with a number of chains; `run` continues where the last one stopped."""

    def prepare(self, key: jax.Array) -> dict[str, float]:
        """Compile and warm up; seconds by part."""
        ...

    def run(self, key: jax.Array, seconds: float) -> Run:
        """Draw for about this many seconds."""
        ...


@dataclasses.dataclass(frozen=True)
class Problem:
    """A target with its mode, and the rows as peers need them."""

    target: Target
    reference: Reference
    laplace: Laplace
    seconds: float
    """Seconds to find the mode, compilation included."""
    rows: dict[str, jax.Array]
    """Features with the sign of the outcome, all that a logistic likelihood needs; see `log_density`."""

    @classmethod
    def of(cls, target: Target) -> Problem:
        """Find the mode from all rows."""
        began = time.perf_counter()
        model = target.model
        reference = find_reference(model.posterior, model.data, jnp.zeros(target.d), progress=False)
        laplace = jax.block_until_ready(reference.laplace)
        seconds = time.perf_counter() - began
        signed = model.data["x"] * (2 * model.data["y"] - 1)[:, None]
        return cls(target, reference, laplace, seconds, {"x": jnp.asarray(signed)})

    @cached_property
    def covariance(self) -> np.ndarray:
        """Of the Laplace approximation."""
        factor = np.asarray(self.laplace.factor, np.float64)
        return factor @ factor.T

    def starts(self, key: jax.Array, chains: int) -> jax.Array:
        """Positions from the Laplace approximation, (chain, parameter)."""
        return jax.vmap(self.laplace.draw)(jr.split(key, chains))


def log_density(rows: dict[str, jax.Array], position: jax.Array) -> jax.Array:
    """Log posterior from all rows, up to a constant; minus `base` by row if given, which saves digits."""
    signed = dot(rows["x"], position)
    values = jax.nn.log_sigmoid(signed)
    return jnp.sum(values - rows["base"] if "base" in rows else values) - 0.5 * jnp.sum(position**2)


# ---- the value of draws ----------------------------------------------------------------------


def effective(draws: np.ndarray) -> float:
    """Bulk effective draws per draw of the worst parameter, from some of the chains; NaN if draws are too few."""
    from arviz_stats.base import array_stats

    if draws.shape[1] < 4:
        return float("nan")
    some = draws[: max(1, MOST_NUMBERS // draws[0].size)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(np.min(array_stats.ess(some, chain_axis=0, draw_axis=1, method="bulk"))) / some[..., 0].size


def moments(draws: np.ndarray) -> dict[str, np.ndarray]:
    """Mean, standard deviation, 5 % and 95 % quantiles of draws (chain, draw, parameter)."""
    flat = draws.reshape(-1, draws.shape[-1]).astype(np.float64)
    low, high = np.quantile(flat, (0.05, 0.95), axis=0)
    return {"mean": flat.mean(0), "sd": flat.std(0), "q05": low, "q95": high}


def distances(found: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> dict[str, float]:
    """The worst parameter's distance from a reference, in its standard deviations; standard deviations as ratios."""
    sd = reference["sd"]
    far = {name: float(np.max(np.abs(found[name] - reference[name]) / sd)) for name in ("mean", "q05", "q95")}
    ratio = found["sd"] / sd
    return far | {"least_sd_ratio": float(ratio.min()), "most_sd_ratio": float(ratio.max())}


def laplace_moments(problem: Problem) -> dict[str, np.ndarray]:
    """Like `moments`, for the Laplace approximation."""
    mean, sd = np.asarray(problem.laplace.mean, np.float64), np.sqrt(np.diag(problem.covariance))
    return {"mean": mean, "sd": sd, "q05": mean - NORMAL_95 * sd, "q95": mean + NORMAL_95 * sd}
