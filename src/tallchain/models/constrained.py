"""The coordinates of a posterior with constraints: a map for each parameter that has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.coordinates import Coordinates
from tallchain.functions import Function
from tallchain.models.constraints import Constraint
from tallchain.names import in_order_of, leaf_names
from tallchain.parts import part, static
from tallchain.types import Array, PyTree
from tallchain.validation import brief


class Constraints(Coordinates):
    """Constraints by the name of the parameter: the key of a dict, "a.b" for one within another, or "position"."""

    def __init__(self, constraints: Mapping[str, Constraint]) -> None:
        self.by_name = dict(constraints)

    @classmethod
    def of(cls, given: Any) -> Coordinates | None:
        """Return what was given to a posterior, checked; None for no constraint."""
        if isinstance(given, Coordinates):
            return given
        if isinstance(given, tuple | None) and not given:
            return None
        if isinstance(given, Constraint):
            given = {"position": given}
        if not isinstance(given, Mapping):
            raise TypeError(
                "`Posterior(constraints=...)` must be a dict of constraints by the name of the parameter, such as "
                f'{{"sigma": positive}}, or one constraint for a position that is one array; got {brief(given)}.'
            )
        for name, constraint in given.items():
            if not isinstance(constraint, Constraint):
                raise TypeError(
                    f"`Posterior(constraints={{{name!r}: ...}})` must be one of `models.constraints`, such as "
                    f"positive, unit_interval, interval(low, high), simplex or ordered; got {brief(constraint)}."
                )
        return cls(given) if given else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraints) and self.by_name == other.by_name

    def __hash__(self) -> int:
        return hash(frozenset(self.by_name.items()))

    def __repr__(self) -> str:
        return repr(self.by_name)

    # ---- maps ------------------------------------------------------------------------------------

    def constrain(self, position: PyTree) -> PyTree:
        """Return the parameters at one position."""
        leaves, structure = jax.tree.flatten(position)
        pairs = zip(self._each(position), leaves, strict=True)
        return jax.tree.unflatten(
            structure, [leaf if of is None else of.constrain(jnp.asarray(leaf)) for of, leaf in pairs]
        )

    def log_det(self, position: PyTree) -> Array | float:
        """log |det dt/du| at one position."""
        pairs = zip(self._each(position), jax.tree.leaves(position), strict=True)
        return sum(jnp.sum(of.log_det(jnp.asarray(leaf))) for of, leaf in pairs if of is not None)

    def unconstrain(self, parameters: PyTree) -> PyTree:
        """Return the position of parameters, or of many along leading axes."""
        leaves, structure = jax.tree.flatten(parameters)
        names = self._check_names(leaf_names(parameters))
        found = [self._position(name, self.by_name.get(name), leaf) for name, leaf in zip(names, leaves, strict=True)]
        return in_order_of(jax.tree.unflatten(structure, found), parameters)

    def _position(self, name: str, constraint: Constraint | None, leaf: Any) -> Any:
        if constraint is None:
            return leaf
        try:
            constraint.shape(np.shape(leaf))
        except ValueError as error:
            raise ValueError(f'"{name}" {error}.') from error
        if violated := constraint.violated(np.asarray(leaf)):
            raise ValueError(f'"{name}" {violated}; got {brief(np.asarray(leaf))}.')
        return np.asarray(constraint.unconstrain(jnp.asarray(leaf)))

    def _each(self, position: PyTree) -> list[Constraint | None]:
        return [self.by_name.get(name) for name in leaf_names(position)]

    def _check_names(self, names: list[str]) -> list[str]:
        if unknown := [name for name in self.by_name if name not in names]:
            raise ValueError(
                f'`Posterior(constraints=...)` has "{unknown[0]}", and the position has {", ".join(names)}.'
                + (' A position that is one array is called "position".' if names == ["position"] else "")
            )
        return names

    # ---- functions of a position -----------------------------------------------------------------

    def log_prior(self, function: Any) -> Any:
        """Return the log prior by position, with the Jacobian."""
        return function if self._has(function) else LogPriorByPosition(self.own(function), self)

    def log_likelihood(self, function: Any) -> Any:
        """Return the log likelihood of a row by position."""
        return function if self._has(function) else Function(LogLikelihoodByPosition(self.own(function), self))

    def _has(self, function: Any) -> bool:
        """Whether a function takes positions already, as if another field of the posterior was replaced."""
        return getattr(_inner(function), "constraints", None) == self

    @staticmethod
    def own(function: Any) -> Any:
        """Return the user's function, of what is made of it or of itself."""
        inner = _inner(function)
        return inner.own if isinstance(inner, LogPriorByPosition | LogLikelihoodByPosition) else function


@part
class LogPriorByPosition:
    """log p0(t(u)) + log |det dt/du|."""

    own: Any
    """log p0, the user's."""
    constraints: Constraints = static()

    @property
    def __wrapped__(self) -> Any:
        """What settings are described by."""
        return self.own.function if isinstance(self.own, Function) else self.own

    def __call__(self, position: PyTree) -> Array:
        """Return the log density of a position."""
        return self.own(self.constraints.constrain(position)) + self.constraints.log_det(position)


class LogLikelihoodByPosition:
    """log p(row | t(u))."""

    def __init__(self, own: Any, constraints: Constraints) -> None:
        self.own, self.constraints = own, constraints

    def __call__(self, position: PyTree, row: PyTree) -> Array:
        """Return the log likelihood of one row."""
        return self.own(self.constraints.constrain(position), row)


def _inner(function: Any) -> Any:
    return function.function if isinstance(function, Function) else function
