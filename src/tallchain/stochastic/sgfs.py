"""Stochastic-gradient Fisher scoring (Ahn, Korattikara and Welling 2012)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr
from jax.flatten_util import ravel_pytree

from tallchain.arrays import as_floats, dot
from tallchain.parts import part, set_fields
from tallchain.sources.stored import Stored
from tallchain.stochastic.dynamics import Chance, Moving, Steps, check_positive, shapes_of
from tallchain.stochastic.information import check_information
from tallchain.types import Array, Ask, Population, PyTree, Source, Target
from tallchain.validation import brief, is_traced


class Fisher(NamedTuple):
    """What a chain carries from update to update."""

    information: Array
    """I1, d x d: the mean over updates of the covariance of scores."""
    count: Array
    """Updates so far."""


class Scores(NamedTuple):
    """Count, mean and scatter of the scores of some rows; they merge as in Chan, Golub and LeVeque (1983)."""

    count: Array
    mean: Array
    scatter: Array
    """Sum of (s - mean)(s - mean)'."""

    @classmethod
    def of(cls, values: Array, is_valid: Array) -> Scores:
        """Summarise one window, values by row and coordinate."""
        count = jnp.sum(is_valid).astype(values.dtype)
        mean = jnp.sum(jnp.where(is_valid[:, None], values, 0), 0) / jnp.maximum(count, 1)
        centred = jnp.where(is_valid[:, None], values - mean, 0)
        return cls(count, mean, dot(centred.T, centred))

    def merge(self, other: Scores) -> Scores:
        """Return those of both."""
        count, step = self.count + other.count, other.mean - self.mean
        share = other.count / jnp.maximum(count, 1)
        scatter = self.scatter + other.scatter + self.count * share * jnp.outer(step, step)
        return Scores(count, self.mean + share * step, scatter)

    @property
    def covariance(self) -> Array:
        """Unbiased."""
        return self.scatter / (self.count - 1)


@part
class SGFS(Steps):
    """t' = t + 2 (G (N/K) I1 + 4 B/eps)^-1 (grad log p0(t) + (N/K) s + e),   e ~ N(0, 4 B/eps).

    s is the mean score (gradient of the log likelihood) of a new minibatch of n rows, and I1 the mean over the updates
    so far of the covariance of their scores, an estimate of the Fisher information of a row. N/K I1 is then about the
    precision of the posterior, (N/K)^2 c I1/n that of the noise in the gradient, and G their sum,

        G = 1 + c N/(n K),   c = 1 for rows with replacement, as in the paper, and 1 - n/N for rows without.

    The matrix allows for the noise of the minibatch, so that the draws are right for any eps and n where the posterior
    is normal, the prior negligible, and the model true: then the covariance of scores is the information. Elsewhere
    they are biased. For small eps this is SGLD preconditioned by B^-1.

    I1 is the average from the start: start near the mode. The matrix of the first updates is of few rows; discard them.
    Scores must tell all coordinates apart, or I1 is singular: a run refuses coordinates that enter only as a sum.

    `proposals.Langevin.preconditioned` takes steps with a fixed matrix, which a test corrects.

    Args:
        step_size: eps, of the paper: the noise that is added to the gradient has variance 4 B/eps. For small eps it is
            twice the step size of `SGLD`, in units of B^-1. If B is None it has no unit: at 1 the noise that is added
            has four times the variance of the minibatch's and the posterior's precision together; at infinity, none.
        preconditioner: B, d x d and positive definite; None for G (N/K) I1, the paper's own choice.
    """

    step_size: Array | float
    preconditioner: Array | None

    def __init__(self, step_size: Array | float, preconditioner: Any = None) -> None:
        check_positive("SGFS(step_size=...)", step_size)
        set_fields(self, step_size=step_size, preconditioner=_matrix(preconditioner))

    def check(self, position: PyTree) -> None:
        """Refuse a step size that is not positive, and a preconditioner of another size."""
        check_positive("SGFS(step_size=...)", self.step_size)
        size = sum(leaf.size for leaf in jax.tree.leaves(position))
        if self.preconditioner is not None and self.preconditioner.shape != (size, size):
            raise ValueError(
                f"`SGFS(preconditioner=...)` must be of shape ({size}, {size}) for a position of shapes "
                f"{shapes_of(position)}; got shape {self.preconditioner.shape}."
            )

    def check_source(self, source: Source, *, has_surrogate: bool) -> None:
        """Refuse rows that have weights, and a surrogate: scores are of plain rows."""
        population = source.population
        is_weighted = isinstance(source, Stored) and source.share is not None
        if is_weighted or population.num_exact or population.total != population.num_rows:
            raise ValueError(
                "`StochasticGradient(source=..., dynamics=SGFS(...))` takes the covariance of the scores of rows drawn "
                "alike; in this source some rows are read always, or more often. Use the one that it was made from."
            )
        if has_surrogate:
            raise ValueError(
                "`StochasticGradient(surrogate=..., dynamics=SGFS(...))`: the information is the covariance of whole "
                "scores, and a surrogate leaves residuals. Leave it out, or use SGLD."
            )

    def check_start(self, target: Target, position: PyTree, rows: int) -> None:
        """Refuse rows whose scores leave I1 singular, if nothing else makes the matrix definite."""
        if self.preconditioner is None:
            check_information("StochasticGradient(dynamics=SGFS(...))", target, position, rows)

    def begin(self, position: PyTree, rows: int) -> Fisher:
        """No information; refuse minibatches that would leave it singular."""
        size = sum(leaf.size for leaf in jax.tree.leaves(position))
        least = size + 1 if self.preconditioner is None else 2
        if rows < least:
            other = ", or give `SGFS(preconditioner=...)`" if self.preconditioner is None else ""
            raise ValueError(
                f"`StochasticGradient(dynamics=SGFS(...), rows={rows})`: the covariance of the scores of so few rows "
                f"is singular for {size} coordinates. Use at least {least} rows, better several times as many{other}."
            )
        return Fisher(jnp.zeros((size, size)), jnp.zeros((), jnp.int32))

    def update(self, chance: Chance, at: Moving, target: Target, rows: int) -> Moving:
        """Make one update."""
        flat, unravel = ravel_pytree(at.position)
        population, temperature = target.source.population, as_floats(target.posterior.temperature)
        scores = scores_of(target, chance.rows, rows, at.position)
        count = at.memory.count + 1
        information = at.memory.information + (scores.covariance - at.memory.information) / count
        per_row = population.num_rows / temperature
        of_data = (1 + noise_share(population, rows) * per_row / rows) * per_row * information
        b = of_data if self.preconditioner is None else self.preconditioner
        four = 4 / as_floats(self.step_size)
        noise = jnp.sqrt(four) * dot(jnp.linalg.cholesky(b), jr.normal(chance.noise, flat.shape, flat.dtype))
        prior = ravel_pytree(jax.grad(target.posterior.log_prior)(at.position))[0]
        step = 2 * jnp.linalg.solve(of_data + four * b, prior + per_row * scores.mean + noise)
        return Moving(unravel((flat + step).astype(flat.dtype)), Fisher(information, count))


def scores_of(target: Target, key: Array, rows: int, position: PyTree) -> Scores:
    """Read a minibatch, and summarise the gradients of its log likelihoods."""
    source, likelihood = target.source, target.posterior.log_likelihood
    width = source.width(rows)

    def score(row: PyTree) -> Array:
        return ravel_pytree(jax.grad(likelihood)(position, row))[0]

    def look(carry: tuple[PyTree, Array, Scores], _: None) -> tuple[tuple[PyTree, Array, Scores], None]:
        cursor, left, seen = carry
        cursor, new = source.look(cursor, Ask(left), width, score, Scores.of)
        return (cursor, left - new.taken, seen.merge(new.evidence)), None

    flat = ravel_pytree(position)[0]
    none = Scores(jnp.zeros((), flat.dtype), jnp.zeros_like(flat), jnp.zeros((flat.size, flat.size), flat.dtype))
    carry = source.start(source.draw(key)), jnp.full((), rows, jnp.int32), none
    return lax.scan(look, carry, None, length=-(-rows // width))[0][2]


def noise_share(population: Population, rows: int) -> float:
    """c: the variance of the mean of n rows, over that of n independent ones."""
    return 1.0 if population.repeats else 1 - rows / population.num_rows


def _matrix(preconditioner: Any) -> Array | None:
    if preconditioner is None or is_traced(preconditioner):
        return preconditioner
    try:
        values = np.asarray(preconditioner, float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`SGFS(preconditioner=...)` must hold numbers; got {brief(preconditioner)}.") from error
    if values.ndim != 2 or values.shape[0] != values.shape[1] or not np.all(np.isfinite(values)):
        raise ValueError(
            "`SGFS(preconditioner=...)` must be a square matrix of finite numbers, or None; got "
            f"{brief(preconditioner)}."
        )
    least = np.linalg.eigvalsh(values).min(initial=np.inf)
    if not (least > 0 and np.allclose(values, values.T)):
        raise ValueError(
            "`SGFS(preconditioner=...)` must be symmetric and positive definite, like the precision of the posterior; "
            f"its least eigenvalue is {least:.3g}."
        )
    return as_floats(values)
