"""The draws as a person would name them: coefficients by column, standard deviations and not their logs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallchain.checking.convergence import Parameter, parameters_of
from tallchain.checking.trace import Trace
from tallchain.models import Regression
from tallchain.models.layout import COEFFICIENTS, Term
from tallchain.names import coordinates
from tallchain.report.facts import Kind, ParameterFact

_LOG = "log_"


class Variable(NamedTuple):
    """An array of draws."""

    name: str
    leaf: str
    """Its name in the position, where it may be a log."""
    draws: np.ndarray
    """(chain, draw, ...)."""
    labels: tuple[str, ...]
    """Of its entries, flat."""
    kind: Kind = "coefficient"
    term: str = ""
    levels: tuple[str, ...] = ()
    """Of the groups, for effects."""

    @property
    def flat(self) -> np.ndarray:
        """(chain, draw), or (chain, draw, label)."""
        return self.draws if self.draws.ndim == 2 else self.draws.reshape(*self.draws.shape[:2], -1)

    def parameters(self) -> list[ParameterFact]:
        """Summarise every entry."""
        found = parameters_of(list(self.labels), self.draws)
        levels = self.levels or ("",) * len(found)
        return [_fact(each, self.kind, self.term, level) for each, level in zip(found, levels, strict=True)]


def variables_of(model: Regression | None, trace: Trace, outcome_levels: tuple[str, ...] = ()) -> list[Variable]:
    """Return the draws by name: of a regression its coefficients first, and group effects last.

    Args:
        model: None for own functions.
        trace: the draws.
        outcome_levels: labels of the outcome, for a family with coefficients for each level but the first.
    """
    if model is None:
        return [Variable(name, name, draws, _labels(trace, name, draws)) for name, draws in trace.variables().items()]
    draws = trace.variables()
    layout = model.layout
    found = [coefficients_of(model, trace, outcome_levels)]
    found += [_shared(name, draws[name]) for name in layout.shared]
    for term in layout.terms:
        name = f"sd({term.name})"
        found.append(Variable(name, term.log_sd, np.exp(draws[term.log_sd]), (name,), "group sd", term.name))
    found += [_hyper(name, draws[name]) for name in layout.hyper]
    return found + [_effects(model, term, draws[term.name]) for term in layout.terms]


def check_names(call: str, model: Regression) -> None:
    """Refuse a group or a feature that is called as a scale or a shape is: one would hide the other."""
    layout = model.layout
    taken = {name.removeprefix(_LOG): "a parameter of the family" for name in layout.shared}
    taken |= {name.removeprefix(_LOG): "a scale of the prior" for name in layout.hyper}
    taken |= {f"sd({term.name})": "the standard deviation of effects" for term in layout.terms}
    groups = [("group", term.name, "") for term in layout.terms]
    features = [("column", name, f", or write `I({name})` in a formula") for name in coefficient_names(model)]
    for what, name, otherwise in (*groups, *features):
        if name in taken:
            or_so = otherwise if name.isidentifier() else ""
            raise ValueError(f"`{call}`: {taken[name]} is called {name!r} too; rename the {what}{or_so}.")


def coefficients_of(model: Regression, trace: Trace, outcome_levels: tuple[str, ...] = ()) -> Variable:
    """Return the draws of the coefficients, which may be all there is."""
    draws = trace.variables()
    leaf = next(iter(draws)) if model.layout.is_vector else COEFFICIENTS
    return Variable(COEFFICIENTS, leaf, draws[leaf], _coefficient_names(model, outcome_levels))


def coefficient_names(model: Regression) -> tuple[str, ...]:
    """Names of the features, the intercept first if there is one; x0, x1 and so on where nobody named them."""
    if model.names is not None:
        return model.names
    first = ("(intercept)",) if model.layout.has_intercept else ()
    return (*first, *(f"x{j}" for j in range(model.layout.num_features - len(first))))


def _coefficient_names(model: Regression, outcome_levels: tuple[str, ...]) -> tuple[str, ...]:
    names, count = coefficient_names(model), model.layout.num_linear
    if count == 1:
        return names
    levels = outcome_levels[1:] or tuple(f"level {level}" for level in range(1, count + 1))
    return tuple(f"{level}: {name}" for level in levels for name in names)


def _shared(name: str, draws: np.ndarray) -> Variable:
    """Scales and shapes instead of their logs."""
    if name.startswith(_LOG):
        plain = name.removeprefix(_LOG)
        return Variable(plain, name, np.exp(draws), (plain,), "shared")
    return Variable(name, name, draws, (name,), "shared")


def _hyper(name: str, draws: np.ndarray) -> Variable:
    plain = name.removeprefix(_LOG)
    labels = coordinates(plain, draws.shape[2:], {})
    return Variable(plain, name, np.exp(draws), tuple(labels), "prior scale")


def _effects(model: Regression, term: Term, draws: np.ndarray) -> Variable:
    levels = tuple(map(str, list(model.levels.values())[term.factor].tolist()))
    labels = tuple(f"{term.name}[{level}]" for level in levels)
    return Variable(term.name, term.name, draws, labels, "group effect", term.name, levels)


def _labels(trace: Trace, name: str, draws: np.ndarray) -> tuple[str, ...]:
    return tuple(coordinates(name, draws.shape[2:], trace.names))


def _fact(of: Parameter, kind: Kind, term: str, level: str) -> ParameterFact:
    numbers: dict[str, Any] = {name: getattr(of, name) for name in ("mean", "sd", "q5", "median", "q95")}
    return ParameterFact(
        of.name,
        **numbers,
        mcse=of.mcse_mean,
        ess_bulk=of.ess_bulk,
        ess_tail=of.ess_tail,
        r_hat=of.r_hat,
        kind=kind,
        term=term,
        level=level,
    )
