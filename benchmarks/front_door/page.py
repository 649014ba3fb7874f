"""The piece of docs/fitting.md on a large file."""

from __future__ import annotations

from benchmarks.measure import load
from benchmarks.records import table


def pieces() -> dict[str, str]:
    """Return what the last run has measured."""
    of = load("front_door").results
    header = [
        "rows",
        "file",
        "design in float32",
        "peak memory over the design",
        "time over reading and a fit",
        "worst ESS, R-hat",
    ]
    last = of["ours"][-1]
    row = [
        f"{of['rows']:,}",
        f"{of['file_bytes'] / 1e9:.2f} GB",
        f"{of['design_bytes'] / 1e9:.2f} GB",
        f"{of['peak_over_design']:.2f}",
        f"{of['time_over_reading_and_fit']:.1f}",
        f"{last['ess']:,.0f}, {last['r_hat']:.3f}",
    ]
    return {"front_door": table(header, [row])}
