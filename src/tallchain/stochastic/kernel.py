"""Chains without an acceptance test: every update along the gradient of a minibatch is kept.

These are the baselines that a test corrects. They run in `sample` on the same sources, and rows are counted alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.abilities import SuitedSource
from tallchain.assembly import check_part, check_surrogate
from tallchain.checks import check_position
from tallchain.kernel import Noise, Randomness, copied, where
from tallchain.keys import as_threefry
from tallchain.parts import check_registered, part, replace, set_fields, static
from tallchain.proposals.gradients import rows_of
from tallchain.stochastic.dynamics import Chance, Dynamics, Moving
from tallchain.types import Array, Posterior, PyTree, Source, Surrogate, Target, Verdict
from tallchain.validation import brief, is_whole


class Trial(NamedTuple):
    """An update that is made, and not yet taken."""

    candidate: Moving
    is_finite: Array


@part
class StochasticGradient:
    """Stochastic-gradient MCMC, to run in `sample` as a `MetropolisHastings` does: no test, so the draws are BIASED.

    The gradient is that of

        log p_xi(t) = log p0(t) + Q(t)/K + (N/(mK)) sum_{i in xi} (l_i(t) - q_i(t)),

    xi a new minibatch of m rows for every update, l_i the log likelihood of a row, and q_i its surrogate, Q their sum:
    with one, gradients have control variates. Every update is a decision that accepts. One that is not finite leaves
    the chain where it is, and is counted as invalid. Neither a scan nor an audit looks at decisions, since there are
    none: compare the draws with those of a kernel that has a test.

    The step size may change from draw to draw, for example eps_t = a (b + t)^-0.55 as Welling and Teh (2011) do:
    `sample(..., schedule=Schedule(scale=lambda draw: 1e-3 * (1 + draw / 100) ** -0.55))`. Their averages then weight a
    draw by its step size; a summary does not.

    Args:
        posterior: log prior, log likelihood of one row, temperature.
        source: where the rows come from.
        dynamics: how to move: `SGLD`, `SGHMC`, `SGNHT` or `SGFS`, of `tallchain.stochastic`.
        rows: m, the rows of a minibatch. Rows that the source reads always come in addition.
        surrogate: a control variate, e.g. `surrogates.Taylor(...)`.
    """

    posterior: Posterior
    source: Source
    dynamics: Dynamics
    surrogate: Surrogate | None
    rows: int = static()

    def __init__(
        self,
        posterior: Posterior,
        source: Source,
        dynamics: Dynamics,
        rows: int,
        surrogate: Surrogate | None = None,
    ) -> None:
        for name, value, need in (
            ("posterior", posterior, "log_likelihood"),
            ("source", source, "look"),
            ("dynamics", dynamics, "update"),
        ):
            check_part(f"StochasticGradient({name}=...)", value, need)
        check_registered("StochasticGradient(surrogate=...)", surrogate)
        check_surrogate(surrogate, posterior, source, "StochasticGradient")
        num_rows = source.population.num_rows
        if not (is_whole(rows, 1) and rows <= num_rows):
            raise ValueError(
                f"`StochasticGradient(rows=...)` must be a whole number from 1 to N = {num_rows:,}, the rows of the "
                f"source; got {brief(rows)}."
            )
        dynamics.check_source(source, has_surrogate=surrogate is not None)
        set_fields(
            self,
            posterior=posterior,
            source=source.suited(int(rows)) if isinstance(source, SuitedSource) else source,
            dynamics=dynamics,
            surrogate=surrogate,
            rows=int(rows),
        )

    # ---- what `sample` asks of a kernel ----------------------------------------------------------

    @property
    def log_likelihood(self) -> Any:
        """That of the posterior."""
        return self.posterior.log_likelihood

    @property
    def target(self) -> Target:
        """What dynamics may look at."""
        return Target(self.posterior, self.surrogate, self.source)

    @property
    def proposal(self) -> Dynamics:
        """What moves the chains."""
        return self.dynamics

    @property
    def acceptance(self) -> None:
        """None: there is no test."""
        return

    @property
    def bound(self) -> None:
        """None: no log ratio is computed."""
        return

    @property
    def in_float64(self) -> bool:
        """False: no log ratio is computed whose rounding N would multiply."""
        return False

    @property
    def width(self) -> int:
        """Rows per look."""
        return self.source.width(self.rows)

    @property
    def gradients_per_row(self) -> int:
        """Gradients of each row that an update reads."""
        return self.dynamics.gradients_per_row

    def carried(self, positions: PyTree) -> Moving:
        """Return what chains carry from update to update, at their start."""
        memory = jax.vmap(lambda position: self.dynamics.begin(position, self.rows))(positions)
        self.dynamics.check_start(self.target, jax.tree.map(lambda leaf: leaf[0], positions), self.rows)
        return Moving(positions, jax.tree.map(np.array, memory))

    def shown(self, carried: Moving) -> PyTree:
        """Return what is recorded of it."""
        return carried.position

    def check_trials(self, trial: Trial) -> None:
        """Every chain can go on."""

    def tempered(self, temperature: Array) -> StochasticGradient:
        """Return the same kernel at another temperature; may be a tracer."""
        return replace(self, posterior=replace(self.posterior, temperature=temperature))

    def scaled(self, scale: Any) -> StochasticGradient:
        """Return the same kernel with another step size; may be a tracer."""
        return replace(self, dynamics=self.dynamics.with_scale(scale))

    # ---- one chain -------------------------------------------------------------------------------

    def init(self, position: PyTree, rng_key: Array | None = None) -> Moving:
        """Start a chain."""
        position = jax.tree.map(jnp.asarray, check_position("kernel.init(position=...)", position))
        return Moving(position, self.dynamics.begin(position, self.rows))

    def step(self, rng_key: Array, state: Moving) -> tuple[Moving, Verdict]:
        """Make one update."""
        trial = self.open(self.randomness(state).draw(as_threefry(rng_key)), state)
        _, _, is_accepted = self.judge(trial)
        return self.close(state, trial, is_accepted)

    # ---- one update ------------------------------------------------------------------------------

    def randomness(self, state: Moving) -> Randomness:
        """Return what draws the noise of an update: a key."""
        return Randomness.of(None, None, state.position)

    def resting(self, trial: Trial, state: Moving) -> Trial:
        """Return empty trials of many chains with the positions as candidates."""
        return trial._replace(candidate=copied(trial.candidate, state))

    def open(self, noise: Noise, state: Moving) -> Trial:
        """Make the update."""
        moved = self.dynamics.update(Chance(*jr.split(noise.source)), state, self.target, self.rows)
        moved = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), moved, state)
        return Trial(moved, _is_finite(moved))

    def look(self, state: Moving, trial: Trial) -> Trial:
        """Return the trial: all it needs has been read."""
        return trial

    def judge(self, trial: Trial) -> tuple[Trial, Array, Array]:
        """Accept whatever is finite."""
        return trial, jnp.ones((), bool), trial.is_finite

    def close(self, state: Moving, trial: Trial, is_accepted: Array) -> tuple[Moving, Verdict]:
        """Move, and return the verdict; its log ratio is 0, since none is computed."""
        verdict = Verdict(
            is_accepted,
            jnp.asarray(rows_of(self.target, self.rows), jnp.int32),
            jnp.zeros((), jnp.int32),
            jnp.zeros(()),
            ~trial.is_finite,
            {},
        )
        return where(is_accepted, trial.candidate, state), verdict


def _is_finite(tree: PyTree) -> Array:
    found = jnp.ones((), bool)
    for leaf in jax.tree.leaves(tree):
        found &= jnp.all(jnp.isfinite(leaf))
    return found
