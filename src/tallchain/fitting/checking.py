"""The audit of a fit that was saved: its rows are read again, and its decisions repeated."""

from __future__ import annotations

import dataclasses
from typing import Any

from tallchain.checking.auditing import audit
from tallchain.checking.findings import Audit
from tallchain.fitting.result import Fit
from tallchain.formulas import build
from tallchain.models.priors import log_prior_of
from tallchain.packs import is_packed, open_design
from tallchain.prepare import prepare
from tallchain.settings import settings_of
from tallchain.tables import open_table
from tallchain.types import AcceptanceTest


def checked(
    fit: Fit,
    data: Any,
    *,
    num_decisions: int = 100,
    acceptance: AcceptanceTest | None = None,
    progress: bool = True,
    memory: str | float = "4GB",
) -> tuple[Fit, Audit]:
    """Return the fit with what an audit found, and the audit.

    Args:
        fit: as it was made or loaded, from a formula.
        data: the table that was fitted, or the packed one; another one is refused, by its checksum.
        num_decisions: to audit; each costs a sweep over all rows.
        acceptance: the test of the fit, if one was given.
        progress: show progress.
        memory: of the rows of a packed table that are in memory at a time, about.
    """
    if fit.spec is None or fit.model is None:
        raise ValueError("`checked(fit, data)` needs a fit of a formula: others have no way to read a table.")
    if is_packed(data):
        design = open_design(data)
        name, found = str(design.path), design.checksum
    else:
        table = open_table(data, "checked(fit, data=...)")
        name, found = table.name, table.checksum()
    if fit.facts.checksum is not None and found != fit.facts.checksum:
        raise ValueError(
            f"`checked(fit, data)`: {name} is not the table that was fitted: its checksum is {found}, that "
            f"of the fit {fit.facts.checksum}."
        )
    if is_packed(data):
        source, prior = design.source(memory), log_prior_of(fit.model.posterior).prior
        prepared = prepare(design.model(source, prior), source, seed=fit.facts.seed or 0, progress=progress)
    else:
        prepared = _prepared(fit, table, progress=progress)
    kernel = prepared.kernel(acceptance)
    test = settings_of(kernel).test
    if test != fit.facts.trust.test:
        raise ValueError(
            f"`checked(fit, data)`: the fit decided by {fit.facts.trust.test}, and `prepare` chose {test}: give that "
            "test as `acceptance=` (on the command line, --test)."
        )
    seed = fit.facts.seed or 0
    result = audit(kernel, fit.trace, num_decisions=num_decisions, seed=seed, progress=progress)
    trust = dataclasses.replace(fit.facts.trust, audited_error=result.log_odds.upper, is_sound=result.is_sound)
    return dataclasses.replace(fit, facts=dataclasses.replace(fit.facts, trust=trust)), result


def _prepared(fit: Fit, table: Any, *, progress: bool) -> Any:
    """Make the model again, and prepare it as the fit did."""
    spec, model = fit.spec, fit.model
    assert spec is not None
    assert model is not None
    built = build(
        spec.formula,
        table,
        model.family,
        prior=log_prior_of(model.posterior).prior,
        weights=spec.weights,
        offset=spec.offset,
        missing="drop" if fit.facts.num_dropped else "refuse",
        progress=progress,
    )
    return prepare(built.model, seed=fit.facts.seed or 0, progress=progress)
