"""Parts of a regression that do not go together."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallchain.models.collinear import check_columns, check_separation
from tallchain.models.design import Design, few
from tallchain.models.families import Bernoulli, Binomial, Categorical, Family, NegativeBinomial, Ordinal, Poisson
from tallchain.models.groups import Coded, check_names
from tallchain.models.priors import LOG_GLOBAL, LOG_LOCAL, LOG_SLAB, Flat, Horseshoe, Prior
from tallchain.validation import check_switch


def hyper_of(prior: Prior) -> tuple[str, ...]:
    """Return the names of what only the prior of the coefficients depends on."""
    return (LOG_LOCAL, LOG_GLOBAL, LOG_SLAB) if isinstance(prior.coefficients, Horseshoe) else ()


def intercept_of(call: str, family: Family, intercept: bool | None, x: Any) -> bool:
    """Return whether there is an intercept; None for what suits the family."""
    has = family.takes_intercept if intercept is None else check_switch(call, "intercept", intercept)
    if has and not family.takes_intercept:
        raise ValueError(
            f"`{call}(intercept=True)`: {family!r} has numbers in place of an intercept ({', '.join(family.shared)}), "
            "and only the difference to them would be determined. Leave `intercept` out."
        )
    if x is None and not has:
        raise ValueError(f"`{call}(x=None)`: without an intercept there must be a feature; give `x`.")
    return has


def check_parts(
    call: str,
    family: Family,
    made: Design,
    coded: Coded,
    weight: np.ndarray | None,
    prior: Prior,
    intercept: bool,
) -> None:
    """Refuse what the likelihood, the prior and the data would leave without an answer."""
    x, y = made.data["x"], made.data["y"]
    if weight is not None and not np.all(weight):  # rows that do not count determine nothing
        x, y = x[weight > 0], y[weight > 0]
    if family.num_linear > 1 and coded.terms:
        raise ValueError(
            f"`{call}(groups=...)` needs a family with one linear predictor; {family!r} has {family.num_linear}."
        )
    check_names(call, coded.terms, (*family.shared, *hyper_of(prior)))
    if isinstance(family, Categorical | Ordinal):
        _check_levels(call, family, y)
    if isinstance(prior.coefficients, Horseshoe) and x.shape[1] == intercept:
        raise ValueError(
            f"`{call}(x=None, prior=...)`: a horseshoe prior is of the coefficients of features, and there are none. "
            "Give `x`, or another prior."
        )
    if (
        isinstance(prior.intercept, Flat)
        and intercept
        and isinstance(family, Poisson | NegativeBinomial)
        and not y.any()
    ):
        raise ValueError(
            f"`{call}(y=..., prior=...)`: all counts are 0, and the intercept has a flat prior: it would fall without "
            "end. Give it a proper prior such as priors.Normal(10.0)."
        )
    if isinstance(prior.coefficients, Flat):
        check_columns(call, x, made.names, has_intercept=intercept)
    if isinstance(family, Bernoulli | Binomial):
        ones, zeros = (y[:, 0] > 0, y[:, 1] > y[:, 0]) if isinstance(family, Binomial) else (y > 0, y == 0)
        is_free = isinstance(prior.intercept, Flat)
        x = x if isinstance(prior.coefficients, Flat) else x[:, : int(intercept)]
        check_separation(call, x, ones, zeros, made.names, has_intercept=intercept, is_free=is_free)


def check_counted(call: str, family: Family, outcomes: np.ndarray, weight: np.ndarray | None) -> None:
    """Refuse outcomes that are right only together with those of weight 0."""
    if weight is None or np.all(weight):
        return
    try:
        family.outcomes(call, outcomes[weight > 0])
    except ValueError as error:
        raise ValueError(f"{error} Rows of weight 0 do not count.") from None


def _check_levels(call: str, family: Categorical | Ordinal, y: np.ndarray) -> None:
    empty = np.flatnonzero(np.bincount(y.astype(np.int64), minlength=family.levels) == 0)
    if len(empty):
        raise ValueError(
            f"`{call}(y=...)`: {len(empty)} of the {family.levels} levels of {family!r} never occur: "
            f"{few(empty.tolist())}. Number the levels that occur from 0, and give the family their number."
        )
