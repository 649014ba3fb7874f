"""What the rows of each level of a factor would give for its effect, without the prior that shrinks it.

At the mean of the draws a step of Newton's method for the effect of one level, the other parameters kept, gives

    u_g + S_g / I_g,   S_g = sum of w_i f'_i over its rows,   I_g = -sum of w_i^2 f''_i.

It is exact for Gaussian outcomes. For others it stays finite where there is no maximum, such as for a level whose
outcomes are all 0.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.functions import Function, program
from tallchain.models.layout import Term
from tallchain.models.likelihood import RegressionLogLikelihood
from tallchain.models.new_rows import Model
from tallchain.models.prediction import take_draws
from tallchain.parts import part, static
from tallchain.types import Array, PyTree

_BLOCK = 2**17  # rows
_MOST_DRAWS = 4000


@part
class _Rows:
    """What a program depends on: equal families and layouts share it."""

    log_likelihood: Function = static()


@program()
def _slopes(of: _Rows, position: PyTree, rows: PyTree) -> tuple[Array, Array]:
    """First and second derivative of each row's log density by its predictor."""
    regression = of.log_likelihood.function
    assert isinstance(regression, RegressionLogLikelihood)

    def one(row: PyTree) -> tuple[Array, Array]:
        found = regression.family.derivatives(regression.layout.predictors(position, row), row["y"])
        return found.first[0], found.second[0, 0]

    return jax.vmap(one)(rows)


def own_estimates(model: Model, trace: Any, term: str) -> np.ndarray:
    """Return what the rows of each level would give for its effect; NaN where they say nothing."""
    of = next(each for each in model.layout.terms if each.name == term)
    draws = take_draws("own_estimates", model.layout, trace, _MOST_DRAWS)
    position = jax.tree.map(lambda leaf: jnp.asarray(leaf.mean(0)), draws)
    log_likelihood = model.posterior.log_likelihood
    assert isinstance(log_likelihood, Function)
    sums = np.zeros((2, of.num_levels))
    num_rows = len(model.data["x"])
    width = min(_BLOCK, 1 << (num_rows - 1).bit_length())
    for start in range(0, num_rows, width):
        is_full = start + width <= num_rows  # if not, the last row stands for those that are missing
        at = slice(start, start + width) if is_full else np.arange(start, start + width).clip(max=num_rows - 1)
        rows = {name: leaf[at] for name, leaf in model.data.items()}
        found = _slopes(_Rows(log_likelihood), position, rows)
        sums += _sums(of, rows, found, min(width, num_rows - start))
    score, curve = sums
    with np.errstate(all="ignore"):
        return np.where(curve > 0, np.asarray(position[term], np.float64) + score / curve, np.nan)


def _sums(of: Term, rows: dict[str, np.ndarray], found: tuple[Array, Array], count: int) -> np.ndarray:
    """S_g and I_g of the first `count` rows, (2, level)."""
    first, second = (np.asarray(each, np.float64)[:count] for each in found)
    level = rows["groups"][:count, of.factor]
    by = np.ones(count) if of.slope is None else rows["slopes"][:count, of.slope].astype(np.float64)
    often = rows["weight"][:count] if "weight" in rows else 1.0
    sums = (often * by * first, -often * by**2 * second)
    return np.stack([np.bincount(level, each, of.num_levels) for each in sums])
