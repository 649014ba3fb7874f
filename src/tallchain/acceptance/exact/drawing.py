"""How many rows a decision of an exact test reads, and how they come: independent ones, or every row at most once.

A row has s_i ~ Poisson(a_i), a_i <= A_i, and A_i = A = rate/N if all have one bound. Two ways to draw what decides:

- `Independent`: B ~ Poisson(rate) independent rows, each kept with probability a_i/A_i, are the s_i; a row that is kept
  has the factor a_i'/a_i. Rows may also have bounds of their own, and are then drawn in proportion to them.
- `Distinct`: only z_i = 1[s_i > 0] decides. B ~ Binomial(N, 1 - exp(-A)) rows without replacement, each kept with
  probability (1 - exp(-a_i))/(1 - exp(-A)), are those with z_i = 1. The probability of all z is
  exp(-sum a_i) prod_{z_i = 1} (exp(a_i) - 1), and exp(-sum (a_i' - a_i)) = exp(-sum d_i) cancels the likelihood
  ratio, as it does for s. So a row that is kept has the factor (exp(a_i') - 1)/(exp(a_i) - 1), and detailed balance
  is exact.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax.numpy as jnp

from tallchain.acceptance.exact.counting import Rule
from tallchain.acceptance.exact.poisson import PART, binomial, poisson
from tallchain.parts import part
from tallchain.types import Array, Population

_LEAST, _MOST = 1e-30, 1e30  # of A in formulas: 0 would be divided by, and infinity (all rows are read) times 0 is NaN


class Drawing(Protocol):
    """How the rows of a decision are drawn; `rate` is the number that the test would draw with replacement."""

    def need(self, population: Population) -> str | None:
        """Say what rows it needs, if these are others; None if they fit."""
        ...

    def first(self, uniform: Array, rate: Array, population: Population) -> tuple[Array, Array]:
        """Return how many rows come in the first part, and how many more parts there are."""
        ...

    def further(self, uniform: Array, rate: Array, population: Population) -> Array:
        """Return how many rows come in each of the other parts."""
        ...

    def expected(self, rate: Array, population: Population) -> Array:
        """Return the number of rows to expect."""
        ...

    def rule(self, rule: Rule, rate: Array, population: Population) -> Rule:
        """Return how a row is kept and its factor, given the test's own rule for rows that may come again."""
        ...


class Independent:
    """A Poisson number of independent rows, in parts of 32 on average: the first has what is left."""

    def need(self, population: Population) -> str | None:
        """Rows with replacement."""
        if population.repeats:
            return None
        return (
            "independent rows: use `WithReplacement(data, batch_size, weights=...)`. Windows of a shuffled copy are "
            "not independent."
        )

    def first(self, uniform: Array, rate: Array, population: Population) -> tuple[Array, Array]:
        """Draw the first part."""
        parts = jnp.maximum(jnp.ceil(rate / PART).astype(jnp.int32) - 1, 0)
        return poisson(uniform, rate - PART * parts), parts

    def further(self, uniform: Array, rate: Array, population: Population) -> Array:
        """Draw another part."""
        return poisson(uniform, jnp.asarray(PART, uniform.dtype))

    def expected(self, rate: Array, population: Population) -> Array:
        """All that are drawn."""
        return rate

    def rule(self, rule: Rule, rate: Array, population: Population) -> Rule:
        """The test's own."""
        return rule


class Distinct:
    """A binomial number of rows without replacement, in parts: a binomial number of some of N trials each."""

    def need(self, population: Population) -> str | None:
        """Rows without replacement, each set of them as likely as any other."""
        if population.is_simple:
            return None
        return (
            "rows that come once in a decision, row by row: use `Shuffled(data, batch_size, windows=False)`. Rows that "
            "are neighbours in a shuffled copy always come together in a window, also where `windows` is "
            '"auto"; rows with replacement come again.'
        )

    def first(self, uniform: Array, rate: Array, population: Population) -> tuple[Array, Array]:
        """Draw the first part, of the trials that the others leave."""
        times, trials = self._times(rate, population), self._trials(rate, population)
        parts = (population.num_rows - 1) // trials
        return binomial(uniform, population.num_rows - parts * trials, times), parts

    def further(self, uniform: Array, rate: Array, population: Population) -> Array:
        """Draw another part."""
        return binomial(uniform, self._trials(rate, population), self._times(rate, population))

    def expected(self, rate: Array, population: Population) -> Array:
        """N (1 - exp(-A))."""
        return -population.num_rows * jnp.expm1(-rate / population.num_rows)

    def rule(self, rule: Rule, rate: Array, population: Population) -> Rule:
        """The test's own, for whether a row comes at all."""
        return _Once(rule, rate / population.num_rows)

    def _times(self, rate: Array, population: Population) -> Array:
        """A, at most 32: beyond, a trial fails with a probability of 1e-14, less than the rounding of a number."""
        return jnp.minimum(rate / population.num_rows, PART)

    def _trials(self, rate: Array, population: Population) -> Array:
        """Of a part, at least one: with A times as many of at most 32."""
        trials = PART / jnp.maximum(self._times(rate, population), _LEAST)
        is_all = ~(trials < population.num_rows)  # in integers: N as a float may be more than N
        return jnp.where(is_all, population.num_rows, jnp.where(is_all, 1, trials).astype(jnp.int32))


@part
class _Once:
    """Whether a row comes at all, z = 1[s > 0] with s ~ Poisson(a): the rule for s, made one for z."""

    of: Any
    """The rule for s."""
    times: Array
    """A, for every row."""

    def kept(self, rho: Array, most: Array) -> Array:
        """(1 - exp(-a))/(1 - exp(-A))."""
        return jnp.expm1(-self._mean(rho, most)) / jnp.expm1(-self._dominating)

    def log_factor(self, rho: Array, most: Array) -> Array:
        """log((exp(a') - 1)/(exp(a) - 1)), a' that of the opposite direction, without overflow or cancellation.

        a' - a is the row's log ratio, A rho: as a difference of two numbers of the size of A it would lose its digits.
        """
        here, there = self._mean(rho, most), self._mean(-rho, most)
        return jnp.log(jnp.expm1(-there) / jnp.expm1(-here)) + self._dominating * rho

    def _mean(self, rho: Array, most: Array) -> Array:
        """Return a."""
        return self._dominating * self.of.kept(rho, most)

    @property
    def _dominating(self) -> Array:
        return jnp.clip(self.times, _LEAST, _MOST)
