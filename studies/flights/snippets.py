"""The code of the pages, one block after another in one namespace, as a reader would run it."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

from studies.study import ROOT

PAGES = ("regressions.md", "mixed-models.md")
_BLOCK = re.compile(r"```python\n(?!>>>)(.*?)```(?:\n\n<!-- begin (\w+) -->)?", re.DOTALL)
_ALL, _DRAWS = '.dropna(subset=["arr_delay"])', "starts, 500,"


def blocks() -> list[tuple[str, str]]:
    """Return the blocks of code, and the name of the piece that shows what a block prints; not those with `>>>`."""
    return [found for page in PAGES for found in _BLOCK.findall((ROOT / "docs" / page).read_text())]


def run_pages(days: int, draws: int) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return what the blocks print, and the variables after each, by the name of the piece."""
    code = blocks()
    text = "\n".join(block for block, _ in code)
    assert text.count(_ALL) == 1
    assert text.count(_DRAWS) == 3
    names: dict[str, Any] = {"some_of": some_of}
    printed, after = dict[str, str](), dict[str, dict[str, Any]]()
    for block, piece in code:
        smaller = block.replace(_ALL, f"{_ALL}.pipe(some_of, {days})").replace(_DRAWS, f"starts, {draws},")
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(smaller, names)
        if piece:
            printed[piece], after[piece] = said.getvalue().rstrip(), dict(names)
        print(said.getvalue(), flush=True)
    return printed, after


def some_of(flights: Any, days: int) -> Any:
    """Flights of the first days of each month, and one of each carrier on each route, so that none of these is lost."""
    is_first = ~flights.duplicated(["carrier", "origin", "dest"])
    return flights[is_first | (flights["day"] <= days)]
