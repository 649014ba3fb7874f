"""Several processes that run the same script: what they tell each other, and what happens if one of them fails.

Every process runs the same calls with the same keys. Each has a part of the work: of the chains, and of the rows if
these are `sources.Sharded`. After each chunk of draws, and after a sweep over the rows, they tell each other what they
found, so that all have the same trace and go on alike; nothing is sent while a decision is made. What is short goes
through the key-value store of JAX's own distributed runtime, where each process waits for each other by name. What is
long follows by one of its collectives, once all have come.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
import numpy as np

from tallchain.joining import CrewError, join

_PATIENCE = 300.0  # seconds for a process that does not come
_SHORT = 2**12  # bytes of a message that goes through the store
_POLL = 1000  # milliseconds
_TO_READ = 3 * _POLL / 1000  # seconds for the others to read what the first process has failed of
_FAILED = "tallchain/failed"


class Crew:
    """The processes."""

    def __init__(self, client: Any, rank: int, size: int) -> None:
        self._client, self.rank, self.size = client, rank, size
        self.patience = _PATIENCE
        """Seconds to wait for a process."""
        self._step = 0

    def gather(self, what: str, data: bytes) -> list[bytes]:
        """Return what every process has given, in their order; all must call it, for the same purpose."""
        return [bytes(of) for of in self._gathered(what, np.frombuffer(data, np.uint8))]

    def _gathered(self, what: str, data: np.ndarray) -> list[Any]:
        """As `gather`, of bytes in arrays."""
        heads = self._heads(what, data[:_SHORT].tobytes(), len(data))
        longest = max(size for size, _ in heads)
        if longest <= _SHORT:
            return [short for _, short in heads]
        with self._connected(what):
            return _collected(data, [size for size, _ in heads])

    def _heads(self, what: str, short: bytes, size: int) -> list[tuple[int, bytes]]:
        """Return how many bytes every process has given, and the first of them."""
        step, self._step = self._step, self._step + 1
        head = json.dumps({"what": what, "size": size}).encode() + b"\n"
        self._client.key_value_set_bytes(_name(step, self.rank), head + short)
        heads = [self._of(rank, step, what) for rank in range(self.size)]
        if step > 1:  # all have come here, and so have read what was before the last time
            self._client.key_value_delete(_name(step - 2, self.rank))
        return heads

    def gather_arrays(self, what: str, arrays: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        """As `gather`, of arrays; what this process has given comes back as it is."""
        every = self._gathered(what, _bytes_of(arrays))
        return [list(arrays) if rank == self.rank else _arrays_of(data) for rank, data in enumerate(every)]

    def from_first(self, what: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return what the first process has given; all must call it, for the same purpose."""
        data = _bytes_of(arrays) if self.rank == 0 else np.zeros(0, np.uint8)
        size, short = self._heads(what, data[:_SHORT].tobytes(), len(data))[0]
        if size <= _SHORT:
            return _arrays_of(short)
        with self._connected(what):
            return _arrays_of(_spread(data, size))

    def _of(self, rank: int, step: int, what: str) -> tuple[int, bytes]:
        """Wait for a process; return how many bytes it has, and the first of them."""
        words, _, short = self._get(rank, _name(step, rank), what).partition(b"\n")
        head = json.loads(words)
        if head["what"] != what:
            raise CrewError(
                f"process {rank} is at '{head['what']}', and process {self.rank} at '{what}': all must make the same "
                "calls in the same order."
            )
        return int(head["size"]), short

    def _get(self, rank: int, name: str, what: str) -> bytes:
        began = time.monotonic()
        while True:
            try:
                return self._client.blocking_key_value_get_bytes(name, _POLL)
            except Exception as error:
                if "DEADLINE" not in str(error):
                    raise CrewError(
                        f"process {self.rank} waited for process {rank} at '{what}', and the connection broke: process "
                        f"0 or {rank} is gone ({str(error).splitlines()[0]})."
                    ) from error
            self._check_others()
            if time.monotonic() - began > self.patience:
                raise CrewError(
                    f"process {rank} has not come to '{what}' within {self.patience:,.0f} s: it hangs, or is much "
                    "slower than the others."
                )

    @contextmanager
    def _connected(self, what: str) -> Generator[None]:
        """Say that another process has gone, where a collective has failed."""
        try:
            yield
        except Exception as error:
            self._check_others()
            raise CrewError(
                f"process {self.rank} was at '{what}', and the connection broke: another process is gone "
                f"({str(error).splitlines()[0]})."
            ) from error

    def _check_others(self) -> None:
        """Raise what another process has failed of."""
        try:
            said = self._client.key_value_try_get_bytes(_FAILED)
        except Exception:  # nobody has
            return
        raise CrewError(said.decode())

    def fail(self, error: BaseException) -> None:
        """Tell the others that this process has failed."""
        words = f"process {self.rank} failed: {type(error).__name__}: {error}"
        try:
            self._client.key_value_set_bytes(_FAILED, words.encode())
        except Exception:  # another one was first, or nobody is there
            return


def _name(step: int, rank: int) -> str:
    return f"tallchain/{step}/{rank}"


def _collected(data: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """Return what every process has, by one collective."""
    from jax.experimental import multihost_utils

    every = multihost_utils.process_allgather(_padded(data, max(sizes)))
    return [every[rank, :size] for rank, size in enumerate(sizes)]


def _spread(data: np.ndarray, size: int) -> np.ndarray:
    """Return what the first process has, by one collective."""
    from jax.experimental import multihost_utils

    return multihost_utils.broadcast_one_to_all(_padded(data, size))[:size]


def _padded(data: np.ndarray, size: int) -> np.ndarray:
    """Return bytes with room for so many; there are eight lengths between two powers of 2, so that programs are few."""
    step = max(1 << (size - 1).bit_length() >> 4, 1)
    held = np.empty(-(-size // step) * step, np.uint8)
    held[: len(data)] = data
    return held


def _bytes_of(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return arrays as bytes: types and shapes as JSON, then the numbers, copied once."""
    held = [np.asarray(each) for each in arrays]
    head = json.dumps([[each.dtype.str, each.shape] for each in held]).encode()
    head = len(head).to_bytes(8, "little") + head
    found = np.empty(len(head) + sum(each.nbytes for each in held), np.uint8)
    found[: len(head)] = np.frombuffer(head, np.uint8)
    at = len(head)
    for each in held:
        np.ndarray(each.shape, each.dtype, found, at)[...] = each
        at += each.nbytes
    return found


def _arrays_of(data: Any) -> list[np.ndarray]:
    held = np.frombuffer(data, np.uint8)
    at, found = 8 + int.from_bytes(held[:8].tobytes(), "little"), []
    for dtype, shape in json.loads(held[8:at].tobytes()):
        found.append(np.ndarray(shape, dtype, held, at).copy())
        at += found[-1].nbytes
    return found


# ---- beginning ---------------------------------------------------------------------------------


def start(*, patience: float = _PATIENCE) -> int:
    """Join the other processes; call it first of all. Return the number of this process, from 0.

    Under `tallchain launch`, Slurm and Open MPI it finds out by itself where the others are, as
    `jax.distributed.initialize` does; elsewhere set TALLCHAIN_LAUNCHED, or call that instead, with its arguments (see
    docs/scale.md). A script that was started by itself is a single process.

    Args:
        patience: seconds to wait for another process, here and later, before it counts as hanging.
    """
    if not jax.distributed.is_initialized() and not join(float(patience)):
        return 0  # nobody has started several processes
    crew = current()
    if crew is not None:
        crew.patience = float(patience)
        sys.excepthook = _telling(crew, sys.excepthook)
    return jax.process_index()


def _telling(crew: Crew, before: Callable[..., Any]) -> Callable[..., Any]:
    """Tell the others of an error that nobody has caught, do as before, and end.

    At the usual end of a process JAX waits for the others, which may hang.
    """

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if not isinstance(error, CrewError) and not isinstance(error.__cause__, CrewError):
            crew.fail(error)
        before(kind, error, trace)
        sys.stdout.flush()
        sys.stderr.flush()
        if crew.rank == 0:  # JAX aborts the others as soon as this one is gone, before they could say why
            time.sleep(_TO_READ)
        os._exit(1)

    return hook


def current() -> Crew | None:
    """Return the processes; None if there is only this one."""
    if not jax.distributed.is_initialized() or jax.process_count() == 1:
        return None
    return _crew()


@cache
def _crew() -> Crew:
    from jax._src import distributed  # what JAX's own multihost utilities and Orbax use

    return Crew(distributed.global_state.client, jax.process_index(), jax.process_count())


def any_of(what: str, value: bool) -> bool:
    """Whether it is true on some process; all must call it, for the same purpose."""
    found = current()
    return value if found is None else b"1" in found.gather(what, b"1" if value else b"0")


def is_first() -> bool:
    """Whether this process shows progress and writes files: the only one, or the first."""
    found = current()
    return found is None or found.rank == 0
