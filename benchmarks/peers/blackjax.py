"""BlackJAX on all rows: its random walk, and NUTS."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.base import get_filter_adapt_info_fn
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.mcmc.random_walk import RWState
from jax import lax
from jax import random as jr

from benchmarks.peers.problem import Problem, log_density
from benchmarks.peers.stepped import Stepped

SHORT_WARMUP = 200  # if there is nothing to adapt, or only a step size
_TARGET_ACCEPTANCE = 0.8


class RandomWalkMetropolis(Stepped):
    """BlackJAX's random walk on all rows; steps have the Laplace approximation's covariance times (2.38/sqrt(d))^2."""

    def step(self, rows: Any, key: jax.Array, state: Any) -> tuple[Any, jax.Array, jax.Array, jax.Array]:
        """One proposal."""
        factor = 2.38 / self.problem.target.d**0.5 * self.problem.laplace.factor
        walk: Any = blackjax.additive_step_random_walk(
            partial(log_density, rows), lambda key, position: factor @ jr.normal(key, position.shape)
        )
        state, info = walk.step(key, state)
        return state, state.position, info.is_accepted, jnp.ones(())

    def prepare(self, key: jax.Array) -> dict[str, float]:
        """Start in the Laplace approximation, and walk a little."""
        start, walk = jr.split(key)
        positions = self.problem.starts(start, self.chains)
        values = jax.jit(jax.vmap(log_density, (None, 0)))(self.rows, positions)
        self._states = RWState(positions, values)
        compilation = self._compile(walk)
        return {
            "mode": self.problem.seconds,
            "compilation": compilation,
            "warmup": self._warm_up(walk, min(self.warmup, SHORT_WARMUP)),
        }


class Nuts(Stepped):
    """BlackJAX's NUTS on all rows, with its window adaptation, by chain."""

    def __init__(self, problem: Problem, chains: int, warmup: int, *, is_diagonal: bool = True) -> None:
        super().__init__(problem, chains, warmup)
        self._is_diagonal = is_diagonal

    def step(self, rows: Any, key: jax.Array, state: Any) -> tuple[Any, jax.Array, jax.Array, jax.Array]:
        """One trajectory."""
        at, parameters = state
        at, info = blackjax.nuts(partial(log_density, rows), **parameters).step(key, at)
        return (at, parameters), at.position, info.acceptance_rate, info.num_integration_steps

    def prepare(self, key: jax.Array) -> dict[str, float]:
        """Adapt step size and mass matrix."""
        start, adapt = jr.split(key)
        positions = self.problem.starts(start, self.chains)
        began = time.perf_counter()
        program = jax.jit(self._adapt).lower(self.rows, jr.split(adapt, self.chains), positions).compile()
        compiled = time.perf_counter()
        self._states = jax.block_until_ready(program(self.rows, jr.split(adapt, self.chains), positions))
        adapted = time.perf_counter()
        return {
            "mode": self.problem.seconds,
            "compilation": compiled - began + self._compile(key),
            "warmup": adapted - compiled,
        }

    def _adapt(self, rows: Any, keys: jax.Array, positions: jax.Array) -> Any:
        covariance = self.problem.covariance
        warm_up: Any = blackjax.window_adaptation(
            blackjax.nuts,
            partial(log_density, rows),
            is_mass_matrix_diagonal=self._is_diagonal,
            initial_inverse_mass_matrix=jnp.asarray(np.diag(covariance) if self._is_diagonal else covariance),
            adaptation_info_fn=get_filter_adapt_info_fn(),
        )

        def one(key: jax.Array, position: jax.Array) -> Any:
            (state, parameters), _ = warm_up.run(key, position, self.warmup)
            return state, {name: parameters[name] for name in ("step_size", "inverse_mass_matrix")}

        return jax.vmap(one)(keys, positions)


class ToldNuts(Nuts):
    """NUTS with the Laplace approximation's covariance as its mass matrix: only the step size is adapted."""

    def __init__(self, problem: Problem, chains: int, warmup: int) -> None:
        super().__init__(problem, chains, min(warmup, SHORT_WARMUP))

    def _adapt(self, rows: Any, keys: jax.Array, positions: jax.Array) -> Any:
        start, update, end = dual_averaging_adaptation(target=_TARGET_ACCEPTANCE)
        inverse = jnp.asarray(self.problem.covariance)
        density = partial(log_density, rows)

        def one(key: jax.Array, position: jax.Array) -> Any:
            def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
                at, adapting = carry
                size = jnp.exp(adapting.log_step_size)
                at, info = blackjax.nuts(density, step_size=size, inverse_mass_matrix=inverse).step(key, at)
                return (at, update(adapting, info.acceptance_rate)), None

            first = blackjax.nuts(density, step_size=0.5, inverse_mass_matrix=inverse).init(position)
            (at, adapting), _ = lax.scan(step, (first, start(0.5)), jr.split(key, self.warmup))
            return at, {"step_size": end(adapting), "inverse_mass_matrix": inverse}

        return jax.vmap(one)(keys, positions)
