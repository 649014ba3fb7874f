"""The checkpoint of a fit: a folder with one of `sample` for each round, and a note of which fit it is."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallchain.checkpoints import Folder, described, versions
from tallchain.validation import brief

_NOT_OF_DRAWS = ("scan", "max_seconds")  # options that have no part in the draws


class Rounds:
    """Where the rounds of a fit keep their draws: nowhere, without a folder."""

    def __init__(self, folder: Folder | None) -> None:
        self._folder = folder

    def begin(self, model: Any, checksum: str | None, options: dict[str, Any]) -> None:
        """Note down which fit this is, or refuse another one."""
        if self._folder is None:
            return
        identity = {"model": repr(model) if isinstance(model, str) else type(model).__name__, "rows": str(checksum)}
        for name, value in options.items():
            if name not in _NOT_OF_DRAWS:
                identity |= described(name, value)
        self._folder.begin(identity | versions(), {}, {})

    def place(self, number: int) -> Path | None:
        """Where a round keeps its draws."""
        return None if self._folder is None else self._folder.path / f"round-{number}"


@contextmanager
def rounds_in(place: str | os.PathLike[str] | None) -> Generator[Rounds]:
    """Lock the folder of a fit, if there is to be one."""
    if place is None:
        yield Rounds(None)
        return
    if not isinstance(place, str | os.PathLike):
        raise TypeError(f"`fit(checkpoint=...)` must be the name of a folder; got {brief(place)}.")
    with Folder(f"fit(checkpoint={str(place)!r})", place) as folder:
        yield Rounds(folder)
