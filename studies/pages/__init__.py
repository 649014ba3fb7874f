"""The figures of README.md and docs/, and of experiments run apart in the report, from the committed result files.

A page has a place for a piece between `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

from __future__ import annotations

import re
from functools import cache

from benchmarks import checkpoints, numpyro_bridge, packed, processes, updates
from benchmarks.exact import page as exact
from benchmarks.front_door import page as front_door
from benchmarks.peers import page as peers
from benchmarks.plan import page as plan
from benchmarks.time_to_answer import page as time_to_answer
from studies.pages import paper, settings, speed
from studies.study import NAMES, ROOT, find, load

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "results" / "paper" / "report.md"]
"""The last is written by `tallchain reproduce --paper`, and has places only for experiments that were run apart."""


@cache
def pieces() -> dict[str, str]:
    """All pieces by name: of each study, of several together, of the paper's experiments, of the benchmarks."""
    found: dict[str, str] = {}
    for name in NAMES:
        found |= find(name).page(load(name))
    for module in (
        settings,
        paper,
        speed,
        peers,
        exact,
        time_to_answer,
        front_door,
        checkpoints,
        numpyro_bridge,
        packed,
        processes,
        updates,
        plan,
    ):
        found |= module.pieces()
    return found


def fill(text: str) -> str:
    """Replace the text between the markers."""

    def piece(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- begin {name} -->\n{pieces()[name]}\n<!-- end {name} -->"

    return re.sub(r"<!-- begin (\w+) -->.*?<!-- end \1 -->", piece, text, flags=re.DOTALL)


def write() -> None:
    """Write all pages anew."""
    for page in PAGES:
        page.write_text(fill(page.read_text()))
