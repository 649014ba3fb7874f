"""Temperature and proposal scale as functions of the draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.firefly import FireflyMC
from tallchain.functions import as_function
from tallchain.kernel import MetropolisHastings
from tallchain.parts import part, set_fields, static
from tallchain.stochastic import StochasticGradient
from tallchain.types import Array, PyTree
from tallchain.validation import brief, is_positive

Kernel = MetropolisHastings | FireflyMC | StochasticGradient


@runtime_checkable
class Scaled(Protocol):
    """What has a scale that may change: a proposal, or dynamics."""

    def check(self, position: PyTree) -> None:
        """Refuse a scale that is wrong, or does not fit the position."""

    def with_scale(self, scale: Any) -> Any:
        """Return the same with another scale; may be a tracer."""


@part
class Schedule:
    """What changes from draw to draw, e.g. a hot start that cools to temperature 1 with a smaller step.

    Args:
        temperature: K as a function of the draw; None keeps the posterior's temperature.
        scale: the proposal's scale, or the step size of dynamics, as a function of the draw; None keeps it.

    The functions take the number of the draw as a traced integer, counted from 0 at the first WARM-UP draw, so write
    them with `jax.numpy`: `Schedule(temperature=lambda draw: jnp.where(draw < 400, 100.0, 1.0))`.
    """

    temperature: Callable[[Array], Array] | None = static()
    scale: Callable[[Array], PyTree] | None = static()

    def __init__(
        self,
        temperature: Callable[[Array], Array] | None = None,
        scale: Callable[[Array], PyTree] | None = None,
    ) -> None:
        for name, value in (("temperature", temperature), ("scale", scale)):
            if value is not None and not callable(value):
                raise TypeError(f"`Schedule({name}=...)` must be a function of the draw or None; got {brief(value)}.")
        set_fields(self, temperature=as_function(temperature), scale=as_function(scale))

    def at(self, kernel: Kernel, draw: Array | int) -> Kernel:
        """Return the kernel of this draw."""
        if self.temperature is None and self.scale is None:
            return kernel
        draw = jnp.asarray(draw, jnp.int32)
        if self.temperature is not None:
            kernel = kernel.tempered(jnp.asarray(self.temperature(draw), jnp.result_type(float)))
        return kernel if self.scale is None else kernel.scaled(self.scale(draw))

    def check(self, kernel: Kernel, position: PyTree, num_draws: int) -> float | None:
        """Refuse wrong values, checked at up to a thousand draws of the run; return the lowest temperature."""
        least = None
        draws = np.unique(np.linspace(0, num_draws - 1, 1000).astype(np.int32))
        if self.temperature is not None:
            if isinstance(kernel, FireflyMC):
                kernel.tempered(jnp.ones(()))
            for draw, value in _values("temperature", self.temperature, draws):
                if not is_positive(value):
                    raise ValueError(
                        f"`Schedule(temperature=...)` must be one positive number; got {brief(value)} at draw {draw}."
                    )
                least = min(float(value), least or float(value))
        if self.scale is None:
            return least
        if not isinstance(kernel.proposal, Scaled):
            raise TypeError(
                f"`Schedule(scale=...)` needs a proposal with a scale; {type(kernel.proposal).__name__} has none."
            )
        for draw, value in _values("scale", self.scale, draws):
            try:
                kernel.proposal.with_scale(value).check(position)
            except ValueError as error:
                raise ValueError(f"`Schedule(scale=...)` at draw {draw}: {error}") from error
        return least


def _values(name: str, function: Callable[[Array], PyTree], draws: np.ndarray) -> list[tuple[int, PyTree]]:
    """Evaluate a schedule at some draws, traced as it will be."""

    def numbers(draw: Array) -> PyTree:
        value = function(draw)
        if any(
            not isinstance(leaf, jax.Array | np.ndarray | np.generic | float | int) for leaf in jax.tree.leaves(value)
        ):
            raise TypeError(f"`Schedule({name}=...)` must return numbers, at every draw; it returned {brief(value)}.")
        return value

    try:
        values = jax.tree.map(np.asarray, jax.vmap(numbers)(jnp.asarray(draws)))
    except jax.errors.ConcretizationTypeError as error:
        raise TypeError(
            f"`Schedule({name}=...)` is traced: write `jnp.where(draw < 400, a, b)` for `a if draw < 400 else b`."
        ) from error
    return [(int(draw), jax.tree.map(lambda leaf, i=i: leaf[i], values)) for i, draw in enumerate(draws)]
