"""Where the parameters of a regression are in its position, and what predictors a row makes of them.

    z_i = offset_i + x_i.beta + sum over terms k of w_ik u_k[g_ik]

A term is a vector of effects, one for each level of a factor: of the intercept (w = 1), or of a slope. The predictors
of a row are the linear ones, then the numbers that all rows share. They are linear in the position.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from tallchain.arrays import dot
from tallchain.types import Array, PyTree

COEFFICIENTS = "coefficients"


@dataclasses.dataclass(frozen=True)
class Term:
    """Effects of the levels of a factor."""

    name: str
    """Their name in a position."""
    factor: int
    """Column of the factor in row["groups"]."""
    slope: int | None
    """Column of the feature in row["slopes"]; None for an intercept."""
    num_levels: int

    @property
    def log_sd(self) -> str:
        """The name of the log of their standard deviation in a position."""
        return f"log_sd({self.name})"

    def effect(self, effects: Array, row: PyTree) -> Array:
        """u[g] of a row."""
        return jnp.take(effects, row["groups"][self.factor], mode="clip")

    def weight(self, row: PyTree) -> Array | float:
        """w of a row."""
        return 1.0 if self.slope is None else row["slopes"][self.slope]


@dataclasses.dataclass(frozen=True)
class Layout:
    """The parameters of a regression: coefficients, numbers that all rows share, terms, and scales of a prior."""

    num_features: int
    num_linear: int = 1
    shared: tuple[str, ...] = ()
    terms: tuple[Term, ...] = ()
    hyper: tuple[str, ...] = ()
    """Names of what only the prior of the coefficients depends on; the first is one number for each."""
    has_intercept: bool = False
    """Whether the first feature is 1 for every row."""

    @property
    def is_vector(self) -> bool:
        """Whether a position is the vector of coefficients, and no dict."""
        return self.num_linear == 1 and not (self.shared or self.terms or self.hyper)

    @property
    def num_dense(self) -> int:
        """Parameters on which every row may depend: coefficients, and the numbers that all rows share."""
        return self.num_features * self.num_linear + len(self.shared)

    @property
    def num_predictors(self) -> int:
        """Of a row."""
        return self.num_linear + len(self.shared)

    @property
    def tail(self) -> tuple[int, ...]:
        """Numbers of the terms of the factor with the most levels, its intercepts first."""
        largest = max(self.terms, key=lambda term: term.num_levels, default=None)
        return tuple(at for at, term in enumerate(self.terms) if largest is not None and term.factor == largest.factor)

    @property
    def head(self) -> tuple[int, ...]:
        """Numbers of the other terms."""
        return tuple(at for at in range(len(self.terms)) if at not in self.tail)

    def coefficients(self, position: PyTree) -> Array:
        """(p,), or (predictor, p) if there are several linear predictors."""
        return position if self.is_vector else position[COEFFICIENTS]

    def dense(self, position: PyTree) -> Array:
        """Return the parameters on which every row may depend, as a vector."""
        if self.is_vector:
            return position
        shared = [position[name][None] for name in self.shared]
        return jnp.concatenate([position[COEFFICIENTS].ravel(), *shared])

    def with_dense(self, dense: Any) -> dict[str, Any]:
        """Return the part of a position that `dense` makes a vector of."""
        count = self.num_features * self.num_linear
        shape = (self.num_features,) if self.num_linear == 1 else (self.num_linear, self.num_features)
        return {COEFFICIENTS: dense[:count].reshape(shape)} | {
            name: dense[count + at] for at, name in enumerate(self.shared)
        }

    def check(self, position: Any) -> None:
        """Refuse a position of other shapes."""
        wanted = self.shapes()
        try:
            got = jnp.shape(position) if self.is_vector else {name: jnp.shape(leaf) for name, leaf in position.items()}
        except Exception:
            got = jax.tree.map(jnp.shape, position)
        if got == wanted:
            return
        if self.is_vector:
            raise ValueError(
                f"A position of this regression is a vector of {self.num_features} coefficients, one per feature (and "
                f"one for the intercept, if any, first); got shape {got}."
            )
        raise ValueError(f"A position of this regression is a dict of arrays of shapes {wanted}; got {got}.")

    def shapes(self) -> Any:
        """Return the shapes of a position."""
        if self.is_vector:
            return (self.num_features,)
        shape = (self.num_features,) if self.num_linear == 1 else (self.num_linear, self.num_features)
        hyper = {
            name: (*shape[:-1], shape[-1] - self.has_intercept) if at == 0 else () for at, name in enumerate(self.hyper)
        }
        terms = {name: of for term in self.terms for name, of in ((term.name, (term.num_levels,)), (term.log_sd, ()))}
        return {COEFFICIENTS: shape} | dict.fromkeys(self.shared, ()) | terms | hyper

    # ---- predictors of a row --------------------------------------------------------------------

    def of_dense(self, dense: Array, row: PyTree) -> Array:
        """Return what the dense parameters add to each predictor, (q,)."""
        x, count = row["x"], self.num_features * self.num_linear
        if self.num_linear == 1:
            linear = dot(x, dense[:count])[None]
        else:
            linear = dot(dense[:count].reshape(self.num_linear, self.num_features), x)
        return jnp.concatenate([linear, dense[count:]]) if self.shared else linear

    def row_of(self, row: PyTree) -> Array:
        """Return A_i of the dense parameters, (q, P)."""
        return jax.jacfwd(lambda dense: self.of_dense(dense, row))(jnp.zeros(self.num_dense, row["x"].dtype))

    def predictors(self, position: PyTree, row: PyTree) -> Array:
        """Return eta, (q,)."""
        eta = self.of_dense(self.dense(position), row)
        first = eta[0] + row["offset"] if "offset" in row else eta[0]
        for term in self.terms:
            first += term.weight(row) * term.effect(position[term.name], row)
        return first[None] if len(eta) == 1 else eta.at[0].set(first)
