"""Signals: the first is an event, the second raises, and the handlers that were there come back."""

from __future__ import annotations

import signal
import threading

import pytest

from tallchain.interrupts import catch_interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_an_event_and_the_second_raises(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with catch_interrupt() as interrupt:
        assert not interrupt.is_set()
        signal.raise_signal(number)
        assert interrupt.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_a_handler_from_outside_python_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python knows it as None, and cannot put it back."""
    installed = []
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    monkeypatch.setattr(signal, "signal", lambda number, handler: installed.append(handler))
    with catch_interrupt() as interrupt:
        assert not interrupt.is_set()
    assert installed == []


def test_other_threads_have_no_handlers() -> None:
    raised = []

    def work() -> None:
        try:
            with catch_interrupt():
                pass
        except ValueError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert raised == []


def test_an_ignored_signal_stays_ignored_and_a_handler_for_sigterm_in_place() -> None:
    """As for a script in the background of a shell, and one that cleans up after itself."""
    called = []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, lambda *_: called.append(1))
    try:
        with catch_interrupt() as interrupt:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            assert not interrupt.is_set()
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    assert called == [1]
