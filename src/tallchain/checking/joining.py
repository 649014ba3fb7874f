"""Parts of a trace: without its first draws, and where its chains are."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from tallchain.checking.trace import BY_DRAW, Tally, Trace
from tallchain.digest import COUNTED
from tallchain.names import in_order_of


def without_first(trace: Trace, count: int) -> Trace:
    """Count the first draws of every chain as warm-up."""
    some, rest = (lambda leaf: leaf[:, :count]), (lambda leaf: leaf[:, count:])
    sums = (int(np.sum(some(getattr(trace, name)), dtype=np.int64)) for name in COUNTED)
    dropped = Tally(trace.num_chains * count, *sums)
    return dataclasses.replace(
        trace,
        position=in_order_of(jax.tree.map(rest, trace.position), trace.position),
        sampled=in_order_of(jax.tree.map(rest, trace.sampled), trace.sampled),
        extras={name: rest(values) for name, values in trace.extras.items()},
        warmup=trace.warmup + dropped,
        **{name: rest(getattr(trace, name)) for name in BY_DRAW},
    )


def last_positions(trace: Trace) -> Any:
    """Where the chains are, in the coordinates of the sampler, to go on from."""
    positions = trace.unconstrained
    return in_order_of(jax.tree.map(lambda leaf: np.array(leaf[:, -1]), positions), positions)
