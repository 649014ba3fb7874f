"""Regressions without their rows, as plain JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallchain.models.design import Design
from tallchain.models.families.by_name import from_json, to_json
from tallchain.models.groups import Coded
from tallchain.models.layout import Term
from tallchain.models.priors import Flat, Horseshoe, Normal, Prior, StudentT, log_prior_of
from tallchain.models.regression import Regression, assemble

_PRIORS = {kind.__name__: kind for kind in (Normal, Flat, StudentT, Horseshoe)}


def model_to_json(model: Regression) -> dict[str, Any]:
    """Return all but the rows."""
    layout, log_prior = model.layout, log_prior_of(model.posterior)
    return {
        "family": to_json(model.family),
        "num_features": layout.num_features,
        "intercept": layout.has_intercept,
        "names": None if model.names is None else list(model.names),
        "terms": [[term.name, term.factor, term.slope, term.num_levels] for term in layout.terms],
        "levels": {name: labels.tolist() for name, labels in model.levels.items()},
        "prior": {
            "coefficients": _prior_to_json(log_prior.prior.coefficients),
            "intercept": _prior_to_json(log_prior.prior.intercept),
            "group_sd": log_prior.prior.group_sd,
        },
        "centres": list(map(float, log_prior.centres)),
        "has_offset": "offset" in model.data,
        "outcome_width": int(np.size(model.data["y"][0])),
        "temperature": float(model.posterior.temperature),
    }


def _prior_to_json(prior: Any) -> dict[str, Any]:
    return {"kind": type(prior).__name__} | vars(prior)


def model_from_json(found: dict[str, Any], *, prior: Prior | None = None, best: np.ndarray | None = None) -> Regression:
    """Make the regression again, with one empty row in place of its own.

    `prior` and `best`, predictors to start from, are in place of those that it had and of zeros.
    """
    family = from_json(found["family"])
    levels = {name: np.asarray(labels) for name, labels in found["levels"].items()}
    terms = tuple(Term(name, factor, slope, count) for name, factor, slope, count in found["terms"])
    slopes = sum(term.slope is not None for term in terms)
    coded = Coded(
        np.zeros((1, len(levels)), np.int32) if levels else None,
        np.zeros((1, slopes), np.float32) if slopes else None,
        terms,
        levels,
    )
    width = found["outcome_width"]
    names = None if found["names"] is None else tuple(found["names"])
    x, y = np.zeros((1, found["num_features"]), np.float32), np.zeros((1, width)[: 1 + (width > 1)], np.float32)
    extra = {"offset": np.zeros(1, np.float32)} if found["has_offset"] else {}
    if prior is None:
        of = found["prior"]
        prior = Prior(_prior_from_json(of["coefficients"]), _prior_from_json(of["intercept"]), of["group_sd"])
    best = np.array([0.0] * family.num_linear + list(found["centres"])) if best is None else best
    options: dict[str, Any] = {"intercept": found["intercept"], "temperature": found["temperature"]}
    model = object.__new__(Regression)
    return assemble(model, family, Design({"x": x, "y": y}, names), coded, extra, prior, best, **options)


def _prior_from_json(found: dict[str, Any]) -> Any:
    return _PRIORS[found["kind"]](**{name: value for name, value in found.items() if name != "kind"})
