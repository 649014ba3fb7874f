"""Users' functions as static fields of parts, and the programs compiled for them.

JAX looks a compiled program up by the static fields of its arguments. The same function gives another program once a
global it reads has changed, so a function by itself is no name for a program.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer


class Function:
    """A user's function: equal to itself alone, and traced with every digit of a matrix product.

    A part makes a new one of every function it is given. A changed global is seen by the next part, and the same part
    finds its programs again. By default a GPU rounds the float32 factors of a product to 10 bits (TF32).
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.programs: dict[Program, Any] = {}
        """Compiled for it; they go when it goes."""
        self.handle = Handle(self)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function; a plain number that it returns becomes a float."""
        with jax.default_matmul_precision("highest"):
            value = self.function(*arguments)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return jnp.asarray(value, jnp.result_type(float)) if is_number else value

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", None)
        return repr(self.function) if name is None else name

    def __deepcopy__(self, memo: dict[int, Any]) -> Function:
        return self  # as functions are

    def __reduce__(self) -> tuple[Any, ...]:
        return (shared if shared(self.function) is self else Function), (self.function,)


class Handle:
    """Stands for a `Function` in the structure of a pytree, which JAX's caches keep: they do not keep the function.

    Of a part made inside `jit`, `vmap` and the like nothing but the structure comes out: there it does keep it.
    """

    def __init__(self, function: Function) -> None:
        self._function = weakref.ref(function)
        self._kept = function if isinstance(lax.full((), 0), Tracer) else None

    def keep(self) -> None:
        """Keep the function."""
        self._kept = self.get()

    def get(self) -> Function:
        """Return the function."""
        function = self._function()
        if function is None:
            raise RuntimeError(
                "The function of a posterior, bound or schedule is gone: only the structure of the pytree that held it "
                "was kept. Keep the object itself."
            )
        return function


@functools.lru_cache
def shared(function: Callable[..., Any]) -> Function:
    """One `Function` for all who give this function, which reads nothing but its arguments: programs are shared."""
    return Function(function)


def as_function(function: Any) -> Any:
    """Wrap a function; leave what is one already, and what cannot be called, as it is."""
    return Function(function) if callable(function) and not isinstance(function, Function) else function


class Program:
    """As `jax.jit`, for a function whose first argument may have a `log_likelihood`: each has its own programs."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._others = self._compiled()

    def __call__(self, first: Any, *arguments: Any, **named: Any) -> Any:
        """Call the function, compiled."""
        return self._of(first)(first, *arguments, **named)

    def lower(self, first: Any, *arguments: Any, **named: Any) -> Any:
        """As `jax.jit(...).lower`: to compile ahead."""
        return self._of(first).lower(first, *arguments, **named)

    def _of(self, first: Any) -> Any:
        owner = getattr(first, "log_likelihood", None)
        if not isinstance(owner, Function):
            return self._others
        if self not in owner.programs:
            owner.programs[self] = self._compiled()
        return owner.programs[self]

    def _compiled(self) -> Any:
        @functools.wraps(self._function)
        def again(*arguments: Any, **named: Any) -> Any:  # JAX keeps programs by the function compiled
            return self._function(*arguments, **named)

        return jax.jit(again, **self._options)


def program(**options: Any) -> Callable[[Callable[..., Any]], Program]:
    """Make a `Program` of a function; options are those of `jax.jit`."""
    return lambda function: Program(function, options)
