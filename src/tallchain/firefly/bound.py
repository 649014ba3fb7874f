"""The bound of Jaakkola and Jordan (2000) on a logistic likelihood, which touches it at one position.

With s = x.t for y = 1 and -x.t for y = 0, r the position and xi = |x.r|,

    log B(t) = log sig(xi) + (s - xi)/2 - lambda (s^2 - xi^2),   lambda = tanh(xi/2)/(4 xi),

is at most l(t) = log sig(s), with equal value and slope at t = r. Its sum over all rows is quadratic in t, and one
sweep makes it. The gap g = l - log B does not depend on y: s enters it by s^2 alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.arrays import as_floats, dot
from tallchain.parts import part
from tallchain.proposals.laplace import Laplace
from tallchain.residuals import digits, needs_float64, widened
from tallchain.types import Array, Block, Posterior, PyTree, Source

_LEAST = 1e-30  # a gap that rounding made 0: its logarithm is finite
_FLAT = 1e-3  # xi below which lambda is a parabola
_FLATTER = 0.05  # the same for the difference of two curvatures
_NEAR = 1.0  # steps up to which the gap is computed without cancellation
_LEAST_SLOPE = 1e-16  # gap in the denominator of a slope


def gap(touch: Array, step: Array) -> Array:
    """g = l - log B, at least 0, for x.r = `touch` and x.(t - r) = `step`.

    With T = tanh(xi/2) and d the step, its sign turned if x.r < 0,

        g = lambda d^2 + T d/2 - log(cosh((xi + d)/2) / cosh(xi/2)),

    and the quotient is 1 + 2 sinh(d/4)^2 + T sinh(d/2): a short step loses no digits to the terms that cancel in l and
    log B, which are of order 1.
    """
    xi, d, tangent = _turned(touch, step)
    is_near = jnp.abs(d) <= _NEAR
    short = jnp.where(is_near, d, 0.0)
    near = jnp.log1p(2 * jnp.sinh(short / 4) ** 2 + tangent * jnp.sinh(short / 2))
    far = (jnp.abs(xi + d) - xi) / 2 + jnp.log1p(jnp.exp(-jnp.abs(xi + d))) - jnp.log1p(jnp.exp(-xi))
    return jnp.maximum(_lambda(xi, tangent) * d**2 + tangent * d / 2 - jnp.where(is_near, near, far), 0.0)


def log_odds(gap: Array) -> Array:
    """log(exp(g) - 1), the log-odds of a row to be bright."""
    gap = jnp.maximum(gap, _LEAST)
    return gap + jnp.log(-jnp.expm1(-gap))


def slope(touch: Array, step: Array) -> Array:
    """Return the derivative of `log_odds` by x.t: g' / (1 - exp(-g))."""
    xi, d, tangent = _turned(touch, step)
    by_step = 2 * _lambda(xi, tangent) * d + (tangent - jnp.tanh((xi + d) / 2)) / 2
    by_step = jnp.where(touch < 0, -by_step, by_step)
    return by_step / -jnp.expm1(-jnp.maximum(gap(touch, step), _LEAST_SLOPE))


def _turned(touch: Array, step: Array) -> tuple[Array, Array, Array]:
    """xi, the step in the direction in which x.r grows in size, and tanh(xi/2)."""
    xi = jnp.abs(touch)
    return xi, jnp.where(touch < 0, -step, step), jnp.tanh(xi / 2)


def _lambda(xi: Array, tangent: Array) -> Array:
    is_flat = xi < _FLAT
    return jnp.where(is_flat, 0.125 - xi**2 / 96, tangent / (4 * jnp.where(is_flat, 1.0, xi)))


def _excess(xi: Array, tangent: Array) -> Array:
    """2 lambda - sig(xi) sig(-xi), the curvature of log B minus that of l at r: twice the gap per squared step."""
    difference = 2 * _lambda(xi, tangent) - (1 - tangent) * (1 + tangent) / 4
    return jnp.where(xi < _FLATTER, xi**2 / 24, jnp.maximum(difference, 0.0))


# ---- sums over all rows ------------------------------------------------------------------------


@part
class Bound:
    """Sum over all rows of log B(t) - log B(r) = G.(t - r) - (t - r)'A(t - r)/2."""

    position: Array
    """r."""
    gradient: Array
    """G."""
    curvature: Array
    """A."""

    def difference(self, position: Array, candidate: Array) -> Array:
        """Return the sum at the candidate minus that at the position, without subtracting nearly equal numbers."""
        step, both = candidate - position, (candidate - self.position) + (position - self.position)
        return dot(self.gradient, step) - 0.5 * dot(step, dot(self.curvature, both))

    def slope(self, position: Array) -> Array:
        """Return its gradient."""
        return self.gradient - dot(self.curvature, position - self.position)


class Sums(NamedTuple):
    """Sums over all rows, in float64."""

    gradient: Any
    """(y - sig(x.r)) x: of log B and l alike."""
    curvature: Any
    """2 lambda x x'."""
    excess: Any
    """(2 lambda - sig(xi) sig(-xi)) x x'."""


def sum_rows(posterior: Posterior, source: Source, position: PyTree) -> Sums:
    """Sweep every row once; of very many rows all is in float64."""
    with digits(needs_float64(source.population.total, 1.0)):
        at = as_floats(position)
        return source.sweep(_BlockSums(posterior, at), results=at.size * (2 * at.size + 1))


@part
class _BlockSums:
    """The sums of one block."""

    posterior: Posterior
    position: Array

    @property
    def log_likelihood(self) -> Any:
        """Whose programs these are."""
        return self.posterior.log_likelihood

    def __call__(self, block: Block) -> Sums:
        rows = jax.tree.map(widened, block.rows) if self.position.dtype == jnp.float64 else block.rows
        touch = touches(self.position, rows)
        xi, _, tangent = _turned(touch, jnp.zeros_like(touch))
        is_counted = block.is_valid[:, None]
        x = jnp.where(is_counted, rows["x"], 0.0)
        by_row = jnp.stack([2 * _lambda(xi, tangent), _excess(xi, tangent)])
        return Sums(
            dot(rows["y"] - jax.nn.sigmoid(touch), x),
            *(dot((x * weight[:, None]).T, x) for weight in by_row),
        )


def touches(position: Array, rows: PyTree) -> Array:
    """x.r of some rows, with their offsets."""
    predictors = dot(rows["x"], position)
    return predictors + rows["offset"] if "offset" in rows else predictors


class Expected(NamedTuple):
    """What the sums say of the posterior, in its normal approximation N(m, S) at r."""

    laplace: Laplace
    """N(r, S)."""
    given_bright: Laplace
    """The same for t given the bright rows."""
    bright: float
    """Mean number of bright rows: sum of E[g], to second order."""
    most: float
    """A number of bright rows that one decision in 10^12 exceeds, if that."""


_RARE = 28.0  # -log of the chance that the sum of gaps is larger than `most` allows for
_DEVIATIONS = 7.0  # of a Poisson number


def expect(sums: Sums, log_prior: Any, position: PyTree) -> Expected:
    """Return how many rows will be bright: z'Mz/2 + ..., z standard normal, M = L'DL, D the excess and S = LL'.

    Given the bright rows the posterior is narrower. log(exp(g_i) - 1) of a bright row has the curvature -2/s^2 in
    s = x_i.(t - r), and a row is bright with probability e_i s^2/2, so that on average its information is e_i x_i x_i',
    that of all bright rows D. The bound adds S^-1 + D: S^-1 + 2 D in all.

    m - r = S (gradient of the log posterior at r), which is nearly 0 if r is the mode. The sum of the gaps at a draw
    is a quadratic form of it; its tail is bounded after Laurent and Massart (2000), lemma 1.
    """
    at = as_floats(position)
    hessian, slope = np.asarray(jax.hessian(log_prior)(at), float), np.asarray(jax.grad(log_prior)(at), float)
    precision = sums.curvature - sums.excess - hessian
    laplace = Laplace.of_precision(at, precision)
    shift = np.linalg.solve(precision, sums.gradient + slope)
    factor = np.asarray(laplace.factor, float)
    values = np.maximum(np.linalg.eigvalsh(factor.T @ sums.excess @ factor), 0) / 2
    offset = max(float(shift @ sums.excess @ shift) / 2, 0.0)
    tail = values.sum() + 2 * np.sqrt(_RARE * (values**2).sum()) + 2 * _RARE * values.max()
    tail = (np.sqrt(tail) + np.sqrt(offset)) ** 2
    given_bright = Laplace.of_precision(at, precision + 2 * sums.excess)
    most = float(tail + _DEVIATIONS * np.sqrt(tail) + _RARE / 3)
    return Expected(laplace, given_bright, float(values.sum() + offset), most)
