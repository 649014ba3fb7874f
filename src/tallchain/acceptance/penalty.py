"""The penalty test (Ceperley and Dewing 1999, "The penalty method for random walks with uncertain energies")."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from jax import random as jr

from tallchain.acceptance.evidence import (
    Moments,
    batch_rows,
    check_batch,
    has_read_all,
    rows_to_add,
    variance_of_mean,
)
from tallchain.types import Array, Ask, Judgement, Population, is_positive, part, set_fields, static


class _Memory(NamedTuple):
    offset: Array
    log_u: Array


@part
class Penalty:
    """Read rows until s2 < max_sd^2, then accept with probability min(1, exp(Delta* - u(s2))).

    For normal noise of known variance s2, u = s2/2 keeps detailed balance exactly, for any s2. The variance is
    estimated from the same b rows, so the penalty is that of a small sample,

        u(s2) = s2/2 + s2^2/(4(b+1)) + s2^3/(3(b+1)(b+3)),

    the first terms of -log 0F1(; (b-1)/2; -(b-1) s2/4). Assumes that the mean of b rows is nearly normal; for skewed
    rows the log-odds are off by about gamma s2^(3/2) / (3 sqrt b) in the tails, gamma the skewness. Its acceptance is
    above Barker's while sqrt(s2) < 1.35, and goes to Metropolis' as s2 goes to 0; when every row has been read it is
    Metropolis' test.

    Args:
        max_sd: the largest standard deviation of Delta* at which to decide. The rows read go as 1/max_sd^2.
        batch: rows to add between judgements; None for the source's `batch_size`.
    """

    Evidence: ClassVar = Moments

    max_sd: float = static()
    batch: int | None = static()

    def __init__(self, max_sd: float = 1.0, batch: int | None = None) -> None:
        if not is_positive(max_sd):
            raise ValueError(f"`Penalty(max_sd=...)` must be a positive number; got {max_sd!r}.")
        check_batch("Penalty", batch)
        set_fields(self, max_sd=float(max_sd), batch=batch)

    def appetite(self, population: Population) -> int:
        """m, the rows between two judgements."""
        return batch_rows(self.batch, population)

    def draw(self, key: Array) -> Array:
        """log u = -(a standard exponential)."""
        return -jr.exponential(key)

    def open(self, noise: Array, offset: Array, bound: Array | None, population: Population) -> tuple[_Memory, Ask]:
        """Ask for m rows."""
        return _Memory(offset, noise), Ask(self.appetite(population))

    def judge(self, memory: _Memory, evidence: Moments, population: Population) -> Judgement:
        """Decide if s2 < max_sd^2 or every row was read; else ask for m more."""
        s2 = variance_of_mean(evidence, population)
        is_decided = (s2 < self.max_sd**2) | has_read_all(evidence, population)
        penalised = evidence.mean + memory.offset - penalty(s2, evidence.count)
        rows = rows_to_add(self.appetite(population), evidence, population)
        return Judgement(memory, Ask(rows), is_decided, memory.log_u < penalised)


def penalty(s2: Array, b: Array) -> Array:
    """Return the penalty of a mean with variance s2, estimated from the same b rows."""
    return s2 / 2 + s2**2 / (4 * (b + 1.0)) + s2**3 / (3 * (b + 1.0) * (b + 3.0))
