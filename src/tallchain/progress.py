"""A progress bar over draws: rate, acceptance, rows per decision, time left."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from tallchain.recorder import Recorder

Report = Callable[[Recorder], None]


@contextmanager
def progress_bar(wanted: bool | Callable[[int, int], None], total: int) -> Generator[Report]:
    """Yield a function that moves the bar; one that does nothing if no bar is wanted or `rich` is not installed.

    Of a function that is given in place of a bar, one that calls it as f(draws so far, all draws).
    """
    if callable(wanted):
        yield lambda recorder: wanted(recorder.total.num_decisions, total)
        return
    is_wanted = bool(wanted)
    try:
        from rich import progress as rich
    except ImportError:
        is_wanted = False
    if not is_wanted:
        yield lambda recorder: None
        return
    columns = (
        rich.TextColumn("sampling"),
        rich.BarColumn(bar_width=24),
        rich.TaskProgressColumn(),
        rich.TextColumn("{task.fields[rate]} draws/s"),
        rich.TextColumn("accept {task.fields[acceptance]}"),
        rich.TextColumn("{task.fields[rows]} rows/decision"),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns) as bar:
        task = bar.add_task("sampling", total=total, rate="-", acceptance="-", rows="-")

        def report(recorder: Recorder) -> None:
            total = recorder.total
            if total.num_decisions:
                bar.update(
                    task,
                    completed=total.num_decisions,
                    rate=f"{total.num_decisions / recorder.seconds:,.0f}",
                    acceptance=f"{total.num_accepted / total.num_decisions:.2f}",
                    rows=f"{total.num_rows / total.num_decisions:,.0f}",
                )

        yield report
