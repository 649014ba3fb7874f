"""Where the parts meet: a decision as a small state machine.

    draw(key, position)     -> noise      all the randomness of one decision, drawn once
    open(noise, position)   -> Trial      propose, compute the offset, let the test ask
    look(position, trial)   -> Trial      read ONE window, absorb it into the evidence, count its rows
    judge(trial)            -> Trial, is_decided, is_accepted
    close(position, trial, is_accepted) -> position, Verdict

`decide` runs one decision from end to end; `tallchain.sample` runs many chains, a look of each at a time. The
randomness is drawn separately from its use, so that many chains can draw it ahead, in bulk: random numbers for chains
that do not open a trial at that turn would be the largest waste of the lockstep loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

from tallchain.abilities import CensusSource, CostlyProposal, ReadingProposal, ScaledProposal, SuitedSource
from tallchain.acceptance.minibatch_barker import MinibatchBarker
from tallchain.assembly import check_part, check_surrogate, fit_bound
from tallchain.bounds import Bound, Fitted
from tallchain.checks import check_position, check_start
from tallchain.keys import as_threefry
from tallchain.parts import check_registered, part, replace, set_fields, static
from tallchain.residuals import needs_float64, residual
from tallchain.threefry import same_key
from tallchain.types import (
    AcceptanceTest,
    Array,
    Ask,
    BoundedEvidence,
    BoundedTest,
    Posterior,
    Proposal,
    PyTree,
    ReportingTest,
    RowFunction,
    Source,
    Surrogate,
    Target,
    Verdict,
)
from tallchain.validation import brief


class State(NamedTuple):
    """Where a chain is."""

    position: PyTree


class Noise(NamedTuple):
    """All the randomness of one decision."""

    proposal: PyTree
    acceptance: PyTree
    source: Array
    """A key."""


@part
class Randomness:
    """What draws the noise of a decision. It has no rows and no posterior, so that kernels share its programs."""

    proposal: Proposal | None
    """None if candidates need no noise."""
    acceptance: AcceptanceTest | None
    """None if there is no test."""
    like: Any = static()
    """Shapes of a position."""

    @classmethod
    def of(cls, proposal: Proposal | None, acceptance: AcceptanceTest | None, position: PyTree) -> Randomness:
        """Make it for positions of these shapes."""
        leaves, structure = jax.tree.flatten(position)
        return cls(proposal, acceptance, (structure, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves)))

    def draw(self, key: Array) -> Noise:
        """Draw the noise of one decision from its key."""
        key = same_key(key)
        structure, shapes = self.like
        position = jax.tree.unflatten(structure, [jnp.zeros(*shape) for shape in shapes])
        return Noise(
            () if self.proposal is None else self.proposal.draw(jr.fold_in(key, 0), position),
            () if self.acceptance is None else self.acceptance.draw(jr.fold_in(key, 1)),
            jr.fold_in(key, 2),
        )


class Trial(NamedTuple):
    """A decision under way."""

    candidate: PyTree
    offset: Array
    """The part of Delta that does not come from the rows that the test asks for."""
    memory: PyTree
    evidence: Any
    cursor: PyTree
    ask: Ask
    rows_read: Array
    rows_scanned: Array
    is_lost: Array
    """The test asked for no rows and did not decide, so nothing would ever change."""


class Decision(NamedTuple):
    """One decision, made."""

    position: PyTree
    """State after the decision."""
    verdict: Verdict
    seen: Trial
    """What the test had seen when it judged for the last time."""
    memory: PyTree
    """What it remembers after that."""


@part
class MetropolisHastings:
    """Metropolis-Hastings with an acceptance test of your choice.

    A pytree: pass it to a jitted function as an argument, and the data are an argument too.

    Args:
        posterior: log prior, log likelihood of one row, temperature.
        source: where the rows come from.
        proposal: how to propose, e.g. `RandomWalk(scale)`.
        acceptance: how to decide; the default is `MinibatchBarker()`.
        surrogate: a control variate, e.g. `surrogates.Taylor(...)`: the test then sees residuals per row.
        bound: for the tests that need one: f(position, candidate), an upper bound on the range over rows (largest
            minus smallest) of log p(x_i | candidate) - log p(x_i | position); or a `bounds.Bound`, which holds for what
            a surrogate leaves of them.
    """

    posterior: Posterior
    source: Source
    proposal: Proposal
    acceptance: AcceptanceTest
    surrogate: Surrogate | None
    bound: Callable[[PyTree, PyTree], Array] | None
    width: int = static()
    """Rows per look."""
    in_float64: bool = static()
    """Whether the log ratio of a row needs float64, since N/K times its rounding would be noise."""

    def __init__(
        self,
        posterior: Posterior,
        source: Source,
        *,
        proposal: Proposal,
        acceptance: AcceptanceTest | None = None,
        surrogate: Surrogate | None = None,
        bound: Bound | Callable[[PyTree, PyTree], Array] | None = None,
    ) -> None:
        acceptance = MinibatchBarker() if acceptance is None else acceptance
        for name, value, need in (
            ("posterior", posterior, "log_likelihood"),
            ("source", source, "look"),
            ("proposal", proposal, "propose"),
            ("acceptance", acceptance, "judge"),
        ):
            check_part(f"MetropolisHastings({name}=...)", value, need)
        check_registered("MetropolisHastings(surrogate=...)", surrogate)
        share = proposal.share_waiting if isinstance(proposal, CostlyProposal) else 0.0
        if not (isinstance(share, int | float) and 0 <= share <= 1):
            raise ValueError(
                "`MetropolisHastings(proposal=...)`: the proposal's share_waiting, the share of the chains that wait "
                f"for a candidate, must be a number from 0 to 1; got {brief(share)}."
            )
        check_surrogate(surrogate, posterior, source)
        bound = fit_bound(bound, source, surrogate)
        if isinstance(acceptance, BoundedTest):
            acceptance.check(source.population, has_bound=isinstance(bound, Fitted))
        if isinstance(proposal, ReadingProposal):
            proposal.check_source(source.population, has_surrogate=surrogate is not None)
        appetite = acceptance.appetite(source.population)
        source = source.suited(appetite) if isinstance(source, SuitedSource) else source
        set_fields(
            self,
            posterior=posterior,
            source=source,
            proposal=proposal,
            acceptance=acceptance,
            surrogate=surrogate,
            bound=bound,
            width=source.width(appetite),
            in_float64=needs_float64(source.population.scale, posterior.temperature, surrogate),
        )

    @property
    def log_likelihood(self) -> Callable[[PyTree, PyTree], Array]:
        """That of the posterior."""
        return self.posterior.log_likelihood

    @property
    def target(self) -> Target:
        """What a proposal may look at."""
        return Target(self.posterior, self.surrogate, self.source)

    # ---- BlackJAX's interface: one chain ---------------------------------------------------------

    def init(self, position: PyTree, rng_key: Array | None = None) -> State:
        """Start a chain; refuse a position from which the posterior cannot start."""
        self.check_digits()
        call = "kernel.init(position=...)"
        position = check_position(call, position)
        positions = jax.tree.map(lambda leaf: leaf[None], position)
        check_start(call, self.target, self.proposal, self.bound, positions)
        return State(jax.tree.map(jnp.asarray, position))

    def check_digits(self) -> None:
        """Refuse to run in float32 where float64 is needed; works for a traced kernel too."""
        if self.in_float64 and jnp.result_type(float) != jnp.float64:
            raise ValueError(
                f"`kernel.init(...)`: {self.source.population.num_rows:,} rows at this temperature multiply the "
                "rounding of a float32 log ratio into noise. Run inside `with jax.enable_x64(True):`, as `sample` does "
                "by itself."
            )

    def step(self, rng_key: Array, state: State) -> tuple[State, Verdict]:
        """Make one decision, reading as many windows as it takes."""
        decision = self.decide(self.draw(rng_key, state.position), state.position)
        return State(decision.position), decision.verdict

    # ---- one decision ------------------------------------------------------------------------

    def draw(self, key: Array, position: PyTree) -> Noise:
        """Draw all the randomness of one decision; only the shapes of `position` matter."""
        return self.randomness(position).draw(as_threefry(key))

    def randomness(self, position: PyTree) -> Randomness:
        """Return what draws it."""
        return Randomness.of(self.proposal, self.acceptance, position)

    def decide(self, noise: Noise, position: PyTree) -> Decision:
        """Make one whole decision, reading as many windows as it takes."""

        def turn(carry: tuple[Trial, Trial, Array, Array]) -> tuple[Trial, Trial, Array, Array]:
            seen = self.look(position, carry[0])
            trial, is_decided, is_accepted = self.judge(seen)
            return trial, seen, is_decided, is_accepted

        trial, no = self.open(noise, position), jnp.zeros((), bool)
        trial, seen, _, is_accepted = lax.while_loop(lambda carry: ~carry[2], turn, (trial, trial, no, no))
        return Decision(*self.close(position, trial, is_accepted), seen, trial.memory)

    def open(self, noise: Noise, position: PyTree) -> Trial:
        """Propose, and let the test say how many rows it wants to see first."""
        proposed = self.proposal.propose(noise.proposal, position, self.target)
        candidate = proposed.position
        bound = None if self.bound is None else self._factor * self.bound(position, candidate)
        memory, evidence, ask = self.acceptance.open(noise.acceptance, bound, self.source.population)
        if isinstance(self.bound, Fitted) and isinstance(evidence, BoundedEvidence):
            evidence = evidence.allowing(self._factor * self.bound.rounding)
        return Trial(
            candidate,
            self.offset(position, candidate, proposed.log_correction),
            memory,
            evidence,
            self.source.start(self.source.draw(noise.source)),
            _as_arrays(ask),
            jnp.zeros((), jnp.int32),
            jnp.asarray(proposed.rows_read, jnp.int32),
            jnp.zeros((), bool),
        )

    def resting(self, trial: Trial, position: PyTree) -> Trial:
        """Return empty trials of many chains with the positions as candidates: there the posterior is defined."""
        return trial._replace(candidate=copied(trial.candidate, position))

    def look(self, position: PyTree, trial: Trial, *, widely: bool = False) -> Trial:
        """Read one window of the rows asked for, or of rows that the source reads first; a wide one of a census."""
        ask = trial.ask
        log_ratio = self.row_log_ratio(position, trial.candidate)
        if widely:
            assert isinstance(self.source, CensusSource)
            cursor, seen = self.source.look_widely(trial.cursor, ask, log_ratio, trial.evidence.of)
        else:
            cursor, seen = self.source.look(trial.cursor, ask, self.width, log_ratio, trial.evidence.of)
        scanned = jnp.where(ask.apart, seen.taken, 0)
        return trial._replace(
            offset=trial.offset + seen.known,
            evidence=trial.evidence.merge(seen.evidence),
            cursor=cursor,
            ask=ask._replace(rows=ask.rows - seen.taken),
            rows_read=trial.rows_read + seen.read - scanned,
            rows_scanned=trial.rows_scanned + scanned,
        )

    def judge(self, trial: Trial) -> tuple[Trial, Array, Array]:
        """Let the test judge if it has seen what it asked for.

        A candidate whose log ratio is not finite is rejected at once, and so is one for which the test neither decides
        nor asks for rows: no decision goes on forever.
        """
        is_ready = jnp.asarray(trial.ask.rows <= 0)
        judgement = self.acceptance.judge(trial.memory, trial.offset, trial.evidence, self.source.population)
        is_finite = jnp.isfinite(trial.evidence.mean + trial.offset)
        evidence = trial.evidence
        is_decided = jnp.asarray(judgement.is_decided)
        if judgement.ask.fresh is not False:
            # `close` must still see what ended the trial: a decision, or a log ratio that is not finite.
            is_forgotten = is_ready & judgement.ask.fresh & is_finite & ~is_decided
            evidence = where(is_forgotten, evidence.empty(), evidence)
        is_lost = is_ready & ~is_decided & (judgement.ask.rows <= 0)
        judged = trial._replace(
            memory=where(is_ready, judgement.memory, trial.memory),
            ask=where(is_ready, _as_arrays(judgement.ask), trial.ask),
            evidence=evidence,
            is_lost=is_lost,
        )
        is_over = ~is_finite | (is_ready & is_decided) | is_lost
        return judged, is_over, is_finite & judgement.is_accepted & ~is_lost

    def close(self, position: PyTree, trial: Trial, is_accepted: Array) -> tuple[PyTree, Verdict]:
        """Move or stay, and return the verdict."""
        log_ratio = trial.evidence.mean + trial.offset
        # -inf is an answer: the candidate is impossible. NaN and +inf are not.
        is_invalid = jnp.isnan(log_ratio) | jnp.isposinf(log_ratio) | trial.is_lost
        extras = {}
        if isinstance(self.acceptance, ReportingTest):
            extras = self.acceptance.report(trial.memory, trial.offset, trial.evidence, self.source.population)
        verdict = Verdict(is_accepted, trial.rows_read, trial.rows_scanned, log_ratio, is_invalid, extras)
        return where(is_accepted, trial.candidate, position), verdict

    def offset(self, position: PyTree, candidate: PyTree, log_correction: Array | float) -> Array:
        """Return log p0(t') - log p0(t) + log q(t|t') - log q(t'|t), and (Q(t') - Q(t))/K of a surrogate."""
        log_prior = self.posterior.log_prior
        offset = log_prior(candidate) - log_prior(position) + log_correction
        if self.surrogate is not None:
            offset += self.surrogate.total(position, candidate) / self.posterior.temperature
        return jnp.asarray(offset, jnp.result_type(float))

    def row_log_ratio(self, position: PyTree, candidate: PyTree) -> RowFunction:
        """Return the function of a row Lambda_i = (N/K) (log p(x_i | t') - log p(x_i | t)), minus a surrogate's."""
        return residual(self.posterior, self.surrogate, position, candidate, self._factor, in_float64=self.in_float64)

    @property
    def _factor(self) -> Array | float:
        """N/K, N the rows to sample from, or all that they are a part of."""
        return self.source.population.scale / self.posterior.temperature

    # ---- schedules ---------------------------------------------------------------------------

    def tempered(self, temperature: Array) -> MetropolisHastings:
        """Return the same kernel at another temperature; may be a tracer."""
        return replace(self, posterior=replace(self.posterior, temperature=temperature))

    def scaled(self, scale: PyTree) -> MetropolisHastings:
        """Return the same kernel with another proposal scale; may be a tracer."""
        return replace(self, proposal=cast(ScaledProposal, self.proposal).with_scale(scale))


def where(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Choose between two records of the same structure."""

    def of_leaf(a: Array, b: Array) -> Array:
        if jnp.shape(condition) == () and jnp.shape(a) == jnp.shape(b) and jnp.result_type(a) == jnp.result_type(b):
            return lax.select(condition, jnp.asarray(a), jnp.asarray(b))  # traced in a fraction of the time
        return jnp.where(condition, a, b)

    return jax.tree.map(of_leaf, yes, no)


def copied(like: PyTree, values: PyTree) -> PyTree:
    """Return a copy on the host, in the types of other arrays: no buffer may be given away twice."""
    return jax.tree.map(lambda a, b: np.array(b, a.dtype), like, values)


def _as_arrays(ask: Ask) -> Ask:
    return Ask(
        jnp.asarray(ask.rows, jnp.int32),
        jnp.asarray(ask.census, bool),
        jnp.asarray(ask.apart, bool),
        jnp.asarray(ask.fresh, bool),
    )
