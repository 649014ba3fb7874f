"""Stochastic-gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin 2014), by BlackJAX."""

from __future__ import annotations

import jax

from tallchain.arrays import as_floats
from tallchain.parts import part, set_fields, static
from tallchain.proposals.transition import blackjax_of
from tallchain.stochastic.dynamics import Chance, Moving, Steps, check_friction, estimator, key_for_blackjax
from tallchain.types import Array, PyTree, Target
from tallchain.validation import brief, is_whole


@part
class SGHMC(Steps):
    """t' = t + h p,   p' = (1 - alpha h) p + h g(t) + sqrt(h (2 alpha - h beta)) z, `num_steps` times.

    p is drawn from N(0, I) for every update, z is standard normal, and g is the gradient of log p_xi, xi a minibatch
    (see `proposals.gradients`).

    This is BlackJAX's version, which differs from the paper's in two ways. It takes the gradient at t, before the step,
    where the paper takes it at t': on a normal posterior of precision P a step then multiplies the energy by
    1 + h^2 P, unless there is friction, so alpha should be above h P. And one minibatch serves for all steps of an
    update, so that its noise adds up along them, where the paper draws one for each step. `proposals.Amagold` does so,
    in an order that lets a test correct it.

    Args:
        step_size: h, in units of the position: a momentum of 1 moves the chain by h. It is the epsilon of the paper
            for a mass of 1. `Amagold(scale)` has scale = h.
        num_steps: of an update, at least 2: the gradient of the last one moves nothing.
        alpha: friction (the paper's C), per unit of time: a step keeps 1 - alpha h of the momentum.
        beta: an estimate of the variance of the gradient's noise, in each coordinate (the paper's V, with its estimate
            of the noise h beta/2); 0 for none.
    """

    step_size: Array | float
    alpha: Array | float
    beta: Array | float
    num_steps: int = static()

    def __init__(
        self,
        step_size: Array | float,
        num_steps: int = 10,
        alpha: Array | float = 0.01,
        beta: Array | float = 0.0,
    ) -> None:
        blackjax_of("SGHMC")
        if not is_whole(num_steps, 2):
            raise ValueError(
                f"`SGHMC(num_steps=...)` must be a whole number, at least 2: the gradient of the last step moves "
                f"nothing; got {brief(num_steps)}."
            )
        check_friction("SGHMC", step_size, alpha, beta)
        set_fields(self, step_size=step_size, alpha=alpha, beta=beta, num_steps=int(num_steps))

    @property
    def gradients_per_row(self) -> int:
        """One for each step."""
        return self.num_steps

    def check(self, position: PyTree) -> None:
        """Refuse wrong numbers."""
        check_friction("SGHMC", self.step_size, self.alpha, self.beta)

    def update(self, chance: Chance, at: Moving, target: Target, rows: int) -> Moving:
        """Make one update."""
        alpha, beta = as_floats(self.alpha), as_floats(self.beta)
        algorithm = blackjax_of("SGHMC").sghmc(estimator(target, rows), self.num_steps, alpha, beta)
        start = jax.tree.map(as_floats, at.position)  # the loop of steps has one type of numbers
        return Moving(algorithm.step(key_for_blackjax(chance), start, chance.rows, as_floats(self.step_size)), ())
