"""What a checkpoint says of a run of `sample`: what determines its draws, and how it was called."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import random as jr

from tallchain import runner
from tallchain.checkpoints import CheckpointError, Folder, RunCheckpoint, described, opened, versions
from tallchain.checkpoints.folder import MANIFEST
from tallchain.crew import current
from tallchain.keys import make_key, words_of
from tallchain.processes import num_places
from tallchain.schedule import Kernel, Schedule
from tallchain.types import Array, PyTree
from tallchain.validation import brief

Place = str | os.PathLike[str]


class Called(NamedTuple):
    """How a run was called: what determines its draws, apart from kernel, start and key."""

    num_samples: int
    num_chains: int
    num_warmup: int
    keep: str
    thin: int
    adapt: bool
    keep_warmup: bool


@contextmanager
def checkpoint_of(
    place: Place | None,
    kernel: Kernel,
    positions: PyTree,
    initial: PyTree,
    key: Array,
    called: Called,
    schedule: Schedule,
    recentre: Any,
) -> Generator[RunCheckpoint | None]:
    """Yield the checkpoint of a run; None without a place for it."""
    if place is None:
        yield None
        return
    if not isinstance(place, str | os.PathLike):
        raise TypeError(f"`sample(checkpoint=...)` must be the name of a folder; got {brief(place)}.")
    words = words_of(key)
    identity = {name: str(value) for name, value in called._asdict().items()} | {"key": str(words)}
    identity |= {"recentre": getattr(recentre, "__qualname__", type(recentre).__qualname__)}
    identity |= described("kernel", kernel) | described("schedule", schedule) | described("initial", positions)
    facts = {"called": called._asdict(), "key": words, "structure": _structure_of(initial)}
    places = num_places(kernel)
    facts["groups"] = runner.num_groups_of(called.num_chains, places, current())
    arrays = {f"start/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(positions))}
    with (
        Folder(f"sample(checkpoint={str(place)!r})", place) as folder,
        opened(folder, identity | versions(), facts, arrays) as found,
    ):
        if found.num_groups % places:
            raise CheckpointError(
                f"`{folder.call}`: the run was begun with {found.num_groups} groups of chains, which {places} "
                "processes cannot divide equally. Go on with as many processes as at its beginning."
            )
        yield found


class Begun(NamedTuple):
    """A run that was begun: what its checkpoint says of it."""

    key: Array
    initial: PyTree
    """One position per chain."""
    called: Called


def begun(place: Place) -> Begun:
    """Read how a run was called."""
    call = f"resume({str(place)!r})"
    facts, arrays = Folder(call, place).manifest()
    if "called" not in facts:
        raise CheckpointError(f"`{call}`: {place} is the checkpoint of a fit. Make the same call of `fit` to go on.")
    try:
        called = Called(**facts["called"])
        leaves = [arrays[f"start/{i}"] for i in range(len(arrays))]
        initial = None if facts["structure"] is None else _with_leaves(facts["structure"], iter(leaves))
        words = np.array(facts["key"], np.uint32)
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise CheckpointError(f"`{call}`: {Path(place) / MANIFEST} is no manifest of a run: {error!r}.") from error
    return Begun(jr.wrap_key_data(jax.device_put(words), impl=jr.key_impl(make_key(0))), initial, called)


def _structure_of(tree: PyTree) -> Any:
    """Describe dicts, lists and tuples of arrays in JSON; None for other trees."""
    if type(tree) is dict and all(isinstance(name, str) for name in tree):
        inner = {name: _structure_of(of) for name, of in tree.items()}
        return None if None in inner.values() else ["dict", inner]
    if type(tree) in (list, tuple):
        parts = [_structure_of(of) for of in tree]
        return None if None in parts else [type(tree).__name__, parts]
    return "array" if tree is not None and jax.tree.structure(tree) == jax.tree.structure(0) else None


def _with_leaves(structure: Any, leaves: Any) -> PyTree:
    """Make the tree again; JAX has the leaves of a dict in the order of its sorted keys."""
    if structure == "array":
        return next(leaves)
    kind, parts = structure
    if kind == "dict":
        found = {name: _with_leaves(parts[name], leaves) for name in sorted(parts)}
        return {name: found[name] for name in parts}
    return {"list": list, "tuple": tuple}[kind](_with_leaves(part, leaves) for part in parts)
