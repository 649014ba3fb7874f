"""The table of docs/speed.md."""

from __future__ import annotations

from typing import Any

from benchmarks.measure import load
from benchmarks.records import table

KINDS = ("cold", "cached", "again")


def pieces() -> dict[str, str]:
    """All tables."""
    return {"time_to_answer": time_to_answer(), "programs": programs()}


def ordered() -> list[dict[str, Any]]:
    """The tables of rows that were measured: simulated by size, then others."""
    tables = load("time_to_answer").results.values()
    return sorted(tables, key=lambda one: (one["target"] != "simulated", one["rows"]))


def time_to_answer() -> str:
    """Every time over that of the fit, by table of rows: nothing cached, second process, second call."""
    result, tables = load("time_to_answer"), ordered()
    methods = dict.fromkeys(name for one in tables for name in one["methods"])
    rows = [
        [name, result.configuration["gives"][name], *(_cell(one["methods"].get(name, {})) for one in tables)]
        for name in methods
    ]
    return table(["method", "gives", *(f"{one['target']}, N = {one['rows']:,}" for one in tables)], rows)


def programs() -> str:
    """What tallchain compiles for the largest of the simulated tables with fewer than 10^7 rows, the longest first."""
    of = next(one for one in reversed(ordered()) if one["target"] == "simulated" and one["rows"] < 10**7)
    ours = of["methods"]["tallchain"]
    longest = [
        [f"`{name.removeprefix('jit(').removesuffix(')')}`", f"{seconds:.2f}"] for name, seconds in ours["longest"]
    ]
    return (
        f"{ours['programs']} programs, {ours['compile_seconds']:.1f} s to compile, some of them side by side; the "
        f"longest:\n\n{table(['program', 'seconds'], longest)}"
    )


def _cell(found: dict[str, Any]) -> str:
    if "error" in found:
        return "failed"
    over = found.get("over_fit", {})
    return " / ".join(_number(over[kind]) if kind in over else "-" for kind in KINDS) if over else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
