"""Collects the draws on the host, and makes a trace of the finished ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import jax
import numpy as np

from tallchain.checking.moments import Gatherer, Moments
from tallchain.checking.trace import Tally, Trace
from tallchain.coordinates import Coordinates
from tallchain.cores import in_order, num_cores
from tallchain.crew import Crew
from tallchain.digest import Shapes, Span, power_of_two, sums, thinned
from tallchain.lockstep import Drawn
from tallchain.mixing import Watch
from tallchain.names import in_order_of
from tallchain.packing import Chunk, num_words, unpack
from tallchain.runner import Runner
from tallchain.types import PyTree, Verdict

_BLOCK = 256  # chains whose verdicts are gathered at a time
_LEAST_SHARE = 0.5  # of the draws of the largest rectangle; if that many are kept, no chain with a draw is left out


class Store(Protocol):
    """Holds packed draws by chain and number."""

    @property
    def array(self) -> np.ndarray:
        """All of them, (chain, draw, word)."""
        ...

    def write(self, chain: int, at: int, words: np.ndarray) -> None:
        """Take over draws of a chain, the first of which has number `at`."""
        ...

    def check(self, counts: np.ndarray) -> None:
        """Refuse to go on if this many draws of each chain are not there as they were written."""
        ...


class InMemory:
    """A store in memory."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.array = np.zeros(shape, np.uint32)

    def write(self, chain: int, at: int, words: np.ndarray) -> None:
        """Copy them."""
        self.array[chain, at : at + len(words)] = words

    def check(self, counts: np.ndarray) -> None:
        """Nothing was here before."""


class Recorder:
    """Collects draws on the host as chunks of them arrive, each chain at its own index."""

    def __init__(
        self,
        num_rows: int,
        num_chains: int,
        num_samples: int,
        num_warmup: int,
        *,
        thin: int = 1,
        with_moments: bool = False,
        watch: Watch | None = None,
        store: Callable[[tuple[int, int, int]], Store] = InMemory,
        keep_warmup: bool = False,
        coordinates: Coordinates | None = None,
        apart: Crew | None = None,
        counting: Crew | None = None,
    ) -> None:
        self.num_rows = num_rows
        self.num_warmup = num_warmup
        self.num_draws = num_warmup + num_samples
        """Draws that every chain makes."""
        self.thin = thin
        """One draw in so many is kept."""
        self.draw = np.zeros(num_chains, np.int64)
        """Draws finished by each chain, warm-up included."""
        self.total = Tally()
        self.warmup = Tally()
        self.seconds = 0.0
        """Time spent sampling, so far: the caller adds to it."""
        self._first = 0 if keep_warmup else num_warmup
        """The number of the first draw to keep."""
        self._shape = (num_chains, -(-(self.num_draws - self._first) // thin))
        self._coordinates = coordinates
        self._apart = apart
        """Processes that keep the draws of their own chains each, until all are put together."""
        self._counting = counting
        """Processes that add up the decisions that they have made themselves, until all are put together."""
        self._is_here = np.ones(num_chains, bool)
        """Whether the draws of a chain are here."""
        self._is_own = np.ones(num_chains, bool)
        """Whether this process has made the last draws of a chain."""
        self._gatherer = None
        if with_moments:
            self._gatherer = Gatherer(num_chains, num_samples, num_warmup, coordinates, counting)
        self._watch = watch
        self._make_store = store
        self._store: Store | None = None
        self._like: Drawn | None = None
        self._drawn: Drawn | None = None
        """What `draws` has returned, until other draws arrive."""

    @property
    def num_finished(self) -> int:
        """Draws that every chain has finished, warm-up included."""
        return int(self.draw.min())

    @property
    def num_made(self) -> int:
        """Draws of all chains, warm-up included."""
        return int(self.draw.sum())

    @property
    def has_draws(self) -> bool:
        """Whether some chain has finished a draw to keep."""
        return bool(self._finished.max() > 0)

    def compile(self, run: Runner) -> None:
        """Make the store, and compile what the device has to do with the chunks of a run."""
        self._prepare(run.like)
        if self._gatherer or self._is_on_device:
            chunk, none = run.empty(), np.zeros_like(self.draw)
            self._begin(chunk, none, none)
            if self._gatherer:
                self._gatherer.compile(chunk)

    def add(self, draw: np.ndarray, chunk: Chunk) -> Callable[[], None]:
        """Take over the draws of one chunk; chain c has now finished draw[c] draws.

        What the device has to do for it is begun; the function returned does the rest.
        """
        before, after = self.draw, draw.astype(np.int64)
        if self._counting is not None:
            own = zip(chunk.records, chunk.is_own, strict=True)
            self._is_own = np.concatenate([np.full(len(record), is_own) for record, is_own in own])
        if self._apart is not None:
            self._is_here = self._is_own
        keepers = [keeper for keeper in (self._gatherer, self._watch) if keeper]
        others = [keeper.add(chunk, before, after) for keeper in keepers]
        divided, added = self._begin(chunk, before, after)
        firsts = np.cumsum([0, *map(len, divided.records)])

        def take_part(part: int) -> tuple[Tally, Tally]:
            chains, words = slice(firsts[part], firsts[part + 1]), divided.fetch(part)
            self._copy(chains, after[chains], words)
            return (Tally(), Tally()) if added else self._tally(chains, after[chains], chunk.unpack(words).verdict)

        def take() -> None:
            if self.thin > 1 and chunk.unwanted:  # all draws are searched, not only those to keep
                for record in range(len(chunk.records)):
                    chunk.fetch(record)
            self._prepare(chunk.like)
            tallies = list(in_order(take_part, range(len(divided.records)), num_cores()))
            for warmup, rest in [self._tallies(before, after, added)] if added else tallies:
                self.total += warmup + rest
                self.warmup += warmup
            for take_others in others:
                take_others()
            self.draw, self._drawn = after, None

        return take

    @property
    def _is_on_device(self) -> bool:
        """Whether decisions are added up on the device: if not all come to the host, or it would take long there."""
        return self.thin > 1 or jax.default_backend() != "cpu"

    def _begin(self, chunk: Chunk, before: np.ndarray, after: np.ndarray) -> tuple[Chunk, list[Any]]:
        """Begin to choose what comes to the host, and to add up all decisions if they do not come."""
        if not self._is_on_device:
            return chunk.divided(int((after - before).max())), []
        groups, shapes = list(Span.by_record(chunk, before, after, self.num_warmup)), Shapes.of(chunk.like)
        counted = [group for group in groups if group.is_own or self._counting is None]
        added = [sums(group.record, group.span, shapes=shapes) for group in counted]
        if self.thin == 1:
            return chunk.divided(int((after - before).max())), added
        kept = power_of_two(-(-max(record.shape[1] for record in chunk.records) // self.thin))
        some = iter([thinned(group.record, group.span, np.int32(self.thin), kept=kept) for group in groups])
        return chunk._replace(records=[next(some) if of.shape[1] else of for of in chunk.records]), added

    def _copy(self, chains: slice, draw: np.ndarray, words: np.ndarray) -> None:
        """Keep the draws of some chains."""
        assert self._store is not None
        before = self.draw[chains]
        skipped = np.clip(self._first - before, 0, draw - before) if self.thin == 1 else np.zeros_like(before)
        begin, end = self._kept_until(before), self._kept_until(draw)
        some = np.flatnonzero(end > begin)
        for chain, skip, at, to in zip(
            *(of[some].tolist() for of in (np.arange(len(end)), skipped, begin, end)), strict=True
        ):
            self._store.write(chains.start + chain, at, words[chain, skip : skip + to - at])

    def _tally(self, chains: slice, draw: np.ndarray, verdict: Verdict) -> tuple[Tally, Tally]:
        """Add up the decisions of the warm-up, and the others, of some chains."""
        before = self.draw[chains]
        slot, skipped = np.arange(verdict.is_accepted.shape[1]), self._skipped(before, draw)
        is_own = self._is_own[chains, None]
        total = Tally.of(verdict, (slot < (draw - before)[:, None]) & is_own)
        warmup = Tally.of(verdict, (slot < skipped[:, None]) & is_own) if skipped.any() else Tally()
        return warmup, total - warmup

    def _tallies(self, before: np.ndarray, after: np.ndarray, added: list[Any]) -> tuple[Tally, Tally]:
        """As `_tally`, of all chains, from what the device has added up."""
        parts = np.concatenate([np.asarray(each) for each in added]).sum(0, dtype=np.int64)  # (phase, field, byte)
        warmup, rest = (parts << 8 * np.arange(4)).sum(-1).tolist()
        num_warmup = int(self._skipped(before, after)[self._is_own].sum())
        return Tally(num_warmup, *warmup), Tally(int((after - before)[self._is_own].sum()) - num_warmup, *rest)

    def _skipped(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Draws of the warm-up, among those between."""
        return np.clip(self.num_warmup - before, 0, after - before)

    def _prepare(self, like: Drawn) -> None:
        """Make the store, once it is known what a draw is."""
        if self._store is None:
            self._store, self._like = self._make_store((*self._shape, num_words(like))), like

    def meet(self) -> None:
        """Tell the other processes about the chains that may now go on with them; all must call it."""
        if self._gatherer:
            self._gatherer.meet()

    def put_together(self) -> None:
        """Take the draws that the other processes have kept; all must call it."""
        if self._apart is not None and self._store is not None:
            self._take_kept(self._apart, self._store)
        if self._counting is not None:
            self._add_up(self._counting)
        if self._gatherer and self.draw.max() > self.num_warmup:
            self._gatherer.put_together()
        self._is_here, self._drawn = np.ones_like(self._is_here), None
        self._apart = self._counting = None

    def _take_kept(self, apart: Crew, store: Store) -> None:
        kept = self._kept_until(self.draw)
        said = [np.flatnonzero(self._is_here), store.array[self._is_here, : kept.max()]]
        for rank, (chains, words) in enumerate(apart.gather_arrays("the draws that are kept", said)):
            if rank != apart.rank:
                for chain, held in zip(chains.tolist(), words, strict=True):
                    store.write(chain, 0, held)

    def _add_up(self, counting: Crew) -> None:
        mine = np.array([dataclasses.astuple(each) for each in (self.total, self.warmup)], np.int64)
        every = [of for (of,) in counting.gather_arrays("the decisions", [mine])]
        self.total, self.warmup = (Tally(*of) for of in np.sum(every, 0).tolist())

    # ---- what a checkpoint has of it -------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return numbers, and arrays, from which `restore` goes on; the draws kept are in their store."""
        numbers = {
            "total": dataclasses.astuple(self.total),
            "warmup": dataclasses.astuple(self.warmup),
            "seconds": self.seconds,
        }
        arrays = {"draw": self.draw}
        for name, keeper in (("moments", self._gatherer), ("watch", self._watch)):
            if keeper:
                arrays |= {f"{name}/{part}": of for part, of in keeper.state().items()}
        return numbers, arrays

    def restore(self, numbers: dict[str, Any], arrays: dict[str, np.ndarray], like: Drawn) -> None:
        """Go on from a state; `like` has the shapes of a recorded draw."""
        self.draw = arrays["draw"]
        self.total, self.warmup = (Tally(*numbers[name]) for name in ("total", "warmup"))
        self.seconds = float(numbers["seconds"])
        for name, keeper in (("moments", self._gatherer), ("watch", self._watch)):
            own = {part.removeprefix(f"{name}/"): of for part, of in arrays.items() if part.startswith(f"{name}/")}
            if keeper:
                keeper.restore(own, like)
        self._prepare(like)
        assert self._store is not None
        self._store.check(self._kept_until(self.draw))

    @property
    def number_of_last(self) -> int:
        """The number of the last draw that a trace would have now, warm-up included."""
        return self.num_warmup + (self._largest()[1] - 1) * self.thin

    def draws(self) -> Drawn:
        """Return the finished draws of the chains that `largest` chooses."""
        if self._drawn is None:
            chains, count = self._largest()
            begin = self.num_warmup - self._first
            self._drawn = self._cut(chains, slice(begin, begin + count))
        return self._drawn

    def draws_of_every_chain(self) -> Drawn:
        """Return the draws that every chain has finished."""
        begin = self.num_warmup - self._first
        return self._cut(np.arange(len(self.draw)), slice(begin, begin + int(self._finished.min())))

    def trace(self, like: PyTree, **facts: Any) -> Trace:
        """Make a trace of the finished draws.

        Args:
            like: a position whose dicts have their keys in the order for the trace.
            facts: the fields of the trace that the recorder does not know.
        """
        chains, _ = self._largest()
        left_out = np.setdiff1d(np.arange(len(self.draw)), chains)
        before = None
        if self._first < self.num_warmup:
            warmup = self._fields(self._cut(chains, slice(self.num_warmup - self._first)), like)
            before = Trace(**warmup, num_rows=self.num_rows, names=facts.get("names", {}))
        return Trace(
            **self._fields(self.draws(), like),
            num_rows=self.num_rows,
            warmup=self.warmup,
            thin=self.thin,
            all_decisions=self.total - self.warmup if self.thin > 1 else None,
            moments=self._moments(),
            seconds=self.seconds,
            left_out={int(chain): max(int(self.draw[chain]) - self.num_warmup, 0) for chain in left_out},
            before=before,
            **facts,
        )

    def _fields(self, drawn: Drawn, like: PyTree) -> dict[str, Any]:
        """Return draws as fields of a trace."""
        position = in_order_of(drawn.position, like)
        verdict = drawn.verdict._asdict()
        if self._coordinates is None:
            return {"position": position} | verdict
        return {"position": self._coordinates.of_draws(position), "sampled": position} | verdict

    def _moments(self) -> Moments | None:
        """None if they are not wanted, or if the device or a process has failed, since the draws matter more."""
        if self._gatherer is None or not self._gatherer.is_whole:
            return None
        try:
            return self._gatherer.moments()
        except RuntimeError:
            return None

    @property
    def _finished(self) -> np.ndarray:
        """Draws to keep that each chain has finished."""
        return np.where(self._is_here, -(-np.maximum(self.draw - self.num_warmup, 0) // self.thin), 0)

    def _kept_until(self, draw: np.ndarray) -> np.ndarray:
        """Draws to keep among the first."""
        return -(-np.maximum(draw - self._first, 0) // self.thin)

    def _largest(self) -> tuple[np.ndarray, int]:
        return largest(self._finished)

    def _cut(self, chains: np.ndarray, draws: slice) -> Drawn:
        if self._store is None or self._like is None:
            raise RuntimeError("no draw was made")
        rows: Any = slice(None) if len(chains) == len(self.draw) else chains
        words, position, verdict = self._store.array[rows, draws], *self._like
        ends = num_words(position)
        # Verdicts are gathered: every look through one of their fields would read all positions as well.
        gathered = jax.tree.map(lambda leaf: np.empty((*words.shape[:2], *leaf.shape), leaf.dtype), verdict)

        def gather(block: int) -> None:
            some = slice(block * _BLOCK, (block + 1) * _BLOCK)
            found = unpack(words[some, :, ends:], verdict)
            for into, leaf in zip(jax.tree.leaves(gathered), jax.tree.leaves(found), strict=True):
                into[some] = leaf

        list(in_order(gather, range(max(-(-len(words) // _BLOCK), 1)), num_cores()))
        return Drawn(unpack(words[..., :ends], position), gathered)


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
