"""Which step of a sampler is its best, and where the samplers can be compared."""

from __future__ import annotations

from collections.abc import Sequence

from tallchain.experiments.gradients.entries import DigitsEntry, MixtureEntry


def common_rows(entries: Sequence[MixtureEntry]) -> float:
    """Return the rows in all that every run has reached."""
    return float(min(entry.rows[-1] for entry in entries))


def best_on_mixture(entries: Sequence[MixtureEntry]) -> dict[str, MixtureEntry]:
    """Return each sampler at its best step: that of the smallest total variation after the rows that all have read."""
    rows = common_rows(entries)
    best: dict[str, MixtureEntry] = {}
    for entry in entries:
        if entry.name not in best or entry.at(rows).value < best[entry.name].at(rows).value:
            best[entry.name] = entry
    return best


def best_on_digits(entries: Sequence[DigitsEntry]) -> dict[str, DigitsEntry]:
    """Return each sampler at its best step: that of the highest accuracy at the end."""
    best: dict[str, DigitsEntry] = {}
    for entry in entries:
        if entry.name not in best or entry.final > best[entry.name].final:
            best[entry.name] = entry
    return best
