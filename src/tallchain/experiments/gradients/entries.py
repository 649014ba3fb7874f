"""What is found for one sampler at one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tallchain.experiments.logistic_regression import Found


class Ratio(NamedTuple):
    """A variance over the exact one."""

    value: float
    error: float
    """Its Monte Carlo error, from the spread between chains."""

    @property
    def away(self) -> float:
        """How far from 1, in Monte Carlo errors."""
        return abs(self.value - 1) / self.error


class Cost(NamedTuple):
    """Rows of a draw, mean over draws."""

    test: float
    """Rows that the test reads."""
    gradients: float
    """Gradients of rows: one for each step of a trajectory."""


@dataclass(frozen=True)
class MixtureEntry:
    """One sampler at one step, on the mixture."""

    name: str
    step: float
    draws: int
    """Of a chain."""
    acceptance: float
    cost: Cost
    narrow: Ratio
    """Of the direction in which the posterior is narrowest, after the first quarter of the draws."""
    expected: float | None
    """The same by formula; None where there is none."""
    wide: Ratio
    total_variation: float
    """Of all draws after the first quarter, over bins."""
    by_chance: float
    """Of it, what the number of draws explains: half of that between the draws of two halves of the chains."""
    rows: np.ndarray
    """Read in all by a repetition, at some points on its way."""
    curve: np.ndarray
    """Total variation of its draws by then: repetition, point."""

    def at(self, rows: float) -> Ratio:
        """Total variation after so many rows: mean over repetitions and its standard error."""
        values = [np.interp(np.log(rows), np.log(self.rows), of) for of in self.curve]
        error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
        return Ratio(float(np.mean(values)), float(error))

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return {
            "name": self.name,
            "step": self.step,
            "draws": self.draws,
            "acceptance": self.acceptance,
            "rows": self.cost._asdict(),
            "variance_narrow": self.narrow._asdict(),
            "variance_narrow_expected": self.expected,
            "variance_wide": self.wide._asdict(),
            "total_variation": self.total_variation,
            "total_variation_by_chance": self.by_chance,
            "curve": {"rows": self.rows.tolist(), "total_variation": self.curve.tolist()},
        }


@dataclass(frozen=True)
class DigitsEntry:
    """One sampler at one step, on MNIST-13k."""

    name: str
    step: float
    cost: Cost
    found: Found
    """Its rows are those read in all."""

    @property
    def draws(self) -> int:
        """Of a repetition."""
        return self.found.read.shape[1]

    @property
    def final(self) -> float:
        """Accuracy over the last fifth of the draws."""
        return float(np.mean(self.found.final))

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return {
            "name": self.name,
            "step": self.step,
            "draws": self.draws,
            "acceptance": self.found.acceptance,
            "rows": self.cost._asdict(),
            "rows_to_accuracy": {wanted: r for wanted, r in self.found.rows_to_accuracy.items() if np.isfinite(r)},
            "final_accuracy": self.found.final,
        }
