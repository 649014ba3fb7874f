"""Decisions that read every row, in windows as wide as the source has them.

A wide window of one chain costs the others as much, so that chains read on in narrow ones until enough want a wide one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tallchain.abilities import CensusSource
from tallchain.functions import SOON, program
from tallchain.kernel import MetropolisHastings, where
from tallchain.keys import make_key
from tallchain.machines import Lane, Machine, at
from tallchain.schedule import Schedule
from tallchain.types import Array, Ask, BoundedTest

_SCANNING = 0.75  # of the chains must have asked for a census, for all to read wide windows


def census_of(kernel: Machine) -> str | None:
    """How to read a census, for which the source has wider windows than the test's; None if there is none.

    "within" the sampler, or by a program "apart": a test with a bound asks for a census only where that is too large.
    """
    if not (isinstance(kernel, MetropolisHastings) and isinstance(kernel.source, CensusSource)):
        return None
    population, test = kernel.source.population, kernel.acceptance
    if kernel.width >= kernel.source.width(population.num_rows):
        return None
    if isinstance(test, BoundedTest):
        return "apart"
    asks = []

    def opened() -> None:
        bound = None if kernel.bound is None else jnp.zeros(())
        asks.append(test.open(test.draw(make_key(0)), bound, population)[2])

    jax.eval_shape(opened)
    return None if asks[0].census is False else "within"


@program(donate_argnames="lanes", compiler_options=SOON)
def read_on(kernel: Machine, schedule: Schedule, lanes: Lane, *, last: Array, turns: Array) -> Lane:
    """Read wide windows as long as enough chains are in a census, and at most this many."""

    def turn(carry: tuple[Array, Lane]) -> tuple[Array, Lane]:
        return carry[0] + 1, jax.vmap(partial(scan, kernel, schedule))(carry[1])

    def is_on(carry: tuple[Array, Lane]) -> Array:
        return (carry[0] < turns) & is_time_for_census(carry[1], last)

    return lax.while_loop(is_on, turn, (jnp.zeros((), jnp.int32), lanes))[1]


def scan(kernel: Machine, schedule: Schedule, lane: Lane) -> Lane:
    """Read on, in a wide window, if the test of a chain has asked for a census."""
    now = at(schedule, kernel, lane.draw)
    assert isinstance(now, MetropolisHastings)
    looked = now.look(lane.position, lane.trial, widely=True)
    return lane._replace(trial=where(_in_census(lane.is_waiting, lane.trial.ask), looked, lane.trial))


def is_time_for_census(lanes: Lane, last: Array) -> Array:
    """Whether enough chains are in a census."""
    return _is_time(lanes.draw, lanes.is_waiting, lanes.trial.ask, last)


def is_time_now(lanes: Lane, last: np.integer) -> bool:
    """The same, for the host."""
    return bool(_is_time(*jax.device_get((lanes.draw, lanes.is_waiting, lanes.trial.ask)), last))


def _is_time(draw: Any, is_waiting: Any, ask: Ask, last: Any) -> Any:
    is_running = draw < last
    in_census = _in_census(is_waiting, ask) & is_running
    return (in_census.sum() >= _SCANNING * is_running.sum()) & in_census.any()


def _in_census(is_waiting: Any, ask: Ask) -> Any:
    return ask.census & (ask.rows > 0) & ~is_waiting
