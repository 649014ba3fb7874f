"""The table of docs/speed.md."""

from __future__ import annotations

from typing import Any

from benchmarks.measure import load
from benchmarks.records import table

KINDS = ("cold", "cached", "again")


def pieces() -> dict[str, str]:
    """All tables."""
    return {"time_to_answer": time_to_answer()}


def time_to_answer() -> str:
    """Every time over that of the fit, by table of rows: nothing cached, second process, second call."""
    result = load("time_to_answer")
    tables = dict(sorted(result.results.items(), key=lambda item: (item[1]["target"] != "simulated", item[1]["rows"])))
    methods = dict.fromkeys(name for one in tables.values() for name in one["methods"])
    rows = [
        [name, result.configuration["gives"][name], *(_cell(one["methods"].get(name, {})) for one in tables.values())]
        for name in methods
    ]
    sizes = [f"{one['target']}, N = {one['rows']:,}" for one in tables.values()]
    ours = [one["methods"]["tallchain"] for one in tables.values() if "tallchain" in one["methods"]]
    programs = ", ".join(f"{one['programs']}" for one in ours if "programs" in one)
    return f"{table(['method', 'gives', *sizes], rows)}\n\nPrograms that tallchain compiles: {programs}."


def _cell(found: dict[str, Any]) -> str:
    if "error" in found:
        return "failed"
    over = found.get("over_fit", {})
    return " / ".join(f"{over[kind]:.2g}" if kind in over else "-" for kind in KINDS) if over else ""
