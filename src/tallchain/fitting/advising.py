"""What a person should know of a fit, and do about it: each finding once, from the numbers of the run."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from tallchain.checking.convergence import MOST_R_HAT
from tallchain.checking.trace import Trace
from tallchain.checking.verdict import Scan
from tallchain.fitting.running import Limits, Ran
from tallchain.fitting.variables import coefficient_names
from tallchain.models import Regression
from tallchain.models.families import Bernoulli, Binomial, Categorical
from tallchain.models.layout import COEFFICIENTS
from tallchain.models.priors import Normal, log_prior_of
from tallchain.prepared import Prepared
from tallchain.report import Advice, Facts, advice
from tallchain.settings import Settings

_NEARLY_ONE = 0.98  # |correlation| of two coefficients
_BY_PRIOR, _PRIOR_ALONE = 0.5, 0.95  # sd over that of the prior
_FEW_ACCEPTED = 0.02  # of candidates
_LEAST_DRAWS = 4  # of each chain: there is no R-hat below
_OFTEN = 0.1  # share of decisions that read all rows
_POOR = re.compile(r"of '(?P<factor>.+?)': the expansion is poor for (?P<levels>.+?) \(share of")


def advice_of(
    facts: Facts, ran: Ran, limits: Limits, model: Regression | None, prepared: Prepared | None
) -> tuple[Advice, ...]:
    """Return all advice, the gravest first."""
    trace = ran.trace
    assert trace.settings is not None
    found = [
        *_of_draws(facts, ran, limits),
        *_of_decisions(trace, trace.settings),
        *_of_checks(facts, ran, trace.settings),
        *(_of_preparation(prepared) if prepared else ()),
        *(_of_coefficients(model, trace) if model else ()),
    ]
    return tuple(sorted(found, key=lambda each: not each.is_grave))


def _of_draws(facts: Facts, ran: Ran, limits: Limits) -> Iterator[Advice]:
    of, is_known = facts.convergence, ran.trace.num_draws >= _LEAST_DRAWS
    if ran.trace.is_interrupted and "limit" not in ran.why:
        yield advice.interrupted(ran.trace.num_draws)
    elif not ran.is_enough and "limit" in ran.why:
        is_time = " s " in ran.why
        limit = f"{limits.max_seconds:,.4g} s" if is_time else f"{limits.max_draws:,}"
        yield advice.limit_reached("time" if is_time else "draws", limit)
    if not is_known:
        yield advice.too_few(ran.trace.num_draws)
    elif of.worst_r_hat > MOST_R_HAT:
        names = [each.name for each in facts.parameters if not each.r_hat <= MOST_R_HAT]
        yield advice.r_hat(names, of.worst_r_hat)
    if is_known and of.asked_ess and of.worst_ess < of.asked_ess:
        yield advice.low_ess(of.worst_ess_of, of.worst_ess, of.asked_ess)
    if of.acceptance < _FEW_ACCEPTED:
        per_draw = of.worst_ess / max(ran.trace.num_chains * ran.trace.num_draws, 1)
        yield advice.tiny_steps(of.acceptance, per_draw)


def _of_decisions(trace: Trace, settings: Settings) -> Iterator[Advice]:
    total = trace.decisions + trace.warmup
    if total.num_invalid:
        yield advice.invalid_ratios(total.num_invalid, total.num_decisions)
    is_whole = trace.rows_read >= trace.num_rows
    if is_whole.mean() > _OFTEN and not settings.test.startswith(("Metropolis", "Barker")):
        yield advice.saturated(float(is_whole.mean()), float(trace.rows_read.mean()))


def _of_checks(facts: Facts, ran: Ran, settings: Settings) -> Iterator[Advice]:
    scan = ran.trace.scan
    if settings.is_tempered:
        yield advice.tempered(settings.temperature)
    if ran.is_scan_cut:
        yield advice.scan_interrupted()
    elif scan is None and not settings.is_exact:
        yield advice.not_checked()
    if scan is not None:
        yield from _of_scan(scan)
    if facts.predictive is not None and (found := advice.predictive(facts.predictive)):
        yield found
    if facts.num_dropped:
        yield advice.dropped(facts.num_dropped, facts.num_dropped + facts.num_rows, list(facts.dropped))


def _of_scan(scan: Scan) -> Iterator[Advice]:
    for complaint in scan.complaints():
        if complaint.startswith("a few rows carry"):
            yield advice.skewed(max(scan.skewness), max(scan.kurtosis), scan.batch)
        else:
            what = f"{complaint[0].upper()}{complaint[1:].rstrip('.')}."
            yield Advice("scan", what, "Measure what it does to the draws: `fit.audit()`.", is_grave=True)


def _of_preparation(prepared: Prepared) -> Iterator[Advice]:
    for line in prepared.findings:
        if found := _POOR.search(line):
            names = [f"{found['factor']} {level}" for level in re.findall(r"(\S+) \(\d+%\)", found["levels"] + ")")]
            yield advice.poor_expansion(names or [found["factor"]])
        elif line.startswith(("POOR SURROGATE", "NOT SETTLED", "SHORT STEPS", "NO SURROGATE PAYS")):
            what = " ".join(line.split()[2:] if not line.startswith("NO SURR") else line.split()[3:])
            code = "-".join(re.findall(r"[A-Z]{2,}", line)).lower()
            remedy = "Compare with `fit.audit()`, which measures the error of the decisions."
            yield Advice(code, f"{what[0].upper()}{what[1:].rstrip('.')}.", remedy)


def _of_coefficients(model: Regression, trace: Trace) -> Iterator[Advice]:
    """Columns that determine one another, and coefficients that the prior alone holds."""
    layout = model.layout
    position = trace.position if layout.is_vector else trace.position[COEFFICIENTS]
    if layout.num_linear > 1:
        return
    first, names = int(layout.has_intercept), coefficient_names(model)
    draws = np.asarray(position, np.float64).reshape(-1, layout.num_features)[:, first:]
    sd = draws.std(0)
    moving = np.flatnonzero(sd > 0)
    if len(moving) > 1:
        correlation = np.triu(np.corrcoef(draws[:, moving].T), 1)
        pairs = np.argwhere(np.abs(correlation) > _NEARLY_ONE)
        if len(pairs):
            yield advice.collinear([names[first + moving[j]] for j in np.unique(pairs)])
    prior = log_prior_of(model.posterior).prior.coefficients
    if not isinstance(prior, Normal):
        return
    is_apart = (sd > _BY_PRIOR * prior.sd) & (np.abs(draws.mean(0) - prior.mean) > prior.sd)
    is_apart &= isinstance(model.family, Bernoulli | Binomial | Categorical)
    is_alone = (sd > _PRIOR_ALONE * prior.sd) & ~is_apart
    for found, advise in ((is_apart, advice.separation), (is_alone, advice.prior_alone)):
        if found.any():
            yield advise([names[first + j] for j in np.flatnonzero(found)])
