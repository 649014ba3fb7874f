"""What a fit holds: the same as `Fit`, for what makes another one of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tallchain.checking.trace import Trace
from tallchain.formulas.spec import Spec
from tallchain.models import Regression
from tallchain.prepared import Prepared
from tallchain.report import Facts
from tallchain.types import PyTree


class Pending(NamedTuple):
    """Rows that were too few to be compared with the posterior before them; those that come next join them."""

    rows: PyTree
    num_rows: int
    trace: Trace
    """Before the first of them."""


class Held(NamedTuple):
    """See `Fit`."""

    model: Regression | None
    trace: Trace
    facts: Facts
    spec: Spec | None
    prepared: Prepared | None
    given: dict[str, Any]
    num_updates: int
    pending: Pending | None
