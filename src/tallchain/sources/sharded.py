"""Rows over several devices, a random part on each, and chains that travel between them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tallchain.crew import current
from tallchain.functions import Handled
from tallchain.parts import part
from tallchain.sources.columns import Columns
from tallchain.sources.copying import allocate, shuffle_rows
from tallchain.sources.divided import Divided, length_of, repeated
from tallchain.sources.rows import on_host, row_bytes, slice_rows, take_data
from tallchain.types import PyTree
from tallchain.validation import brief, is_whole

_FIRST = 8192  # rows that every process has


class _OnDevices(Handled):
    """Parts that stay where they are."""

    def __init__(self, num_rows: int, size: int, num_parts: int, devices: Sequence[Any], identity: str) -> None:
        super().__init__()
        self.num_rows, self.row_bytes, self.num_parts, self.num_slots = num_rows, size, num_parts, num_parts
        self._devices, self.identity = devices, identity
        self._crew = current()
        self._data: dict[int, PyTree] = {}
        self._first: PyTree = None
        self._last: PyTree = None

    def fill(self, read: Any) -> None:
        """Bring every part to its device; `read` returns rows from a number on, and some of the first again."""
        length, rank = length_of(self), 0 if self._crew is None else self._crew.rank
        self._data = {
            number: jax.device_put(read(number * length, length, repeated(self)), self.device(number))
            for number in range(self.num_parts)
            if self.owner(number) == rank
        }
        self._first = read(0, min(_FIRST, length), 0)
        if self.num_rows > self.num_parts * length and self.owner(self.num_parts) == rank:
            self._last = read(self.num_rows - length, length, repeated(self))

    def owner(self, number: int) -> int:
        """Return the process that has a part; the last one has what is left over."""
        return 0 if self._crew is None else min(number * self._crew.size // self.num_parts, self._crew.size - 1)

    def first(self, count: int) -> PyTree:
        """Return them."""
        return slice_rows(self._first, slice(0, count))

    def take(self, number: int) -> PyTree:
        """Return a part."""
        return self._data[number]

    def ahead(self, number: int) -> None:
        """It is there already."""

    def device(self, number: int) -> Any:
        """Return the device that has the part."""
        here = self.num_parts // (1 if self._crew is None else self._crew.size)
        return self._devices[number % here * len(self._devices) // here]

    def left_over(self, count: int) -> PyTree:
        """Return the last rows, on the host."""
        return self._last


@part
class Sharded(Divided):
    """A source of rows that are divided over devices; see `sources.divided`.

    Every device has a random part of the rows, or several. The chains are divided among all parts, and go on to the
    next part after a round; only their positions travel, a few kilobytes. The draws depend on the number of parts, not
    on the number of devices: one device gives the same as several.

    Args:
        data: the rows, as `Shuffled` takes them; or the folder of a packed table, which is read part by part.
        parts: P; None for one on each device. The number of chains must be a multiple of it.
        batch_size: m, the rows that a test reads between judgements unless it sets its own number; None for 50.
        seed: of the order of rows; a packed table has its own.
        devices: to divide the parts among; None for all of this process.
        columns: of a packed table, as for `Packed`.
        most_error: the largest e at which `prepare` goes on; it warns from 0.05 on.
    """

    def __init__(
        self,
        data: PyTree | str | os.PathLike[str],
        parts: int | None = None,
        batch_size: int | None = None,
        *,
        seed: int = 0,
        devices: Sequence[Any] | None = None,
        columns: Any = None,
        most_error: float = 0.3,
    ) -> None:
        devices = list(jax.local_devices() if devices is None else devices)
        crew = current()
        processes = 1 if crew is None else crew.size
        parts = len(devices) * processes if parts is None else parts
        if not devices:
            raise ValueError("`Sharded(devices=...)` must have a device; got none.")
        if not is_whole(parts, 1) or parts % (len(devices) * processes):
            raise ValueError(
                "`Sharded(parts=...)` must be a multiple of the number of devices of all processes, "
                f"{len(devices) * processes}; got {brief(parts)}."
            )
        if not is_whole(seed, 0):
            raise ValueError(f"`Sharded(seed=...)` must be a whole number, at least 0; got {brief(seed)}.")
        if isinstance(data, str | os.PathLike):
            held = Columns(Path(data), columns, "Sharded")
            num_rows, size, read, identity = held.num_rows, held.row_bytes, held.read, held.identity
        else:
            if columns is not None:
                raise TypeError("`Sharded(columns=...)` goes with a packed table; leave it out.")
            data, num_rows = take_data("Sharded", data)
            size, identity, read = row_bytes(data), f"rows in memory, seed {seed}", None
        if parts > num_rows:
            raise ValueError(f"`Sharded(parts={parts})`: there are only {num_rows:,} rows.")
        on_devices = _OnDevices(num_rows, size, int(parts), devices, f"{identity}, {parts} parts")
        on_devices.fill(read or _slices(shuffle_rows(data, int(seed), 0)))
        self._begin("Sharded", on_devices, batch_size, most_error)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a summary should say about it."""
        if self.num_parts == 1:
            return ()
        crew = current()
        processes = 1 if crew is None else crew.size
        devices = processes * len({self.held.device(number) for number in range(self.num_parts)})
        on = f"on {devices:,} devices" if devices > 1 else "on one device"
        on += f" of {processes:,} processes" if processes > 1 else ""
        return (f"chains travelled between {self.num_parts:,} parts of {length_of(self.held):,} rows {on}",)


def _slices(data: PyTree) -> Any:
    """Return what reads some rows of arrays."""

    def read(begin: int, count: int, more: int) -> PyTree:
        def of_leaf(leaf: Any) -> Any:
            values = on_host(leaf)
            values = np.asarray(leaf) if values is None else values
            found = allocate((count + more, *values.shape[1:]), values.dtype)
            found[:count] = values[begin : begin + count]
            found[count:] = found[:more]
            return found

        return jax.tree.map(of_leaf, data)

    return read
