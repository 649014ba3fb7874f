"""Successes out of a number of trials."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.models.families.checks import is_count, pairs, refuse
from tallchain.models.families.family import Bounds, Derivatives, Family, largest, of_one
from tallchain.models.families.growth import softplus_higher, softplus_rise
from tallchain.models.families.links import LINKS
from tallchain.models.families.settings import check_choice
from tallchain.types import Array


@dataclasses.dataclass(frozen=True)
class Binomial(Family):
    """k successes of n trials, y = (k, n), each with the probability p = 1/(1 + exp(-z))."""

    link: str = "logit"

    def __post_init__(self) -> None:
        check_choice("Binomial", "link", self.link, ("logit",))

    @property
    def has_trials(self) -> bool:
        """True."""
        return True

    def log_density(self, eta: Array, y: Array) -> Array:
        """k log p + (n - k) log(1 - p), less its value at p = (k + 1/2)/(n + 1).

        Without that float32 would keep few digits of the log ratio of a row with many trials.
        """
        near = jnp.log(y[0] + 0.5) - jnp.log(y[1] - y[0] + 0.5)
        return self.gain(near[None], (eta[0] - near)[None], y)

    def gain(self, eta: Array, step: Array, y: Array) -> Array:
        """That of `Bernoulli`, k times for a success and n - k times for a failure."""
        return -y[0] * softplus_rise(-eta[0], -step[0]) - (y[1] - y[0]) * softplus_rise(eta[0], step[0])

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        """With w = p (1 - p): k (1 - p) - (n - k) p, -n w, -n w (1 - 2p), -n w (1 - 6w)."""
        p, rest = jax.nn.sigmoid(eta[0]), jax.nn.sigmoid(-eta[0])
        w = p * rest
        curve = -y[1] * w
        return of_one(y[0] * rest - (y[1] - y[0]) * p, curve, curve * (1 - 2 * p), curve * (1 - 6 * w))

    def higher(self, eta: Array, y: Array) -> Array:
        """Those of `Bernoulli`, n times."""
        return -y[1] * softplus_higher(eta[0])

    @property
    def is_concave(self) -> bool:
        """True."""
        return True

    def derivative_bounds(self, low: Array, high: Array, y: Array) -> Bounds:
        """Those of `Bernoulli`, n times; the first is largest at an end."""
        one = LINKS["logit"].bounds(low, high, jnp.ones_like(low))
        ends = self.derivatives(low[None], y).first[0], self.derivatives(high[None], y).first[0]
        return Bounds(largest(low, high, ends), y[1] * one.second, y[1] * one.third)

    def mean(self, eta: Array) -> Array:
        """p, the expected share of successes."""
        return jax.nn.sigmoid(eta[0])

    def draw(self, key: Array, eta: Array, size: Array | float = 1.0) -> Array:
        """Draw the successes of `size` trials; (k, n)."""
        size = jnp.asarray(size, eta.dtype)
        return jnp.stack([jr.binomial(key, size, self.mean(eta), dtype=eta.dtype), size])

    def outcomes(self, call: str, y: Any) -> np.ndarray:
        """Return successes and trials."""
        y = pairs(call, y, "successes", "trials")
        successes, trials = y.T
        refuse(call, trials, ~is_count(trials), "successes and trials; trials are 0, 1, 2 and so on")
        refuse(call, successes, ~is_count(successes), "successes and trials; successes are 0, 1, 2 and so on")
        hint = "The order is (successes, trials), and trials are successes and failures together."
        refuse(call, successes, successes > trials, "successes and trials, with no more successes than trials", hint)
        return y

    def start(self, y: np.ndarray) -> np.ndarray:
        """The logit of the share of successes, with half a success and half a failure added."""
        successes, trials = y.sum(0, dtype=np.float64)
        return np.log([(successes + 0.5) / (trials - successes + 0.5)])
