"""Whether the scores of rows tell all coordinates of a position apart."""

from __future__ import annotations

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from tallchain.functions import QUICKLY, program
from tallchain.names import all_coordinates, labels_of
from tallchain.types import Array, Posterior, PyTree, Target

_ROWS = 1024  # to look at, at least
_LEAST = 1e-5  # eigenvalue of the correlations of scores: below, a matrix in float32 has few digits or none
_SHARE = 0.1  # of the largest weight in a combination: coordinates with less do not take part
_NAMED = 4


def check_information(call: str, target: Target, position: PyTree, rows: int) -> None:
    """Refuse a start where the covariance of scores is singular for all rows, as far as some of them show."""
    some = target.source.some_rows(max(rows, _ROWS, 4 * sum(leaf.size for leaf in jax.tree.leaves(position))))
    scores = np.asarray(_scores(target.posterior, position, some), np.float64)
    at = not_told_apart(scores)
    if not len(at):
        return
    labels = labels_of(target.posterior, position)
    names = all_coordinates(jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], position), labels)[0]
    named = ", ".join([names[i] for i in at[:_NAMED]] + (["..."] if len(at) > _NAMED else []))
    raise ValueError(
        f"`{call}`: the covariance of the scores of {len(scores):,} rows is singular at the start, in the direction of "
        f"{named}. Either no row depends on it, or rows depend on several coordinates through one combination alone, "
        "as on a sum. Leave one out or standardise columns that are nearly alike; if the prior tells them apart, give "
        "`SGFS(preconditioner=...)` or use `SGLD`."
    )


def not_told_apart(scores: np.ndarray) -> np.ndarray:
    """Return the coordinates that take part in a combination in which the scores (row, coordinate) do not vary."""
    spread = scores.std(0)
    if not np.all(spread > 0):
        return np.nonzero(~(spread > 0))[0]
    values, vectors = np.linalg.eigh(np.corrcoef(scores.T).reshape(len(spread), -1))
    weights = np.abs(vectors[:, values < _LEAST]).max(1, initial=0.0)
    return np.nonzero(weights > _SHARE * weights.max())[0]


@program(compiler_options=QUICKLY)
def _scores(posterior: Posterior, position: PyTree, rows: PyTree) -> Array:
    """Gradients of the log likelihood, by row and coordinate."""
    return jax.vmap(lambda row: ravel_pytree(jax.grad(posterior.log_likelihood)(position, row))[0])(rows)
