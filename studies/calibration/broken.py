"""Samplers broken on purpose: the check must refuse them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

import tallchain as tc
from tallchain.parts import part, replace
from tallchain.types import Array, Proposed, PyTree, Target

Break = Callable[[tc.MetropolisHastings, float], tc.MetropolisHastings]
"""(kernel, step in posterior standard deviations) -> the kernel, broken on purpose."""


@part
class Wrong:
    """A random walk that adds to the log ratio: a constant, and a slope along the first standard normal of its step."""

    walk: Any
    shift: float
    slope: float

    def check(self, position: PyTree) -> None:
        """Refuse what the walk refuses."""
        self.walk.check(position)

    def draw(self, key: Array, position: PyTree) -> PyTree:
        """Draw as the walk does."""
        return self.walk.draw(key, position)

    def propose(self, noise: Array, position: PyTree, target: Target) -> Proposed:
        """Propose as the walk does, with a log correction that does not belong there."""
        proposed = self.walk.propose(noise, position, target)
        return proposed._replace(log_correction=self.shift + self.slope * noise[0])

    def with_scale(self, scale: PyTree) -> Wrong:
        """Return the same with another scale."""
        return replace(self, walk=self.walk.with_scale(scale))


def _without_correction(kernel: tc.MetropolisHastings, step: float) -> tc.MetropolisHastings:
    test: Any = kernel.acceptance
    tables = replace(test.tables, atoms=jnp.zeros_like(test.tables.atoms))
    return replace(kernel, acceptance=replace(test, tables=tables))


def _hotter(kernel: tc.MetropolisHastings, step: float) -> tc.MetropolisHastings:
    posterior = replace(kernel.posterior, temperature=1.5 * kernel.posterior.temperature)
    return replace(kernel, posterior=posterior)


def _shifted(kernel: tc.MetropolisHastings, step: float) -> tc.MetropolisHastings:
    return replace(kernel, proposal=Wrong(kernel.proposal, 1.0, 0.0))


def _moved(kernel: tc.MetropolisHastings, step: float) -> tc.MetropolisHastings:
    return replace(kernel, proposal=Wrong(kernel.proposal, 0.0, step / 3))


BROKEN: dict[str, Break] = {
    "correction variable dropped": _without_correction,
    "temperature times 1.5": _hotter,
    "1 added to every log ratio": _shifted,
    "target moved by sd/3": _moved,
}
