"""Constraints of parameters, each with a one-to-one map from coordinates without limits.

    log p(u | x) = log p0(t(u)) + sum_i log p(x_i | t(u)) + log |det dt/du| + constant

With the log determinant of the Jacobian in the prior, draws of u are draws of t(u) from the user's posterior, whatever
the map. All maps compute logarithms where numbers may come near to 0 or 1, and keep parameters strictly within their
limits: rounded to a limit, a parameter would have the log likelihood -inf or NaN. A map takes the last axes of an array
and leaves others as they are, so that there can be several simplexes in one array, and many positions.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.types import Array
from tallchain.validation import brief, is_number

_SUM = 1e-4  # from 1, that a sum or a norm may be off: numbers were rounded


@dataclasses.dataclass(frozen=True)
class Constraint:
    """What a parameter may be. Equal constraints share their programs."""

    @property
    def num_axes(self) -> int:
        """Axes of one constrained value: 0 for a number, 1 for a vector."""
        return 0

    def constrain(self, u: Array) -> Array:
        """t(u)."""
        raise NotImplementedError

    def unconstrain(self, t: Array) -> Array:
        """u(t)."""
        raise NotImplementedError

    def log_det(self, u: Array) -> Array:
        """log |det dt/du|, without the axes of a value."""
        raise NotImplementedError

    def violated(self, t: np.ndarray) -> str:
        """Say what is wrong with a value, of one of the right shape; empty if nothing is."""
        raise NotImplementedError

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of u from that of t; raise ValueError if none has it."""
        return shape


@dataclasses.dataclass(frozen=True)
class GreaterThan(Constraint):
    """t = low + exp(u), so that log |dt/du| = u."""

    low: float = 0.0

    def constrain(self, u: Array) -> Array:
        """low + exp(u)."""
        least, most = _inside(u.dtype, self.low, math.inf)
        return jnp.clip(self.low + _exp(u), least, most)

    def unconstrain(self, t: Array) -> Array:
        """log(t - low)."""
        return jnp.log(t - self.low)

    def log_det(self, u: Array) -> Array:
        """Return u."""
        return u

    def violated(self, t: np.ndarray) -> str:
        """It must be greater."""
        return _not_finite(t) if np.all(t > self.low) else f"must be greater than {self.low:g}"


@dataclasses.dataclass(frozen=True)
class LessThan(Constraint):
    """t = high - exp(u), so that log |dt/du| = u."""

    high: float = 0.0

    def constrain(self, u: Array) -> Array:
        """high - exp(u)."""
        least, most = _inside(u.dtype, -math.inf, self.high)
        return jnp.clip(self.high - _exp(u), least, most)

    def unconstrain(self, t: Array) -> Array:
        """log(high - t)."""
        return jnp.log(self.high - t)

    def log_det(self, u: Array) -> Array:
        """Return u."""
        return u

    def violated(self, t: np.ndarray) -> str:
        """It must be less."""
        return _not_finite(t) if np.all(t < self.high) else f"must be less than {self.high:g}"


@dataclasses.dataclass(frozen=True)
class Interval(Constraint):
    """t = low + (high - low)/(1 + exp(-u))."""

    low: float = 0.0
    high: float = 1.0

    def constrain(self, u: Array) -> Array:
        """Return low + (high - low) sigmoid(u)."""
        least, most = _inside(u.dtype, self.low, self.high)
        return jnp.clip(self.low + (self.high - self.low) * jax.nn.sigmoid(u), least, most)

    def unconstrain(self, t: Array) -> Array:
        """log(t - low) - log(high - t)."""
        return jnp.log(t - self.low) - jnp.log(self.high - t)

    def log_det(self, u: Array) -> Array:
        """log(high - low) + log sigmoid(u) + log sigmoid(-u)."""
        return math.log(self.high - self.low) + jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u)

    def violated(self, t: np.ndarray) -> str:
        """It must be between."""
        is_inside = np.all((t > self.low) & (t < self.high))
        return "" if is_inside else f"must be between {self.low:.9g} and {self.high:.9g}"


@dataclasses.dataclass(frozen=True)
class Ordered(Constraint):
    """t_1 = u_1 and t_k = t_(k-1) + exp(u_k): the Jacobian is triangular, and its log determinant sum_(k>1) u_k.

    A gap that is lost in rounding is as small as the numbers allow, so that they are all different.
    """

    @property
    def num_axes(self) -> int:
        """A vector."""
        return 1

    def constrain(self, u: Array) -> Array:
        """Add up the gaps."""
        least, most = _inside(u.dtype, -math.inf, math.inf)

        def add(before: Array, gap: Array) -> tuple[Array, Array]:
            here = jax.lax.stop_gradient(before)
            after = jnp.maximum(jnp.nextafter(here, most), here + jnp.finfo(u.dtype).tiny)
            sum_ = jnp.clip(before + gap, after, most)
            return sum_, sum_

        first = jnp.clip(u[..., 0], least, most)
        _, others = jax.lax.scan(add, first, jnp.moveaxis(_exp(u[..., 1:]), -1, 0))
        return jnp.concatenate([first[..., None], jnp.moveaxis(others, 0, -1)], -1)

    def unconstrain(self, t: Array) -> Array:
        """Take the logarithms of the gaps."""
        return jnp.concatenate([t[..., :1], jnp.log(jnp.diff(t, axis=-1))], -1)

    def log_det(self, u: Array) -> Array:
        """sum_(k>1) u_k."""
        return jnp.sum(u[..., 1:], -1)

    def violated(self, t: np.ndarray) -> str:
        """Each number must be greater than the one before."""
        is_rising = np.all(np.diff(t, axis=-1) > 0) and np.all(np.isfinite(t))
        return "" if is_rising else "must be in ascending order, all different"

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The same."""
        _check_length("an ordered vector", shape, 1)
        return shape


@dataclasses.dataclass(frozen=True)
class Simplex(Constraint):
    """Stick-breaking: positive numbers that add up to 1, K of them from K - 1 coordinates.

        t_k = z_k prod_(j<k) (1 - z_j),    z_k = 1/(1 + exp(-v_k)),    v_k = u_k - log(K - k),    z_K = 1,

    so that u = 0 has all t_k alike. The Jacobian of the first K - 1 numbers is triangular, with the diagonal
    t_k (1 - z_k). Products are sums of logarithms: no number is the rounded rest of 1 minus the others.
    """

    @property
    def num_axes(self) -> int:
        """A vector."""
        return 1

    def constrain(self, u: Array) -> Array:
        """Break the stick."""
        return jnp.maximum(jnp.exp(self._log_parts(u)[0]), jnp.finfo(u.dtype).tiny)

    def unconstrain(self, t: Array) -> Array:
        """v_k = log t_k - log sum_(j>k) t_j; what is left is added up, not subtracted from 1."""
        left = jnp.flip(jnp.cumsum(jnp.flip(t[..., 1:], -1), -1), -1)
        return jnp.log(t[..., :-1]) - jnp.log(left) + _log_left(left)

    def log_det(self, u: Array) -> Array:
        """sum_(k<K) [log t_k + log(1 - z_k)]."""
        log_parts, log_rest = self._log_parts(u)
        return jnp.sum(log_parts[..., :-1] + log_rest, -1)

    def _log_parts(self, u: Array) -> tuple[Array, Array]:
        """log t_k for all k, and log(1 - z_k) for all but the last."""
        v = u - _log_left(u)
        log_rest = jax.nn.log_sigmoid(-v)
        log_before = jnp.cumsum(log_rest, -1)
        first = jnp.zeros_like(log_before[..., :1])
        log_part = jnp.concatenate([jax.nn.log_sigmoid(v), first], -1)
        return log_part + jnp.concatenate([first, log_before], -1), log_rest

    def violated(self, t: np.ndarray) -> str:
        """Positive numbers that add up to 1."""
        is_one = np.all(t > 0) and np.all(np.abs(t.sum(-1, dtype=np.float64) - 1) <= _SUM)
        return "" if is_one else "must be positive numbers that add up to 1"

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One fewer."""
        _check_length("a simplex", shape, 2)
        return (*shape[:-1], shape[-1] - 1)


@dataclasses.dataclass(frozen=True)
class CholeskyCorrelation(Constraint):
    """L with L L' a correlation matrix: lower triangular, rows of norm 1, positive on the diagonal.

    Row by row what is left of the squared norm of 1 is shared out, with z = tanh(u) (Lewandowski et al. 2009):

        L_ij = z_ij sqrt(prod_(k<j) (1 - z_ik^2)),  j < i;    L_ii = sqrt(prod_(k<i) (1 - z_ik^2)).

    The Jacobian of the numbers below the diagonal is triangular, with the diagonal L_ij/z_ij (1 - z_ij^2). A matrix of
    D rows has D (D - 1)/2 coordinates, row by row.
    """

    @property
    def num_axes(self) -> int:
        """A matrix."""
        return 2

    def constrain(self, u: Array) -> Array:
        """Share out the squared norm of every row."""
        below, log_left = self._rows(u)
        size = below.shape[-1]
        eye = jnp.eye(size, dtype=u.dtype)
        diagonal = jnp.maximum(jnp.exp(jnp.sum(log_left, -1)), jnp.finfo(u.dtype).tiny)
        before = jnp.cumsum(log_left, -1) - log_left
        return below * jnp.exp(before) + eye * diagonal[..., None]

    def unconstrain(self, t: Array) -> Array:
        """z/sqrt(1 - z^2) is L_ij over the norm of what comes after it in its row, and u = arsinh of that."""
        squares = jnp.flip(jnp.cumsum(jnp.flip(t**2, -1), -1), -1)
        after = jnp.sqrt(jnp.roll(squares, -1, -1))
        rows, columns = np.tril_indices(t.shape[-1], -1)
        return jnp.arcsinh(t[..., rows, columns] / after[..., rows, columns])

    def log_det(self, u: Array) -> Array:
        """Add up log(1 - z_ij^2) + (1/2) sum_(k<j) log(1 - z_ik^2)."""
        _, log_left = self._rows(u)
        before = jnp.cumsum(log_left, -1) - log_left
        is_below = np.tri(log_left.shape[-1], k=-1, dtype=bool)
        return jnp.sum(jnp.where(is_below, 2 * log_left + before, 0), (-2, -1))

    def _rows(self, u: Array) -> tuple[Array, Array]:
        """z and log sqrt(1 - z^2) as matrices, 0 on the diagonal and above."""
        size = _matrix_size(u.shape[-1])
        at = (..., *np.tril_indices(size, -1))
        nothing = jnp.zeros((*u.shape[:-1], size, size), u.dtype)
        log_left = math.log(2) - jnp.abs(u) - jnp.log1p(jnp.exp(-2 * jnp.abs(u)))  # -log cosh u
        return nothing.at[at].set(jnp.tanh(u)), nothing.at[at].set(log_left)

    def violated(self, t: np.ndarray) -> str:
        """A lower triangular matrix with rows of norm 1."""
        wide = np.asarray(t, np.float64)
        is_one = np.all(np.abs(np.sum(wide**2, -1) - 1) <= _SUM) and np.all(np.triu(wide, 1) == 0)
        is_one = is_one and np.all(np.diagonal(wide, axis1=-2, axis2=-1) > 0)
        return "" if is_one else "must be lower triangular, with rows of norm 1 and a positive diagonal"

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """As many as there are numbers below the diagonal."""
        if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
            raise ValueError(f"must be a square matrix of 2 or more rows; got shape {shape}")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


positive = GreaterThan(0.0)
unit_interval = Interval(0.0, 1.0)
simplex = Simplex()
ordered = Ordered()
cholesky_correlation = CholeskyCorrelation()


def greater_than(low: float) -> GreaterThan:
    """Return the constraint t > low."""
    _check_number("greater_than", low=low)
    return GreaterThan(float(low))


def less_than(high: float) -> LessThan:
    """Return the constraint t < high."""
    _check_number("less_than", high=high)
    return LessThan(float(high))


def interval(low: float, high: float) -> Interval:
    """Return the constraint low < t < high."""
    _check_number("interval", low=low, high=high)
    if not low < high:
        raise ValueError(f"`interval(low, high)` must have low < high; got {low!r} and {high!r}.")
    return Interval(float(low), float(high))


def _check_number(call: str, **values: Any) -> None:
    for name, value in values.items():
        if not is_number(value):
            raise ValueError(f"`{call}({name}=...)` must be a finite number; got {brief(value)}.")


def _check_length(what: str, shape: tuple[int, ...], least: int) -> None:
    if not shape or shape[-1] < least:
        raise ValueError(f"must be {what} of {least} or more numbers; got shape {shape}")


def _not_finite(t: np.ndarray) -> str:
    return "" if np.all(np.isfinite(t)) else "must be finite"


def _exp(u: Array) -> Array:
    """exp(u), or the greatest number: infinity would have the gradient NaN."""
    return jnp.exp(jnp.minimum(u, math.log(float(jnp.finfo(u.dtype).max)) * (1 - float(jnp.finfo(u.dtype).eps))))


def _inside(dtype: Any, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest number strictly within limits; not one that XLA would round to 0."""
    kind, tiny = np.dtype(dtype).type, np.finfo(dtype).tiny
    least, most = np.nextafter(kind(low), kind(math.inf)), np.nextafter(kind(high), kind(-math.inf))
    return (tiny if low == 0 else least), (-tiny if high == 0 else most)


def _log_left(u: Array) -> np.ndarray:
    """log(K - k) for k = 1, ..., K - 1."""
    return np.log(np.arange(u.shape[-1], 0, -1)).astype(u.dtype)


def _matrix_size(count: int) -> int:
    """D from D (D - 1)/2."""
    size = (1 + math.isqrt(1 + 8 * count)) // 2
    if size < 2 or size * (size - 1) // 2 != count:
        raise ValueError(f"no correlation matrix has {count} coordinates")
    return size
