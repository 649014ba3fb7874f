"""The penalty test (Ceperley and Dewing 1999, "The penalty method for random walks with uncertain energies")."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import random as jr

from tallchain.acceptance.evidence import Moments, SkewMoments, batch_rows, check_batch, first_rows, has_read_all
from tallchain.acceptance.stopping import Aim, PilotBatch, StoppingRule, as_rule
from tallchain.acceptance.tables import Reading
from tallchain.parts import part, set_fields, static
from tallchain.types import Array, Ask, Judgement, Population
from tallchain.validation import is_positive

_MOST_SKEW = 0.1  # kappa3: log-odds off by a sixth of it in the tails


class _Memory(NamedTuple):
    log_u: Array
    pilot: PilotBatch


@part
class Penalty:
    """Read rows until the variance s2 of Delta* is about max_sd^2, accept with probability min(1, exp(Delta* - u)).

    For normal noise of known variance s2, u = s2/2 keeps detailed balance exactly, for any s2. The variance is
    estimated from the same b rows, so the penalty is that of a small sample,

        u(s2) = s2/2 + s2^2/(4(b+1)) + s2^3/(3(b+1)(b+3)),

    the first terms of -log 0F1(; (b-1)/2; -(b-1) s2/4). Assumes that the mean of b rows is nearly normal; for skewed
    rows the log-odds are off by about kappa3/6 = -gamma s2^(3/2) / (3 sqrt b) in the tails, gamma the skewness. Unlike
    in `MinibatchBarker`, this cannot be corrected, so a pilot asks for enough rows to bring |kappa3| down to 0.1. The
    acceptance is above Barker's while sqrt(s2) < 1.35, and tends to Metropolis' as s2 tends to 0; when every row has
    been read, this is Metropolis' test.

    How many rows (`stopping`), by a word or by a part of `tallchain.acceptance.stopping`:

    - "fresh", `Fresh()`: a pilot of m rows only determines how many fresh rows are needed; these give Delta* and s2.
    - "pilot", `Pilot()`: a pilot of n0 = nu + 1 rows gives the variance, fresh rows give Delta* only. Its noise is then
      Student's with variance nu/(nu-2) s2 and a fourth cumulant of about 6 s2^2/nu: u = s2/2 + s2/nu + s2^2/(4 nu).
    - "growth", `Growth()`: add m rows at a time while s2 >= max_sd^2, which shifts Delta* by about -gamma sqrt(s2/b).

    Args:
        max_sd: the standard deviation of Delta* at which to decide. The number of rows read is proportional to
            1/max_sd^2.
        batch: m, the rows of the pilot, or to add between judgements; None for the source's `batch_size`.
        stopping: how many rows to read; see above.
    """

    max_sd: float = static()
    batch: int | None = static()
    stopping: StoppingRule

    def __init__(self, max_sd: float = 1.0, batch: int | None = None, stopping: str | StoppingRule = "fresh") -> None:
        if not is_positive(max_sd):
            raise ValueError(f"`Penalty(max_sd=...)` must be a positive number; got {max_sd!r}.")
        check_batch("Penalty", batch)
        set_fields(self, max_sd=float(max_sd), batch=batch, stopping=as_rule("Penalty", stopping, may_weigh=False))

    def appetite(self, population: Population) -> int:
        """The rows of the pilot or between two judgements."""
        return self.stopping.first(self._aim(population), population)

    def draw(self, key: Array) -> Array:
        """log u = -(a standard exponential)."""
        return -jr.exponential(key)

    def open(self, noise: Array, bound: Array | None, population: Population) -> tuple[_Memory, Any, Ask]:
        """Ask for m rows, with third moments if they set the size of the batch."""
        evidence = (SkewMoments if self.stopping.terms.skew else Moments).empty()
        return _Memory(noise, PilotBatch.to_come()), evidence, first_rows(self.appetite(population), population)

    def judge(self, memory: _Memory, offset: Array, evidence: Any, population: Population) -> Judgement:
        """Decide if the rows are enough, or if all were read; else ask for more."""
        reading = self.read(memory, offset, evidence, population)
        advice = self.stopping.advise(self._aim(population), memory.pilot, reading, evidence, population)
        exact = has_read_all(evidence, population)
        is_decided = exact | (advice.is_enough & jnp.isfinite(evidence.squares))
        is_accepted = memory.log_u < self._penalised(memory, reading, evidence)
        return Judgement(memory._replace(pilot=advice.pilot), advice.ask, is_decided, is_accepted)

    def chance(self, memory: _Memory, offset: Array, evidence: Any, population: Population) -> Array:
        """P(accept) given the rows that decide, with u integrated out."""
        reading = self.read(memory, offset, evidence, population)
        return jnp.exp(jnp.minimum(self._penalised(memory, reading, evidence), 0))

    def read(self, memory: _Memory, offset: Array, evidence: Any, population: Population) -> Reading:
        """Estimate Delta* and its noise from the rows read."""
        reading = self.stopping.read(self._aim(population), memory.pilot, evidence, population)
        return reading._replace(estimate=reading.estimate + offset)

    def _aim(self, population: Population) -> Aim:
        skew = _MOST_SKEW if self.stopping.terms.skew else None
        return Aim(batch_rows(self.batch, population), self.max_sd**2, skew)

    def _penalised(self, memory: _Memory, reading: Reading, evidence: Any) -> Array:
        """Delta* - u."""
        if self.stopping.terms.is_student:
            return reading.estimate - student_penalty(reading.s2, memory.pilot.count)
        return reading.estimate - penalty(reading.s2, evidence.count)


def penalty(s2: Array, b: Array) -> Array:
    """Return the penalty of a mean with variance s2, estimated from the same b rows."""
    return s2 / 2 + s2**2 / (4 * (b + 1.0)) + s2**3 / (3 * (b + 1.0) * (b + 3.0))


def student_penalty(s2: Array, n0: Array) -> Array:
    """Return the penalty of a mean with variance s2, estimated from n0 = nu + 1 other rows."""
    nu = jnp.maximum(n0 - 1, 1)
    return s2 / 2 + s2 / nu + s2**2 / (4 * nu)
