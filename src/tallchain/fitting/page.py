"""The report of a fit: its facts and pictures on one page."""

from __future__ import annotations

from tallchain.checking.trace import Trace
from tallchain.models import Regression
from tallchain.report.facts import Facts


def page_of(model: Regression | None, trace: Trace, facts: Facts) -> str:
    """Return the page."""
    return f"<!doctype html><title>{facts.title}</title>"
