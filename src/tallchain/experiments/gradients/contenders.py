"""The samplers: proposals that a test judges, and stochastic gradients without one.

One number sets the step of each. It is in units of the position, so that steps of the same number are alike:
`Langevin(step)` and `SGLD(step^2/2)` make the same step, and so do `Amagold(step)` and `SGHMC(step)`, of which the
first has the friction b = alpha step/2. `SGFS` alone has a step without a unit. It runs on the mixture only: it needs
more rows in a minibatch than there are coefficients, and of MNIST's 784 pixels many are empty in all images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tallchain.acceptance import MinibatchBarker
from tallchain.kernel import MetropolisHastings
from tallchain.proposals import Amagold, Hamiltonian, Langevin, RandomWalk
from tallchain.schedule import Kernel
from tallchain.stochastic import SGFS, SGHMC, SGLD, SGNHT, StochasticGradient
from tallchain.types import Posterior, Source

MINIBATCH = 100
"""Rows of a gradient."""
SHORT, LONG = 3, 10
"""Steps of a trajectory: of `Hamiltonian`; and of `Amagold` and `SGHMC`."""
ALPHA = {"mixture": 12.0, "MNIST-13k": 3.0}
"""Friction of `SGHMC` and `Amagold`, per unit of time."""
DIFFUSION = {"mixture": 10.0, "MNIST-13k": 1.0}
"""alpha of `SGNHT`."""


@dataclass(frozen=True)
class Contender:
    """A sampler of the experiment."""

    name: str
    make: Callable[[float, str], Any]
    """(step, task) -> proposal, or dynamics."""
    is_corrected: bool
    """Whether a test decides."""
    costs: Mapping[str, int] = field(default_factory=dict)
    """About how many rows a draw reads in all, by task: from it, the draws that a budget of rows allows."""
    carries: bool = False
    """Whether it carries more than its position from draw to draw."""

    def kernel(self, step: float, task: str, posterior: Posterior, source: Source, batch: int) -> Kernel:
        """The sampler on a task."""
        part = self.make(step, task)
        if self.is_corrected:
            return MetropolisHastings(posterior, source, proposal=part, acceptance=MinibatchBarker(batch=batch))
        return StochasticGradient(posterior, source, part, MINIBATCH)


def _amagold(step: float, task: str) -> Amagold:
    return Amagold(step, LONG, MINIBATCH, friction=0.5 * ALPHA[task] * step)


CONTENDERS = {
    each.name: each
    for each in (
        Contender("RandomWalk", lambda step, _: RandomWalk(step), True, {"mixture": 200, "MNIST-13k": 200}),
        Contender("Langevin", lambda step, _: Langevin(step, MINIBATCH), True, {"mixture": 400, "MNIST-13k": 450}),
        Contender(
            "Hamiltonian",
            lambda step, _: Hamiltonian(step, SHORT, MINIBATCH),
            True,
            {"mixture": 900, "MNIST-13k": 900},
        ),
        Contender("Amagold", _amagold, True, {"mixture": 1250, "MNIST-13k": 1700}),
        Contender("SGLD", lambda step, _: SGLD(0.5 * step**2), False, {"mixture": 100, "MNIST-13k": 100}),
        Contender(
            "SGHMC",
            lambda step, task: SGHMC(step, LONG, ALPHA[task]),
            False,
            {"mixture": 1000, "MNIST-13k": 1000},
        ),
        Contender(
            "SGNHT",
            lambda step, task: SGNHT(step, DIFFUSION[task]),
            False,
            {"mixture": 100, "MNIST-13k": 100},
            carries=True,
        ),
        Contender("SGFS", lambda step, _: SGFS(step), False, {"mixture": 100}, carries=True),
    )
}
"""By the name that the configuration uses."""
PAIRS = (("SGLD", "Langevin"), ("SGHMC", "Amagold"))
"""Without a test, and the same steps with one."""


def describe(name: str, step: float, task: str) -> list[float | str]:
    """All that determines a sampler, as JSON."""
    return [name, step, MINIBATCH, SHORT, LONG, ALPHA[task], DIFFUSION[task]]
