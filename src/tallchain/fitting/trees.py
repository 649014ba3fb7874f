"""Draws as an xarray DataTree, by the names of columns and groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from tallchain.checking.trace import Trace
from tallchain.fitting.variables import coefficient_names, variables_of
from tallchain.models import Regression
from tallchain.models.layout import COEFFICIENTS
from tallchain.report.facts import Facts

_TAKEN = ("chain", "draw", "coefficient", "predictor", "accepted", "rows_read", "rows_scanned", "log_ratio", "invalid")
_TAKEN += (".", "..")  # which HDF5 does not take


def datatree(model: Regression | None, trace: Trace, facts: Facts) -> Any:
    """Return the tree; the posterior has the position as it was sampled, and standard deviations beside their logs."""
    if model is None:
        names = file_names((), trace.variables(), trace.extras)
        position = {names[name]: draws for name, draws in trace.variables().items()}
        labels = {names[name]: of for name, of in trace.names.items()}
        return _with_attributes(dataclasses.replace(trace, position=position, names=labels).to_datatree(), facts)
    position = raw_position(model, trace)
    more = {each.name: each.draws for each in variables_of(model, trace) if each.name not in position}
    names = file_names(model.levels, [*position, *more], trace.extras)
    coords, dims = _dimensions(model, names)
    named = dataclasses.replace(trace, position={names[name]: of for name, of in (position | more).items()}, names={})
    return _with_attributes(named.to_datatree(coords, dims), facts)


def raw_position(model: Regression, trace: Trace) -> dict[str, np.ndarray]:
    """Return the draws of the position by name."""
    draws = trace.variables()
    return {COEFFICIENTS: next(iter(draws.values()))} if model.layout.is_vector else dict(draws)


def file_names(factors: Iterable[str], names: Iterable[str], extras: Iterable[str]) -> dict[str, str]:
    """Return what variables are called in a file: not as its dimensions and statistics are, nor as groups of it."""
    taken = {*_TAKEN, *extras, *(_dimension(factor) for factor in factors)}
    return {name: f"{_plain(name)} (draws)" if _plain(name) in taken else _plain(name) for name in names}


def _plain(name: str) -> str:
    return name.replace("/", "\N{DIVISION SLASH}")  # a slash would make a group


def _dimension(factor: str) -> str:
    return f"{_plain(factor)}_level"


def _dimensions(model: Regression, names: dict[str, str]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Labels by dimension, and dimensions by variable."""
    layout = model.layout
    coords: dict[str, Any] = {"coefficient": list(coefficient_names(model))}
    dims = {COEFFICIENTS: ["coefficient"]}
    if layout.num_linear > 1:
        coords["predictor"] = list(range(1, layout.num_linear + 1))
        dims[COEFFICIENTS] = ["predictor", "coefficient"]
    for term in layout.terms:
        factor = list(model.levels)[term.factor]
        dimension = _dimension(factor)
        coords[dimension] = [str(level) for level in model.levels[factor].tolist()]
        dims[names[term.name]] = [dimension]
    return coords, dims


def _with_attributes(tree: Any, facts: Facts) -> Any:
    """Add what a reader of the file wants to know."""
    trust, audited = facts.trust, facts.trust.audited_error
    attributes: dict[str, Any] = {
        "inference_library": "tallchain",
        "inference_library_version": facts.versions.get("tallchain", ""),
        "formula": facts.formula or "",
        "exact": int(trust.is_exact),
        "rows_read": facts.reading.total,
    }
    attributes |= {} if audited is None else {"audited_error": audited}
    attributes |= {f"seconds_{stage.name.replace(' ', '_')}": stage.seconds for stage in facts.stages}
    tree["posterior"].attrs.update(attributes)
    return tree
