"""What a stopping rule promises, and the records that pass between it and the test that asks it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp

from tallchain.acceptance.evidence import Moments, SkewMoments, row_variance
from tallchain.acceptance.tables import Reading
from tallchain.types import Array, Ask, Population


class Terms(NamedTuple):
    """What a rule says of itself before a row is read: a test chooses its correction by it."""

    skew: bool
    """Whether a test takes the skewness of the rows into account, where its user does not say."""
    is_student: bool = False
    """s2 is a pilot's, so that the noise is Student's; else s2 is of the rows that give Delta*."""
    grows: bool = False
    """It adds to the rows it has judged on until s2 is below the aim, as printed: what else is printed goes with it."""
    weighs: bool = False
    """Delta* is not the mean of the last rows alone: no skew correction and no bound, and `Penalty` cannot use it."""

    @property
    def plans(self) -> bool:
        """Whether it knows beforehand how many rows it judges on, and judges on their mean."""
        return not (self.grows or self.weighs)


class Aim(NamedTuple):
    """What a test wants of the rows it decides on."""

    batch: int
    """m, the rows of a pilot, or to add between judgements."""
    variance: float
    """z, to which s2, the variance of Delta*, has to come down."""
    skew: float | None = None
    """To which |kappa3| of noise and padding has to come down; None where skewness is not taken into account."""
    most_variance: float = math.inf
    """The largest s2 that the test can correct for."""
    most_skew: float = math.inf
    """The largest |kappa3| that the test can correct for."""
    rows: Array | int = 0
    """Rows needed for anything else, if they are like those read."""


class PilotBatch(NamedTuple):
    """What a pilot batch has said."""

    is_over: Array
    """Whether there has been one: the rows read since are fresh."""
    count: Array
    mean: Array
    variance: Array
    """Of the rows."""
    skewness: Array
    """Of the rows; 0 where nobody asked for it."""

    @classmethod
    def to_come(cls) -> PilotBatch:
        """Return the pilot before its rows are read."""
        zero = jnp.zeros((), jnp.result_type(float))
        return cls(jnp.zeros((), bool), jnp.zeros((), jnp.int32), zero, zero, zero)

    @classmethod
    def of(cls, evidence: Moments | SkewMoments) -> PilotBatch:
        """Return what the rows read so far say as a pilot."""
        gamma = getattr(evidence, "skewness", jnp.zeros_like(evidence.mean))
        return cls(jnp.ones((), bool), evidence.count, evidence.mean, row_variance(evidence), gamma)


class Advice(NamedTuple):
    """What a rule says of the rows read."""

    pilot: PilotBatch
    """What is known of a pilot now; for a rule that has none, what it was given."""
    is_enough: Array | bool
    """Whether to decide on these rows."""
    ask: Ask
    """What to read if not."""


@runtime_checkable
class StoppingRule(Protocol):
    """A rule that says how many rows are enough. It never sees what the test decides.

    `pilot` is `PilotBatch.to_come()` at first, then as the rule returned it; `evidence` is of the rows that the last
    ask did not forget, and has third moments where `aim.skew` is not None.
    """

    @property
    def terms(self) -> Terms:
        """What is known of it beforehand."""
        ...

    def first(self, aim: Aim, population: Population) -> int:
        """Rows to ask for first, which is what the test usually wants between two judgements."""
        ...

    def read(self, aim: Aim, pilot: PilotBatch, evidence: Any, population: Population) -> Reading:
        """Say what the rows read say of Delta* (without the offset) and its noise; s2 of all rows is 0."""
        ...

    def advise(self, aim: Aim, pilot: PilotBatch, reading: Reading, evidence: Any, population: Population) -> Advice:
        """Say whether the rows are enough, and what to ask for if not.

        `reading` is what `read` returned, with the offset. Where squares overflow the test does not decide, whatever
        the rule says: `evidence.add_rows` asks for all rows then.
        """
        ...
