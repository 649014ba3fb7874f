"""What dynamics promise to a `StochasticGradient`, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
from jax import random as jr

from tallchain.parts import replace
from tallchain.proposals.gradients import gradient_of
from tallchain.proposals.transition import key_of
from tallchain.types import Array, PyTree, Source, Target
from tallchain.validation import brief, is_positive, is_traced


class Moving(NamedTuple):
    """Where a chain is, and what its dynamics carry from update to update."""

    position: PyTree
    memory: PyTree
    """() for dynamics that carry nothing."""


class Chance(NamedTuple):
    """All the randomness of one update: two keys."""

    rows: Array
    """Of the minibatch."""
    noise: Array
    """Of the rest."""


class Dynamics(Protocol):
    """A rule that moves a chain along the gradient of a minibatch; what it proposes is not judged."""

    @property
    def gradients_per_row(self) -> int:
        """Gradients of each row that is read."""
        ...

    def check(self, position: PyTree) -> None:
        """Refuse wrong numbers, and a position that it cannot move."""

    def check_source(self, source: Source, *, has_surrogate: bool) -> None:
        """Refuse a source that cannot give what it needs."""

    def check_start(self, target: Target, position: PyTree, rows: int) -> None:
        """Refuse a start where it cannot run, as far as some rows show."""

    def with_scale(self, scale: Any) -> Dynamics:
        """Return the same dynamics with another step size; may be a tracer."""
        ...

    def begin(self, position: PyTree, rows: int) -> PyTree:
        """Return what a chain carries at its start, besides the position."""

    def update(self, chance: Chance, at: Moving, target: Target, rows: int) -> Moving:
        """Make one update, from a minibatch of this many rows."""
        ...


class Steps:
    """What most dynamics have alike: one gradient of each row, any source, nothing carried."""

    @property
    def gradients_per_row(self) -> int:
        """One."""
        return 1

    def check_source(self, source: Source, *, has_surrogate: bool) -> None:
        """Any source will do."""

    def check_start(self, target: Target, position: PyTree, rows: int) -> None:
        """Any start will do."""

    def with_scale(self, scale: Any) -> Any:
        """Return the same dynamics with another step size (for schedules); may be a tracer."""
        return replace(self, step_size=scale)

    def begin(self, position: PyTree, rows: int) -> PyTree:
        """Nothing is carried."""
        return ()


def estimator(target: Target, rows: int) -> Callable[[PyTree, Array], PyTree]:
    """Return BlackJAX's `grad_estimator`: its minibatch is the key of some rows, the gradient that of log p_xi."""
    return lambda position, key: gradient_of(target, key, rows, position)(position)


def key_for_blackjax(chance: Chance) -> Array:
    """Return the key of the noise, as an algorithm that splits it again and again needs it."""
    return key_of(jr.key_data(chance.noise))


# ---- checks --------------------------------------------------------------------------------------


def check_positive(call: str, value: Any) -> None:
    """Refuse what is no positive number; `call` is like "SGLD(step_size=...)"."""
    if not is_traced(value) and not is_positive(value):
        raise ValueError(f"`{call}` must be a positive number; got {brief(value)}.")


def check_friction(name: str, step_size: Any, alpha: Any, beta: Any) -> None:
    """Refuse a friction, or an estimate of the gradient's noise, that leaves no noise to add."""
    check_positive(f"{name}(step_size=...)", step_size)
    check_positive(f"{name}(alpha=...)", alpha)
    if is_traced((step_size, alpha, beta)):
        return
    is_zero = isinstance(beta, int | float) and not isinstance(beta, bool) and beta == 0
    if not (is_zero or is_positive(beta)):
        raise ValueError(f"`{name}(beta=...)` must be a number, at least 0; got {brief(beta)}.")
    if step_size * beta > 2 * alpha:
        raise ValueError(
            f"`{name}(step_size={float(step_size):g}, alpha={float(alpha):g}, beta={float(beta):g})`: the noise to add "
            "has the variance step_size (2 alpha - step_size beta), which is negative. Raise alpha above "
            f"{float(step_size * beta / 2):.3g}, or shorten the step."
        )


def shapes_of(position: PyTree) -> PyTree:
    """Return the shapes of a position, for an error."""
    return jax.tree.map(lambda leaf: tuple(leaf.shape), position)
