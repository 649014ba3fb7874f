"""The report of a fit: its facts and pictures on one page."""

from __future__ import annotations

from tallchain.checking.trace import Trace
from tallchain.models import Regression
from tallchain.report import Facts, draw, page


def page_of(model: Regression | None, trace: Trace, facts: Facts) -> str:
    """Return the page; without rows, as a fit that was loaded is, effects stand alone."""
    has_rows = model is not None and len(model.data["x"]) > 1
    return page(facts, draw(trace, model if has_rows else None, facts.predictive))
