"""The penalty test (Ceperley and Dewing 1999, "The penalty method for random walks with uncertain energies")."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import random as jr

from tallchain.acceptance.evidence import (
    Moments,
    SkewMoments,
    add_rows,
    batch_rows,
    check_batch,
    choose_ask,
    first_rows,
    has_read_all,
    share_left,
    variance_of_mean,
)
from tallchain.acceptance.stopping import Pilot, ask_fresh, pilot_rows, rows_for, rows_for_skew
from tallchain.types import Array, Ask, Judgement, Population, is_positive, part, set_fields, static

STOPPING = ("fresh", "pilot", "growth")
_MOST_SKEW = 0.1  # kappa3: log-odds off by a sixth of it in the tails


class _Memory(NamedTuple):
    offset: Array
    log_u: Array
    pilot: Pilot


@part
class Penalty:
    """Read rows until the variance s2 of Delta* is about max_sd^2, accept with probability min(1, exp(Delta* - u)).

    For normal noise of known variance s2, u = s2/2 keeps detailed balance exactly, for any s2. The variance is
    estimated from the same b rows, so the penalty is that of a small sample,

        u(s2) = s2/2 + s2^2/(4(b+1)) + s2^3/(3(b+1)(b+3)),

    the first terms of -log 0F1(; (b-1)/2; -(b-1) s2/4). Assumes that the mean of b rows is nearly normal; for skewed
    rows the log-odds are off by about kappa3/6 = -gamma s2^(3/2) / (3 sqrt b) in the tails, gamma the skewness. This
    has no remedy as `MinibatchBarker` has one, so a pilot asks for as many rows as bring |kappa3| down to 0.1. Its
    acceptance is above Barker's while sqrt(s2) < 1.35, and goes to Metropolis' as s2 goes to 0; when every row has been
    read it is Metropolis' test.

    How many rows (`stopping`):

    - "fresh": a pilot of m rows only says how many fresh rows are needed; these give Delta* and s2.
    - "pilot": a pilot of n0 = nu + 1 rows gives the variance, fresh rows give Delta* only. Its noise is then Student's
      with variance nu/(nu-2) s2 and a fourth cumulant of about 6 s2^2/nu: u = s2/2 + s2/nu + s2^2/(4 nu).
    - "growth": add m rows at a time while s2 >= max_sd^2, which shifts Delta* by about -gamma sqrt(s2/b).

    Args:
        max_sd: the standard deviation of Delta* at which to decide. The rows read go as 1/max_sd^2.
        batch: m, the rows of the pilot, or to add between judgements; None for the source's `batch_size`.
        stopping: how many rows to read; see above.
    """

    max_sd: float = static()
    batch: int | None = static()
    stopping: str = static()

    def __init__(self, max_sd: float = 1.0, batch: int | None = None, stopping: str = "fresh") -> None:
        if not is_positive(max_sd):
            raise ValueError(f"`Penalty(max_sd=...)` must be a positive number; got {max_sd!r}.")
        check_batch("Penalty", batch)
        if stopping not in STOPPING:
            raise ValueError(f"`Penalty(stopping=...)` must be one of {', '.join(STOPPING)}; got {stopping!r}.")
        set_fields(self, max_sd=float(max_sd), batch=batch, stopping=stopping)

    @property
    def Evidence(self) -> Any:  # noqa: N802 (a class, as the protocol has it)
        """Third moments where the batch is sized by them."""
        return Moments if self.stopping == "growth" else SkewMoments

    def appetite(self, population: Population) -> int:
        """m, the rows of the pilot or between two judgements."""
        batch = batch_rows(self.batch, population)
        return batch if self.stopping == "growth" else pilot_rows(batch, population)

    def draw(self, key: Array) -> Array:
        """log u = -(a standard exponential)."""
        return -jr.exponential(key)

    def open(self, noise: Array, offset: Array, bound: Array | None, population: Population) -> tuple[_Memory, Ask]:
        """Ask for m rows."""
        return _Memory(offset, noise, Pilot.to_come(offset.dtype)), first_rows(self.appetite(population), population)

    def judge(self, memory: _Memory, evidence: Any, population: Population) -> Judgement:
        """Decide if the rows are enough or all there are; else ask for more."""
        is_accepted = memory.log_u < self._penalised(memory, evidence, population)
        exact = has_read_all(evidence, population)
        if self.stopping == "growth":
            is_decided = exact | (variance_of_mean(evidence, population) < self.max_sd**2)
            ask = add_rows(self.appetite(population), evidence, population)
            return Judgement(memory, ask, is_decided, is_accepted)
        first = Pilot.of(evidence)
        pilot = jax.tree.map(lambda old, new: jnp.where(memory.pilot.is_over, old, new), memory.pilot, first)
        rows = rows_for_skew(first, _MOST_SKEW, population, of_same_rows=self.stopping == "fresh")
        rows = jnp.maximum(rows, rows_for(first.variance, self.max_sd**2, population))
        # Fresh rows that overflow, after a pilot that did not: then all rows.
        is_over = memory.pilot.is_over
        ask = choose_ask(is_over, add_rows(rows, evidence, population), ask_fresh(rows, first, population))
        is_decided = exact | (is_over & jnp.isfinite(evidence.squares))
        return Judgement(memory._replace(pilot=pilot), ask, is_decided, is_accepted)

    def chance(self, memory: _Memory, evidence: Any, population: Population) -> Array:
        """P(accept) given the rows on which the decision falls, u integrated out."""
        return jnp.exp(jnp.minimum(self._penalised(memory, evidence, population), 0))

    def _penalised(self, memory: _Memory, evidence: Any, population: Population) -> Array:
        """Delta* - u."""
        estimate, b = evidence.mean + memory.offset, evidence.count
        if self.stopping != "pilot":
            return estimate - penalty(variance_of_mean(evidence, population), b)
        s2 = memory.pilot.variance / jnp.maximum(b, 1) * share_left(b, population)
        s2 = jnp.where(has_read_all(evidence, population), 0, s2)
        nu = jnp.maximum(memory.pilot.count - 1, 1)
        return estimate - (s2 / 2 + s2 / nu + s2**2 / (4 * nu))


def penalty(s2: Array, b: Array) -> Array:
    """Return the penalty of a mean with variance s2, estimated from the same b rows."""
    return s2 / 2 + s2**2 / (4 * (b + 1.0)) + s2**3 / (3 * (b + 1.0) * (b + 3.0))
