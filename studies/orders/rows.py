"""The rows whose error is studied: three laws, and the log ratios of typical steps in two posteriors."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

import tallchain as tc
from studies import pairs
from studies.targets import MIXTURE_STEP, PIXEL_STEP, PIXELS, SEED, exact_starts, mixture, pixels, sample


class Rows(NamedTuple):
    """Numbers per row of mean 0 and variance 1, read with replacement."""

    values: np.ndarray
    points: np.ndarray
    """The same in bins, each at the mean of its rows: enough for a characteristic function."""
    weights: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, bins: int = 8000) -> Rows:
        """Standardise and bin."""
        values = standardised(values)
        edges = np.linspace(values.min(), values.max(), bins + 1)[1:-1]
        at = np.digitize(values, edges)
        counts = np.bincount(at, minlength=bins)
        points = np.bincount(at, values, bins)[counts > 0] / counts[counts > 0]
        return cls(values, points, counts[counts > 0] / len(values))

    def moment(self, power: int) -> float:
        """E X^power."""
        return float(np.mean(self.values**power))

    def absolute_moment(self, power: int) -> float:
        """E |X|^power."""
        return float(np.mean(np.abs(self.values) ** power))

    def moments(self) -> dict[str, float]:
        """What the error depends on."""
        return {
            "skewness": self.moment(3),
            "kurtosis": self.moment(4),
            "first_absolute_moment": self.absolute_moment(1),
            "third_absolute_moment": self.absolute_moment(3),
        }


def standardised(values: np.ndarray) -> np.ndarray:
    """Return the values with mean 0 and variance 1."""
    values = np.asarray(values, np.float64)
    return (values - values.mean()) / values.std()


def typical_ratios(model: Any, positions: np.ndarray, step: float) -> np.ndarray:
    """Log ratios per row of the random-walk step, one from each position, whose skewness has the median size."""
    steps = step * np.random.default_rng(SEED).standard_normal(positions.shape).astype(np.float32)
    log_likelihood = jax.jit(jax.vmap(model.posterior.log_likelihood, (None, 0)))

    def ratios(position: np.ndarray, step: np.ndarray) -> np.ndarray:
        there, here = log_likelihood(position + step, model.data), log_likelihood(position, model.data)
        return np.asarray(there, np.float64) - np.asarray(here, np.float64)

    sizes = [abs(pairs.skewness(standardised(ratios(*pair)))) for pair in zip(positions, steps, strict=True)]
    middle = np.argsort(sizes)[len(sizes) // 2]
    return ratios(positions[middle], steps[middle])


def drawn_rows(num_rows: int) -> dict[str, Rows]:
    """Rows drawn from three laws."""
    drawn = pairs.laws(num_rows)
    return {name.split(" (")[0]: Rows.of(drawn[name]) for name in drawn if not name.startswith(("normal", "gamma"))}


def posterior_rows(steps: int) -> dict[str, Rows]:
    """The log ratios of a typical step, one out of `steps`, in the two posteriors of the studies."""
    model, _ = mixture()
    ratios = typical_ratios(model, exact_starts(model.quadrature(points=61), steps), MIXTURE_STEP)
    found = {"paper's mixture": Rows.of(ratios)}
    model, kernel = pixels()
    trace = sample(kernel(tc.MinibatchBarker()), np.zeros((steps, PIXELS), np.float32), 10, warmup=500)
    return found | {"logistic regression": Rows.of(typical_ratios(model, trace.position[:, -1], PIXEL_STEP))}
