"""Where chains start: at one position, or each at its own."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.checking.joining import last_positions
from tallchain.checking.trace import Trace, in_coordinates_of
from tallchain.checks import are_scalars, check_position, position_of
from tallchain.schedule import Kernel
from tallchain.types import PyTree


@dataclasses.dataclass(frozen=True)
class PerChain:
    """A position for each chain, along the first axis of every array: there is nothing to guess."""

    positions: PyTree


def start_of(initial: Any, num_chains: int, key: tuple[int, ...]) -> tuple[PyTree | PerChain, int]:
    """Return a start and the number of chains: where the chains of a trace are, if it is one."""
    if not isinstance(initial, Trace):
        return initial, num_chains
    if num_chains not in (1, initial.num_chains):
        raise ValueError(
            f"`sample(initial=trace, num_chains={num_chains})`: the trace has {initial.num_chains} chains; leave "
            "`num_chains` out."
        )
    if initial.key == key:
        raise ValueError(
            "`sample(key=..., initial=trace)`: the trace was made with this key, and would get the same random numbers "
            "again. Give another, such as `jax.random.fold_in(key, 1)`."
        )
    if not initial.num_draws:
        raise ValueError("`sample(initial=trace)`: the trace has no draws to go on from.")
    return PerChain(last_positions(initial)), initial.num_chains


def in_coordinates(call: str, kernel: Kernel, initial: Any) -> Any:
    """Return the position of parameters that a user gave; or a trace with the coordinates of the kernel."""
    if isinstance(initial, Trace):
        return in_coordinates_of(call, kernel, initial)
    return position_of(call, kernel.posterior, initial)


def one_per_chain(kernel: Kernel, initial: PyTree | PerChain, num_chains: int) -> PyTree:
    """Return positions with the chains along a first axis, from one position or one per chain."""
    if isinstance(initial, PerChain):
        return check_position("sample(initial=...)", initial.positions)
    initial = check_position("sample(initial=...)", initial)
    leaves = jax.tree.leaves(initial)
    shared = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (num_chains, *leaf.shape)), initial)
    if any(leaf.ndim == 0 or len(leaf) == 0 for leaf in leaves):
        return shared
    is_one = are_scalars(kernel.target, initial)
    is_each = are_scalars(kernel.target, jax.tree.map(lambda leaf: leaf[0], initial))
    lengths = {len(leaf) for leaf in leaves}
    if lengths != {num_chains}:
        if is_each and not is_one and len(lengths) == 1 and any(leaf.ndim > 1 for leaf in leaves):
            raise ValueError(
                f"`sample(initial=..., num_chains={num_chains})`: the initial position looks like {lengths.pop()} "
                f"positions, one for each of as many chains. Set `num_chains` to their number, or give {num_chains}."
            )
        return shared
    if not (is_one and is_each):
        return initial if is_each else shared
    if any(leaf.ndim > 1 for leaf in leaves):
        return initial
    if num_chains == 1:
        return shared
    raise ValueError(
        f"`sample(initial=..., num_chains={num_chains})`: an initial position of shape "
        f"{jax.tree.map(jnp.shape, initial)} could be one position of {num_chains} coordinates or {num_chains} "
        f"positions of one. Give one row per chain, shape ({num_chains}, d), to say which."
    )


def is_one(positions: PyTree) -> bool:
    """Whether all chains are at the same place."""
    return all(bool(np.all(np.asarray(leaf) == np.asarray(leaf[:1]))) for leaf in jax.tree.leaves(positions))
