"""The report of a fit: its facts and pictures on one page."""

from __future__ import annotations

import dataclasses

import numpy as np

from tallchain.checking.trace import Trace
from tallchain.fitting.variables import coefficients_of, variables_of
from tallchain.models import Regression
from tallchain.models.layout import COEFFICIENTS
from tallchain.names import coordinates
from tallchain.report import Facts, draw, page

_PANELS = 6


def page_of(model: Regression | None, trace: Trace, facts: Facts) -> str:
    """Return the page; without rows, as a fit that was loaded is, effects stand alone."""
    has_rows = model is not None and len(model.data["x"]) > 1
    shown = trace if model is None else _named(model, trace, facts)
    return page(facts, draw(shown, model if has_rows else None, facts.predictive, worst=_worst(model, shown, facts)))


def _named(model: Regression, trace: Trace, facts: Facts) -> Trace:
    """Return draws whose coefficients have names where there are several predictors too."""
    if model.layout.num_linear == 1:
        return trace
    names = tuple(each.name for each in facts.of_kind("coefficient"))
    position = trace.variables() | {COEFFICIENTS: coefficients_of(model, trace).flat}
    return dataclasses.replace(trace, position=position, names=trace.names | {COEFFICIENTS: names})


def _worst(model: Regression | None, trace: Trace, facts: Facts) -> list[str]:
    """Return the coordinates of the largest R-hat, by their names in the trace: of logs, which have the same ranks."""
    names = [
        name
        for each in variables_of(model, trace)
        for name in coordinates(each.leaf, each.draws.shape[2:], trace.names)
    ]
    r_hat = np.nan_to_num([each.r_hat for each in facts.parameters], nan=np.inf)
    return [names[at] for at in np.argsort(-r_hat, kind="stable")[:_PANELS]]
