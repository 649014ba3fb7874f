"""Draw until there are enough effective draws: rounds of a run, each as long as the last one says.

Chains begin farther out than draws of the posterior are: a chain that is stuck shows only if the chains began apart.
In d dimensions draws of a normal distribution are about sqrt(d) standard deviations from its mean; the starts are three
farther, at most twice as far; nearer again where that is outside of the support, or absurd: twice as far from the mean
of the logarithm of a scale may be a hundred times what its prior allows, from where no chain comes back.

After each round the effective draws of the worst parameter are counted, in bulk and in the tails, and the next round
has as many draws as are missing, with some to spare. If the chains disagree, the first half of all draws may be to
blame: if the second half agrees alone, the first counts as warm-up.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from tallchain.abilities import CostlyProposal
from tallchain.checking.convergence import MOST_R_HAT, convergence_of
from tallchain.checking.faults import SamplingError
from tallchain.checking.joining import last_positions, without_first
from tallchain.checking.trace import Trace
from tallchain.checks import are_possible
from tallchain.crew import any_of
from tallchain.ending import failed_check, has_scan, scanned
from tallchain.functions import QUICKLY, program
from tallchain.interrupts import catch_interrupt
from tallchain.kernel import MetropolisHastings
from tallchain.keys import fold_in
from tallchain.lockstep import Drawn
from tallchain.prepared import Prepared
from tallchain.progress import Show, shown
from tallchain.proposals.transition import SurrogatePosterior
from tallchain.sample import drawn
from tallchain.starts import PerChain
from tallchain.surrogates.settling import Settled
from tallchain.types import Array, PyTree, Verdict

CHAINS, COSTLY_CHAINS = 64, 16
_ROUND, _COSTLY_WARMUP, _WARMUP = 250, 25, 100  # draws of each chain
_FARTHER, _MOST_FARTHER, _HALVINGS = 3.0, 2.0, 20
_ABSURD = 4.0  # times what the log density of a normal distribution falls by on the way
_TO_SPARE, _AGAIN, _MOST_GROWTH = 1.25, 2.0, 4.0
_SCAN_KEY = 2**31  # not the number of a round


class Limits(NamedTuple):
    """When to stop."""

    num_draws: int
    """Effective draws of the worst parameter to ask for."""
    max_draws: int
    """Draws of all chains."""
    max_seconds: float


class Ran(NamedTuple):
    """Draws, and whether they are enough."""

    trace: Trace
    is_enough: bool
    why: str
    """If they are not, in words."""
    is_scan_cut: bool = False
    """Whether Ctrl-C came before a scan that was asked for was done."""


def num_chains_for(kernel: MetropolisHastings) -> int:
    """Many chains where candidates cost next to nothing; fewer where each is hundreds of steps on the surrogate."""
    return COSTLY_CHAINS if isinstance(kernel.proposal, CostlyProposal) else CHAINS


def dispersed(prepared: Prepared, key: Array, num_chains: int) -> PyTree:
    """Return starts that are farther out than draws of the posterior; see the module."""
    starts = prepared.positions(key, num_chains)
    if prepared.normal is not None:
        centre = prepared.normal.mean
    else:
        assert isinstance(prepared.reference, Settled)
        centre = jax.tree.map(lambda leaf: np.mean(np.asarray(leaf, np.float64), 0), prepared.reference.draws)
    d = sum(np.size(leaf) for leaf in jax.tree.leaves(centre))
    factor = min(1 + _FARTHER / math.sqrt(d), _MOST_FARTHER)

    def away(start: Any, middle: Any) -> np.ndarray:
        start, middle = np.asarray(start), np.asarray(middle)
        return (middle + factor * (start - middle)).astype(start.dtype)

    least = -math.inf
    if isinstance(prepared.reference, Settled):
        least = float(np.min(_log_densities(_density(prepared), starts)))
        least -= _ABSURD * (_FARTHER * math.sqrt(d) + _FARTHER**2 / 2)
    return _within(prepared, jax.tree.map(away, starts, centre), centre, least)


def _density(prepared: Prepared) -> SurrogatePosterior:
    assert prepared.surrogate is not None
    return SurrogatePosterior(prepared.posterior, prepared.surrogate)


@program(compiler_options=QUICKLY)
def _log_densities(density: SurrogatePosterior, positions: PyTree) -> Array:
    return jax.vmap(density.log_density)(positions)


def _within(prepared: Prepared, starts: PyTree, centre: PyTree, least: float) -> PyTree:
    """Halve the distance of starts that are impossible, or of a log density below the least, until they are not."""
    for _ in range(_HALVINGS):
        is_possible = are_possible(prepared.posterior, prepared.source, starts)
        if least > -math.inf:
            is_possible &= np.asarray(_log_densities(_density(prepared), starts)) >= least
        if is_possible.all():
            break

        def nearer(start: np.ndarray, middle: Any, keep: np.ndarray = is_possible) -> np.ndarray:
            keep = keep.reshape(-1, *(1,) * (start.ndim - 1))
            return np.where(keep, start, np.asarray(middle) + (start - np.asarray(middle)) / 2).astype(start.dtype)

        starts = jax.tree.map(nearer, starts, centre)
    return starts


def run(
    key: Array,
    kernel: MetropolisHastings,
    starts: PyTree,
    num_chains: int,
    limits: Limits,
    *,
    scan: int,
    progress: bool,
    place: Callable[[int], Path | None] = lambda _: None,
) -> Ran:
    """Run rounds until there are enough effective draws, or a limit is reached; then scan.

    `place` says where each round has its checkpoint.
    """
    watch = _Watch(time.perf_counter() + limits.max_seconds, progress=progress)
    warmup = _COSTLY_WARMUP if isinstance(kernel.proposal, CostlyProposal) else _WARMUP
    most = max(limits.max_draws // num_chains, 1)
    count, number, made, trace = (
        min(max(_ROUND, math.ceil(_TO_SPARE * limits.num_draws / num_chains)), most),
        0,
        0,
        None,
    )
    with catch_interrupt() as interrupt:
        while True:
            with watch.round(made * num_chains, warmup * num_chains) as report:
                options = {"num_chains": num_chains, "scan": 0, "progress": report, "checkpoint": place(number)}
                had = 0 if trace is None else trace.num_draws
                trace = _more(fold_in(key, number), kernel, starts, count, warmup, trace, options)
            made += trace.num_draws - had  # whole tours of a divided source, which may be more than asked for
            watch.look()
            if any_of("an interrupt", interrupt.is_set()) or (trace.is_interrupted and not watch.is_over):
                is_cut = bool(scan) and has_scan(kernel)
                return Ran(dataclasses.replace(trace, is_interrupted=True), False, "the run was interrupted", is_cut)
            trace, growth = _judged(dataclasses.replace(trace, is_interrupted=False), limits.num_draws)
            why = _why_to_stop(made >= most, limits, watch) if growth > 1 else ""
            if growth <= 1 or why:
                break
            more = math.ceil((min(growth, _MOST_GROWTH) - 1) * trace.num_draws)
            count, number = max(min(more, most - made), 1), number + 1
        if scan and has_scan(kernel):
            trace = _scanned(trace, scan, fold_in(key, _SCAN_KEY), interrupt, progress=progress)
    return Ran(trace, growth <= 1, why, trace.scan is None and interrupt.is_set())


class _Watch:
    """Shows progress, and ends a round when the time is over."""

    def __init__(self, end: float, *, progress: bool) -> None:
        self._end, self._progress = end, progress
        self.is_over = False
        """Whether there was no time left after the last round; the same on all processes."""

    def look(self) -> None:
        """Look at the clock."""
        self.is_over = any_of("the end of a round", time.perf_counter() > self._end)

    @contextmanager
    def round(self, had: int, least: int) -> Generator[Callable[[int, int], None]]:
        """Yield what a run calls with its draws so far, and all that it will make; it makes more than `least`."""
        with ExitStack() as bars:
            bars.enter_context(shown(self._progress and not had, "compiling the sampler", is_step=True))
            show: Show | None = None

            def report(done: int, total: int) -> None:
                nonlocal show
                if show is None:
                    bars.close()
                    show = bars.enter_context(shown(self._progress, "sampling", had + total, is_step=True))
                show(had + done, f"{had + done:,} draws")
                if time.perf_counter() > self._end and had + done > least:
                    raise KeyboardInterrupt

            yield report


def _more(
    key: Array,
    kernel: MetropolisHastings,
    starts: PyTree,
    count: int,
    warmup: int,
    before: Trace | None,
    options: dict[str, Any],
) -> Trace:
    """Draw some more; whatever happens, the draws before are not lost."""
    if before is None:
        return drawn(key, kernel, PerChain(starts), count, num_warmup=warmup, **options)
    try:
        found = drawn(key, kernel, PerChain(last_positions(before)), count, **options)
    except KeyboardInterrupt:
        return dataclasses.replace(before, is_interrupted=True)
    except SamplingError as error:
        raise SamplingError(str(error), _both(before, error.trace)) from error
    return _both(before, found)


def _both(before: Trace, after: Trace) -> Trace:
    """Join them, unless chains of an interrupted round are missing."""
    if after.left_out:
        return dataclasses.replace(before, is_interrupted=True, kernel=after.kernel)
    return before.extend(after)


def _judged(trace: Trace, wanted: int) -> tuple[Trace, float]:
    """Return the trace, perhaps without its first half, and how many times as many draws it should have."""
    growth = _growth(trace, wanted)
    if growth <= 1 or trace.num_draws < 2 * _ROUND:
        return trace, growth
    half = without_first(trace, trace.num_draws // 2)
    if not _growth(half, wanted / 2) <= 1 < _growth(trace, wanted / 2):
        return trace, growth
    return half, max(_growth(half, wanted), 1.0)


def _growth(trace: Trace, wanted: float) -> float:
    found = convergence_of(_compared(trace))
    ess, r_hat = np.nan_to_num(found.ess, nan=0.0).min(), np.nan_to_num(found.r_hat, nan=np.inf).max()
    by_ess = 1.0 if ess >= wanted else _TO_SPARE * wanted / max(ess, 1.0)
    return max(by_ess, 1.0 if r_hat <= MOST_R_HAT else _AGAIN)


def _compared(trace: Trace) -> list[np.ndarray]:
    """Return the draws that must agree: with constraints, in both coordinates.

    Some parameters are the same in all draws, such as the first entry of a Cholesky factor. That chains which never
    moved are not taken for these shows in the coordinates of the sampler.
    """
    draws = list(trace.variables().values())
    if trace.sampled is None:
        return draws
    flat = [leaf.reshape(*leaf.shape[:2], -1) for leaf in draws]
    return [*(leaf[:, :, np.ptp(leaf, axis=(0, 1)) > 0] for leaf in flat), *jax.tree.leaves(trace.sampled)]


def _why_to_stop(is_all_made: bool, limits: Limits, watch: _Watch) -> str:
    if watch.is_over:
        return f"the limit of {limits.max_seconds:,.4g} s was reached"
    return f"the limit of {limits.max_draws:,} draws was reached" if is_all_made else ""


def _scanned(trace: Trace, count: int, key: Array, interrupt: threading.Event, *, progress: bool) -> Trace:
    verdict: dict[str, Any] = {name: getattr(trace, name) for name in Verdict._fields}
    assert isinstance(trace.kernel, MetropolisHastings)
    try:
        found = scanned(
            trace.kernel, Drawn(trace.unconstrained, Verdict(**verdict)), count, key, interrupt, progress=progress
        )
    except Exception as error:
        raise SamplingError(failed_check(error), trace) from error
    return dataclasses.replace(trace, scan=found.scan, scan_seconds=found.seconds, notes=trace.notes + found.notes)
