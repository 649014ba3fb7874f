"""What a fit advises, as a set: each finding once, in plain words, with its remedy.

The same words go to the page, to the printed summary and to the file of the fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallchain.checking.predictive import PredictiveCheck
from tallchain.report.facts import Advice

_NAMES = 4


def low_ess(name: str, ess: float, asked: float) -> Advice:
    """Fewer effective draws than asked for."""
    return Advice(
        "low-ess",
        f"{name} has {ess:,.0f} effective draws, fewer than the {asked:,.0f} asked for: its mean is known only to "
        f"{100 / max(ess, 1) ** 0.5:.2g} % of its standard deviation.",
        "Draw longer (raise the limit of draws or of time), or ask for fewer.",
    )


def r_hat(names: Sequence[str], worst: float) -> Advice:
    """Chains that disagree."""
    return Advice(
        "r-hat",
        f"The chains disagree about {_few(names)}: R-hat is up to {worst:.3f}, above 1.01.",
        "Do not use these numbers yet. Draw longer; if it stays, look at the traces: there may be several modes, or "
        "parameters that the data do not tell apart.",
        is_grave=True,
    )


def too_few(draws: int) -> Advice:
    """Chains too short to be compared."""
    return Advice(
        "too-few-draws",
        f"Each chain has {_count(draws, 'draw')}, too few for R-hat and effective draws: nothing is known of how far "
        "they are to be trusted.",
        "Do not use these numbers. Raise the limit of draws or of time, or let the run go on.",
        is_grave=True,
    )


def saturated(share: float, rows: float) -> Advice:
    """Decisions that need nearly all rows."""
    return Advice(
        "saturated",
        f"{share:.0%} of the decisions read all rows, {rows:,.0f} on average: a minibatch test gains nothing here.",
        "The draws are right, only slow. Let `prepare` find a surrogate, shorten the steps, or use a full-data sampler "
        "such as NUTS.",
    )


def tiny_steps(acceptance: float, ess_per_draw: float) -> Advice:
    """Chains that hardly move."""
    return Advice(
        "tiny-steps",
        f"The chains hardly move: {acceptance:.0%} of the candidates are accepted, and a draw is worth "
        f"{ess_per_draw:.2g} independent ones.",
        "Let `prepare` choose the proposal, or lengthen the steps until a quarter to two thirds are accepted.",
    )


def invalid_ratios(count: int, of: int) -> Advice:
    """Log ratios that were not numbers."""
    return Advice(
        "invalid-ratios",
        f"{count:,} of {of:,} log ratios were NaN or infinite and counted as rejections: the posterior is wrong "
        "wherever that happens.",
        "Find the positions where the log prior or the log likelihood is not finite; look for missing or extreme "
        "values in the data.",
        is_grave=True,
    )


def poor_expansion(names: Sequence[str]) -> Advice:
    """Groups whose rows the surrogate approximates poorly."""
    return Advice(
        "poor-expansion",
        f"The approximation that saves rows is poor for {_few(names)}: these groups have few rows, or extreme ones.",
        "Decisions that move these effects cost more rows, or are less exact: `fit.audit()` (`tallchain check`) "
        "measures it. Merge such levels, or give their effects a narrower prior.",
    )


def unseen_levels(factor: str, labels: Sequence[str]) -> Advice:
    """Labels of new rows that the fit has not seen."""
    return Advice(
        "unseen-levels",
        f"{_count(len(labels), 'level')} of {factor} {_was(len(labels))} not in the fitted data: {_few(labels)}. "
        "Their effects were drawn from the distribution of the others.",
        "Expect wide intervals for these rows; check the spelling of the labels.",
    )


def collinear(names: Sequence[str]) -> Advice:
    """Columns that the data do not tell apart."""
    return Advice(
        "collinear",
        f"The columns {_few(names)} are nearly linear functions of each other: only their sum is known well, their "
        "single coefficients are not.",
        "Leave one of them out, or read their coefficients together.",
    )


def separation(names: Sequence[str]) -> Advice:
    """Columns that divide the outcomes without an overlap."""
    return Advice(
        "separation",
        f"{_few(names)} divides the outcomes without an overlap: the likelihood alone has no maximum there, and the "
        "prior decides how large the coefficient is.",
        "State the prior that you believe in, and report it; or merge levels that have one outcome only.",
    )


def prior_alone(names: Sequence[str]) -> Advice:
    """Columns of which the data say nothing."""
    return Advice(
        "prior-alone",
        f"The data say next to nothing about {_few(names)}: the posterior is about as wide as the prior.",
        "Look at these columns: a number that is 0 in nearly all rows, or tiny in its unit, leaves its coefficient to "
        "the prior. Rescale a column that is tiny, or leave it out.",
    )


def limit_reached(what: str, limit: str) -> Advice:
    """A limit ended the run."""
    return Advice(
        "limit-reached",
        f"The run ended at its limit of {what} ({limit}) before it had the effective draws asked for.",
        f"Raise the limit of {what}, or ask for fewer effective draws.",
    )


def interrupted(draws: int, asked: int | None = None) -> Advice:
    """Ctrl-C ended the run."""
    of = f" of {asked:,}" if asked else ""
    return Advice(
        "interrupted",
        f"The run was interrupted after {draws:,}{of} draws of each chain. What is here is of these.",
        "Run it again to the end before you report the numbers.",
    )


def predictive(check: PredictiveCheck) -> Advice | None:
    """Data that do not look like data of the fitted model; None if they do."""
    if not check.is_suspect:
        return None
    off = "; ".join(check.words_of(panel) for panel in check.panels if check.is_off(panel))
    return Advice(
        "predictive-check",
        f"Outcomes drawn from the model do not look like those observed. {off[0].upper()}{off[1:]}.",
        "The sampling is not the cause. Add what the model lacks: curvature or interactions of the columns, groups, or "
        "a family with more spread (NegativeBinomial for Poisson, StudentT for Gaussian).",
    )


def not_checked() -> Advice:
    """No scan."""
    return Advice(
        "not-checked",
        "No scan read all rows, and the test is not exact: a few rows that carry the posterior would go unnoticed.",
        "Leave the scan on (`scan=8`), or run `audit(trace.kernel, trace)`.",
    )


def scan_interrupted() -> Advice:
    """Ctrl-C before the scan was done."""
    return Advice(
        "scan-interrupted",
        "Ctrl-C came before the scan of all rows was done: a few rows that carry the posterior would go unnoticed.",
        "Run it again to the end; or measure how wrong the decisions are: `fit.audit()` (`tallchain check`).",
    )


def skewed(skewness: float, kurtosis: float, batch: float) -> Advice:
    """A mean of a batch that is far from normal."""
    return Advice(
        "skewed-batches",
        f"A few rows carry the log ratio: the mean of {batch:,.0f} rows has skewness up to {skewness:.2g} and excess "
        f"kurtosis up to {kurtosis:.2g}, too far from normal for a minibatch test.",
        "Measure the error with `audit(trace.kernel, trace)`; or use an exact test, or a family with lighter tails.",
        is_grave=True,
    )


def audit_failed(verdict: str) -> Advice:
    """An audit that found an error."""
    return Advice(
        "audit",
        f"The audit of the decisions found an error. {verdict}",
        "Use an exact test (`acceptance=MHSS()`), or let decisions read more rows.",
        is_grave=True,
    )


def tempered(temperature: float) -> Advice:
    """Draws that are not from the posterior."""
    return Advice(
        "tempered",
        f"The likelihood was divided by the temperature {temperature:,.6g}: the draws are NOT from the posterior, and "
        "their intervals are too wide.",
        "Fit at temperature 1.",
        is_grave=True,
    )


def dropped(count: int, of: int, columns: Sequence[str]) -> Advice:
    """Rows left out for missing values."""
    return Advice(
        "dropped-rows",
        f"{_count(count, 'row')} of {of:,} {_was(count)} left out, for missing values in {_few(columns)}.",
        "If values are missing for a reason that has to do with the outcome, the estimates are biased: look at which "
        "rows they are.",
    )


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(map(str, names[:_NAMES]))
    return shown + (f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else "")


def _count(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"
