"""The log likelihood of a row of a regression."""

from __future__ import annotations

import dataclasses

from tallchain.models.families.family import Family
from tallchain.models.layout import Layout
from tallchain.types import Array, Posterior, PyTree


@dataclasses.dataclass(frozen=True)
class RegressionLogLikelihood:
    """weight_i f(eta_i; y_i). Equal settings share their programs, whatever the data."""

    family: Family
    layout: Layout

    def __call__(self, position: PyTree, row: PyTree) -> Array:
        """Return the log likelihood of one row."""
        self.layout.check(position)
        value = self.family.log_density(self.layout.predictors(position, row), row["y"])
        return value * row["weight"] if "weight" in row else value


def regression_of(posterior: Posterior) -> RegressionLogLikelihood | None:
    """Return the log likelihood of a regression's posterior; None for others."""
    function = getattr(posterior.log_likelihood, "function", None)
    return function if isinstance(function, RegressionLogLikelihood) else None


def layout_of(posterior: Posterior) -> Layout:
    """Return the layout of a regression's positions."""
    model = regression_of(posterior)
    assert model is not None
    return model.layout
