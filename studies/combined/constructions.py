"""The constructions: a t-test together with a minibatch test that grows its batch, or with one that plans it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import random as jr

import tallchain as tc
from tallchain.acceptance.combined import Combined
from tallchain.acceptance.evidence import Moments, variance_of_mean
from tallchain.acceptance.tables import Reading, logistic
from tallchain.kernel import Decision
from tallchain.parts import part, set_fields, static
from tallchain.types import AcceptanceTest, Array, Ask, Judgement, Population


class _Memory(NamedTuple):
    barker: Any
    threshold: Array
    is_early: Array


@part
class Grown:
    """Grow the batch; while s2 >= sigma^2 let the t-test decide if it is sure at level epsilon."""

    barker: tc.MinibatchBarker
    austere: tc.Austere
    coupling: str = static()

    def __init__(self, coupling: str, epsilon: float, sigma: float = 1.0, batch: int | None = None) -> None:
        barker = tc.MinibatchBarker(sigma, batch=batch, stopping="growth", skew=False)
        set_fields(self, barker=barker, austere=tc.Austere(epsilon), coupling=coupling)

    def appetite(self, population: Population) -> int:
        """m, the rows between two judgements."""
        return self.barker.appetite(population)

    def draw(self, key: Array) -> tuple[Any, Array]:
        """The noise of the minibatch test, the same as without a t-test; and the threshold of the t-test."""
        noise, sigma = self.barker.draw(key), self.barker.sigma
        correction = self.barker.tables.total(noise, Reading(jnp.zeros(()), jnp.float32(sigma**2)))  # no room to pad
        apart = jr.fold_in(key, 1000)  # the first few are what `split` makes of the key
        threshold = {
            "fresh": lambda: jr.logistic(apart),
            "uniform": lambda: logistic(noise.bits),
            "sum": lambda: sigma * noise.normal + correction,
            "curtailed": lambda: correction,
            "metropolis": lambda: jr.exponential(apart),
        }[self.coupling]()
        return noise, threshold

    def open(
        self, noise: tuple[Any, Array], bound: Array | None, population: Population
    ) -> tuple[_Memory, Moments, Ask]:
        """Ask for m rows."""
        memory, evidence, ask = self.barker.open(noise[0], bound, population)
        return _Memory(memory, noise[1], jnp.zeros((), bool)), evidence, ask

    def judge(self, memory: _Memory, offset: Array, evidence: Moments, population: Population) -> Judgement:
        """Decide by the minibatch test where it can, else by the t-test where that is sure."""
        late = self.barker.judge(memory.barker, offset, evidence, population)
        s2 = variance_of_mean(evidence, population)
        # The minibatch test uses sigma^2 of the noise in Delta*: only the rest hides its decision.
        doubt = s2 - self.barker.sigma**2 if self.coupling == "curtailed" else s2
        gap = evidence.mean + offset + memory.threshold
        student = self.austere._quantile(jnp.int32(0), evidence.count)
        is_early = jnp.logical_not(late.is_decided) & (jnp.abs(gap) > student * jnp.sqrt(doubt))
        is_accepted = jnp.where(is_early, gap > 0, late.is_accepted)
        return Judgement(memory._replace(is_early=is_early), late.ask, late.is_decided | is_early, is_accepted)


Tests = dict[str, Callable[[], AcceptanceTest]]

EPSILONS = (0.001, 0.005, 0.05)
_growth = partial(tc.MinibatchBarker, stopping="growth", skew=False)
GROWN: Tests = {
    "growth": _growth,
    "growth, sigma=1.2": partial(_growth, 1.2),
    "growth, shortcut=5": partial(_growth, shortcut=5.0),
} | {
    f"{coupling}, {epsilon}": partial(Grown, coupling, epsilon)
    for coupling in ("fresh", "uniform", "sum", "curtailed", "metropolis")
    for epsilon in EPSILONS
}
FEW_GROWN = {
    name: GROWN[name]
    for name in (
        "growth",
        "growth, sigma=1.2",
        "fresh, 0.001",
        "sum, 0.001",
        "curtailed, 0.001",
        "curtailed, 0.05",
        "metropolis, 0.001",
    )
}
PLANNED: Tests = {
    "MinibatchBarker()": tc.MinibatchBarker,
    "MinibatchBarker(1.2)": partial(tc.MinibatchBarker, 1.2),
    **{f"Combined({epsilon})": partial(Combined, epsilon) for epsilon in EPSILONS},
    "Combined(0.001, MinibatchBarker(1.2))": lambda: Combined(0.001, tc.MinibatchBarker(1.2)),
}
# One part is the minibatch test itself, with its randomness used as in `Combined`: only the early stop differs.
PLANNED_ALIKE = {"Combined(looks=1)": partial(Combined, looks=1)} | {
    name: test for name, test in PLANNED.items() if name != "MinibatchBarker()"
}
COUPLED = {
    name: GROWN[name] for name in ("growth", "fresh, 0.001", "sum, 0.001", "curtailed, 0.001", "metropolis, 0.001")
}
CHOSEN = {
    name: PLANNED[name] for name in ("MinibatchBarker()", "Combined(0.001)", "Combined(0.001, MinibatchBarker(1.2))")
}


def is_early(decision: Decision) -> Array:
    """Whether the t-test made the decision."""
    memory = decision.memory
    if hasattr(memory, "plan"):
        return decision.seen.evidence.count < memory.plan
    return memory.is_early if isinstance(memory, _Memory) else jnp.zeros((), bool)
