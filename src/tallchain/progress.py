"""Progress: a bar on a terminal and in a notebook, elsewhere a plain line from time to time."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from tallchain import crew

_EVERY = 10.0  # seconds between two lines, at least
_SHARE = 0.05  # of the time so far between two lines: a run of hours does not fill a file


class Show(Protocol):
    """Shows progress."""

    def __call__(self, done: int, words: str = "", total: int | None = None) -> None:
        """Show `done` of `total`, which keeps its value unless given, and some words."""
        ...


@contextmanager
def shown(wanted: bool, what: str, total: int | None = None, *, is_step: bool = False) -> Generator[Show]:
    """Yield a function that shows progress, or does nothing if none is wanted.

    Args:
        wanted: whether to show anything.
        what: is going on, in words.
        total: how much there is to do; None if nobody knows.
        is_step: towards something else: its line makes room for the next one.
    """
    if not (wanted and crew.is_first()):
        yield lambda done, words="", total=None: None
        return
    try:
        import rich
        from rich import progress
    except ImportError:
        yield Lines(what, total)
        return
    console = rich.get_console()
    if not (console.is_terminal or console.is_jupyter):
        yield Lines(what, total)
        return
    columns = (
        progress.TextColumn(what),
        progress.SpinnerColumn() if total is None else progress.BarColumn(bar_width=24),
        *(() if total is None else (progress.TaskProgressColumn(),)),
        progress.TextColumn("{task.fields[words]}"),
        progress.TimeElapsedColumn() if total is None else progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, transient=is_step) as bar:
        task = bar.add_task(what, total=total, words="")
        yield lambda done, words="", total=total: bar.update(task, completed=done, total=total, words=words)


class Lines:
    """Writes a line to stderr from time to time; a short run has none."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what, self._total = what, total
        self._began = self._last = time.monotonic()
        self._first: tuple[float, int] | None = None

    def __call__(self, done: int, words: str = "", total: int | None = None) -> None:
        """Write the line, if it is time for one."""
        now, total = time.monotonic(), total or self._total
        self._first = self._first or (now, done)
        if now - self._last < max(_EVERY, _SHARE * (now - self._began)):
            return
        self._last = now
        parts = [words] if words else []
        since, before = self._first
        if total and before < done < total:
            parts.append(f"about {_duration((now - since) / (done - before) * (total - done))} left")
        head = f"{self._what} {100 * done // total}%" if total else self._what
        print(", ".join([head, *parts]), file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 3600:.1f} h"
