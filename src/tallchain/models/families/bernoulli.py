"""Outcomes of 0 and 1."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jax import random as jr

from tallchain.models.families.checks import labels
from tallchain.models.families.family import Bounds, Derivatives, Family, of_one
from tallchain.models.families.growth import softplus_higher
from tallchain.models.families.links import LINKS, Link
from tallchain.models.families.settings import check_choice
from tallchain.types import Array


@dataclasses.dataclass(frozen=True)
class Bernoulli(Family):
    """P(y = 1) = F(z), by the link "logit", "probit" or "cloglog"; the formulas are in `links.py`."""

    link: str = "logit"

    def __post_init__(self) -> None:
        check_choice("Bernoulli", "link", self.link, tuple(LINKS))

    @property
    def is_concave(self) -> bool:
        """True for all links."""
        return True

    @property
    def _link(self) -> Link:
        return LINKS[self.link]

    def log_density(self, eta: Array, y: Array) -> Array:
        """log F(z) for y = 1, log(1 - F(z)) for y = 0."""
        return self._link.log_density(eta[0], y)

    def gain(self, eta: Array, step: Array, y: Array) -> Array:
        """Without cancellation for short steps."""
        return self._link.gain(eta[0], step[0], y)

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        """In closed form."""
        return of_one(*self._link.derivatives(eta[0], y))

    def higher(self, eta: Array, y: Array) -> Array:
        """In closed form for the logit link."""
        return -softplus_higher(eta[0]) if self.link == "logit" else super().higher(eta, y)

    def derivative_bounds(self, low: Array, high: Array, y: Array) -> Bounds:
        """Those of the link."""
        return self._link.bounds(low, high, y)

    def mean(self, eta: Array) -> Array:
        """P(y = 1)."""
        return self._link.mean(eta[0])

    def draw(self, key: Array, eta: Array, size: Array | float = 1.0) -> Array:
        """Draw 0 or 1."""
        return jr.bernoulli(key, self.mean(eta)).astype(eta.dtype)

    def outcomes(self, call: str, y: Any) -> np.ndarray:
        """Return outcomes of 0 and 1."""
        return labels(call, y)

    def start(self, y: np.ndarray) -> np.ndarray:
        """By the share of ones, with half an outcome of either kind added."""
        return np.array([self._link.predictor((float(y.sum(dtype=np.float64)) + 0.5) / (len(y) + 1))])
