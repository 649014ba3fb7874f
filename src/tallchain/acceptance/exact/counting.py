"""What the exact subsampling tests share: a Poisson number of rows, and numbers per row in units of their bound.

With W the number of a row that is drawn with probability p_i, E[W] = Delta - offset and |W| <= L for every row, a test
draws B ~ Poisson(rate) rows, keeps each with a probability that depends on rho = W/L, and multiplies the factors of the
rows that it keeps (TunaMH, Scalable Metropolis-Hastings and MH-SS differ in these; see `exact`). A Poisson number of
independent rows is as good as independent Poisson numbers of every row, which is what makes the tests exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jax import random as jr

from tallchain.threefry import wrap
from tallchain.types import Array

_EDGE = 1 - 1e-6  # |rho| at most: rounding must not make a factor infinite or 0
BEYOND = 1.001
"""A bound is violated beyond this many times L, and what rounding allows for."""


class Rule(Protocol):
    """How a test keeps rows and what it makes of them; rho = W/L."""

    def kept(self, rho: Array, most: Array) -> Array | None:
        """Return the probability to keep a row; None if all are kept."""
        ...

    def log_factor(self, rho: Array, most: Array) -> Array:
        """Return the logarithm of the factor of a row that is kept."""
        ...


class Kept(NamedTuple):
    """The rows seen, and the product of the factors of those that were kept."""

    rule: Any
    words: Array
    """Of the key of what decides which rows are kept: an audit keeps evidence on the host, which takes no keys."""
    most: Array
    """L."""
    rate: Array
    """Rows expected in all; 0 in a census."""
    slack: Array
    """By how much a number may exceed L, for rounding."""
    count: Array
    total: Array
    """Of the numbers seen."""
    log_product: Array
    """P."""
    worst: Array
    """Largest |W| seen."""

    @property
    def mean(self) -> Array:
        """An unbiased estimate of E[W], the mean of all rows after a census; +inf if a row has violated its bound."""
        size = jnp.where(self.rate > 0, self.rate, jnp.maximum(self.count, 1))
        is_beyond = (self.rate > 0) & (self.worst > BEYOND * self.most + self.slack)
        return jnp.where(is_beyond, jnp.inf, self.total / size)

    def allowing(self, slack: Array) -> Kept:
        """Return the evidence of numbers that are rounded by this much."""
        return self._replace(slack=jnp.asarray(slack, self.slack.dtype))

    def empty(self) -> Kept:
        """Return the evidence of no rows."""
        zero = jnp.zeros_like(self.total)
        return self._replace(count=jnp.zeros_like(self.count), total=zero, log_product=zero, worst=zero)

    def of(self, values: Array, is_valid: Array) -> Kept:
        """Look at one window."""
        values = jnp.where(is_valid, values, 0)
        rho = jnp.clip(values / jnp.where(self.most > 0, self.most, 1), -_EDGE, _EDGE)
        chance = self.rule.kept(rho, self.most)
        is_kept = is_valid
        if chance is not None:
            is_kept &= jr.uniform(jr.fold_in(wrap(self.words), self.count), values.shape, values.dtype) < chance
        factors = jnp.where(is_kept, self.rule.log_factor(rho, self.most), 0)
        return self._replace(
            count=jnp.sum(is_valid, dtype=jnp.int32),
            total=jnp.sum(values),
            log_product=jnp.sum(factors),
            worst=jnp.max(jnp.abs(values)),
        )

    def merge(self, other: Kept) -> Kept:
        """Put both together."""
        return self._replace(
            count=self.count + other.count,
            total=self.total + other.total,
            log_product=self.log_product + other.log_product,
            worst=jnp.maximum(self.worst, other.worst),
        )


def no_rows(rule: Rule, words: Array, most: Array, rate: Array) -> Kept:
    """Return the evidence of no rows."""
    zero = jnp.zeros((), jnp.result_type(float))
    return Kept(rule, words, most, rate, zero, jnp.zeros((), jnp.int32), zero, zero, zero)
