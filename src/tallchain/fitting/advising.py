"""What a person should know of a fit, and do about it."""

from __future__ import annotations

from tallchain.fitting.running import Ran
from tallchain.prepared import Prepared
from tallchain.report.facts import Advice, Facts


def advice_of(facts: Facts, ran: Ran, prepared: Prepared) -> tuple[Advice, ...]:
    """Return the advice, the gravest first."""
    return ()
