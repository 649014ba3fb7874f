"""The power of b that fits the errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from studies.pairs import mean_error

CLEAR = 3.0  # standard errors above which a point counts in the fit
LATE = 400
"""Least b for the second fit of the power of b, nearer to its limit."""

Entries = list[dict[str, Any]]


def select(entries: Entries, kind: str, rule: str) -> Entries:
    """Return the errors of one kind of rows and one rule, by b."""
    return [entry for entry in entries if (entry["rows"], entry["rule"]) == (kind, rule)]


def powers(measured: dict[str, Entries]) -> Entries:
    """The power of b by method, kind of rows and rule."""
    found = []
    for method, entries in measured.items():
        for name, rule in dict.fromkeys((entry["rows"], entry["rule"]) for entry in entries):
            found.append({"method": method, "rows": name, "rule": rule} | power_of(select(entries, name, rule)))
    return found


def power_of(series: Entries) -> dict[str, Any]:
    """Fit the power of b to the mean errors: least squares in logs, over the points well above their noise."""
    clear = [entry for entry in series if mean_error(entry) > CLEAR * entry.get("standard_error_of_mean", 0.0)]
    late = [entry for entry in clear if entry["b"] >= LATE]
    return {"power": slope(clear), "late_power": slope(late), "fitted_b": [entry["b"] for entry in clear]}


def slope(series: Entries) -> float | None:
    """Of the line through the points in logs; None for fewer than two."""
    b, errors = [entry["b"] for entry in series], [mean_error(entry) for entry in series]
    return float(np.polyfit(np.log(b), np.log(errors), 1)[0]) if len(series) > 1 else None
