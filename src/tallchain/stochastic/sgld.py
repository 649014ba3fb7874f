"""Stochastic-gradient Langevin dynamics (Welling and Teh 2011), by BlackJAX."""

from __future__ import annotations

from tallchain.arrays import as_floats
from tallchain.parts import part
from tallchain.proposals.transition import blackjax_of
from tallchain.stochastic.dynamics import Chance, Moving, Steps, check_positive, estimator, key_for_blackjax
from tallchain.types import Array, PyTree, Target


@part
class SGLD(Steps):
    """t' = t + eps g(t) + sqrt(2 eps) z, z standard normal, g the gradient of log p_xi (see `proposals.gradients`).

    xi is a new minibatch for every update. `proposals.Langevin` makes the same step, and a test then corrects it.

    The bias: on a normal posterior of precision P, with noise of variance s2 in the gradient, the draws have variance

        (1 + eps s2/2) / (P (1 - eps P/2)),

    so eps must be far below 2/P for the largest P of any direction, and below 2/s2. A surrogate lowers s2.

    Args:
        step_size: eps, a VARIANCE: the noise of an update has standard deviation sqrt(2 eps). It is BlackJAX's step
            size, and half of the paper's. `Langevin(scale)` has scale^2 = 2 eps.
    """

    step_size: Array | float

    def __init__(self, step_size: Array | float) -> None:
        blackjax_of("SGLD")
        check_positive("SGLD(step_size=...)", step_size)
        object.__setattr__(self, "step_size", step_size)

    def check(self, position: PyTree) -> None:
        """Refuse a step size that is not positive."""
        check_positive("SGLD(step_size=...)", self.step_size)

    def update(self, chance: Chance, at: Moving, target: Target, rows: int) -> Moving:
        """Make one update."""
        algorithm = blackjax_of("SGLD").sgld(estimator(target, rows))
        step_size = as_floats(self.step_size)
        return Moving(algorithm.step(key_for_blackjax(chance), at.position, chance.rows, step_size), ())
