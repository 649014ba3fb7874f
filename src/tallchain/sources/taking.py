"""Data or a source: functions that read all rows take either."""

from __future__ import annotations

from typing import Any

from tallchain.sources.rows import check_batch_size, take_data
from tallchain.sources.shuffled import Shuffled
from tallchain.sources.stored import Stored
from tallchain.sources.with_replacement import WithReplacement
from tallchain.types import Source


def as_source(call: str, data: Any) -> Source:
    """Return a source to sweep: the one given, or a copy of the data."""
    if is_source(data):
        return data
    return WithReplacement.of_checked(*take_data(call, data), batch_size=1)


def as_shuffled(call: str, data: Any, batch_size: int | None) -> Source:
    """Return a source to sample from: the one given, or a shuffled copy of the data."""
    if is_source(data):
        if batch_size is not None:
            check_batch_size(call, batch_size, data.population.total)
        return data
    data, num_rows = take_data(call, data)
    size = 1 if batch_size is None else check_batch_size(call, batch_size, num_rows)
    return Shuffled.of_checked(data, num_rows, size)


def check_plain(call: str, source: Source) -> None:
    """Refuse a source in which some rows are read always or come more often; no row is read."""
    population = source.population
    has_shares = isinstance(source, Stored) and source.share is not None  # even if every row has one copy
    if population.num_exact or population.num_rows > population.total or has_shares:
        raise ValueError(f"`{call}(data=...)`: the source is already reweighted. Give the one it was made from.")


def count_rows(call: str, data: Any) -> int:
    """Return the number of rows; nothing is copied."""
    return data.population.total if is_source(data) else take_data(call, data)[1]


def is_source(data: Any) -> bool:
    """Whether this is a source, and not data."""
    return hasattr(data, "sweep") and hasattr(data, "look")
