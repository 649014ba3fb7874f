"""A regression in words and as an equation."""

from __future__ import annotations

from typing import Any

from tallchain.fitting.variables import coefficient_names
from tallchain.models import Regression
from tallchain.models.families import (
    Bernoulli,
    Binomial,
    Categorical,
    Family,
    Gamma,
    Gaussian,
    NegativeBinomial,
    Ordinal,
    Poisson,
    StudentT,
    Weibull,
)
from tallchain.models.layout import Layout, Term
from tallchain.models.priors import Flat, Horseshoe, Normal, log_prior_of
from tallchain.models.priors import StudentT as StudentTPrior

_MOST_NAMED = 12  # coefficients in an equation


def family_words(family: Family) -> str:
    """Say what outcomes are, such as "Bernoulli outcomes, logit link"."""
    said: dict[type, Any] = {
        Bernoulli: lambda of: f"Bernoulli outcomes (0 or 1), {of.link} link",
        Binomial: lambda of: f"binomial outcomes (successes of a number of trials), {of.link} link",
        Poisson: lambda of: "Poisson counts, log link",
        NegativeBinomial: lambda of: "negative binomial counts, log link",
        Gaussian: lambda of: "normal outcomes" if of.sd is None else f"normal outcomes with sd {of.sd:g}",
        StudentT: lambda of: "Student t outcomes" + ("" if of.nu is None else f" with {of.nu:g} degrees of freedom"),
        Gamma: lambda of: "gamma outcomes, log link",
        Weibull: lambda of: "Weibull times, perhaps censored, log link",
        Categorical: lambda of: f"outcomes of {of.levels} levels without order, softmax link",
        Ordinal: lambda of: f"outcomes of {of.levels} levels in order, logit link",
    }
    return said[type(family)](family) if type(family) in said else repr(family)


def model_words(model: Regression, outcome: str, num_rows: int | None = None) -> str:
    """Say in a sentence or two what is explained by what; of a packed table the model has only some rows."""
    num_rows = len(model.data["y"]) if num_rows is None else num_rows
    layout = model.layout
    count = layout.num_features - layout.has_intercept
    features = "no features" if not count else "one feature" if count == 1 else f"{count:,} features"
    parts = [features, *(_term_words(layout, term) for term in layout.terms)]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    said = (
        f"A regression of {outcome or 'the outcome'} on {listed}, over {num_rows:,} rows: {family_words(model.family)}."
    )
    return said + (" Rows are weighted." if "weight" in model.data else "")


def _term_words(layout: Layout, term: Term) -> str:
    factor, slope = parts_of(layout, term)
    what = f"a slope of {slope}" if slope else "an effect"
    return f"{what} for each of {term.num_levels:,} levels of {factor}"


def parts_of(layout: Layout, term: Term) -> tuple[str, str]:
    """Return the name of the factor, and of the feature if the term is a slope; either may have colons."""
    factor = next(each.name for each in layout.terms if each.factor == term.factor and each.slope is None)
    return factor, term.name.removeprefix(factor).removeprefix(":")


_RIGHT: dict[type, str] = {
    Bernoulli: "Bernoulli(F(z_i))",
    Binomial: "binomial(size_i, F(z_i))",
    Poisson: "Poisson(exp(z_i))",
    NegativeBinomial: "negative binomial(mean exp(z_i), shape)",
    Gaussian: "N(z_i, noise_sd²)",
    StudentT: "z_i + noise_sd · t(nu)",
    Gamma: "gamma(mean exp(z_i), shape)",
    Weibull: "Weibull(scale exp(z_i), shape)",
    Categorical: "softmax(0, z_i1, z_i2, …)",
    Ordinal: "level k where cutpoint k-1 < z_i + logistic noise ≤ cutpoint k",
}


def equation(model: Regression, outcome: str) -> tuple[str, ...]:
    """Return the model as lines of plain text."""
    layout = model.layout
    names = coefficient_names(model)
    linear = ["a" if name == "(intercept)" else f"β[{name}]·{name}_i" for name in names]
    if len(linear) > _MOST_NAMED:
        linear = [*linear[: _MOST_NAMED - 1], "…", linear[-1]]
    for term in layout.terms:
        factor, slope = parts_of(layout, term)
        linear.append(f"u[{factor}_i]" if not slope else f"w[{factor}_i]·{slope}_i")
    if "offset" in model.data:
        linear.append("offset_i")
    lines = [
        f"{outcome or 'y'}_i ~ {_RIGHT.get(type(model.family), repr(model.family))}",
        f"z_i = {' + '.join(linear) or '0'}",
    ]
    lines += [f"{'u' if term.slope is None else 'w'}[{term.name}] ~ N(0, sd({term.name})²)" for term in layout.terms]
    return tuple(lines)


def prior_words(model: Regression) -> tuple[str, ...]:
    """Say each prior in a line."""
    log_prior = log_prior_of(model.posterior)
    prior, layout = log_prior.prior, model.layout
    lines = []
    if layout.num_features > layout.has_intercept:
        lines.append(f"coefficients: {_one(prior.coefficients)}")
    if layout.has_intercept:
        lines.append(f"intercept: {_one(prior.intercept)}")
    lines += [f"{name}: N({centre:.4g}, 3²)" for name, centre in zip(layout.shared, log_prior.centres, strict=True)]
    lines += [f"sd({term.name}): half-normal, scale {prior.group_sd:.4g}" for term in layout.terms]
    return tuple(lines)


def _one(prior: Any) -> str:
    match prior:
        case Normal():
            return f"N({prior.mean:.4g}, {prior.sd:.4g}²)"
        case StudentTPrior():
            return f"Student t with {prior.df:g} degrees of freedom, scale {prior.scale:.4g}"
        case Horseshoe():
            return f"regularised horseshoe, global scale {prior.scale:.4g}, slab {prior.slab_scale:.4g}"
        case Flat():
            return "flat"
    return repr(prior)
