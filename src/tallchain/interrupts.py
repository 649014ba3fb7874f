"""Ctrl-C and SIGTERM as an event, so that an unfinished chunk of draws is never lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def catch_interrupt() -> Generator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into an event; the second raises KeyboardInterrupt.

    Python allows handlers only in the main thread. Signals that are ignored stay ignored. A user's SIGTERM handler
    stays in place, and so does a handler that was not installed from Python, because it could not be restored.
    """
    interrupted = threading.Event()

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _SIGNALS} if is_main else {}
    ours = {
        number: handler
        for number, handler in before.items()
        if handler == signal.SIG_DFL or (number == signal.SIGINT and handler not in (None, signal.SIG_IGN))
    }
    for number in ours:
        signal.signal(number, on_interrupt)
    try:
        yield interrupted
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
