"""Decisions of a chain, repeated many times."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tallchain import runner
from tallchain.abilities import DividedSource
from tallchain.checking.recorder import Recorder
from tallchain.checking.scan import Pairs
from tallchain.checking.trace import Trace
from tallchain.chunks import fill, progress_bar, slots_within
from tallchain.functions import program
from tallchain.kernel import MetropolisHastings, Noise, Randomness, Trial
from tallchain.keys import make_key, split
from tallchain.parts import part, replace
from tallchain.proposals import Fixed
from tallchain.schedule import Schedule
from tallchain.types import Array, IntegratedTest, PyTree, Source, Verdict

_LANES = {"cpu": 2**10}  # decisions run in parallel
_LANES_ELSEWHERE = 2**16
_MOST_TRIALS, _LEAST_TRIALS = 2000, 32
_CHANCES = 2**10  # asked for at a time: a test may hold thousands of numbers for each
_ROWS = 2**28  # for the repeats of an audit to read, if their number is not given


class Trials(NamedTuple):
    """Decisions that were repeated."""

    chances: np.ndarray
    """Chance to accept, by lane and draw: as the test gives it, or 0 or 1 by its decision."""
    rows_read: int
    """Rows read for all decisions."""
    is_interrupted: bool


class _At(NamedTuple):
    """Where a lane is: the pair it decides next, and what the test had seen at its last decision."""

    pair: Array
    seen: PyTree
    """(memory, offset, evidence) for `chance`; () for a test without it."""


class _Repetition(NamedTuple):
    """A trial, what the test saw when it last judged, and whether that was enough."""

    trial: Trial
    seen: PyTree
    is_decided: Array


@part
class _Repeated:
    """Decisions at fixed pairs with the interface of a kernel, so that they run in lockstep like those of chains.

    A lane goes from pair to pair, whatever it decides: pairs that take many rows slow down all lanes equally.
    """

    kernel: MetropolisHastings
    pairs: Pairs

    @property
    def log_likelihood(self) -> Any:
        """That of the kernel."""
        return self.kernel.log_likelihood

    @property
    def source(self) -> Source:
        """That of the kernel."""
        return self.kernel.source

    def at_part(self, number: int) -> _Repeated:
        """Return the decisions as they are in another part of the rows."""
        if not isinstance(self.source, DividedSource):
            return self
        return replace(self, kernel=replace(self.kernel, source=self.source.at_part(number)))

    def randomness(self, position: Any = ()) -> Randomness:
        """Return what draws the noise of a decision; that of its proposal is spent."""
        return Randomness.of(None, self.kernel.acceptance, ())

    def open(self, noise: Noise, position: _At) -> _Repetition:
        """Open a trial at the pair."""
        here, there, log_correction = self._pair(position)
        trial = replace(self.kernel, proposal=Fixed(there, log_correction)).open(noise, here)
        return _Repetition(trial, self._seen(trial), jnp.zeros((), bool))

    def resting(self, repetition: _Repetition, position: _At) -> _Repetition:
        """Return empty trials of many lanes with the positions of the pairs as candidates."""
        return repetition._replace(trial=self.kernel.resting(repetition.trial, self._pair(position).here))

    def look(self, position: _At, repetition: _Repetition) -> _Repetition:
        """Read one window."""
        return repetition._replace(trial=self.kernel.look(self._pair(position).here, repetition.trial))

    def judge(self, repetition: _Repetition) -> tuple[_Repetition, Array, Array]:
        """Let the test judge, and keep what it judged by."""
        trial, is_decided, is_accepted = self.kernel.judge(repetition.trial)
        return _Repetition(trial, self._seen(repetition.trial), is_decided), is_decided, is_accepted

    def close(self, position: _At, repetition: _Repetition, is_accepted: Array) -> tuple[_At, Verdict]:
        """Go to the next pair once this one is decided."""
        _, verdict = self.kernel.close(self._pair(position).here, repetition.trial, is_accepted)
        pair = (position.pair + repetition.is_decided) % len(self.pairs.log_correction)
        return _At(pair, repetition.seen), verdict

    def start(self, num_lanes: int) -> _At:
        """Return lanes before their first decision, spread evenly over the pairs."""
        pair = jnp.arange(num_lanes, dtype=jnp.int32) % len(self.pairs.log_correction)
        seen = jax.eval_shape(lambda: self.open(self.randomness().draw(make_key(0)), _At(pair[0], ())).seen)
        return _At(pair, jax.tree.map(lambda leaf: jnp.zeros((num_lanes, *leaf.shape), leaf.dtype), seen))

    def _pair(self, position: _At) -> Pairs:
        return jax.tree.map(lambda leaf: leaf[position.pair], self.pairs)

    def _seen(self, trial: Trial) -> PyTree:
        is_integrated = isinstance(self.kernel.acceptance, IntegratedTest)
        return (trial.memory, trial.offset, trial.evidence) if is_integrated else ()


def repeat(
    kernel: MetropolisHastings,
    pairs: Pairs,
    num_trials: int,
    *,
    key: Array,
    interrupt: threading.Event,
    progress: bool,
) -> Trials:
    """Repeat the decisions both ways.

    Decision k of lane c is at pair (c + k) modulo the number of pairs; of these the second half are backward. If the
    rows are in parts, every pair is decided in each of them equally often: over whole tours what the parts do to a
    decision cancels to first order.
    """
    both = Pairs(
        jax.tree.map(lambda a, b: jnp.concatenate([a, b]), pairs.here, pairs.there),
        jax.tree.map(lambda a, b: jnp.concatenate([b, a]), pairs.here, pairs.there),
        jnp.concatenate([pairs.log_correction, -pairs.log_correction]),
    )
    num_pairs, num_parts = len(both.log_correction), _num_parts(kernel)
    in_part = -(-num_trials // num_parts)
    lanes_per_pair = _lanes_per_pair(num_pairs, in_part)
    num_lanes, length = num_pairs * lanes_per_pair, in_part // lanes_per_pair
    num_draws = num_parts * length

    def divided(repeated: _Repeated, draw: int) -> list[_Repeated]:
        return [repeated.at_part(draw // length)]

    repeated, schedule, keys = _Repeated(kernel, both), Schedule(), split(key, num_lanes)
    recorder = Recorder(kernel.source.population.total, num_lanes, num_draws, 0)
    start = repeated.start(num_lanes)
    run = runner.Runner(repeated, schedule, keys, partial(slots_within, num_draws), divided=divided).start(start)
    with progress_bar(progress, num_draws * num_lanes) as report:
        for stop in range(length, num_draws, length):
            fill(recorder, run, stop, interrupt, report)
            if not interrupt.is_set():
                run = run.restarted(repeated, stop)
        fill(recorder, run, num_draws, interrupt, report)
    if recorder.num_finished * lanes_per_pair < 2:
        raise KeyboardInterrupt("the audit was interrupted before every decision was repeated")
    position, verdict = recorder.draws_of_every_chain()
    chances = verdict.is_accepted
    if isinstance(kernel.acceptance, IntegratedTest):
        said = np.asarray(_chances(kernel, position.seen))
        # The kernel rejects a log ratio that is not finite; if a test does not know its chance, use its decision.
        chances = np.where(np.isfinite(verdict.log_ratio) & np.isfinite(said), said, chances)
    rows = int(verdict.rows_read.sum(dtype=np.int64) + verdict.rows_scanned.sum(dtype=np.int64))
    return Trials(np.asarray(chances, np.float64), rows, recorder.num_finished < num_draws)


@program()
def _chances(kernel: MetropolisHastings, seen: PyTree) -> Array:
    """P(accept) by lane and draw, given what the test saw: once per decision, since it can cost more than a look."""
    assert isinstance(kernel.acceptance, IntegratedTest)
    chance = kernel.acceptance.chance
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), seen)
    chances = lax.map(lambda one: chance(*one, kernel.source.population), flat, batch_size=_CHANCES)
    return chances.reshape(jax.tree.leaves(seen)[0].shape[:2])


def _num_parts(kernel: MetropolisHastings) -> int:
    return kernel.source.num_parts if isinstance(kernel.source, DividedSource) else 1


def _lanes_per_pair(num_pairs: int, num_trials: int) -> int:
    """As many as keep the machine busy and divide the repeats evenly."""
    most = _LANES.get(jax.default_backend(), _LANES_ELSEWHERE) // num_pairs
    return next((count for count in range(min(most, num_trials), 0, -1) if num_trials % count == 0), 1)


def choose_trials(kernel: MetropolisHastings, trace: Trace, num_decisions: int) -> int:
    """As many repeats as a fixed number of rows allows; two if all of them must be equal."""
    if isinstance(kernel.acceptance, IntegratedTest) and _always_reads_all(kernel):
        return 2
    rows = float(np.mean(trace.rows_read) + np.mean(trace.rows_scanned))
    affordable = _ROWS / max(2 * num_decisions * rows, 1)
    # Multiples of 8 can be divided among lanes.
    return 8 * round(min(max(affordable, _LEAST_TRIALS), _MOST_TRIALS) / 8)


def _always_reads_all(kernel: MetropolisHastings) -> bool:
    """Whether the test first asks for every row, and for the decision itself."""
    if kernel.source.population.is_part:
        return False
    bound = None if kernel.bound is None else jnp.zeros(())
    _, _, ask = kernel.acceptance.open(kernel.acceptance.draw(make_key(0)), bound, kernel.source.population)
    return bool(ask.census) and not bool(ask.apart)
