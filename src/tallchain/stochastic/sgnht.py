"""The stochastic-gradient Nosé-Hoover thermostat (Ding et al. 2014), by BlackJAX."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random as jr

from tallchain.arrays import as_floats
from tallchain.kernel import where
from tallchain.parts import part, set_fields
from tallchain.proposals.transition import blackjax_of
from tallchain.stochastic.dynamics import Chance, Moving, Steps, check_friction, estimator, key_for_blackjax
from tallchain.types import Array, PyTree, Target


class Heat(NamedTuple):
    """What a chain carries from update to update."""

    momentum: PyTree
    """p."""
    thermostat: Array
    """f, the friction; BlackJAX's xi."""
    has_started: Array
    """False before the first update, which draws a momentum."""


@part
class SGNHT(Steps):
    """t' = t + h p,   p' = (1 - f h) p + h g(t) + sqrt(h (2 alpha - h beta)) z,   f' = f + h (|p'|^2/d - 1).

    An update is one step. z is standard normal, d the number of coordinates, and g the gradient of log p_xi, xi a new
    minibatch (see `proposals.gradients`).

    The friction f is a thermostat: it grows until the momentum has the energy of temperature 1, whatever the variance
    of the gradient's noise, if that is the same at all positions and in all directions. Momentum and thermostat are
    carried from update to update. They start at N(0, I) and alpha. The thermostat settles within some f/h updates, near
    alpha + h s2/2 for a noise of variance s2. The momentum has mass 1: for a posterior of precision P that is millions,
    f must be large and h small, so rescale the parameters until standard deviations are about 1.

    As in BlackJAX, the gradient is taken at t, before the step, where the paper takes it at t'.

    No test corrects these updates: see docs/stochastic-gradients.md.

    Args:
        step_size: h, in units of the position: a momentum of 1 moves the chain by h (the paper's h).
        alpha: the diffusion (the paper's A), and the thermostat at the start.
        beta: an estimate of the variance of the gradient's noise to leave out of what is added; 0 for none, as in the
            paper.
    """

    step_size: Array | float
    alpha: Array | float
    beta: Array | float

    def __init__(self, step_size: Array | float, alpha: Array | float = 0.01, beta: Array | float = 0.0) -> None:
        blackjax_of("SGNHT")
        check_friction("SGNHT", step_size, alpha, beta)
        set_fields(self, step_size=step_size, alpha=alpha, beta=beta)

    def check(self, position: PyTree) -> None:
        """Refuse wrong numbers."""
        check_friction("SGNHT", self.step_size, self.alpha, self.beta)

    def begin(self, position: PyTree, rows: int) -> Heat:
        """Nothing yet: the first update draws a momentum."""
        return Heat(jax.tree.map(jnp.zeros_like, position), jnp.zeros(()), jnp.zeros((), bool))

    def update(self, chance: Chance, at: Moving, target: Target, rows: int) -> Moving:
        """Make one update."""
        alpha, beta = as_floats(self.alpha), as_floats(self.beta)
        algorithm = blackjax_of("SGNHT").sgnht(estimator(target, rows), alpha, beta)
        first, key = jr.split(key_for_blackjax(chance))
        new = algorithm.init(at.position, first)
        state = new._replace(
            momentum=where(at.memory.has_started, at.memory.momentum, new.momentum),
            xi=jnp.where(at.memory.has_started, at.memory.thermostat, new.xi),
        )
        moved = algorithm.step(key, state, chance.rows, as_floats(self.step_size))
        return Moving(moved.position, Heat(moved.momentum, moved.xi, jnp.ones((), bool)))
