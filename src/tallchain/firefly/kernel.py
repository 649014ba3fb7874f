"""Firefly Monte Carlo (Maclaurin and Adams 2014): exact, from the rows that are bright.

Every row has a switch z_i besides the parameters t. With log B_i a lower bound of its log likelihood l_i, and
g_i = l_i - log B_i,

    p(t, z) = p0(t) prod_i B_i(t) prod_{z_i = 1} (exp(g_i(t)) - 1)

has the posterior as its marginal of t, since B_i + B_i (exp(g_i) - 1) = exp(l_i). The product of all bounds is known in
closed form (`tallchain.firefly.bound`), so a decision on t reads the bright rows alone, those with z_i = 1. A decision
of this kernel is one step of z (`tallchain.firefly.lists`), then one Metropolis step of t given z:

    Delta = log p0(t') - log p0(t) + log q(t | t') - log q(t' | t) + sum_i (log B_i(t') - log B_i(t))
            + sum_{z_i = 1} log((exp(g_i(t')) - 1) / (exp(g_i(t)) - 1)).
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.abilities import CostlyProposal, ScaledProposal
from tallchain.acceptance import Metropolis
from tallchain.arrays import as_floats, dot
from tallchain.firefly.bound import Bound, Expected, Sums, expect, slope, sum_rows
from tallchain.firefly.checks import bytes_of, check_capacity, check_memory, check_model, check_rows, place_of
from tallchain.firefly.langevin import Langevin
from tallchain.firefly.lists import NONE, Bright, binomial_table, flip
from tallchain.kernel import Noise, Randomness, copied, where
from tallchain.keys import as_threefry
from tallchain.models import Regression
from tallchain.parts import check_registered, part, replace, set_fields, static
from tallchain.proposals import RandomWalk
from tallchain.sources import as_source
from tallchain.sources.stored import Stored
from tallchain.types import Array, Posterior, Proposal, Proposed, PyTree, Source, Target, Verdict
from tallchain.validation import brief, is_positive

_PROPOSED = 2.0  # dark rows proposed at a decision, for one that is bright


class CapacityError(RuntimeError):
    """A chain has more bright rows than its list holds."""


class Fireflies(NamedTuple):
    """Where a chain is."""

    position: Array
    """t."""
    bright: Array
    """Where the source keeps the bright rows, those with z = 1; NONE in slots without a row."""


class Trial(NamedTuple):
    """A decision under way."""

    candidate: Array
    bright: Array
    """The list after its step."""
    count: Array
    """How many rows are bright; more than the list holds if it is full."""
    log_ratio: Array
    threshold: Array
    """X: the candidate is accepted if Delta + X > 0."""
    rows_read: Array
    rows_scanned: Array
    is_full: Array


@part
class FireflyMC:
    """Firefly Monte Carlo for a logistic regression, to run in `sample` as a `MetropolisHastings` does.

    Exact: the draws are from the posterior, whatever the rows, without a scan or an audit. Use it as a baseline: the
    chain moves as far as its bright rows allow.

    The bounds are those of Jaakkola and Jordan (2000), and touch the likelihood at one position, the mode; one sweep
    over all rows makes their sum. Far from there many rows are bright, so start chains from the Laplace approximation,
    as `prepared.starts(...)` does. All rows are dark at first: give the chains a short warm-up.

    Rows are counted as in the paper: evaluations of the likelihood, of the bright rows at the candidate and of the dark
    rows that are proposed. Those of the bright rows at the position count for the decision before.

    A chain keeps its bright rows as a list of 4 `capacity` bytes, and needs about 4 (d + 16)(capacity + num_dark) bytes
    while it decides (`bytes_per_chain`). If a list is full, the run stops with a `CapacityError`.

    Args:
        regression: `Regression(families.Bernoulli(), ...)` or `logistic_regression(...)`: no groups, weights or
            temperature.
        reference: where the bounds touch: the mode, as a `Reference` (`find_reference(...)`, `prepared.reference`) or
            a position.
        proposal: how to propose; one that reads no rows and needs no surrogate, such as `RandomWalk`, `PCN`, or
            `firefly.Langevin`. None for a walk with the covariance of the posterior given the bright rows.
        brighten: q, the chance of a dark row to be proposed at a decision; None for twice the expected share of bright
            rows, and at least 1/N. A smaller one reads fewer rows, but a row whose odds are above q stays bright for
            about odds/q decisions, which may slow the chain.
        capacity: bright rows that a chain can have; None for a number that one decision in 10^12 exceeds, if the
            posterior is normal.
        source: has the rows of the regression in memory, each once, such as `prepared.source`; None makes a copy.
    """

    posterior: Posterior
    source: Source
    proposal: Proposal
    sums: Bound
    """Of the log bounds, over all rows."""
    brighten: Array
    """q."""
    table: Array
    """Of the number of dark rows proposed."""
    expected_bright: Array
    """Rows that are bright at a draw, on average, if the posterior is normal."""
    capacity: int = static()
    """Slots of a list."""

    def __init__(
        self,
        regression: Regression,
        reference: Any,
        *,
        proposal: Proposal | None = None,
        brighten: float | None = None,
        capacity: int | None = None,
        source: Source | None = None,
    ) -> None:
        check_model(regression)
        position, posterior = place_of(regression, reference), regression.posterior
        if not (brighten is None or (is_positive(brighten) and brighten <= 1)):
            raise ValueError(
                f"`FireflyMC(brighten=...)` must be a chance above 0 and at most 1, or None; got {brief(brighten)}."
            )
        num_rows = len(regression.data["x"])
        check_capacity(capacity, num_rows)
        _check_proposal(proposal)
        rows = as_source("FireflyMC", regression.data) if source is None else check_rows(source, num_rows)
        sums = sum_rows(posterior, rows, position)
        expected = _expected(sums, posterior, position)
        chance = brighten or min(max(_PROPOSED * expected.bright, 1.0) / num_rows, 1.0)
        table = binomial_table(num_rows, float(chance))
        if isinstance(proposal, Langevin):
            proposal = proposal.placed(expected.given_bright)
        slots = capacity or min(-(-int(expected.most) // 8) * 8 + 8, num_rows)
        check_memory(slots, len(table), position.size, expected.bright)
        set_fields(
            self,
            posterior=posterior,
            source=rows,
            proposal=proposal or RandomWalk.preconditioned(expected.given_bright),
            sums=Bound(as_floats(position), as_floats(sums.gradient), as_floats(sums.curvature)),
            brighten=as_floats(chance),
            table=jnp.asarray(table),
            expected_bright=as_floats(expected.bright),
            capacity=int(slots),
        )

    # ---- what `sample` asks of a kernel ----------------------------------------------------------

    @property
    def log_likelihood(self) -> Any:
        """That of the posterior."""
        return self.posterior.log_likelihood

    @property
    def target(self) -> Target:
        """What a proposal may look at."""
        return Target(self.posterior, None, self.source)

    @property
    def acceptance(self) -> Metropolis:
        """The test of a candidate, given the bright rows."""
        return Metropolis()

    @property
    def surrogate(self) -> None:
        """None: the bounds are in its place."""
        return

    @property
    def bound(self) -> None:
        """None: no log ratio of a row is bounded."""
        return

    @property
    def in_float64(self) -> bool:
        """False: no rounding is multiplied by N."""
        return False

    @property
    def width(self) -> int:
        """Rows that a decision has room for."""
        return self.capacity + self.num_dark

    @property
    def num_dark(self) -> int:
        """The most dark rows that are proposed at a decision."""
        return len(self.table)

    @property
    def rows_swept(self) -> int:
        """Rows read to make the sums of the bounds: each once."""
        return self.source.population.total

    @property
    def bytes_per_chain(self) -> int:
        """Memory of a chain while it decides, about."""
        return bytes_of(self.capacity, self.num_dark, self.sums.position.size)

    @property
    def words(self) -> str:
        """For a summary."""
        return f"FireflyMC(brighten={float(self.brighten):.4g}, capacity={self.capacity})"

    def carried(self, positions: PyTree) -> Fireflies:
        """Return what chains carry from decision to decision, at their start: all rows are dark."""
        return Fireflies(positions, jnp.full((*jnp.shape(positions)[:-1], self.capacity), NONE, jnp.int32))

    def shown(self, carried: Fireflies) -> Array:
        """Return what is recorded of it."""
        return carried.position

    def check_trials(self, trial: Trial) -> None:
        """Refuse to go on with chains whose list is full; `trial` has the chains along a first axis."""
        is_full = np.asarray(trial.is_full)
        if is_full.any():
            most = int(np.asarray(trial.count)[is_full].max())
            raise CapacityError(
                f"`FireflyMC(capacity={self.capacity})`: {int(is_full.sum())} of {is_full.size} chains would have up "
                f"to {most} bright rows, and their lists hold {self.capacity}; about {float(self.expected_bright):.3g} "
                f"were expected. Set `capacity={2 * most}`; or start the chains nearer to the reference, for example "
                "from its Laplace approximation: far from it many rows are bright."
            )

    def tempered(self, temperature: Array) -> FireflyMC:
        """Refuse another temperature: the bounds are those of temperature 1."""
        raise ValueError(
            "`sample(kernel=FireflyMC(...), schedule=Schedule(temperature=...))`: FireflyMC is for temperature 1. "
            "Leave `temperature` out, or use MetropolisHastings."
        )

    def scaled(self, scale: PyTree) -> FireflyMC:
        """Return the same kernel with another proposal scale; may be a tracer."""
        return replace(self, proposal=cast(ScaledProposal, self.proposal).with_scale(scale))

    # ---- one chain -------------------------------------------------------------------------------

    def init(self, position: PyTree, rng_key: Array | None = None) -> Fireflies:
        """Start a chain."""
        return self.carried(jnp.asarray(position))

    def step(self, rng_key: Array, state: Fireflies) -> tuple[Fireflies, Verdict]:
        """Make one decision. A state whose list would not hold the bright rows stays, and is counted as invalid."""
        trial = self.open(self.randomness(state).draw(as_threefry(rng_key)), state)
        _, _, is_accepted = self.judge(trial)
        return self.close(state, trial, is_accepted)

    # ---- one decision ----------------------------------------------------------------------------

    def randomness(self, state: Fireflies) -> Randomness:
        """Return what draws the noise of a decision; only the shapes matter."""
        return Randomness.of(self.proposal, self.acceptance, state.position)

    def resting(self, trial: Trial, state: Fireflies) -> Trial:
        """Return empty trials of many chains with the positions as candidates."""
        return trial._replace(candidate=copied(trial.candidate, state.position))

    def open(self, noise: Noise, state: Fireflies) -> Trial:
        """Change the list of bright rows, propose, and compute Delta."""
        t = state.position
        flipped = flip(
            noise.source,
            state.bright,
            t,
            self.sums.position,
            self._data,
            brighten=self.brighten,
            table=self.table,
            size=self.source.population.total,
        )
        bright, count = flipped.bright, flipped.count
        proposed = self._propose(noise.proposal, t, bright)
        return Trial(
            proposed.position,
            bright.index,
            count,
            self.log_ratio(t, proposed.position, bright) + proposed.log_correction,
            noise.acceptance,
            count + flipped.num_proposed,
            jnp.asarray(proposed.rows_read, jnp.int32),
            count > self.capacity,
        )

    def look(self, state: Fireflies, trial: Trial) -> Trial:
        """Return the trial: all it needs has been read."""
        return trial

    def judge(self, trial: Trial) -> tuple[Trial, Array, Array]:
        """Metropolis' test. A chain whose list is full never decides: the run stops after the chunk."""
        is_accepted = jnp.isfinite(trial.log_ratio) & (trial.log_ratio + trial.threshold > 0)
        return trial, ~trial.is_full, is_accepted & ~trial.is_full

    def close(self, state: Fireflies, trial: Trial, is_accepted: Array) -> tuple[Fireflies, Verdict]:
        """Move or stay, and return the verdict."""
        is_invalid = jnp.isnan(trial.log_ratio) | jnp.isposinf(trial.log_ratio) | trial.is_full
        verdict = Verdict(
            is_accepted,
            trial.rows_read,
            trial.rows_scanned,
            trial.log_ratio,
            is_invalid,
            {"bright": trial.count},
        )
        position = jnp.where(is_accepted, trial.candidate, state.position)
        return Fireflies(position, where(trial.is_full, state.bright, trial.bright)), verdict

    def log_ratio(self, position: Array, candidate: Array, bright: Bright) -> Array:
        """Return log p(t', z) - log p(t, z): Delta without the proposal's correction."""
        log_prior, r = self.posterior.log_prior, self.sums.position
        of_rows = bright.log_odds(candidate - r) - bright.log_odds(position - r)
        known = log_prior(candidate) - log_prior(position) + self.sums.difference(position, candidate)
        return jnp.asarray(known + jnp.sum(jnp.where(bright.is_row, of_rows, 0.0)), jnp.result_type(float))

    def gradient(self, position: Array, bright: Bright) -> Array:
        """Return the gradient of log p(t, z) by t."""
        by_row = slope(bright.touch, dot(bright.x, position - self.sums.position))
        of_rows = dot(jnp.where(bright.is_row, by_row, 0.0), bright.x)
        return jax.grad(self.posterior.log_prior)(position) + self.sums.slope(position) + of_rows

    def _propose(self, noise: PyTree, position: Array, bright: Bright) -> Proposed:
        if isinstance(self.proposal, Langevin):
            return self.proposal.propose_along(noise, position, lambda t: self.gradient(t, bright))
        return self.proposal.propose(noise, position, self.target)

    @property
    def _data(self) -> PyTree:
        assert isinstance(self.source, Stored)
        return self.source.data


def _expected(sums: Sums, posterior: Posterior, position: np.ndarray) -> Expected:
    try:
        return expect(sums, posterior.log_prior, position)
    except ValueError as error:
        raise ValueError(
            "`FireflyMC(reference=...)`: the log posterior is not curved downwards in every direction there. Give its "
            f"mode, as `find_reference(...)` finds it. ({error})"
        ) from error


def _check_proposal(proposal: Any) -> None:
    if proposal is None:
        return
    if isinstance(proposal, type) or not hasattr(proposal, "propose"):
        raise TypeError(f"`FireflyMC(proposal=...)` must be an object with `propose`; got {brief(proposal)}.")
    check_registered("FireflyMC(proposal=...)", proposal)
    if isinstance(proposal, CostlyProposal):
        raise TypeError(
            f"`FireflyMC(proposal=...)`: {type(proposal).__name__} needs a surrogate, or rows of its own, and this "
            "kernel has neither. Use RandomWalk, PCN or firefly.Langevin."
        )
