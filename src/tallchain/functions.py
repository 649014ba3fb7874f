"""Users' functions as static fields of parts, and the programs compiled for them.

JAX looks up a compiled program by the static fields of its arguments. The same function gives another program once a
global variable it reads has changed, so a function alone does not identify a program.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

_JAXLIB = tuple(map(int, version("jaxlib").split(".")[:2]))
# XLA's older way to write loops for a CPU takes two thirds of the time, or a third where nothing is optimised. It is
# used where it was tried: an option that a later version does not know would be an error.
SOON: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False} if (0, 9) <= _JAXLIB <= (0, 10) else {}
"""Compiler options of programs that do not run for long: up to a sixth slower; log ratios may be rounded otherwise."""
QUICKLY = SOON | {"xla_backend_optimization_level": 0}
"""Compiler options of programs that run once and do little: compiling them takes longer than running them."""


class Handled:
    """What a part may hold as a static field without JAX's caches keeping it: see `Handle`."""

    def __init__(self) -> None:
        self.handle = Handle(self)


class Function(Handled):
    """A user's function: equal only to itself, and traced with full precision in matrix products.

    A part makes a new one for every function it is given. The next part sees a changed global, and the same part finds
    its programs again. By default a GPU rounds the float32 factors of a product to 10 bits (TF32).
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.programs: dict[Program, Any] = {}
        """Programs compiled for it; they are released with it."""
        super().__init__()

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
    """Stands for an object in the structure of a pytree: JAX's caches keep the structure, but not the object.

    If a part is made inside `jit`, `vmap` and the like, only its structure comes out: then the handle keeps the
    object.
    """

    def __init__(self, held: Any) -> None:
        self._held = weakref.ref(held)
        self._kept = held if isinstance(jax.device_put(0), Tracer) else None

    def keep(self) -> None:
        """Keep the object."""
        self._kept = self.get()

    def get(self) -> Any:
        """Return the object."""
        held = self._held()
        if held is None:
            raise RuntimeError(
                "The function of a posterior, bound or schedule, or the rows of a source, are gone: only the structure "
                "of the pytree that held them was kept. Keep the object itself."
            )
        return held


jax.tree_util.register_pytree_node(Function, lambda of: ((), of.handle), lambda handle, _: handle.get())


@functools.lru_cache
def shared(function: Callable[..., Any]) -> Function:
    """One `Function` for every use of a function that reads only its arguments: programs are shared."""
    return Function(function)


def as_function(function: Any) -> Any:
    """Wrap a function; return a `Function`, or what cannot be called, unchanged."""
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

    def trace(self, first: Any, *arguments: Any, **named: Any) -> Any:
        """As `jax.jit(...).trace`: to compile ahead."""
        return self._of(first).trace(first, *arguments, **named)

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


def calls_lapack(traced: Any) -> bool:
    """Whether a traced program has matrix decompositions, of which a CPU should not do a batch.

    jaxlib divides a batch of them among the threads of XLA and waits for these. Two batches at once, of one program or
    of two, can take all threads to wait, for ever: seen on two cores with a few lines of JAX alone.
    """
    return jax.default_backend() == "cpu" and _has(traced.jaxpr, _DECOMPOSITIONS)


_DECOMPOSITIONS = frozenset(
    ("cholesky", "cholesky_update", "eig", "eigh", "geqrf", "hessenberg", "householder_product", "lu", "ormqr", "qr")
) | {"schur", "svd", "triangular_solve", "tridiagonal"}


def _has(tree: Any, names: frozenset[str]) -> bool:
    """Whether an equation of a program, or of one within it, has one of these names."""
    inner = getattr(tree, "jaxpr", tree)  # that of a closed one
    if hasattr(inner, "eqns"):
        return any(each.primitive.name in names or _has(list(each.params.values()), names) for each in inner.eqns)
    return isinstance(tree, list | tuple) and any(_has(each, names) for each in tree)
