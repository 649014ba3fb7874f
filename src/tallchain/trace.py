"""The draws, what they cost, and what they say."""

from __future__ import annotations

import dataclasses
import time
import warnings
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from tallchain.acceptance.stopping import LEAST_ROWS
from tallchain.types import PyTree, Verdict

if TYPE_CHECKING:
    from tallchain.diagnostics import Summary
    from tallchain.lockstep import Drawn
    from tallchain.scan import Scan

_FEW_SHARE = 0.01  # of the decisions that may fall on very few rows


@dataclasses.dataclass(frozen=True)
class Tally:
    """Totals over some decisions."""

    num_decisions: int = 0
    num_accepted: int = 0
    num_rows: int = 0
    num_scanned: int = 0
    num_invalid: int = 0

    @classmethod
    def of(cls, verdict: Verdict, *index: Any) -> Tally:
        """Add up the decisions at these indices."""
        names = ("is_accepted", "num_rows", "num_scanned", "is_invalid")
        sums = (int(np.asarray(getattr(verdict, name))[index].sum(dtype=np.int64)) for name in names)
        return cls(len(index[0]), *sums)

    def __add__(self, other: Tally) -> Tally:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Tally(*(a + b for a, b in pairs))


@dataclasses.dataclass(frozen=True)
class Trace:
    """Draws of many chains, by (chain, draw), with the verdict of each decision.

    Args:
        position: the draws, a pytree of arrays (chain, draw, ...).
        is_accepted: whether the decision moved the chain.
        num_rows: rows the test looked at.
        num_scanned: rows read beside them, for bounds or design.
        log_ratio: the estimate of the log ratio on which the decision fell.
        is_invalid: the log ratio was NaN or +inf, which counts as a rejection.
        extras: what else the test reports of a decision, by name.
        population: N, the rows there are.
        warmup: totals over the warm-up draws.
        seconds: time spent sampling, warm-up included, compilation not.
        compile_seconds: time to the first turn: checks on the device, compilation.
        is_interrupted: Ctrl-C, or a fault, ended the run (perhaps in its last chunk, with all draws made).
        is_one_start: all chains started from the same position.
        notes: what else happened during the run, in words.
        scan: what a pass over all rows at the end of the run has shown; None if there was none.
    """

    position: PyTree
    is_accepted: np.ndarray
    num_rows: np.ndarray
    num_scanned: np.ndarray
    log_ratio: np.ndarray
    is_invalid: np.ndarray
    population: int
    extras: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    warmup: Tally = Tally()
    seconds: float = 0.0
    compile_seconds: float = 0.0
    is_interrupted: bool = False
    is_one_start: bool = False
    notes: tuple[str, ...] = ()
    scan: Scan | None = None

    @property
    def num_chains(self) -> int:
        """Chains."""
        return self.is_accepted.shape[0]

    @property
    def num_draws(self) -> int:
        """Draws per chain."""
        return self.is_accepted.shape[1]

    def variables(self) -> dict[str, np.ndarray]:
        """The draws by name: the keys of a dict, the fields of a record, or "position" for a single array."""
        leaves = jax.tree_util.tree_leaves_with_path(self.position)
        return {jax.tree_util.keystr(path, simple=True, separator=".") or "position": leaf for path, leaf in leaves}

    def complaints(self) -> list[str]:
        """Say in words what may be wrong with the draws; nothing if nothing was seen."""
        found = [] if self.scan is None else self.scan.complaints()
        is_few = np.isfinite(self.log_ratio) & (self.num_rows < min(LEAST_ROWS, self.population))
        if is_few.mean() > _FEW_SHARE:
            found.append(
                f"{is_few.mean():.0%} of the decisions fell on fewer than {LEAST_ROWS} rows, from which no variance "
                "can be told. Give the test a larger batch"
            )
        num_invalid = int(self.is_invalid.sum()) + self.warmup.num_invalid
        if num_invalid:
            total = self.is_invalid.size + self.warmup.num_decisions
            found.append(
                f"{num_invalid} of {total} log ratios were NaN or +inf and counted as rejections. The posterior is "
                "wrong wherever that happens: find the positions where your log prior or log likelihood is not finite"
            )
        return found

    def to_datatree(self) -> Any:
        """Return an xarray DataTree with the groups ArviZ expects (needs `arviz-base`)."""
        from arviz_base import from_dict

        stats = {
            "accepted": self.is_accepted,
            "batch_size": self.num_rows,
            "rows_scanned": self.num_scanned,
            "log_ratio": self.log_ratio,
            "invalid": self.is_invalid,
            **self.extras,
        }
        attributes = {
            "num_rows": self.population,
            "interrupted": int(self.is_interrupted),
            "sampling_time": self.seconds,
        }
        with warnings.catch_warnings():  # more chains than draws are a mistake elsewhere, and usual here
            warnings.filterwarnings("ignore", message="Found chain dimension to be longer", category=UserWarning)
            return from_dict({"posterior": self.variables(), "sample_stats": stats}, attrs={"posterior": attributes})

    def summary(self) -> Summary:
        """Return means, errors and costs, printable (needs `arviz-stats`)."""
        from tallchain.diagnostics import summarise

        return summarise(self)

    def __repr__(self) -> str:
        names = ", ".join(f"{name}{list(leaf.shape[2:])}" for name, leaf in self.variables().items())
        interrupted = ", interrupted" if self.is_interrupted else ""
        return f"Trace({self.num_chains} chains x {self.num_draws} draws of {names}{interrupted})"


class Recorder:
    """Collects draws on the host as chunks of them arrive, each chain at its own index."""

    def __init__(self, population: int, num_chains: int, num_samples: int, num_warmup: int) -> None:
        self.population = population
        self.num_warmup = num_warmup
        self.draw = np.zeros(num_chains, np.int64)
        """Draws finished by each chain, warm-up included."""
        self.total = Tally()
        self.warmup = Tally()
        self._began = self._compiled = self._last = 0.0
        self._shape = (num_chains, num_samples)
        self._kept: Drawn | None = None

    @property
    def num_finished(self) -> int:
        """Draws that every chain has finished, warm-up included."""
        return int(self.draw.min())

    @property
    def seconds(self) -> float:
        """Time spent sampling."""
        return self._last - self._compiled

    def start_clock(self) -> None:
        """Begin to count the time of compilation, which ends with the first chunk."""
        self._began = time.perf_counter()

    def add(self, draw: np.ndarray, drawn: Drawn) -> None:
        """Take over the draws of one chunk, by chain and slot; chain c has now finished draw[c] draws."""
        drawn = jax.tree.map(np.asarray, drawn)
        self._last = time.perf_counter()
        if self._kept is None:
            self._compiled = self._last
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

    def trace(self, *, is_interrupted: bool) -> Trace:
        """Return the draws that every chain has finished."""
        if self._kept is None:
            raise RuntimeError("no draw was made")
        count = max(self.num_finished - self.num_warmup, 0)
        position, verdict = jax.tree.map(lambda leaf: leaf[:, :count], self._kept)
        return Trace(
            position,
            **verdict._asdict(),
            population=self.population,
            warmup=self.warmup,
            seconds=self.seconds,
            compile_seconds=self._compiled - self._began,
            is_interrupted=is_interrupted,
        )
