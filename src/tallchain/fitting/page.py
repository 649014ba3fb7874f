"""The report of a fit: its facts and pictures on one page."""

from __future__ import annotations

import numpy as np

from tallchain.checking.trace import Trace
from tallchain.models import Regression
from tallchain.report import Facts, ParameterFact, draw, page

_PANELS = 6


def page_of(model: Regression | None, trace: Trace, facts: Facts) -> str:
    """Return the page; without rows, as a fit that was loaded is, effects stand alone."""
    has_rows = model is not None and len(model.data["x"]) > 1
    worst = _worst(facts) if model is not None and model.names is not None else None
    return page(facts, draw(trace, model if has_rows else None, facts.predictive, worst=worst))


def _worst(facts: Facts) -> list[str]:
    """Return the coordinates of the largest R-hat, by their names in the trace: of logs, which have the same ranks."""
    r_hat = np.nan_to_num([each.r_hat for each in facts.parameters], nan=np.inf)
    return [_in_trace(facts.parameters[at]) for at in np.argsort(-r_hat, kind="stable")[:_PANELS]]


def _in_trace(of: ParameterFact) -> str:
    is_log = of.kind in ("group sd", "prior scale") or (of.kind == "shared" and not of.name.startswith("cutpoint"))
    return f"log_{of.name}" if is_log else of.name
