"""A posterior whose likelihood factorises over rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tallchain.checks import position_of
from tallchain.coordinates import coordinates_of
from tallchain.functions import Function, as_function
from tallchain.models.constrained import Constraints
from tallchain.parts import is_part, part, set_fields, static
from tallchain.types import Array, PyTree
from tallchain.validation import brief, is_positive, is_traced


@part
class Posterior:
    """log p(t | x) = log p0(t) + (1/K) sum_i log p(x_i | t) + constant.

    Args:
        log_prior: log p0(position), a scalar.
        log_likelihood: log p(row | position) for ONE row, a scalar; rows and positions are arbitrary pytrees.
        temperature: K; 1 is the Bayesian posterior, larger K flattens the likelihood.
        names: labels for the entries of a position that is a vector, or labels by name for some vectors of a dict or
            record; summary, audit and DataTree use them.
        constraints: what parameters may be, by name, such as `{"sigma": positive, "p": unit_interval}` (see
            `tallchain.models.constraints`); one constraint for a position that is one array.

    With constraints your functions take parameters as you know them, and so do `prepare`, `fit` and `sample`, which
    return them, too. The sampler itself works in coordinates without limits, and so do the fields `log_prior`, with
    log |det| of the Jacobian, and `log_likelihood`, and all parts of a kernel put together by hand; `constrain` and
    `unconstrain` convert.

    Programs are compiled once for each `Posterior`. Make a new one after changing a global that its functions read.
    """

    log_prior: Callable[[PyTree], Array]
    log_likelihood: Callable[[PyTree, PyTree], Array] = static()
    temperature: Array | float = 1.0
    names: Any = static(())
    constraints: Any = static(())

    def __post_init__(self) -> None:
        functions = {name: _function(name, getattr(self, name)) for name in ("log_prior", "log_likelihood")}
        if not is_traced(self.temperature) and not is_positive(self.temperature):
            raise ValueError(
                "`Posterior(temperature=...)` must be a positive number, 1 for the posterior itself; "
                f"got {self.temperature!r}."
            )
        coordinates = Constraints.of(self.constraints)
        for name, function in functions.items():
            made = Constraints.own(function) if coordinates is None else getattr(coordinates, name)(function)
            if is_traced(self.temperature) and isinstance(made, Function):
                made.handle.keep()
            set_fields(self, **{name: made})
        set_fields(self, names=_labelled(self.names), constraints=coordinates or ())

    def constrain(self, position: PyTree) -> PyTree:
        """Return the parameters at a position of the sampler."""
        coordinates = coordinates_of(self)
        return position if coordinates is None else coordinates.constrain(position)

    def unconstrain(self, parameters: PyTree) -> PyTree:
        """Return the position of the sampler for parameters; refuse those that violate their constraints."""
        return position_of("posterior.unconstrain(parameters)", self, parameters)


def _function(name: str, function: Any) -> Any:
    if not callable(function):
        raise TypeError(f"`Posterior({name}=...)` must be a function; got {type(function).__name__}.")
    return function if is_part(function) else as_function(function)  # a part's numbers are no constants of programs


def _labelled(names: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return labels by name of the vector, as pairs: the structure of a part must be hashable."""
    given = [("position", names)]
    if isinstance(names, Mapping):
        given = list(names.items())
    elif isinstance(names, tuple) and all(isinstance(pair, tuple) for pair in names):  # as this function returns them
        given = list(names)
    labels = tuple((name, tuple(of.tolist() if hasattr(of, "tolist") else of)) for name, of in given if _is_list(of))
    if len(labels) < len(given) or not all(isinstance(label, str) for _, of in labels for label in of):
        raise TypeError(
            '`Posterior(names=...)` must be the labels of a vector, such as ("age", "height"), or a dict of them such '
            f'as {{"slopes": ("age", "height")}}; got {brief(names)}.'
        )
    return labels


def _is_list(labels: Any) -> bool:
    return isinstance(labels, list | tuple) or getattr(labels, "ndim", 0) == 1  # arrays, the columns of a frame
