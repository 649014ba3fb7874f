"""A decision of the exact subsampling tests: draw a random number of rows in parts, then judge."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import random as jr

from tallchain.acceptance.evidence import batch_rows, check_batch
from tallchain.acceptance.exact.counting import Kept, no_rows
from tallchain.acceptance.exact.drawing import Drawing, Independent
from tallchain.parts import part, static
from tallchain.threefry import wrap
from tallchain.types import Array, Ask, Judgement, Population
from tallchain.validation import brief, is_positive


class _Noise(NamedTuple):
    log_u: Array
    uniform: Array
    """For the number of rows of the first part."""
    words: Array
    """Of a key for the other parts, and for which rows are kept."""


class _Memory(NamedTuple):
    log_u: Array
    words: Array
    held: Array
    """Rows of the first part, if they are still to be asked for."""
    parts: Array
    """Further parts, each of about 32 rows on average."""
    is_census: Array


@part
class PoissonTest:
    """What TunaMH, Scalable Metropolis-Hastings and MH-SS share; each says how it keeps rows, and what follows.

    If more than `limit` rows are to be expected, the test reads every row and decides as Metropolis' test does. That
    depends on the two positions alone, in the same way for both directions, so it is exact too.
    """

    limit: float | None = static(None)
    batch: int | None = static(None)

    drawing: ClassVar[Drawing] = Independent()
    """How many rows it draws, and how."""
    is_exact = True
    """Whatever the rows, if the bound holds."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not (self.limit is None or is_positive(self.limit)):
            raise ValueError(
                f"`{name}(limit=...)` must be a positive number of rows, or None for all rows; got {brief(self.limit)}."
            )
        check_batch(name, self.batch)

    # ---- what each test says -------------------------------------------------------------------

    def rate(self, most: Array) -> Array:
        """Return the number of rows to expect, given L."""
        return most

    def kept(self, rho: Array, most: Array) -> Array | None:
        """Return the probability to keep a row; None if all are kept."""
        raise NotImplementedError

    def log_factor(self, rho: Array, most: Array) -> Array:
        """Return the logarithm of the factor of a row that is kept."""
        raise NotImplementedError

    def log_chance(self, offset: Array, log_product: Array) -> Array:
        """Return log P(accept), given the rows; above 0 for certainty."""
        return offset + log_product

    @property
    def judges_first(self) -> bool:
        """Whether the first judgement comes before a row is read."""
        return False

    def is_rejection_certain(self, evidence: Kept) -> Array | bool:
        """Whether rows to come can no longer raise P(accept)."""
        return False

    # ---- the protocol --------------------------------------------------------------------------

    def check(self, population: Population, *, has_bound: bool) -> None:
        """Refuse a kernel without a bound, and rows that do not come as it needs them."""
        name = type(self).__name__
        if not has_bound:
            raise ValueError(
                f"`MetropolisHastings(acceptance={name}(...))` needs `bound=Bound(...)`, and no range: "
                "`bounds.regression_bound(...)` makes one for a regression, `Bound(constants, order)` holds your own; "
                "`prepare(...).kernel()` has it where it pays."
            )
        need = self.drawing.need(population)
        if need is not None:
            raise ValueError(f"`MetropolisHastings(source=..., acceptance={name}(...))` needs {need}")

    def appetite(self, population: Population) -> int:
        """Rows of one look: those of most decisions."""
        return batch_rows(self.batch, population)

    def draw(self, key: Array) -> _Noise:
        """Draw log u, and what the number of rows and the rows to keep depend on."""
        bits = jr.uniform(key, (2,), jnp.result_type(float))
        # 1 - u is never 0.
        return _Noise(jnp.log1p(-bits[0]), bits[1], jr.key_data(jr.fold_in(key, 2))[:2])

    def open(self, noise: _Noise, bound: Array | None, population: Population) -> tuple[_Memory, Kept, Ask]:
        """Draw how many rows to read first; `bound` is 2 L."""
        self.check(population, has_bound=bound is not None)
        limit_of_row = jnp.asarray(bound, jnp.result_type(float)) / 2  # L
        rate = self.rate(limit_of_row)
        limit = population.num_rows if self.limit is None else self.limit
        is_census = ~(rate <= limit)  # NaN too
        rate = jnp.where(is_census, 0, rate)
        first, parts = self.drawing.first(noise.uniform, rate, population)
        held, asked = (first, jnp.zeros_like(first)) if self.judges_first else (jnp.zeros_like(first), first)
        rule, expected = self.drawing.rule(self, rate, population), self.drawing.expected(rate, population)
        evidence = no_rows(rule, noise.words, limit_of_row, expected)
        ask = Ask(jnp.where(is_census, population.num_rows, asked), census=is_census)
        return _Memory(noise.log_u, noise.words, held, parts, is_census), evidence, ask

    def judge(self, memory: _Memory, offset: Array, evidence: Kept, population: Population) -> Judgement:
        """Decide after the last part, or as soon as a rejection is certain; else say how many rows come next."""
        score = self._score(memory, offset, evidence)
        is_accepted = memory.log_u < score
        is_held = memory.held > 0
        is_decided = ~is_held & (memory.parts <= 0)
        is_decided |= ~is_accepted & self.is_rejection_certain(evidence)
        uniform = jr.uniform(jr.fold_in(wrap(memory.words), -1 - memory.parts), (), score.dtype)
        # None of 32 expected rows has a chance of 1e-14, less than the rounding of log u. (The kernel takes a test that
        # asks for nothing as one that cannot decide.)
        count = jnp.maximum(self.drawing.further(uniform, self.rate(evidence.most), population), 1)
        ask = Ask(jnp.where(is_held, memory.held, count))
        left = memory._replace(
            held=jnp.zeros_like(memory.held), parts=jnp.where(is_held, memory.parts, memory.parts - 1)
        )
        return Judgement(left, ask, is_decided, is_accepted)

    def chance(self, memory: _Memory, offset: Array, evidence: Kept, population: Population) -> Array:
        """P(accept) given the rows that decide, with u integrated out; NaN if u decides how many are read."""
        if self.is_rejection_certain(evidence) is not False:
            return jnp.full((), jnp.nan)
        return jnp.exp(jnp.minimum(self._score(memory, offset, evidence), 0))

    def exact_chance(self, log_ratio: Array) -> Array:
        """P(accept) of the test on all rows: Metropolis'."""
        return jnp.exp(jnp.minimum(log_ratio, 0))

    def _score(self, memory: _Memory, offset: Array, evidence: Kept) -> Array:
        scored = self.log_chance(offset, evidence.log_product)
        return jnp.where(memory.is_census, offset + evidence.mean, scored)
