"""Progress elsewhere than on a terminal: plain lines, not too many, with the time left."""

from __future__ import annotations

import pytest

from tallchain import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_every_ten_seconds_or_more(clock: list[float], capsys: pytest.CaptureFixture) -> None:
    show = progress.Lines("sampling", 1000)
    for second in range(2000):
        clock[0] = 100.0 + second
        show(second // 2, "so fast")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "sampling 0%, so fast, about 33 min left"
    assert lines[-1].startswith("sampling 9")
    assert 20 < len(lines) < 100


def test_a_short_run_has_no_line(clock: list[float], capsys: pytest.CaptureFixture) -> None:
    show = progress.Lines("sampling", 10)
    for done in range(10):
        clock[0] += 0.9
        show(done)
    assert capsys.readouterr().err == ""


def test_without_a_total(clock: list[float], capsys: pytest.CaptureFixture) -> None:
    show = progress.Lines("finding the mode", None)
    clock[0] += 11
    show(3, "pass 3, about 0.2 standard deviations away")
    assert capsys.readouterr().err == "finding the mode, pass 3, about 0.2 standard deviations away\n"


def test_nothing_where_nothing_is_wanted(clock: list[float], capsys: pytest.CaptureFixture) -> None:
    with progress.shown(False, "sampling", 10) as show:
        clock[0] += 11
        show(5)
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    import rich
    from rich.console import Console

    monkeypatch.setattr(rich, "_console", Console(force_terminal=True, width=120))
    with progress.shown(True, "sampling", 10) as show:
        show(5, "196 rows a decision")
    out = capsys.readouterr().out
    assert "sampling" in out
    assert "50%" in out
    assert "196 rows a decision" in out


@pytest.mark.parametrize(("seconds", "words"), [(40.2, "40 s"), (600, "10 min"), (9000, "2.5 h")])
def test_durations(seconds: float, words: str) -> None:
    assert progress._duration(seconds) == words
