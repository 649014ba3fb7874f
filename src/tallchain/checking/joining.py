"""Traces that follow each other: the draws of a run that went on."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from tallchain.checking.trace import Tally, Trace
from tallchain.digest import COUNTED
from tallchain.names import in_order_of

_BY_DRAW = ("is_accepted", "rows_read", "rows_scanned", "log_ratio", "is_invalid")
_TIMES = ("seconds", "compile_seconds", "scan_seconds")


def joined(first: Trace, second: Trace) -> Trace:
    """Return both, one after the other; the kernel, the scan and what else is of the end are those of the second.

    Both have all their draws, of the same chains: none was left out.
    """
    values: dict[str, Any] = {
        name: np.concatenate([getattr(of, name) for of in (first, second)], 1) for name in _BY_DRAW
    }
    extras = {name: np.concatenate([first.extras[name], second.extras[name]], 1) for name in first.extras}
    times = {name: getattr(first, name) + getattr(second, name) for name in _TIMES}
    return dataclasses.replace(
        second,
        position=_both(first.position, second.position),
        sampled=_both(first.sampled, second.sampled),
        extras=extras,
        warmup=first.warmup + second.warmup,
        is_one_start=first.is_one_start,
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))),
        **values,
        **times,
    )


def _both(first: Any, second: Any) -> Any:
    return in_order_of(jax.tree.map(lambda a, b: np.concatenate([a, b], 1), first, second), first)


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
        **{name: rest(getattr(trace, name)) for name in _BY_DRAW},
    )


def last_positions(trace: Trace) -> Any:
    """Where the chains are, in the coordinates of the sampler, to go on from."""
    positions = trace.unconstrained
    return in_order_of(jax.tree.map(lambda leaf: np.array(leaf[:, -1]), positions), positions)
