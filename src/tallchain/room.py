"""Room for rows to come: rows of weight 0, at random places among the others.

A row of weight 0 has no part in a likelihood. If there are some among the rows, at random places, each is the place of
a row to come: nothing changes its shape, and no program is compiled anew. While places are empty a decision reads that
many more rows for the same variance, as if there were so many more rows.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.functions import as_function
from tallchain.models.likelihood import regression_of
from tallchain.parts import replace
from tallchain.sources.stored import Stored
from tallchain.types import Array, Posterior, PyTree, Source


class Slot(NamedTuple):
    """A row, or room for one, of a posterior whose rows have no weights of their own."""

    row: PyTree
    weight: Any
    """1; or 0, where there is no row yet."""


@dataclasses.dataclass(frozen=True)
class SlotLogLikelihood:
    """The log likelihood of a `Slot`."""

    log_likelihood: Any

    def __call__(self, position: PyTree, slot: Slot) -> Array:
        """Return that of its row, or 0: minus infinity times 0 would not be 0."""
        return jnp.where(slot.weight > 0, self.log_likelihood(position, slot.row), 0)


def with_room(posterior: Posterior, rows: PyTree, num_empty: int) -> tuple[Posterior, PyTree]:
    """Return a posterior, and its rows followed by some of them again with weight 0, which later rows replace."""
    posterior, rows = weighted(posterior, rows)
    count = len(weights_of(rows))
    again = np.arange(num_empty) % count
    rows = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf[again]]), rows)
    weights_of(rows)[count:] = 0
    return posterior, rows


def weighted(posterior: Posterior, rows: PyTree) -> tuple[Posterior, PyTree]:
    """Give every row a weight, if rows have none."""
    rows = jax.tree.map(np.asarray, rows)
    if has_weights(posterior, rows):
        return posterior, rows
    ones = np.ones(len(jax.tree.leaves(rows)[0]), np.float32)
    if regression_of(posterior) is not None:
        return posterior, rows | {"weight": ones}
    return replace(posterior, log_likelihood=as_function(SlotLogLikelihood(posterior.log_likelihood))), Slot(rows, ones)


def has_weights(posterior: Posterior, rows: PyTree) -> bool:
    """Whether rows have weights that count in the likelihood: only these rows may have places for others.

    A column "weight" of a posterior of own functions is a number like any other.
    """
    return isinstance(rows, Slot) or (regression_of(posterior) is not None and "weight" in rows)


def weights_of(rows: PyTree) -> Any:
    """Return the weights of the rows."""
    return rows.weight if isinstance(rows, Slot) else rows["weight"]


def rows_of(posterior: Posterior, source: Stored) -> PyTree:
    """Return the rows of a source, on the host, each once and without the empty ones."""
    rows = jax.tree.map(lambda leaf: np.asarray(leaf)[: source.num_data], source.data)
    if not has_weights(posterior, rows):
        return rows
    is_there = np.asarray(weights_of(rows)) > 0
    return rows if is_there.all() else jax.tree.map(lambda leaf: leaf[is_there], rows)


def num_empty(posterior: Posterior, source: Source) -> int:
    """How many rows may come without a new program."""
    if not isinstance(source, Stored) or not has_weights(posterior, source.data):
        return 0
    return len(places_of(source))


def places_of(source: Any) -> np.ndarray:
    """Places of the empty rows, in the order of the source."""
    return np.flatnonzero(np.asarray(weights_of(source.data))[: source.num_exact + source.num_rows] == 0)
