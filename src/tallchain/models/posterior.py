"""A posterior whose likelihood factorises over rows."""

from __future__ import annotations

from collections.abc import Callable

from tallchain.functions import as_function
from tallchain.types import Array, PyTree, is_positive, is_traced, part, set_fields, static


@part
class Posterior:
    """log p(t | x) = log p0(t) + (1/K) sum_i log p(x_i | t) + constant.

    Args:
        log_prior: log p0(position), a scalar.
        log_likelihood: log p(row | position) for ONE row, a scalar; rows and positions are arbitrary pytrees.
        temperature: K; 1 is the Bayesian posterior, larger K flattens the likelihood.

    Programs are compiled for one `Posterior`. Make a new one after a change to a global that its functions read.
    """

    log_prior: Callable[[PyTree], Array] = static()
    log_likelihood: Callable[[PyTree, PyTree], Array] = static()
    temperature: Array | float = 1.0

    def __post_init__(self) -> None:
        for name in ("log_prior", "log_likelihood"):
            function = getattr(self, name)
            if not callable(function):
                raise TypeError(f"`Posterior({name}=...)` must be a function; got {type(function).__name__}.")
            function = as_function(function)
            if is_traced(self.temperature):
                function.handle.keep()
            set_fields(self, **{name: function})
        if not is_traced(self.temperature) and not is_positive(self.temperature):
            raise ValueError(
                "`Posterior(temperature=...)` must be a positive number, 1 for the posterior itself; "
                f"got {self.temperature!r}."
            )
