"""The pipeline on one page: the records that pass between the parts, and what each part promises.

A posterior meets a proposal; a source hands out rows; an acceptance test asks for rows and judges what they showed.
The parts do not know each other. They meet in `tallchain.kernel`, and only through the records below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar, dataclass_transform, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from tallchain.functions import Function, Handle

Array = jax.Array
PyTree = Any
RowFunction = Callable[[PyTree], Array]  # one row of the data -> one number
T = TypeVar("T")
_LONGEST_QUOTE = 200


# ---- parts: frozen dataclasses that are pytrees ------------------------------------------------


def static(default: Any = dataclasses.MISSING) -> Any:
    """Mark a field of a `part` as static: a function, a size or a name, not an array."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(static,))
def part(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass and a pytree; fields marked `static()` belong to its structure.

    Constructors check and prepare what the user gave them; JAX rebuilds parts with tracers inside. So rebuilding
    does not go through the constructor, which is what sets this apart from `jax.tree_util.register_dataclass`.
    """
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    fields = dataclasses.fields(cls)
    leaves = [f.name for f in fields if not f.metadata.get("static")]
    statics = [f.name for f in fields if f.metadata.get("static")]

    def flatten_with_keys(self: T) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in leaves]
        structure = (getattr(self, name) for name in statics)
        return children, tuple(value.handle if isinstance(value, Function) else value for value in structure)

    def unflatten(structure: tuple[Any, ...], children: Any) -> T:
        fixed = (value.get() if isinstance(value, Handle) else value for value in structure)
        values = zip([*statics, *leaves], [*fixed, *children], strict=True)
        return set_fields(object.__new__(cls), **dict(values))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten)
    return cls


def replace(of: T, /, **changes: Any) -> T:
    """Return a copy of a part with some fields changed, unchecked: values may be tracers."""
    return set_fields(object.__new__(type(of)), **vars(of) | changes)


def set_fields(of: T, /, **values: Any) -> T:
    """Fill the fields of a part under construction; parts are frozen once their constructor is done."""
    for name, value in values.items():
        object.__setattr__(of, name, value)
    return of


def is_traced(tree: Any) -> bool:
    """Whether some value is a tracer: inside `jit` or `vmap` shapes can be checked, values cannot."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def is_positive(value: Any) -> bool:
    """Whether a value is one positive finite number; anything else is not, whatever it is."""
    is_number = not isinstance(value, str | bool | None) and np.ndim(value) == 0
    return is_number and np.issubdtype(np.asarray(value).dtype, np.number) and bool(0 < value < np.inf)


def is_whole(value: Any, least: int) -> bool:
    """Whether a value is a whole number, at least so large; True and False are not numbers."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least


def brief(value: Any) -> str:
    """Quote a value in an error: its repr, cut where that is long."""
    return cut(repr(value))


def cut(text: str) -> str:
    """Bring a long text onto one line, and cut it."""
    return text if len(text) <= _LONGEST_QUOTE else " ".join(text.split())[:_LONGEST_QUOTE] + " ..."


# ---- records -----------------------------------------------------------------------------------


def dot(a: Array, b: Array) -> Array:
    """a @ b with every digit of its type: by default a GPU may round float32 factors to 10 bits (TF32)."""
    return jnp.dot(a, b, precision=lax.Precision.HIGHEST)


class Population(NamedTuple):
    """What a test may know of the source: all of it static."""

    num_rows: int
    """N, the rows to sample from."""
    batch_size: int
    """Rows a test should ask for at a time when it has no wish of its own."""
    repeats: bool
    """Whether a row may come twice in one decision: then reading N rows is not reading all rows."""
    num_exact: int = 0
    """Rows beside the N that every decision reads: a test never sees them, the offset holds what they say."""

    num_data: int = 0
    """Rows of the data, if some are there to sample more than once, each for a part of a row; else 0."""

    @property
    def total(self) -> int:
        """Rows of the data."""
        return self.num_data or self.num_rows + self.num_exact


class Proposed(NamedTuple):
    """A candidate and log q(old | new) - log q(new | old)."""

    position: PyTree
    log_correction: Array | float


class Ask(NamedTuple):
    """What a test wants before it is asked again."""

    rows: Array | int
    """How many rows."""
    census: Array | bool = False
    """Every row once, in storage order, whatever the way the source samples (then `rows` is N)."""
    apart: Array | bool = False
    """Count these rows as scanned to set the test up, not as looked at by the test."""
    fresh: Array | bool = False
    """Forget the evidence first; rows already seen do not come again all the same."""
    exact: Array | bool = False
    """The last so many of the rows that every decision reads. Asked by the kernel, never by a test."""


class Judgement(NamedTuple):
    """The test's answer: what it remembers, what it wants next, and whether and how it has decided."""

    memory: PyTree
    ask: Ask
    is_decided: Array | bool
    is_accepted: Array | bool


class Verdict(NamedTuple):
    """What one decision came to, and what it cost."""

    is_accepted: Array
    num_rows: Array
    """Rows looked at by the test: what the paper's tables count."""
    num_scanned: Array
    """Rows read beside them, for bounds or design."""
    log_ratio: Array
    """The estimate Delta* (exact after a full read) on which the decision fell."""
    is_invalid: Array
    """The log ratio was NaN or +inf, or the test could not decide, and the candidate was rejected for it."""
    extras: dict[str, Array]
    """What else the test reports, by name."""


# ---- what the parts promise --------------------------------------------------------------------


class Evidence(Protocol):
    """A small mergeable summary of the numbers per row seen so far; a record (NamedTuple) of arrays."""

    @property
    def mean(self) -> Array:
        """Mean of the numbers seen; not finite if one of them was not."""
        ...

    @classmethod
    def empty(cls) -> Any:
        """Return the summary of no rows."""
        ...

    def of(self, values: Array, is_valid: Array) -> Any:
        """Summarise one window; entries that are not valid do not count.

        Called on the evidence so far; a class method will do where it has no part in it.
        """
        ...

    def merge(self, other: Any) -> Any:
        """Summarise both."""
        ...


class Posterior(Protocol):
    """log p0(t) + (1/K) sum_i log p(x_i | t)."""

    @property
    def temperature(self) -> Array | float:
        """K."""
        ...

    @property
    def log_prior(self) -> Callable[[PyTree], Array]:
        """log p0(position)."""
        ...

    @property
    def log_likelihood(self) -> Callable[[PyTree, PyTree], Array]:
        """log p(row | position), for ONE row."""
        ...


class Proposal(Protocol):
    """A way to a candidate. `draw` makes the noise, `propose` uses it."""

    def check(self, position: PyTree) -> None:
        """Refuse a position it cannot move."""
        ...

    def draw(self, key: Array, position: PyTree) -> PyTree:
        """Draw all the randomness of one proposal; only the shapes of `position` may matter."""
        ...

    def propose(self, noise: PyTree, position: PyTree) -> Proposed:
        """Make the candidate."""
        ...


@runtime_checkable
class ScaledProposal(Proposal, Protocol):
    """A proposal whose scale a schedule may change."""

    def with_scale(self, scale: PyTree) -> Proposal:
        """Return the same proposal with another scale; may be a tracer."""
        ...


class AcceptanceTest(Protocol):
    """A rule that asks for rows until it can decide. It never sees a parameter, a model or a proposal.

    Three methods are welcome where they make sense. `report(memory, evidence, population)` gives numbers by name to
    keep with the verdict of a decision. The others are used by `tallchain.diagnostics.audit`: `chance(memory, evidence,
    population)` is the probability to accept given the rows on which the decision falls, for rules whose own noise has
    no part in how many rows they read; `exact_chance(log_ratio)` that of the test on all rows which the rule
    approximates.
    """

    @property
    def Evidence(self) -> Any:  # noqa: N802 (a class)
        """The `Evidence` record it wants its rows summarised in; a class attribute will do."""
        ...

    def appetite(self, population: Population) -> int:
        """Rows it usually wants between two judgements; sets the width of the source's windows."""
        ...

    def draw(self, key: Array) -> PyTree:
        """Draw all the randomness of one decision."""
        ...

    def open(self, noise: PyTree, offset: Array, bound: Array | None, population: Population) -> tuple[PyTree, Ask]:
        """Begin.

        `offset` is the part of the log ratio that no row contributes to. `bound` is at least the range (largest minus
        smallest) of the numbers per row, None where nobody gave one.
        """
        ...

    def judge(self, memory: PyTree, evidence: Any, population: Population) -> Judgement:
        """Judge, once the rows asked for have been read. Pure."""
        ...


class Surrogate(Protocol):
    """A control variate: a function q_i of the position for every row, of which the sum Q is known in closed form."""

    def check(self, position: PyTree) -> None:
        """Refuse a position that it has no values for."""
        ...

    def total(self, position: PyTree, candidate: PyTree) -> Array:
        """Q(t') - Q(t), over ALL rows."""
        ...

    def row_difference(self, position: PyTree, candidate: PyTree) -> RowFunction:
        """Return the function of a row q_i(t') - q_i(t)."""
        ...


class Source(Protocol):
    """Rows, in a random order that is new for every decision."""

    @property
    def population(self) -> Population:
        """Say how many rows there are and how they come."""
        ...

    def width(self, appetite: int) -> int:
        """Rows to read at one look for a test that wants `appetite` rows between judgements."""
        ...

    def first_rows(self, count: int) -> PyTree:
        """Some rows to check a likelihood with."""
        ...

    def draw(self, key: Array) -> PyTree:
        """Draw all the randomness of the row order of one decision."""
        ...

    def start(self, noise: PyTree) -> PyTree:
        """Return the cursor of a fresh pass."""
        ...

    def look(
        self,
        cursor: PyTree,
        ask: Ask,
        width: int,
        row_function: RowFunction,
        summarise: Callable[[Array, Array], Any],
    ) -> tuple[PyTree, Any, Array]:
        """Evaluate the row function on the next window; return the cursor, the EVIDENCE, and the rows taken.

        Evidence, not rows, so that a source spread over devices can merge it across them.
        """
        ...


@runtime_checkable
class SuitedSource(Source, Protocol):
    """A source that reads in another way for another test."""

    def suited(self, appetite: int) -> Source:
        """Return the same rows, to be read by a test that wants `appetite` rows between judgements."""
        ...
