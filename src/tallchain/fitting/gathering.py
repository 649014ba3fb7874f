"""Everything that is known of a fit, as facts for its report."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tallchain.checking.trace import Trace
from tallchain.fitting.describing import equation, family_words, model_words, prior_words
from tallchain.fitting.variables import variables_of
from tallchain.models import Regression
from tallchain.prepared import Prepared
from tallchain.report.citing import citations
from tallchain.report.facts import Advice, Convergence, Facts, ParameterFact, Reading, Stage, Trust
from tallchain.settings import settings_of

_PACKAGES = ("tallchain", "jax", "numpy", "scipy", "blackjax", "formulaic", "pandas", "pyarrow")


class Asked(NamedTuple):
    """What was asked for, and of what data."""

    num_draws: int = 0
    seed: int = 0
    formula: str | None = None
    outcome: str = ""
    outcome_levels: tuple[str, ...] = ()
    call: str | None = None
    checksum: str | None = None
    num_dropped: int = 0
    dropped: Mapping[str, int] = MappingProxyType({})
    """Missing values by column."""
    words: tuple[str, ...] = ()
    """What the formula does not say itself."""
    reading_seconds: float = 0.0
    rows_taken: int | None = None
    """Rows that were read; None for all."""


def parameters_of_fit(
    model: Regression | None, trace: Trace, outcome_levels: tuple[str, ...] = ()
) -> tuple[ParameterFact, ...]:
    """Summarise every parameter, in the order of a report."""
    return tuple(fact for variable in variables_of(model, trace, outcome_levels) for fact in variable.parameters())


def facts_of(
    model: Regression | None,
    prepared: Prepared,
    trace: Trace,
    asked: Asked,
    advice: tuple[Advice, ...] = (),
    **more: Any,
) -> Facts:
    """Put the facts together; `more` are other fields of `Facts`."""
    parameters = parameters_of_fit(model, trace, asked.outcome_levels)
    words: dict[str, Any] = {
        "title": f"Regression of {asked.outcome or 'the outcome'}" if model else "A posterior",
        "words": " ".join([model_words(model, asked.outcome, trace.num_rows), *asked.words])
        if model
        else f"A posterior of its own functions, over {trace.num_rows:,} rows.",
        "equation": equation(model, asked.outcome) if model else (),
        "family": family_words(model.family) if model else "own log likelihood",
        "priors": prior_words(model) if model else (settings_of(kernel_of(trace)).prior,),
    }
    return Facts(
        **words,
        num_rows=trace.num_rows,
        parameters=parameters,
        convergence=convergence(parameters, trace, asked.num_draws),
        trust=trust(trace),
        reading=_reading(trace),
        formula=asked.formula,
        coding=asked.words,
        outcome=asked.outcome,
        num_dropped=asked.num_dropped,
        dropped=dict(asked.dropped),
        stages=_stages(prepared, trace, asked),
        advice=advice,
        findings=tuple(str(prepared).splitlines()),
        versions={"python": platform.python_version()} | versions(),
        seed=asked.seed,
        checksum=asked.checksum,
        call=asked.call,
        citations=_citations(model, prepared, trace),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **more,
    )


def convergence(parameters: tuple[ParameterFact, ...], trace: Trace, asked: int) -> Convergence:
    """Find the worst of them; with constraints some are the same in all draws, as the first of a Cholesky factor."""
    moving = tuple(each for each in parameters if each.sd > 0)
    parameters = moving if trace.sampled is not None and moving else parameters
    r_hat = np.nan_to_num([each.r_hat for each in parameters], nan=np.inf)
    ess = np.nan_to_num([min(each.ess_bulk, each.ess_tail) for each in parameters])
    worst, fewest = int(np.argmax(r_hat)), int(np.argmin(ess))
    return Convergence(
        trace.num_chains,
        trace.num_draws,
        trace.decisions.num_accepted / trace.decisions.num_decisions,
        float(r_hat[worst]),
        parameters[worst].name,
        float(ess[fewest]),
        parameters[fewest].name,
        asked,
    )


def trust(trace: Trace) -> Trust:
    """Say what kind of test decided, and what the scan of all rows has found."""
    assert trace.settings is not None
    of, scan = trace.settings, trace.scan
    return Trust(
        is_exact=of.is_exact,
        test=of.test,
        proposal=of.proposal,
        skewness=None if scan is None else float(np.max(scan.skewness)),
        kurtosis=None if scan is None else float(np.max(scan.kurtosis)),
        temperature=of.temperature,
        part_error=scan.part_error if scan is not None and scan.part_error else None,
    )


def _citations(model: Regression | None, prepared: Prepared, trace: Trace) -> tuple[str, ...]:
    assert trace.settings is not None
    has_horseshoe = bool(model and model.layout.hyper)
    of = trace.settings
    return citations(of.test, of.proposal, has_surrogate=prepared.surrogate is not None, has_horseshoe=has_horseshoe)


def kernel_of(trace: Trace) -> Any:
    """Return the sampler of a trace that was just made."""
    assert trace.kernel is not None
    return trace.kernel


def _reading(trace: Trace) -> Reading:
    total = trace.decisions + trace.warmup
    read = total.rows_read + total.rows_scanned
    return Reading(read / max(total.num_decisions, 1), total.num_decisions, read)


def _stages(prepared: Prepared, trace: Trace, asked: Asked) -> tuple[Stage, ...]:
    total = trace.decisions + trace.warmup
    taken = trace.num_rows if asked.rows_taken is None else asked.rows_taken
    found = [
        Stage("reading the data", asked.reading_seconds, taken if asked.reading_seconds else 0),
        Stage("preparing", prepared.seconds, prepared.rows_swept),
        Stage("compiling", trace.compile_seconds),
        Stage("sampling", trace.seconds, total.rows_read + total.rows_scanned),
        Stage("scan of all rows", trace.scan_seconds, trace.scan.rows_swept if trace.scan else 0),
    ]
    return tuple(each for each in found if each.seconds or each.rows)


def versions() -> dict[str, str]:
    """Versions of what took part, as far as it is installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
