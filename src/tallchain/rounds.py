"""Rounds: chains visit the parts of a divided source in turn, and every part equally often.

A round is some draws of every chain in the same part; a tour is a round in each. The tilts of the posteriors of single
parts cancel over whole tours (see `tallchain.sources.divided`), so the draws after the warm-up are whole tours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tallchain.abilities import DividedSource
from tallchain.parts import replace
from tallchain.schedule import Kernel


class Rounds(NamedTuple):
    """The rounds of a run."""

    num_parts: int
    num_slots: int
    """Parts that chains are in at the same time."""
    length: int
    """Draws of a chain in a part."""
    num_warmup: int
    num_samples: int
    """Draws of a chain after the warm-up: whole tours."""

    @classmethod
    def of(cls, kernel: Kernel, num_samples: int, num_chains: int, num_warmup: int) -> Rounds | None:
        """Plan a run of at least so many draws; None if the source is not divided."""
        source = kernel.source
        if not isinstance(source, DividedSource) or source.num_parts == 1:
            return None
        if num_chains % source.num_slots:
            raise ValueError(
                f"`sample(num_chains=...)` must be a multiple of {source.num_slots}, the parts of the rows, so that "
                f"there are as many chains in each; got {num_chains}."
            )
        tours = max(num_samples // (source.num_parts * source.round_length(num_chains)), 1)
        length = -(-num_samples // (source.num_parts * tours))
        return cls(source.num_parts, source.num_slots, length, num_warmup, length * source.num_parts * tours)

    @property
    def stops(self) -> set[int]:
        """Draws at which chains go on to another part."""
        first = self.num_warmup % self.length
        return set(range(first, self.num_warmup + self.num_samples, self.length)) - {0}

    def divided(self, kernel: Any, draw: int) -> list[Any]:
        """Return the kernels of a draw: those of the parts that chains are in, a group of them in each.

        None in place of one whose rows another process has.
        """
        first = (draw - self.num_warmup) // self.length  # of the warm-up, below 0
        slots, step = self.num_slots, self.num_parts // self.num_slots
        numbers = [(first + slot * step) % self.num_parts for slot in range(slots)]
        sources = [kernel.source.at_part(number) for number in numbers]
        return [None if source is None else replace(kernel, source=source) for source in sources]

    def note(self, num_draws: int) -> tuple[str, ...]:
        """Say so if so many draws after the warm-up are no whole tours."""
        rounds, left = divmod(num_draws, self.length)
        tours, more = divmod(rounds, self.num_parts)
        if not (left or more):
            return ()
        of_one = f", and one for {left:,} of {self.length:,} draws" if left else ""
        return (
            f"the run ended within a tour of the parts: {more:,} of {self.num_parts:,} were visited {tours + 1:,} "
            f"times, the others {tours:,} times{of_one}. Draws are off by more than after whole tours",
        )
