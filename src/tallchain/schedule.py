"""Temperature and proposal scale as functions of the draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.types import Array, PyTree, part, static

if TYPE_CHECKING:
    from tallchain.kernel import MetropolisHastings


@part
class Schedule:
    """What changes from draw to draw, e.g. a hot start that cools to temperature 1 with a smaller step.

    Args:
        temperature: K as a function of the draw; None keeps the posterior's.
        scale: the proposal's scale as a function of the draw; None keeps the proposal's.

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
                raise TypeError(f"`Schedule({name}=...)` must be a function of the draw or None; got {value!r}.")
        object.__setattr__(self, "temperature", temperature)
        object.__setattr__(self, "scale", scale)

    def at(self, kernel: MetropolisHastings, draw: Array) -> MetropolisHastings:
        """Return the kernel of this draw."""
        if self.temperature is not None:
            kernel = kernel.tempered(jnp.asarray(self.temperature(draw), jnp.result_type(float)))
        return kernel if self.scale is None else kernel.scaled(self.scale(draw))

    def check(self, kernel: MetropolisHastings, num_draws: int) -> None:
        """Refuse values that are not positive at any of up to a thousand draws of the run."""
        if self.scale is not None and not hasattr(kernel.proposal, "with_scale"):
            raise TypeError(
                f"`Schedule(scale=...)` needs a proposal with a scale; {type(kernel.proposal).__name__} has none."
            )
        draws = np.unique(np.linspace(0, max(num_draws - 1, 0), 1000).astype(np.int32))
        for name in ("temperature", "scale"):
            function = getattr(self, name)
            if function is None:
                continue
            for leaf in jax.tree.leaves(jax.vmap(function)(jnp.asarray(draws))):
                is_matrix = name == "scale" and leaf.ndim == 3
                is_good = np.isfinite(leaf) & ((np.asarray(leaf) > 0) | is_matrix)
                if not np.all(is_good):
                    draw = draws[np.nonzero(~is_good.reshape(len(draws), -1).all(1))[0][0]]
                    raise ValueError(
                        f"`Schedule({name}=...)` must be positive and finite at every draw; got "
                        f"{function(jnp.int32(draw))!r} at draw {draw}."
                    )
