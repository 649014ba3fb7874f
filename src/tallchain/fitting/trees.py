"""Draws as an xarray DataTree, by the names of columns and groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from tallchain.checking.trace import Trace
from tallchain.fitting.variables import coefficient_names, variables_of
from tallchain.keys import make_key
from tallchain.models import Regression
from tallchain.models.layout import COEFFICIENTS
from tallchain.report.facts import Facts

_TAKEN = ("chain", "draw", "coefficient", "predictor", "accepted", "rows_read", "rows_scanned", "log_ratio", "invalid")
_TAKEN += ("acceptance_rate", "row", ".", "..")  # which HDF5 does not take
_PREDICTED = 200  # draws of the parameters


def datatree(
    model: Regression | None,
    trace: Trace,
    facts: Facts,
    predictive: int = 0,
    coords: dict[str, Any] | None = None,
    dims: dict[str, list[str]] | None = None,
) -> Any:
    """Return the tree; the posterior has the position as it was sampled, and standard deviations next to their logs.

    With `predictive` there are outcomes drawn for that many rows, and those observed.
    """
    tree = _draws(model, trace, facts, coords or {}, dims or {})
    if predictive and model is not None and "weight" not in model.data and len(model.data["x"]) > 1:
        for group, of in _predictive(model, trace, facts, predictive).items():
            tree[group] = of
    return tree


def _predictive(model: Regression, trace: Trace, facts: Facts, count: int) -> dict[str, Any]:
    """Outcomes of some rows, spread over all: drawn, one for each of some draws of the parameters, and observed."""
    from arviz_base import from_dict

    num_rows = len(model.data["x"])
    rows = np.unique(np.linspace(0, num_rows - 1, min(count, num_rows)).astype(int))
    key, name = make_key(facts.seed or 0), _plain(facts.outcome or "y")
    drawn = model.predict(trace, rows=rows, key=key, draws=True, max_draws=_PREDICTED).draws
    assert drawn is not None
    observed, dims = model.data["y"][rows], ["row", *(f"part_{k}" for k in range(1, model.data["y"].ndim))]
    groups = {"posterior_predictive": {name: drawn[None]}, "observed_data": {name: observed}}
    of_outcome = {name: dims if drawn[0].ndim == len(dims) else dims[:1]}
    made = from_dict(groups, coords={"row": rows}, dims=of_outcome)
    return {group: made[group] for group in groups}


def _draws(
    model: Regression | None, trace: Trace, facts: Facts, coords: dict[str, Any], dims: dict[str, list[str]]
) -> Any:
    if model is None:
        names = file_names((), trace.variables(), trace.extras)
        position = {names[name]: draws for name, draws in trace.variables().items()}
        labels = {names[name]: of for name, of in trace.names.items()}
        named = dataclasses.replace(trace, position=position, names=labels)
        return _with_attributes(named.to_datatree(coords, _renamed(dims, names)), facts)
    position = raw_position(model, trace)
    more = {each.name: each.draws for each in variables_of(model, trace) if each.name not in position}
    names = file_names(model.levels, [*position, *more], trace.extras)
    own_coords, own_dims = _dimensions(model, names)
    named = dataclasses.replace(trace, position={names[name]: of for name, of in (position | more).items()}, names={})
    return _with_attributes(named.to_datatree(own_coords | coords, own_dims | _renamed(dims, names)), facts)


def _renamed(dims: dict[str, list[str]], names: dict[str, str]) -> dict[str, list[str]]:
    return {names.get(name, name): of for name, of in dims.items()}


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
    audited = facts.trust.audited_error
    attributes: dict[str, Any] = {"formula": facts.formula or ""}
    attributes |= {} if audited is None else {"audited_error": audited}
    own = {stage.name: stage.seconds for stage in facts.stages if stage.name in ("reading the data", "preparing")}
    attributes |= {f"seconds_{name.partition(' ')[0]}": seconds for name, seconds in own.items()}
    tree["posterior"].attrs.update(attributes)
    return tree
