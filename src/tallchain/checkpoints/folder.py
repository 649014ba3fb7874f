"""The folder of one run: who may write to it, and whether what is there belongs to this run.

manifest   what determines the draws, and what the call was; written before anything is compiled
state      how far every chain is, and what has been counted; replaced after each chunk
draws.bin  the draws
lock       held by the process that works there; the system lets go of it however that process ends

Of several processes only the first reads and writes there, and tells the others what was there. So all must make the
same calls.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from tallchain.checkpoints import container
from tallchain.checkpoints.container import CheckpointError, open_plain
from tallchain.checkpoints.identity import Description, differences
from tallchain.checkpoints.sharing import Contents, on_first
from tallchain.files import locked

MANIFEST, STATE, DRAWS, LOCK = "manifest", "state", "draws.bin", "lock"
_OURS = {MANIFEST, STATE, DRAWS, LOCK}


class Folder:
    """Locks a folder for a run, as long as it is open.

    Args:
        call: to quote in errors, e.g. `sample(checkpoint='run/')`.
        path: of the folder; it is made if need be.
    """

    def __init__(self, call: str, path: str | os.PathLike[str]) -> None:
        self.call, self.path = call, Path(path)
        self._lock = -1

    def __enter__(self) -> Self:
        try:
            on_first(self._take)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _take(self) -> Contents:
        with self.writing():
            if self.path.exists() and not self.path.is_dir():
                raise CheckpointError(f"`{self.call}`: {self.path} is a file; a checkpoint is a folder.")
            self.path.mkdir(parents=True, exist_ok=True)
            self._check_contents()
            self._lock = open_plain(self.path / LOCK, os.O_RDWR | os.O_CREAT)
            if not locked(self._lock):
                raise CheckpointError(
                    f"`{self.call}`: another process is working on the checkpoint {self.path}. Wait until it has "
                    "ended, or give another folder."
                )
        return {}, {}

    def __exit__(self, *_: object) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _check_contents(self) -> None:
        others = sorted(each.name for each in self.path.iterdir() if each.name.strip(".") not in _OURS)
        others = [name for name in others if not name.endswith(".part")]  # of a write that was cut off
        if others and not (self.path / MANIFEST).exists():
            raise CheckpointError(
                f"`{self.call}`: {self.path} has other files, such as {others[0]!r}, and no checkpoint. Give a folder "
                "that is empty or does not exist yet."
            )

    @contextlib.contextmanager
    def writing(self) -> Generator[None]:
        """Say in one line what could not be written."""
        try:
            yield
        except OSError as error:
            raise CheckpointError(
                f"`{self.call}`: the checkpoint {self.path} cannot be written: {error.strerror or error}. What was "
                "there before is intact; make the same call again once it can."
            ) from error

    # ---- what is there --------------------------------------------------------------------------

    def begin(self, identity: Description, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bool:
        """Return whether this run was begun here before; refuse another run; otherwise note down what it is."""

        def begin() -> Contents:
            if (self.path / MANIFEST).exists():
                there, _ = self._manifest()
                if different := differences(there["identity"], identity):
                    raise CheckpointError(
                        f"`{self.call}`: {self.path} holds another run. {'; '.join(different)}. Make the same call to "
                        "go on with that run, or give another folder."
                    )
                return {"was_begun": True}, {}
            with self.writing():
                container.write(self.path / MANIFEST, {"identity": identity, **facts}, arrays)
            return {"was_begun": False}, {}

        return on_first(begin)[0]["was_begun"]

    def manifest(self) -> Contents:
        """Return facts and arrays of the run that is here."""
        return on_first(self._manifest)

    def _manifest(self) -> Contents:
        path = self.path / MANIFEST
        if not path.exists():
            raise CheckpointError(f"`{self.call}`: {self.path} holds no checkpoint: there is no {path.name} in it.")
        found = container.read(path)
        identity = found[0].get("identity")
        if not (isinstance(identity, dict) and all(isinstance(of, str) for of in identity.values())):
            raise CheckpointError(f"{path} is no manifest of a run.")
        return found

    def state(self, token: str) -> Contents:
        """Return how far the run is that has this token; nothing if no state was written."""

        def read() -> Contents:
            path = self.path / STATE
            facts, arrays = container.read(path) if path.exists() else ({}, {})
            if facts and facts.get("token") != token:
                raise CheckpointError(f"`{self.call}`: {path} belongs to another run than the manifest next to it.")
            return facts, arrays

        return on_first(read)


def token_of(facts: Mapping[str, Any]) -> str:
    """Return which run a manifest is of: a state says to which run it belongs."""
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()
