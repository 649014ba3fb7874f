"""What a posterior predictive check has found: observed outcomes against outcomes drawn from the fitted regression."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

FALSE_ALARM = 1e-3
"""About how often a regression that is right is suspected, over all panels."""


@dataclasses.dataclass(frozen=True)
class Panel:
    """One comparison, place by place: groups of rows, or values of the outcome."""

    title: str
    across: str
    """What the places are."""
    along: str
    """What is compared."""
    labels: tuple[str, ...]
    """Names of the places; empty where `place` says it all."""
    place: tuple[float, ...]
    rows: tuple[int, ...]
    """Rows in each place."""
    observed: tuple[float, ...]
    low: tuple[float, ...]
    """Lower end of the interval of the drawn ones."""
    middle: tuple[float, ...]
    """Mean of the drawn ones."""
    high: tuple[float, ...]
    p_value: float
    """Chance of deviations as large, summed over the places, if the regression is right."""
    is_log: bool = False
    """Whether the places are evenly spaced on a log scale."""

    @property
    def num_within(self) -> int:
        """Places where the observed value is in the interval."""
        return sum(low <= at <= high for low, at, high in zip(self.low, self.observed, self.high, strict=True))

    @property
    def size(self) -> int:
        """Places."""
        return len(self.observed)


@dataclasses.dataclass(frozen=True)
class PredictiveCheck:
    """What was compared, and whether it differs by more than chance; `print` it for the verdict."""

    family: str
    num_rows: int
    """Rows compared."""
    num_data: int
    """Rows that they were picked from."""
    num_draws: int
    interval: float
    """Probability between the ends of the intervals."""
    panels: tuple[Panel, ...]
    notes: tuple[str, ...] = ()
    """How rows with weights, and times that are cut off, were compared."""

    @property
    def is_suspect(self) -> bool:
        """Whether a panel differs beyond chance, which happens to one right regression in a thousand."""
        return any(self.is_off(panel) for panel in self.panels)

    def is_off(self, panel: Panel) -> bool:
        """Whether a panel differs beyond chance."""
        return panel.p_value < FALSE_ALARM / len(self.panels)

    def words_of(self, panel: Panel) -> str:
        """How many observed values are in their intervals, and how many to expect."""
        said = (
            f"{panel.title}: {panel.num_within} of {panel.size} within their {100 * self.interval:g} % interval; "
            f"expected {self.interval * panel.size:.1f}"
        )
        return f"{said}; beyond chance (p = {_p_value(panel.p_value)})" if self.is_off(panel) else said

    @property
    def verdict(self) -> str:
        """What was found, a line for each panel."""
        return "\n".join(f"{self.words_of(panel)}." for panel in self.panels)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for JSON; numbers that are not finite become None."""
        found = dataclasses.asdict(self)
        found["panels"] = [
            {name: _plain(value) for name, value in panel.items()}
            for panel in (dataclasses.asdict(panel) for panel in self.panels)
        ]
        return found | {"notes": list(self.notes), "verdict": self.verdict, "is_suspect": self.is_suspect}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> PredictiveCheck:
        """Return the check of which `to_json` made plain values."""
        names = {field.name for field in dataclasses.fields(cls)}
        given: dict[str, Any] = {name: value for name, value in found.items() if name in names}
        panels = tuple(Panel(**{name: _back(value) for name, value in panel.items()}) for panel in found["panels"])
        given |= {"panels": panels, "notes": tuple(found["notes"])}
        return cls(**given)

    def __str__(self) -> str:
        head = f"Predictive check of {self.num_rows:,} of {self.num_data:,} rows, {self.num_draws:,} draws"
        return "\n".join([head, self.verdict, *self.notes])


def _p_value(value: float) -> str:
    return f"{value:.1g}" if value >= 1e-9 else "1e-9 or less"


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _back(value: Any) -> Any:
    """Tuples for lists, and NaN for None."""
    if isinstance(value, list):
        return tuple(_back(each) for each in value)
    return math.nan if value is None else value
