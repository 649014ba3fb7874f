"""Groups whose expansion is poor: few rows, or outcomes that are all alike."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tallchain.models.likelihood import layout_of
from tallchain.parts import part, static
from tallchain.types import Array, Block, Posterior, Source

_SHARE = 0.05  # of the noise of all rows, from one group
_TIMES = 20.0  # its share of the rows
_NAMED = 5


def poor_groups(posterior: Posterior, source: Source, scores: np.ndarray | None, score: Any = None) -> tuple[str, ...]:
    """Name groups that make much more of the noise of a decision than their rows would, by the scores of the rows.

    `score` makes them where they were not kept.

    The number of levels does not matter: one of ten carriers may have thirty rows. If it flies on one route, the route
    is named too.
    """
    layout = layout_of(posterior)
    labels, found = dict(getattr(posterior, "names", ())), []
    for term in (term for term in layout.terms if term.slope is None):
        size = term.num_levels
        of_term = _Noise(None if scores is None else jax.device_put(scores), score, term.factor, size)
        noise, rows = source.sweep(of_term, results=2 * size)
        share = noise / max(float(noise.sum()), 1e-30)
        least = np.maximum(_SHARE, _TIMES * rows / max(float(rows.sum()), 1.0))
        worst = [int(at) for at in np.argsort(-share)[:_NAMED] if share[at] > least[at]]
        if worst:
            names = labels.get(term.name)
            named = ", ".join(f"{names[at] if names else at} ({share[at]:.0%})" for at in worst)
            found.append(
                f"groups               of {term.name!r}: the expansion is poor for {named} (share of the noise of a "
                "decision): few rows, outcomes that are all alike, or rows of such a group of another factor"
            )
    return tuple(found)


@part
class _Noise:
    """For a block: the sum of the squared scores by level, and the number of rows."""

    scores: Array | None
    score: Any
    factor: int = static()
    num_levels: int = static()

    def __call__(self, block: Block) -> Array:
        if self.scores is None:
            values = self.score.of_rows(block.rows)
        else:
            values = lax.dynamic_slice_in_dim(self.scores, block.index[0], len(block.index))
        values = jnp.where(block.is_valid, values, 0)
        both = jnp.stack([values**2, block.is_valid.astype(values.dtype)], 1)
        return jax.ops.segment_sum(both, block.rows["groups"][:, self.factor], self.num_levels).T
