"""Draw from a posterior with many chains: the host side, in chunks."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal

import jax

from tallchain.checking.faults import saving, warn_of
from tallchain.checking.recorder import InMemory, Recorder
from tallchain.checking.trace import Trace
from tallchain.checking.violations import show_and_check
from tallchain.checks import check_start, position_of
from tallchain.chunks import fill, progress_bar, slots_within
from tallchain.coordinates import coordinates_of, shapes_of_parameters
from tallchain.ending import End, Found, notes_of
from tallchain.interrupts import catch_interrupt
from tallchain.kernel import MetropolisHastings
from tallchain.keys import fold_in, keys_of, single_key, words_of
from tallchain.names import labels_of
from tallchain.parts import replace
from tallchain.processes import apart_for, check_alike, divided_by
from tallchain.residuals import digits, needs_float64
from tallchain.resuming import Called, Place, begun, checkpoint_of
from tallchain.rounds import Rounds
from tallchain.runner import Runner
from tallchain.schedule import Kernel, Schedule
from tallchain.starts import PerChain, in_coordinates, is_one, one_per_chain, start_of
from tallchain.types import (
    Array,
    PyTree,
)
from tallchain.validation import brief, check_switch, is_truth, is_whole
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
    keep_warmup: bool = False,
    schedule: Schedule | None = None,
    recentre: Recentre | None = None,
    adapt: bool = False,
    scan: int = 8,
    progress: bool | Callable[[int, int], None] = True,
    chunk_size: int | None = None,
    checkpoint: Place | None = None,
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
            readings are possible and some array has two axes or more, it is one per chain); or a trace, to go on
            where its chains are, with another key: `trace.extend` puts both together. Of a posterior with constraints,
            parameters that keep them.
        num_samples: draws to make from each chain, after the warm-up.
        num_chains: chains in lockstep; many of them use the machine better than one.
        num_warmup: draws to make first and discard; their rows are counted in the trace.
        keep: "draws" keeps the draws. "moments" keeps means, covariances, quantiles and their errors, over all draws,
            and about a thousand draws (16 or more of each chain), for the scan and for pictures: memory, and what comes
            from an accelerator to the host, do not grow with the run. The summary is then of the moments; see
            `Trace.moments`. After Ctrl-C they are of every finished draw, whether chains were cut or left out.
        thin: keep every `thin`-th draw, from the first after the warm-up; None keeps all, or chooses for
            `keep="moments"`. Draws in between are made, and their rows counted.
        keep_warmup: keep the draws of the warm-up too, apart from the others: as `trace.before`, and as groups of the
            DataTree.
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
        checkpoint: a folder in which to keep the draws, and how far every chain is. The same call goes on from there,
            however the process before ended, and makes the same draws; another call is refused. The draws are then in
            a file and not in memory. Of several processes only the first one reads and writes there.
    """
    if isinstance(kernel, Kernel):  # others are refused below
        initial = in_coordinates("sample(initial=...)", kernel, initial)
    trace = drawn(
        key,
        kernel,
        initial,
        num_samples,
        num_chains=num_chains,
        num_warmup=num_warmup,
        keep=keep,
        thin=thin,
        keep_warmup=keep_warmup,
        schedule=schedule,
        recentre=recentre,
        adapt=adapt,
        scan=scan,
        progress=progress,
        chunk_size=chunk_size,
        checkpoint=checkpoint,
    )
    warn_of(trace, stacklevel=2)
    return trace


def resume(
    checkpoint: Place,
    kernel: Kernel,
    initial: PyTree = None,
    *,
    schedule: Schedule | None = None,
    recentre: Recentre | None = None,
    scan: int = 8,
    progress: bool | Callable[[int, int], None] = True,
    chunk_size: int | None = None,
) -> Trace:
    """Go on with a run of `sample(checkpoint=...)` from its folder: key, start and lengths are there.

    Args:
        checkpoint: the folder.
        kernel: as it was given to `sample`.
        initial: as it was given to `sample`, if positions are neither arrays nor dicts, lists or tuples of them.
        schedule: as it was given to `sample`.
        recentre: as it was given to `sample`.
        scan: as for `sample`.
        progress: as for `sample`.
        chunk_size: as for `sample`.
    """
    found = begun(checkpoint)
    if initial is not None:
        initial = position_of("resume(initial=...)", kernel.posterior, initial)
    elif found.initial is None:
        raise TypeError(
            f"`resume({str(checkpoint)!r}, ...)`: give `initial`, as it was given to `sample`: the positions are "
            "records of a class of their own, which a checkpoint does not hold."
        )
    options: dict[str, Any] = found.called._asdict() | {"schedule": schedule, "recentre": recentre, "scan": scan}
    options |= {"progress": progress, "chunk_size": chunk_size, "checkpoint": checkpoint}
    trace = drawn(found.key, kernel, PerChain(found.initial) if initial is None else initial, **options)
    warn_of(trace, stacklevel=2)
    return trace


def drawn(
    key: Array,
    kernel: Kernel,
    initial: PyTree | PerChain,
    num_samples: int,
    *,
    num_chains: int = 1,
    num_warmup: int = 0,
    keep: Literal["draws", "moments"] = "draws",
    thin: int | None = None,
    keep_warmup: bool = False,
    schedule: Schedule | None = None,
    recentre: Recentre | None = None,
    adapt: bool = False,
    scan: int = 8,
    progress: bool | Callable[[int, int], None] = True,
    chunk_size: int | None = None,
    checkpoint: Place | None = None,
) -> Trace:
    """As `sample`, from a position of the sampler, and without warnings: the complaints of the trace say the same."""
    _check_arguments(kernel, schedule, num_samples, num_chains, num_warmup, scan, chunk_size, progress)
    num_samples, num_chains, num_warmup, scan = map(int, (num_samples, num_chains, num_warmup, scan))  # np.int8, too
    key = single_key("sample(key=...)", key)
    initial, num_chains = start_of(initial, num_chains, words_of(key))
    rounds = Rounds.of(kernel, num_samples, num_chains, num_warmup)
    num_samples = rounds.num_samples if rounds else num_samples
    thin = _thin(keep, thin, num_samples, num_chains)
    _check_keep_warmup(keep_warmup, keep, thin)
    schedule = Schedule() if schedule is None else schedule
    check_warmup(kernel, num_warmup, num_chains, schedule, recentre, adapt)
    num_draws = num_warmup + num_samples
    began = time.perf_counter()
    warmup = Warmup(kernel, num_chains, num_warmup, recentre, adapt=bool(adapt))
    positions = one_per_chain(kernel, initial, num_chains)
    initial = initial.positions if isinstance(initial, PerChain) else initial
    one = jax.tree.map(lambda leaf: leaf[0], positions)
    names = labels_of(kernel.posterior, shapes_of_parameters(kernel.posterior, one))
    least = schedule.check(kernel, one, num_draws)
    if least is not None and isinstance(kernel, MetropolisHastings):
        wide = needs_float64(kernel.source.population.scale, least, kernel.surrogate)
        kernel = replace(kernel, in_float64=wide)
    notes, is_one_start = notes_of(kernel.source), is_one(positions)
    called = Called(num_samples, num_chains, num_warmup, keep, thin, bool(adapt), bool(keep_warmup))
    has_checkpoint = checkpoint is not None
    apart, counting = apart_for(rounds, keep=keep, adapt=bool(adapt), has_checkpoint=has_checkpoint)
    others = {"schedule": schedule, "recentre": recentre is not None, "scan": scan, "checkpoint": has_checkpoint}
    check_alike(kernel, initial, key, called._asdict() | others)
    with (
        checkpoint_of(checkpoint, kernel, positions, initial, key, called, schedule, recentre) as saved,
        catch_interrupt() as interrupt,
        digits(kernel.in_float64),
    ):
        recorder = Recorder(
            kernel.source.population.total,
            num_chains,
            num_samples,
            num_warmup,
            thin=thin,
            with_moments=keep == "moments",
            watch=warmup.watch,
            coordinates=coordinates_of(kernel.posterior),
            store=saved.store if saved else InMemory,
            keep_warmup=bool(keep_warmup),
            apart=apart,
            counting=counting,
        )
        kernel = warmup.started(kernel)
        first = schedule.at(kernel, 0)
        check_start("sample(initial=...)", first.target, first.proposal, first.bound, positions)
        runner = partial(
            Runner,
            schedule=schedule,
            keys=keys_of(key, num_chains),
            slots=chunk_size or partial(slots_within, num_draws),
            groups=saved.num_groups if saved else None,
            divided=divided_by(rounds),
            is_short=num_chains * num_draws * kernel.width <= _SHORT,
            is_apart=apart is not None,
        )
        facts = {"names": names, "is_one_start": is_one_start, "key": words_of(key)}
        end = End(recorder, warmup, schedule, kernel, began, notes, {"like": initial, **facts}, rounds)
        with ExitStack() as during:
            show = during.enter_context(progress_bar(progress, num_draws * num_chains))
            run = end.resume(saved, positions, runner) if saved else None
            during.enter_context(saving(recorder, lambda: end.trace(end.last(), Found(), is_interrupted=True)))
            report = partial(show_and_check, show, end.kernel, positions)
            if recorder.num_finished < num_draws:
                run = run or runner(end.kernel).start(positions)
                for stop in end.stops(int(run.draw.max())):
                    fill(recorder, run, stop, interrupt, report, saved)
                    recorder.meet()
                    if not interrupt.is_set():
                        end.kernel, run = end.changed(stop, run, runner)
                fill(recorder, run, num_draws, interrupt, report, saved)
                recorder.put_together()
        return end.finish(scan, fold_in(key, num_chains), interrupt, progress=progress)


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


def _check_keep_warmup(keep_warmup: Any, keep: str, thin: int) -> None:
    if check_switch("sample", "keep_warmup", keep_warmup) and (thin > 1 or keep == "moments"):
        raise ValueError("`sample(keep_warmup=True)` keeps every draw: leave `thin` and `keep` out.")
