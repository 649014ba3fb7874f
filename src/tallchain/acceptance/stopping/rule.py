"""What a stopping rule promises, and the records that pass between the rule and the test."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp

from tallchain.acceptance.evidence import Moments, SkewMoments, row_variance
from tallchain.acceptance.tables import Reading
from tallchain.types import Array, Ask, Population


class Terms(NamedTuple):
    """What is known of a rule before a row is read; a test chooses its correction by it."""

    skew: bool
    """Whether a test takes the skewness of the rows into account by default."""
    is_student: bool = False
    """Whether s2 is from a pilot, so that the noise is Student's; else s2 is from the rows that give Delta*."""
    grows: bool = False
    """Whether it adds rows until s2 is below the aim, as printed; the other printed options need this."""
    weighs: bool = False
    """Whether Delta* is not only the mean of the last rows: no skew correction, no bound, and not for `Penalty`."""

    @property
    def plans(self) -> bool:
        """Whether it knows beforehand how many rows it will use, and uses their mean."""
        return not (self.grows or self.weighs)


class Aim(NamedTuple):
    """What a test requires of the rows it decides on."""

    batch: int
    """m, the rows of a pilot, or to add between judgements."""
    variance: float
    """z, to which s2, the variance of Delta*, has to fall."""
    skew: float | None = None
    """Value to which |kappa3| of noise and padding has to fall; None if skewness is not taken into account."""
    most_variance: float = math.inf
    """The largest s2 that the test can correct for."""
    most_skew: float = math.inf
    """The largest |kappa3| that the test can correct for."""
    rows: Array | int = 0
    """Rows needed for anything else, assuming they are like those read."""


class PilotBatch(NamedTuple):
    """What a pilot batch has shown."""

    is_over: Array
    """Whether there has been one: the rows read since are fresh."""
    count: Array
    mean: Array
    variance: Array
    """Of the rows."""
    skewness: Array
    """Of the rows; 0 if not asked for."""

    @classmethod
    def to_come(cls) -> PilotBatch:
        """Return the pilot before its rows are read."""
        zero = jnp.zeros((), jnp.result_type(float))
        return cls(jnp.zeros((), bool), jnp.zeros((), jnp.int32), zero, zero, zero)

    @classmethod
    def of(cls, evidence: Moments | SkewMoments) -> PilotBatch:
        """Return the rows read so far as a pilot."""
        gamma = getattr(evidence, "skewness", jnp.zeros_like(evidence.mean))
        return cls(jnp.ones((), bool), evidence.count, evidence.mean, row_variance(evidence), gamma)


class Advice(NamedTuple):
    """What a rule concludes from the rows read."""

    pilot: PilotBatch
    """What is known of a pilot now; a rule without a pilot returns what it was given."""
    is_enough: Array | bool
    """Whether to decide on these rows."""
    ask: Ask
    """What to read if not."""


@runtime_checkable
class StoppingRule(Protocol):
    """A rule that says how many rows are enough. It never sees what the test decides.

    `pilot` is `PilotBatch.to_come()` at first, then as the rule returned it; `evidence` covers the rows that the last
    ask did not forget, and has third moments if `aim.skew` is not None.
    """

    @property
    def terms(self) -> Terms:
        """What is known of it beforehand."""
        ...

    def first(self, aim: Aim, population: Population) -> int:
        """Rows to ask for first, which is what the test usually wants between two judgements."""
        ...

    def read(self, aim: Aim, pilot: PilotBatch, evidence: Any, population: Population) -> Reading:
        """Estimate Delta* (without the offset) and its noise from the rows read; s2 of all rows is 0."""
        ...

    def advise(self, aim: Aim, pilot: PilotBatch, reading: Reading, evidence: Any, population: Population) -> Advice:
        """Say whether the rows are enough, and what to ask for if not.

        `reading` is what `read` returned, with the offset. Where squares overflow, the test does not decide even if the
        rule says so: `evidence.add_rows` then asks for all rows.
        """
        ...
