"""A peer that makes one step of all its chains at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

from benchmarks.peers.problem import Problem, Run

SLOTS = 256  # draws per dispatch at most
_DISPATCH_SECONDS = 0.5


class Advanced(NamedTuple):
    """Some steps of all chains."""

    states: Any
    draws: jax.Array
    """(slot, chain, parameter)."""
    acceptance: jax.Array
    """Summed over steps, mean over chains."""
    gradients: jax.Array
    """Sweeps over the rows, summed over steps, mean over chains."""


class Stepped:
    """A sampler that makes one step of all chains at a time, in dispatches of about half a second.

    The rows are an argument of the program, never a constant in it.
    """

    def __init__(self, problem: Problem, chains: int, warmup: int) -> None:
        self.problem, self.chains, self.warmup = problem, chains, warmup
        self._per_draw = 0.0
        self._states: Any = None

    def step(self, rows: Any, key: jax.Array, state: Any) -> tuple[Any, jax.Array, jax.Array, jax.Array]:
        """One chain: its state, its position, its acceptance, its sweeps over the rows."""
        raise NotImplementedError

    def run(self, key: jax.Array, seconds: float) -> Run:
        """Draw until the time is up."""
        began = time.perf_counter()
        parts: list[np.ndarray] = []
        acceptance = gradients = 0.0
        while not parts or time.perf_counter() - began < seconds:
            left = seconds - (time.perf_counter() - began)
            count = int(min(left, _DISPATCH_SECONDS) / self._per_draw) if self._per_draw else 1
            then = time.perf_counter()
            done = self._dispatch(jr.fold_in(key, len(parts)), min(max(count, 1), SLOTS))
            parts.append(np.asarray(done.draws)[: min(max(count, 1), SLOTS)].swapaxes(0, 1))
            self._per_draw = (time.perf_counter() - then) / parts[-1].shape[1]
            acceptance += float(done.acceptance)
            gradients += float(done.gradients)
        seconds = time.perf_counter() - began
        draws = np.concatenate(parts, 1)
        made = draws.shape[1]
        return Run(draws, seconds, acceptance / made, gradients / made * self.rows_per_gradient)

    @property
    def rows_per_gradient(self) -> int:
        """Rows that one evaluation reads."""
        return self.problem.target.num_rows

    @property
    def rows(self) -> Any:
        """What `step` reads."""
        return self.problem.rows

    def _dispatch(self, key: jax.Array, count: int) -> Advanced:
        done = jax.block_until_ready(self._advance(self.rows, key, self._states, count))
        self._states = done.states
        return done

    @cached_property
    def _advance(self) -> Callable[..., Advanced]:
        """Compiled once for any number of steps up to SLOTS."""

        def advance(rows: Any, key: jax.Array, states: Any, count: jax.Array) -> Advanced:
            def one(i: jax.Array, carry: Advanced) -> Advanced:
                keys = jr.split(jr.fold_in(key, i), self.chains)
                states, position, acceptance, gradients = jax.vmap(partial(self.step, rows))(keys, carry.states)
                return Advanced(
                    states,
                    carry.draws.at[i].set(position),
                    carry.acceptance + jnp.mean(acceptance),
                    carry.gradients + jnp.mean(gradients),
                )

            empty = jnp.zeros((SLOTS, self.chains, self.problem.target.d))
            return lax.fori_loop(0, count, one, Advanced(states, empty, jnp.zeros(()), jnp.zeros(())))

        return jax.jit(advance)

    def _compile(self, key: jax.Array) -> float:
        """Seconds to compile, and to run no step."""
        began = time.perf_counter()
        self._dispatch(key, 0)
        return time.perf_counter() - began

    def _warm_up(self, key: jax.Array, steps: int) -> float:
        """Seconds to make steps and discard them."""
        began = time.perf_counter()
        for i, first in enumerate(range(0, steps, SLOTS)):
            self._dispatch(jr.fold_in(key, i), min(SLOTS, steps - first))
        return time.perf_counter() - began
