"""A fit with room for rows to come: `fit(room=...)`, and what `fit.update` prepares again."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import jax
import numpy as np

from tallchain import growth
from tallchain.checking.joining import last_positions
from tallchain.coordinates import parameters_of
from tallchain.fitting.arriving import Arrived, with_weights
from tallchain.fitting.held import Held
from tallchain.kernel import MetropolisHastings
from tallchain.keys import make_key
from tallchain.models import Regression
from tallchain.prepare import prepare
from tallchain.prepared import Prepared
from tallchain.room import num_empty, rows_of, with_room
from tallchain.sources import as_shuffled
from tallchain.sources.stored import Stored
from tallchain.surrogates import Influence
from tallchain.surrogates.influence import residual_scores
from tallchain.types import Array, Posterior, PyTree
from tallchain.validation import brief, is_positive

SCORED = 16  # positions of chains, between pairs of which new rows are scored
_SOME = 2**16  # rows of a regression that stand for all, for predictive checks


def check_room(room: Any) -> float:
    """Return the share of the rows to have room for."""
    if not (is_positive(room) or room == 0):
        raise ValueError(f"`fit(room=...)` must be a share of the rows, such as 0.25, or 0; got {brief(room)}.")
    return float(room)


def shuffled_with_room(posterior: Posterior, rows: PyTree, room: float) -> tuple[Posterior, Stored]:
    """Return a posterior, and a source of its rows and empty ones, as a share of them."""
    return _shuffled(posterior, rows, math.ceil(room * len(jax.tree.leaves(rows)[0])))


def _shuffled(posterior: Posterior, rows: PyTree, num: int) -> tuple[Posterior, Stored]:
    posterior, rows = with_room(posterior, rows, num)
    source = as_shuffled("fit", rows, None)
    assert isinstance(source, Stored)
    return posterior, source


def prepared_with_room(
    fit: Held, new: Arrived, room: float, *, seed: int, progress: bool
) -> tuple[Prepared, MetropolisHastings]:
    """Prepare all rows of a fit, and new ones, again from where its chains are; with room for more."""
    before, trace = fit.prepared, fit.trace
    assert before is not None
    assert isinstance(before.source, Stored)
    held = rows_of(before.posterior, before.source)
    rows = jax.tree.map(lambda *parts: np.concatenate(parts), held, with_weights(before.posterior, new.rows, held))
    # As many rows as before, empty ones included, have the same programs.
    left = num_empty(before.posterior, before.source) - new.num_rows
    num = left if left > 0 else math.ceil(room * len(jax.tree.leaves(rows)[0]))
    posterior, source = _shuffled(before.posterior, rows, num)
    del held, rows
    mean = jax.tree.map(lambda leaf: np.mean(leaf, 0, dtype=np.float64).astype(leaf.dtype), last_positions(trace))
    prepared = prepare(posterior, source, parameters_of(posterior, mean), seed=seed, progress=progress)
    prepared = rehearsed(prepared, make_key(seed))
    return prepared, prepared.kernel(**fit.given)


def rehearsed(prepared: Prepared, key: Array) -> Prepared:
    """Compile what the first update needs, in the time of the fit."""
    began = time.perf_counter()
    prepared, new = growth.rehearsed(prepared)
    if not prepared.is_exact and isinstance(prepared.scored, Influence):
        residual_scores(prepared.posterior, new, prepared.surrogate, prepared.positions(key, SCORED))
    return dataclasses.replace(prepared, seconds=prepared.seconds + time.perf_counter() - began)


def of_present(prepared: Prepared, num_rows: int) -> Prepared:
    """Return it with the number of rows that are there, without those to come: for reports."""
    reference = prepared.reference
    if dataclasses.is_dataclass(reference):
        return dataclasses.replace(prepared, reference=dataclasses.replace(reference, num_rows=num_rows))
    return dataclasses.replace(prepared, reference=reference._replace(num_rows=num_rows))


def sample_of(model: Regression, source: Stored) -> dict[str, np.ndarray]:
    """Return some rows of a regression, as it was given them: all that a fit keeps of those in a source with room."""
    some: Any = jax.tree.map(lambda leaf: np.asarray(leaf)[: min(2 * _SOME, source.num_data)], source.data)
    is_there = np.asarray(some["weight"]) > 0 if "weight" in some else slice(None)
    return {name: np.array(some[name][is_there][:_SOME]) for name in some if name in model.data}
