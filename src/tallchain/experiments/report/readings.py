"""The section on the paper's text and its numbers."""

from __future__ import annotations

from tallchain.experiments import disagreements
from tallchain.experiments.document import Section, Table

_SIGMAS = 3.0  # beyond which a difference is reported


def disagreements_section(result: disagreements.Result) -> Section:
    """Where they disagree, and what each reading gives."""
    header = ["reading", "rows per decision", "acceptance", "variances, over the exact ones", "error bound, median"]
    of = result.found
    rows = [
        [
            found.name,
            f"{found.rows:,.1f}",
            f"{found.acceptance:.3f}",
            _variances(found),
            "" if found.bound is None else f"{found.bound:.2f}",
        ]
        for found in of.values()
    ]
    config = result.config
    first, second = result.without_prior
    bound = of["growth"].bound
    assert bound is not None
    return Section(
        "Where the paper's text and its numbers disagree",
        [
            f"Measured on the mixture ({config.rows:,} rows), {config.chains} chains of {config.draws:,} draws, each "
            "from its own draw of the exact posterior, without warm-up; variances of theta_1 and theta_2 over those of "
            "each reading's target, with standard errors from the spread between chains:",
            Table(header, rows),
            "Standard deviations are called covariances. The text has steps of covariance 0.15 I. Steps of standard "
            f"deviation 0.15 read {of['printed'].rows:,.1f} rows per decision, steps of variance 0.15 "
            f"{of['variance'].rows:,.1f}; the paper prints 182.3.",
            "Sigma 0.9 and the shortcut. The printed sigma is 1. The published code has 0.9, and decides at once if "
            "the estimate is more than 5 of its standard errors from the threshold. With the prior, it reads "
            f"{of['code, prior'].rows:,.1f} rows, without the shortcut {of['no shortcut'].rows:,.1f}, and the test as "
            f"printed {of['printed'].rows:,.1f}.",
            "The prior is printed in the model, and the published code's test leaves it out: its target has "
            f"{first:.2f} and {second:.2f} times the variances of the posterior that it is compared with.",
            "The error bound (6.4 E|X|^3 + 2 E|X|)/sqrt(b) of the first corollary holds for X of variance 1, which the "
            f"text does not say. With X standardised, its median over decisions is {bound:.2f}; an error of a "
            f"probability is never above 1, so it says {'nothing' if bound >= 1 else 'next to nothing'} here.",
            "The growth rule's bias. A batch that grows until its variance is small is selected for a small "
            "variance; with skewed rows that shifts the estimate. Variances with the growth rule, and a table for the "
            f"correction that is right to six digits: {_told(of['growth'])}. With fresh rows for the estimate: "
            f"{_told(of['fresh'])}; with the remaining skewness corrected too: {_told(of['default'])}.",
            "The correction for skewness in appendix A.5 is that of a mean over its own standard error; the decision "
            "uses the mean itself, whose expansion is different. As printed, with the growth rule that it "
            f"was made for: {_told(of['growth, A.5'])}.",
        ],
    )


def _variances(of: disagreements.Found) -> str:
    pairs = zip(of.variances, of.errors, strict=True)
    return " and ".join(f"{value:.3f} ± {error:.3f}" for value, error in pairs)


def _told(of: disagreements.Found) -> str:
    """The variances, and whether they are the exact ones."""
    away = max(abs(value - 1) / error for value, error in zip(of.variances, of.errors, strict=True))
    is_off = away > _SIGMAS
    return f"{_variances(of)}, " + (f"{away:.0f} standard errors from 1" if is_off else "no visible difference from 1")
