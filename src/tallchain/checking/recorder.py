"""Collects the draws on the host, and makes a trace of the finished ones."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tallchain.checking.trace import Tally, Trace
from tallchain.lockstep import Drawn
from tallchain.names import in_order_of
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
        self._kept: Drawn | None = None

    @property
    def num_finished(self) -> int:
        """Draws that every chain has finished, warm-up included."""
        return int(self.draw.min())

    @property
    def has_draws(self) -> bool:
        """Whether some chain has finished a draw to keep."""
        return bool(self.draw.max() > self.num_warmup)

    def add(self, draw: np.ndarray, drawn: Drawn) -> None:
        """Take over the draws of one chunk, by chain and slot; chain c has now finished draw[c] draws."""
        drawn = jax.tree.map(np.asarray, drawn)
        if self._kept is None:
            self._kept = jax.tree.map(lambda leaf: np.zeros(self._shape + leaf.shape[2:], leaf.dtype), drawn)
        slots = drawn.verdict.is_accepted.shape[1]
        chain, slot = np.nonzero(np.arange(slots) < (draw - self.draw)[:, None])
        index = self.draw[chain] + slot - self.num_warmup
        is_kept = index >= 0
        self.total += Tally.of(drawn.verdict, chain, slot)
        self.warmup += Tally.of(drawn.verdict, chain[~is_kept], slot[~is_kept])
        chain, slot, index = chain[is_kept], slot[is_kept], index[is_kept]
        for kept, new in zip(jax.tree.leaves(self._kept), jax.tree.leaves(drawn), strict=True):
            kept[chain, index] = new[chain, slot]
        self.draw = draw.astype(np.int64)

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
        return jax.tree.map(lambda leaf: leaf[rows, :count], self._kept)


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
