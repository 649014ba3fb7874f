"""What a proposal or a source may be able to do beyond the least: named abilities, found by `isinstance`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

from tallchain.types import Ask, Population, Proposal, PyTree, RowFunction, Seen, Source


class Tuning(NamedTuple):
    """How the acceptance and the speed of a proposal depend on its scale; see `tallchain.tuning`."""

    order: float
    """The standard deviation of the log ratio grows as scale^order."""
    speed: float
    """The speed grows as scale^speed, times the acceptance."""
    most: float = math.inf
    """The largest factor by which the scale can grow."""
    turns: bool = False
    """Whether long trajectories turn back to where they began."""


@runtime_checkable
class ScaledProposal(Proposal, Protocol):
    """A proposal whose scale a schedule may change."""

    def with_scale(self, scale: PyTree) -> Proposal:
        """Return the same proposal with another scale; may be a tracer."""


@runtime_checkable
class TunableProposal(Proposal, Protocol):
    """A proposal whose scale can be adapted to the acceptance."""

    @property
    def tuning(self) -> Tuning:
        """How its acceptance depends on the scale."""

    def stretched(self, factor: float) -> Proposal:
        """Return the same proposal with this many times the scale."""


@runtime_checkable
class CostlyProposal(Proposal, Protocol):
    """A proposal that is too costly to make at every turn for the few chains that have just decided."""

    @property
    def share_waiting(self) -> float:
        """Share of the chains, from 0 to 1, that must wait for a candidate before they are made together."""


@runtime_checkable
class ReadingProposal(Proposal, Protocol):
    """A proposal that reads rows, of the source of the kernel."""

    @property
    def gradients_per_row(self) -> int:
        """Gradients of each row that is read."""

    def check_source(self, population: Population, *, has_surrogate: bool) -> None:
        """Refuse a source that cannot give them."""


@runtime_checkable
class SuitedSource(Source, Protocol):
    """A source whose way of reading depends on the test."""

    def suited(self, appetite: int) -> Source:
        """Return the same rows, to be read by a test that wants `appetite` rows between judgements."""


@runtime_checkable
class CensusSource(Source, Protocol):
    """A source that has wider windows for a census."""

    def look_widely(self, cursor: PyTree, ask: Ask, row_function: RowFunction, summarise: Any) -> tuple[PyTree, Seen]:
        """Read the next rows of a census, as many as the source likes; as `look` does in other respects."""


@runtime_checkable
class NotedSource(Source, Protocol):
    """A source with notes for a summary."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes, in words."""


@runtime_checkable
class DividedSource(Source, Protocol):
    """A source of which decisions see a part at a time; chains visit all parts in turn."""

    @property
    def num_parts(self) -> int:
        """How many there are."""

    @property
    def num_slots(self) -> int:
        """Parts that chains are in at the same time, a group of them in each."""

    @property
    def most_error(self) -> float:
        """The largest standard deviation of log pi_p - log pi to sample at; see `Population.part_error`."""

    def round_length(self, num_chains: int) -> int:
        """Draws of a chain between two parts, of a long run."""

    def at_part(self, number: int) -> Source | None:
        """Return the source in another part, counted on beyond the last; None if another process has it."""


@runtime_checkable
class PlacedSource(Source, Protocol):
    """A source whose rows are on a device of its own."""

    @property
    def device(self) -> Any:
        """The device; None for JAX's default."""
