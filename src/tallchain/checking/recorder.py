"""Collects the draws on the host, and makes a trace of the finished ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallchain.checking.trace import Tally, Trace
from tallchain.cores import in_order, num_cores
from tallchain.lockstep import Drawn
from tallchain.names import in_order_of
from tallchain.packing import Chunk, unpack
from tallchain.types import PyTree

_LEAST_SHARE = 0.5  # of the draws of the largest rectangle; if that many are kept, no chain with a draw is left out


class Recorder:
    """Collects draws on the host as chunks of them arrive, each chain at its own index."""

    def __init__(self, num_rows: int, num_chains: int, num_samples: int, num_warmup: int) -> None:
        self.num_rows = num_rows
        self.num_warmup = num_warmup
        self.draw = np.zeros(num_chains, np.int64)
        """Draws finished by each chain, warm-up included."""
        self.total = Tally()
        self.warmup = Tally()
        self.seconds = 0.0
        """Time spent sampling, so far: the caller adds to it."""
        self._shape = (num_chains, num_samples)
        self._kept: np.ndarray | None = None
        """Packed, by chain and draw."""
        self._like: Drawn | None = None

    @property
    def num_finished(self) -> int:
        """Draws that every chain has finished, warm-up included."""
        return int(self.draw.min())

    @property
    def has_draws(self) -> bool:
        """Whether some chain has finished a draw to keep."""
        return bool(self.draw.max() > self.num_warmup)

    def add(self, draw: np.ndarray, chunk: Chunk) -> None:
        """Take over the draws of one chunk; chain c has now finished draw[c] draws."""
        firsts = np.cumsum([0, *map(len, chunk.parts)])
        if self._kept is None:
            self._kept = np.zeros((*self._shape, chunk.parts[0].shape[-1]), np.uint32)
            self._like = chunk.like

        def take(part: int) -> tuple[Tally, Tally]:
            chains = slice(firsts[part], firsts[part + 1])
            return self._take(chains, draw[chains], chunk.fetch(part), chunk)

        tallies = list(in_order(take, range(len(chunk.parts)), num_cores()))
        for total, warmup in tallies:
            self.total += total
            self.warmup += warmup
        self.draw = draw.astype(np.int64)

    def _take(self, chains: slice, draw: np.ndarray, words: np.ndarray, chunk: Chunk) -> tuple[Tally, Tally]:
        """Take over the draws of some chains; add up those decisions, and those of the warm-up."""
        assert self._kept is not None
        before = self.draw[chains]
        count = draw - before
        skipped = np.clip(self.num_warmup - before, 0, count)
        index = before + skipped - self.num_warmup
        kept = self._kept[chains]
        for chain, (skip, end, at) in enumerate(zip(skipped.tolist(), count.tolist(), index.tolist(), strict=True)):
            kept[chain, at : at + end - skip] = words[chain, skip:end]
        slot, verdict = np.arange(words.shape[1]), chunk.unpack(words).verdict
        warmup = Tally.of(verdict, slot < skipped[:, None]) if skipped.any() else Tally()
        return Tally.of(verdict, slot < count[:, None]), warmup

    @property
    def num_kept(self) -> int:
        """Draws of each chain that a trace would have now."""
        return self._largest()[1]

    def draws(self) -> Drawn:
        """Return the finished draws of the chains that `largest` chooses."""
        chains, count = self._largest()
        return self._cut(chains, count)

    def draws_of_every_chain(self) -> Drawn:
        """Return the draws that every chain has finished."""
        return self._cut(np.arange(len(self.draw)), int(self._finished.min()))

    def trace(self, like: PyTree, **facts: Any) -> Trace:
        """Make a trace of the finished draws.

        Args:
            like: a position whose dicts have their keys in the order for the trace.
            facts: the fields of the trace that the recorder does not know.
        """
        chains, count = self._largest()
        position, verdict = self._cut(chains, count)
        left_out = np.setdiff1d(np.arange(len(self.draw)), chains)
        return Trace(
            in_order_of(position, like),
            **verdict._asdict(),
            num_rows=self.num_rows,
            warmup=self.warmup,
            seconds=self.seconds,
            left_out={int(chain): int(self._finished[chain]) for chain in left_out},
            **facts,
        )

    @property
    def _finished(self) -> np.ndarray:
        """Draws to keep that each chain has finished."""
        return np.maximum(self.draw - self.num_warmup, 0)

    def _largest(self) -> tuple[np.ndarray, int]:
        return largest(self._finished)

    def _cut(self, chains: np.ndarray, count: int) -> Drawn:
        if self._kept is None:
            raise RuntimeError("no draw was made")
        rows: Any = slice(None) if len(chains) == len(self.draw) else chains
        return unpack(self._kept[rows, :count], self._like)


def largest(finished: np.ndarray) -> tuple[np.ndarray, int]:
    """Choose chains, and draws of each, from the draws that each chain has finished.

    Takes every chain that has a draw, cut to the shortest, if that keeps at least half as many draws as the best choice
    would: chains are slow where decisions take many rows, and leaving them out biases the draws away from there.
    Otherwise takes the best choice, k chains of n draws with k n as large as possible.
    """
    has_draws = finished > 0
    if not has_draws.any():
        return np.arange(len(finished)), 0
    falling = np.sort(finished)[::-1]
    size = falling * np.arange(1, len(falling) + 1)
    shortest = finished[has_draws].min()
    is_cheap = shortest * has_draws.sum() >= _LEAST_SHARE * size.max()
    count = shortest if is_cheap else falling[np.argmax(size)]
    return np.flatnonzero(finished >= count), int(count)
