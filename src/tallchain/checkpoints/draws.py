"""Draws in a file: packed words by chain and draw, every draw at a place of its own, so that none is ever moved."""

from __future__ import annotations

import math
import os
import threading
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np

from tallchain.checking.recorder import Store
from tallchain.checkpoints.container import CheckpointError, open_plain
from tallchain.checkpoints.sharing import Contents, on_first
from tallchain.crew import is_first

_IN_MEMORY = 2**24  # bytes: smaller files are read as a whole, larger ones where they are needed
_SENT = 2**24  # bytes to tell other processes at a time, about


class DrawsFile:
    """Holds draws of a fixed number of chains, each of which is written from its first draw on.

    Args:
        path: of the file.
        shape: chains, draws of each, words of a draw.
        sums: checksum of what each chain has, if there is something.
        writing: makes a context that says what could not be written.
    """

    def __init__(
        self,
        path: Path,
        shape: tuple[int, int, int],
        sums: np.ndarray | None = None,
        writing: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._writing = writing
        self.path, self.shape = path, shape
        self.sums = np.zeros(shape[0], np.uint32) if sums is None else sums.astype(np.uint32)
        self._file = open_plain(path, os.O_RDWR | os.O_CREAT)
        self._turn = threading.Lock()
        self._mapped: np.ndarray | None = None

    def write(self, chain: int, at: int, words: np.ndarray) -> None:
        """Write draws of a chain, the first of which has number `at`."""
        numbers = np.ascontiguousarray(words, np.uint32).reshape(-1).view(np.uint8)
        rest, place = numbers.data, 4 * self.shape[2] * (chain * self.shape[1] + at)
        with self._writing():
            while rest:
                done = self._write(rest, place)
                rest, place = rest[done:], place + done
        self.sums[chain] = zlib.crc32(numbers.data, int(self.sums[chain]))

    def _write(self, numbers: memoryview, place: int) -> int:
        if hasattr(os, "pwrite"):
            return os.pwrite(self._file, numbers, place)
        with self._turn:  # Windows
            os.lseek(self._file, place, os.SEEK_SET)
            return os.write(self._file, numbers)

    def flush(self) -> None:
        """Make what was written last through a power cut."""
        os.fsync(self._file)

    def check(self, counts: np.ndarray) -> None:
        """Refuse a file that does not hold this many draws of each chain as they were written."""
        words = self.array
        for chain, count in enumerate(counts.tolist()):
            numbers = np.ascontiguousarray(words[chain, :count]).reshape(-1).view(np.uint8)
            if zlib.crc32(numbers.data) != int(self.sums[chain]):
                raise CheckpointError(
                    f"{self.path} was cut short or changed: the checksum of the draws of chain {chain} is not right."
                )

    @property
    def array(self) -> np.ndarray:
        """All draws, by chain and draw; those that were not written are 0."""
        size = 4 * math.prod(self.shape)
        if os.fstat(self._file).st_size < size:
            os.ftruncate(self._file, size)  # what is added takes no room
        if self._mapped is None:
            with os.fdopen(os.dup(self._file), "rb") as file:  # its name may be gone
                if size <= _IN_MEMORY:
                    file.seek(0)
                    return np.fromfile(file, np.uint32, math.prod(self.shape)).reshape(self.shape)
                self._mapped = np.asarray(np.memmap(file, np.uint32, "r", shape=self.shape))
        return self._mapped

    def close(self) -> None:
        """Close the file; arrays stay valid."""
        os.close(self._file)


class SharedDraws:
    """Draws that each of several processes has: the first one in a file, the others in memory.

    Args:
        own: holds those of this process.
    """

    def __init__(self, own: Store) -> None:
        self._own = own

    @property
    def array(self) -> np.ndarray:
        """All of them."""
        return self._own.array

    def write(self, chain: int, at: int, words: np.ndarray) -> None:
        """Take over draws of a chain."""
        self._own.write(chain, at, words)

    def check(self, counts: np.ndarray) -> None:
        """Refuse a file that does not hold this many draws of each chain; tell the others what it holds."""

        def checked() -> Contents:
            self._own.check(counts)
            return {}, {}

        on_first(checked)
        array, longest = self._own.array, int(counts.max())
        step = max(_SENT // max(array[0, :longest].nbytes, 1), 1)
        for first in range(0, len(array), step):
            some = array[first : first + step, :longest]
            _, said = on_first(lambda some=some: ({}, {"words": some}))
            if not is_first():
                some[...] = said["words"]
