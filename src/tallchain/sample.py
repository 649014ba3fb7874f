"""Draw from a posterior with many chains: the host side, in chunks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallchain import lockstep
from tallchain.checking.faults import SamplingError, saving, warn_of
from tallchain.checking.recorder import Recorder
from tallchain.checking.scan import scan as scan_rows
from tallchain.checking.trace import Trace
from tallchain.checking.verdict import Scan
from tallchain.checking.violations import BoundError, check_all_rows, needs_check, show_and_check
from tallchain.checks import are_scalars, check_position, check_start, position_of
from tallchain.chunks import fill, progress_bar, slots_within
from tallchain.coordinates import coordinates_of, shapes_of_parameters
from tallchain.interrupts import catch_interrupt
from tallchain.kernel import MetropolisHastings
from tallchain.keys import fold_in, single_key
from tallchain.lockstep import Drawn
from tallchain.names import labels_of
from tallchain.parts import replace
from tallchain.residuals import digits, needs_float64
from tallchain.schedule import Kernel, Schedule
from tallchain.settings import Settings, is_exact, settings_of
from tallchain.types import (
    Array,
    NotedSource,
    PyTree,
    Source,
)
from tallchain.validation import brief, is_truth, is_whole
from tallchain.warmup import Recentre, Warmup, check_warmup

_KEPT, _LEAST_KEPT = 1024, 16  # draws with moments, of all chains and of one
_SHORT = 2**24  # rows that a run reads at least: below, compiling the sampler takes longer than running it


def sample(
    key: Array,
    kernel: Kernel,
    initial: PyTree,
    num_samples: int,
    *,
    num_chains: int = 1,
    num_warmup: int = 0,
    keep: Literal["draws", "moments"] = "draws",
    thin: int | None = None,
    schedule: Schedule | None = None,
    recentre: Recentre | None = None,
    adapt: bool = False,
    scan: int = 8,
    progress: bool | Callable[[int, int], None] = True,
    chunk_size: int | None = None,
) -> Trace:
    """Draw `num_samples` draws from each of `num_chains` chains, in lockstep.

    A key determines the draws, for any chunk size; a chain uses the same random numbers however many others run. Ctrl-C
    or SIGTERM ends the run cleanly: it returns the draws so far, with `is_interrupted` set and without the scan. They
    are cut to the length of the shortest chain; chains that are very far behind are left out, and named (see
    `Trace.left_out`). During the scan it ends only the scan.

    Args:
        key: a JAX random key.
        kernel: the sampler.
        initial: one position for all chains, or one per chain along a first axis of length `num_chains` (if both
            readings are possible and some array has two axes or more, it is one per chain). Of a posterior with
            constraints, parameters that keep them.
        num_samples: draws to make from each chain, after the warm-up.
        num_chains: chains in lockstep; many of them use the machine better than one.
        num_warmup: draws to make first and discard; their rows are counted in the trace.
        keep: "draws" keeps the draws. "moments" keeps means, covariances, quantiles and their errors, over all draws,
            and about a thousand draws (16 or more of each chain), for the scan and for pictures: memory, and what comes
            from an accelerator to the host, do not grow with the run. The summary is then of the moments; see
            `Trace.moments`. After Ctrl-C they are of every finished draw, whether chains were cut or left out.
        thin: keep every `thin`-th draw, from the first after the warm-up; None keeps all, or chooses for
            `keep="moments"`. Draws in between are made, and their rows counted.
        schedule: temperature and proposal scale as functions of the draw.
        recentre: makes a surrogate at another position, as `prepare(...).recentre` does. If half-way through the
            warm-up the chains are on average more than one of their standard deviations from where the kernel's
            surrogate was made (root mean square over coordinates), it is made again at their mean; never after. The
            kernel with that surrogate is `trace.kernel`. An exact test keeps its surrogate, for which its bound holds.
        adapt: adapt the scale of the proposal in rounds of the warm-up, by the acceptance and the rows of all chains
            (see `tallchain.tuning`); it is frozen afterwards, and `trace.kernel` has it.
        scan: proposals at which to read EVERY row, once, at the end. A minibatch does not know the rows it has not
            seen, so without the scan a few rows that carry the posterior go unnoticed. A warning says what it found; 0
            leaves it out. An exact test needs none, but a bound that was given (`Bound(...)`) is checked so. A
            `StochasticGradient` has no decisions to check, so there is none.
        progress: show a progress bar (needs `rich`; without a terminal, a line every ten seconds or more); or a
            function to call with the draws so far and all draws.
        chunk_size: draws per chain between two visits to the host; None chooses by memory.
    """
    if isinstance(kernel, Kernel):  # others are refused below
        initial = position_of("sample(initial=...)", kernel.posterior, initial)
    trace = drawn(
        key,
        kernel,
        initial,
        num_samples,
        num_chains=num_chains,
        num_warmup=num_warmup,
        keep=keep,
        thin=thin,
        schedule=schedule,
        recentre=recentre,
        adapt=adapt,
        scan=scan,
        progress=progress,
        chunk_size=chunk_size,
    )
    warn_of(trace, stacklevel=2)
    return trace


def drawn(
    key: Array,
    kernel: Kernel,
    initial: PyTree,
    num_samples: int,
    *,
    num_chains: int = 1,
    num_warmup: int = 0,
    keep: Literal["draws", "moments"] = "draws",
    thin: int | None = None,
    schedule: Schedule | None = None,
    recentre: Recentre | None = None,
    adapt: bool = False,
    scan: int = 8,
    progress: bool | Callable[[int, int], None] = True,
    chunk_size: int | None = None,
) -> Trace:
    """As `sample`, from a position of the sampler, and without warnings: the complaints of the trace say the same."""
    _check_arguments(kernel, schedule, num_samples, num_chains, num_warmup, scan, chunk_size, progress)
    num_samples, num_chains, num_warmup, scan = map(int, (num_samples, num_chains, num_warmup, scan))  # np.int8, too
    thin = _thin(keep, thin, num_samples, num_chains)
    key = single_key("sample(key=...)", key)
    schedule = Schedule() if schedule is None else schedule
    check_warmup(kernel, num_warmup, num_chains, schedule, recentre, adapt)
    num_draws = num_warmup + num_samples
    began = time.perf_counter()
    warmup = Warmup(kernel, num_chains, num_warmup, recentre, adapt=bool(adapt))
    recorder = Recorder(
        kernel.source.population.total,
        num_chains,
        num_samples,
        num_warmup,
        thin=thin,
        with_moments=keep == "moments",
        watch=warmup.watch,
        coordinates=coordinates_of(kernel.posterior),
    )
    positions = _one_per_chain(kernel, initial, num_chains)
    one = jax.tree.map(lambda leaf: leaf[0], positions)
    names = labels_of(kernel.posterior, shapes_of_parameters(kernel.posterior, one))
    least = schedule.check(kernel, one, num_draws)
    if least is not None and isinstance(kernel, MetropolisHastings):
        wide = needs_float64(kernel.source.population.num_rows, least, kernel.surrogate)
        kernel = replace(kernel, in_float64=wide)
    notes, is_one_start = _notes_of(kernel.source), _is_one(positions)

    def trace_of(last: _Last, found: Found, *, is_interrupted: bool) -> Trace:
        return recorder.trace(
            initial,
            names=names,
            kernel=last.kernel,
            settings=last.settings,
            is_one_start=is_one_start,
            is_interrupted=is_interrupted,
            notes=notes + warmup.notes + found.notes,
            scan=found.scan,
            scan_seconds=found.seconds,
            compile_seconds=time.perf_counter() - began - recorder.seconds - found.seconds,
        )

    def find_last() -> _Last:
        """Return the kernel as it was at the last draw kept; None if the device has failed: the draws matter more."""
        try:
            last = schedule.at(kernel, num_warmup + (recorder.num_kept - 1) * thin)
            return _Last(last, settings_of(last, is_scheduled=schedule.temperature is not None))
        except Exception:
            return _Last()

    with catch_interrupt() as interrupt, digits(kernel.in_float64):
        kernel = warmup.started(kernel)
        first = schedule.at(kernel, 0)
        check_start("sample(initial=...)", first.target, first.proposal, first.bound, positions)
        runner = partial(
            lockstep.Runner,
            schedule=schedule,
            keys=lockstep.keys_of(key, num_chains),
            slots=chunk_size or partial(slots_within, num_draws),
            is_short=num_chains * num_draws * kernel.width <= _SHORT,
        )
        with (
            progress_bar(progress, num_draws * num_chains) as show,
            saving(recorder, lambda: trace_of(find_last(), Found(), is_interrupted=True)),
        ):
            run, report = runner(kernel).start(positions), partial(show_and_check, show, kernel, positions)
            for stop in sorted(warmup.stops - {0}):
                fill(recorder, run, stop, interrupt, report)
                if not interrupt.is_set():
                    kernel, run = warmup.changed(stop, kernel, run, recorder.warmup, runner)
            fill(recorder, run, num_draws, interrupt, report)
        if not recorder.has_draws:
            raise KeyboardInterrupt("sampling was interrupted before the first draw was finished")
        last, found = find_last(), Found()
        is_interrupted = interrupt.is_set() or recorder.num_finished < num_draws
        if scan and last.kernel and has_scan(kernel) and not interrupt.is_set():
            try:
                draws, has_bar = recorder.draws(), not callable(progress) and bool(progress)
                found = scanned(last.kernel, draws, scan, fold_in(key, num_chains), interrupt, progress=has_bar)
            except Exception as error:
                unchecked = trace_of(last, found, is_interrupted=is_interrupted)
                raise SamplingError(failed_check(error), unchecked) from error
        return trace_of(last, found, is_interrupted=is_interrupted)


class _Last(NamedTuple):
    """The sampler at the end of a run."""

    kernel: Kernel | None = None
    settings: Settings | None = None


class Found(NamedTuple):
    """What the scan has found."""

    scan: Scan | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


def has_scan(kernel: Kernel) -> bool:
    """Whether rows that were not seen could matter: where there is no test at all, there is nothing to check."""
    return isinstance(kernel, MetropolisHastings) and (not is_exact(kernel.acceptance) or needs_check(kernel))


def failed_check(error: Exception) -> str:
    """Say that the scan failed, and where the draws are."""
    if isinstance(error, BoundError):
        return f"{error} They are in the `trace` of this exception."
    return (
        f"The draws are made, but the scan of all rows that checks them failed: {error!r}. They are in the `trace` of "
        "this exception; `sample(scan=0)` leaves the scan out."
    )


def scanned(
    kernel: Kernel, draws: Drawn, count: int, key: Array, interrupt: threading.Event, *, progress: bool
) -> Found:
    """Read every row at some proposals."""
    assert isinstance(kernel, MetropolisHastings)
    began = time.perf_counter()
    if needs_check(kernel):
        note = check_all_rows(kernel, draws.position, count, interrupt, progress=progress)
        return Found(None, time.perf_counter() - began, (note,))
    try:
        found, notes = scan_rows(kernel, draws, count, key, interrupt, progress=progress), ()
    except KeyboardInterrupt:
        found, notes = None, ("the scan was interrupted",)
    return Found(found, time.perf_counter() - began, notes)


def _notes_of(source: Source) -> tuple[str, ...]:
    return source.notes if isinstance(source, NotedSource) else ()


def _check_arguments(
    kernel: Any,
    schedule: Any,
    num_samples: Any,
    num_chains: Any,
    num_warmup: Any,
    scan: Any,
    chunk_size: Any,
    progress: Any,
) -> None:
    for name, value, least in (
        ("num_samples", num_samples, 1),
        ("num_chains", num_chains, 1),
        ("num_warmup", num_warmup, 0),
        ("scan", scan, 0),
        ("chunk_size", 1 if chunk_size is None else chunk_size, 1),
    ):
        if not is_whole(value, least):
            raise ValueError(f"`sample({name}=...)` must be a whole number, at least {least}; got {brief(value)}.")
    if not isinstance(kernel, Kernel):
        hint = " Use `prepared.kernel()`." if callable(getattr(kernel, "kernel", None)) else ""
        raise TypeError(
            "`sample(kernel=...)` must be a MetropolisHastings(...), a FireflyMC(...) or a StochasticGradient(...); "
            f"got {brief(kernel)}.{hint}"
        )
    if not (schedule is None or isinstance(schedule, Schedule)):
        raise TypeError(
            f"`sample(schedule=...)` must be a Schedule(temperature=..., scale=...); got {brief(schedule)}."
        )
    if not (is_truth(progress) or callable(progress)):
        raise TypeError(
            "`sample(progress=...)` must be True, False or a function of the draws so far and all draws; got "
            f"{brief(progress)}."
        )


def _thin(keep: Any, thin: Any, num_samples: int, num_chains: int) -> int:
    """Return how many draws to make for one to keep."""
    if not (isinstance(keep, str) and keep in ("draws", "moments")):
        raise ValueError(f'`sample(keep=...)` must be "draws" or "moments"; got {brief(keep)}.')
    if thin is None:
        enough = max(_LEAST_KEPT, -(-_KEPT // num_chains))
        return max(num_samples // enough, 1) if keep == "moments" else 1
    if not is_whole(thin, 1) or thin > num_samples:
        raise ValueError(
            f"`sample(thin=..., num_samples={num_samples})` must be a whole number from 1 to num_samples, or None; got "
            f"{brief(thin)}."
        )
    return int(thin)


def _one_per_chain(kernel: Kernel, initial: PyTree, num_chains: int) -> PyTree:
    """Return positions with the chains along a first axis, from one position or one per chain."""
    initial = check_position("sample(initial=...)", initial)
    leaves = jax.tree.leaves(initial)
    shared = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (num_chains, *leaf.shape)), initial)
    if any(leaf.ndim == 0 or len(leaf) == 0 for leaf in leaves):
        return shared
    is_one = are_scalars(kernel.target, initial)
    is_each = are_scalars(kernel.target, jax.tree.map(lambda leaf: leaf[0], initial))
    lengths = {len(leaf) for leaf in leaves}
    if lengths != {num_chains}:
        if is_each and not is_one and len(lengths) == 1 and any(leaf.ndim > 1 for leaf in leaves):
            raise ValueError(
                f"`sample(initial=..., num_chains={num_chains})`: the initial position looks like {lengths.pop()} "
                f"positions, one for each of as many chains. Set `num_chains` to their number, or give {num_chains}."
            )
        return shared
    if not (is_one and is_each):
        return initial if is_each else shared
    if any(leaf.ndim > 1 for leaf in leaves):
        return initial
    if num_chains == 1:
        return shared
    raise ValueError(
        f"`sample(initial=..., num_chains={num_chains})`: an initial position of shape "
        f"{jax.tree.map(jnp.shape, initial)} could be one position of {num_chains} coordinates or {num_chains} "
        f"positions of one. Give one row per chain, shape ({num_chains}, d), to say which."
    )


def _is_one(positions: PyTree) -> bool:
    """Whether all chains are at the same place."""
    return all(bool(np.all(np.asarray(leaf) == np.asarray(leaf[:1]))) for leaf in jax.tree.leaves(positions))
