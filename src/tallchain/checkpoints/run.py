"""What a run writes after its chunks, and what it goes on from.

A state is written after every chunk, unless that would take more than a fiftieth of the time: then after some of them.
A process that is killed then loses nothing that it has finished. Once a second, and at the end, the state is flushed to
the disk as well, for a machine that is switched off.

Of several processes each has all draws, and knows where all chains are; the first one writes. It does not know the
trials that chains of others have open: these are opened again, with the same random numbers.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from tallchain.checking.recorder import InMemory, Recorder, Store
from tallchain.checkpoints import container
from tallchain.checkpoints.container import CheckpointError
from tallchain.checkpoints.draws import DrawsFile, SharedDraws
from tallchain.checkpoints.folder import DRAWS, STATE, Folder, token_of
from tallchain.checkpoints.identity import Description
from tallchain.checkpoints.sharing import Contents, on_first
from tallchain.crew import current, is_first
from tallchain.runner import Runner
from tallchain.types import PyTree

_SHARE = 50.0  # times as long as writing took, from one state to the next
_FLUSHED = 1.0  # seconds


class RunCheckpoint:
    """A run in a folder that is locked; `opened` makes it."""

    def __init__(self, folder: Folder, token: str, num_groups: int, state: Contents) -> None:
        self.folder = folder
        self.num_groups = num_groups
        """Groups of chains, as the process that began the run had them."""
        self.facts, self.arrays = state
        """What was read of an earlier process; empty if there was none."""
        self._warmup: Any = None
        self._token = token
        self._draws: DrawsFile | None = None
        self._lanes: list[np.ndarray] = []
        self._next, self._next_flush = 0.0, time.perf_counter() + _FLUSHED

    def store(self, shape: tuple[int, int, int]) -> Store:
        """Return where draws of this shape go; all processes must call it."""
        on_first(lambda: self._open(shape))
        own = InMemory(shape) if self._draws is None else self._draws
        return own if current() is None else SharedDraws(own)

    def _open(self, shape: tuple[int, int, int]) -> Contents:
        path = self.folder.path / DRAWS
        if not self.facts:
            self._check_room(4 * int(np.prod(shape, dtype=np.int64)))
        elif not path.exists():
            raise CheckpointError(f"`{self.folder.call}`: {path} is gone, and the state needs it.")
        with self.folder.writing():
            self._draws = DrawsFile(path, shape, self.arrays.get("sums"), self._writing)
        return {}, {}

    def _check_room(self, size: int) -> None:
        free = shutil.disk_usage(self.folder.path).free
        if size > free:
            raise CheckpointError(
                f"`{self.folder.call}`: the draws of this run take {size / 1e9:.2g} GB, and {self.folder.path} has "
                f"{free / 1e9:.2g} GB of room. Give `thin=...` or `keep='moments'`, or another folder."
            )

    def resumed(
        self,
        recorder: Recorder,
        warmup: Any,
        kernel: Any,
        positions: PyTree,
        runner: Callable[[Any], Runner],
    ) -> tuple[Any, Runner | None]:
        """Fill the recorder; return the kernel as it was, and what runs it, unless there is nothing left to do.

        `positions` are those that the run began with.
        """
        self._warmup = warmup
        if not self.facts:
            return kernel, None
        try:
            warmup.restore(self.facts, self.arrays)
            kernel = warmup.repeated(kernel, positions)
            run = runner(kernel)
            if self.arrays["draw"].min() >= recorder.num_draws:
                recorder.restore(self.facts, self.arrays, run.like_at(positions))
                return kernel, None
            run.start(positions, int(self.arrays["draw"].min()))
            recorder.restore(self.facts, self.arrays, run.like)
            return kernel, run.resumed([self.arrays[f"lanes/{k}"] for k in range(int(self.facts["num_lanes"]))])
        except CheckpointError:
            raise
        except (KeyError, ValueError, TypeError, IndexError) as error:
            path = self.folder.path / STATE
            raise CheckpointError(f"`{self.folder.call}`: {path} does not fit this run: {error}") from error

    # ---- after a chunk --------------------------------------------------------------------------

    def copy(self, run: Runner, *, is_last: bool) -> None:
        """Copy what the chains carry, before the next chunk takes it over, if it is time to write it."""
        is_time = is_first() and (is_last or time.perf_counter() >= self._next)
        self._lanes = run.lanes() if is_time else []

    def write(self, recorder: Recorder, *, is_last: bool) -> None:
        """Write the state that was copied, if one was; the draws are in their file."""
        if not self._lanes:
            return
        begun = time.perf_counter()
        facts, arrays = recorder.state()
        more, others = self._warmup.state()
        arrays |= others | {f"lanes/{k}": leaf for k, leaf in enumerate(self._lanes)}
        facts |= more | {"token": self._token, "num_lanes": len(self._lanes)}
        is_flushed = is_last or begun > self._next_flush
        with self._writing():
            if self._draws is not None:
                arrays["sums"] = self._draws.sums
                if is_flushed:
                    self._draws.flush()
            container.write(self.folder.path / STATE, facts, arrays, is_flushed=is_flushed)
        now = time.perf_counter()
        later = now + _SHARE * (now - begun)
        if is_flushed:
            self._next_flush = max(later, now + _FLUSHED)
        else:
            self._next = later

    @contextmanager
    def _writing(self) -> Generator[None]:
        """Say what could not be written, to the other processes too, which wait for the next chunk."""
        try:
            with self.folder.writing():
                yield
        except CheckpointError as error:
            if (crew := current()) is not None:
                crew.fail(error)
            raise

    def close(self) -> None:
        """Let go of the files."""
        if self._draws is not None:
            self._draws.close()


@contextmanager
def opened(
    folder: Folder, identity: Description, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> Generator[RunCheckpoint]:
    """Yield the checkpoint of a run, in a folder that is locked; refuse one of another run."""
    was_begun = folder.begin(identity, facts, arrays)
    manifest, _ = folder.manifest()
    token = token_of(manifest)
    found = RunCheckpoint(folder, token, int(manifest["groups"]), folder.state(token) if was_begun else ({}, {}))
    try:
        yield found
    finally:
        found.close()
