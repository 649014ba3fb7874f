"""The pipeline on one page: the records that pass between the parts, and what each part promises.

A proposal makes a candidate for a posterior; a source reads rows; an acceptance test asks for rows and judges what they
showed. The parts do not know each other. They meet only in `tallchain.kernel`, through the records below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

Array = jax.Array
PyTree = Any
RowFunction = Callable[[PyTree], Array]  # one row of the data -> one number


FAR_PARTS = 0.05
"""Standard deviation of log densities between parts of the rows from which to warn; variances are off by its square."""

# ---- records -----------------------------------------------------------------------------------


class Population(NamedTuple):
    """What a test may know about the source: all of it static."""

    num_rows: int
    """N, the rows to sample from."""
    batch_size: int
    """Rows a test should ask for at a time if it does not set its own number."""
    repeats: bool
    """Whether a row may come twice in one decision: then reading N rows is not reading all rows."""
    num_exact: int = 0
    """Additional rows, which every decision reads: the source adds their part to the offset; a test never sees it."""

    num_data: int = 0
    """Rows of the data, if some have several copies, each a part of a row; else 0."""
    is_simple: bool = False
    """Whether the rows of a decision are a simple random sample: without replacement, every set of them alike."""
    is_part: bool = False
    """Whether the rows to sample from are a random part of the data, one of several that chains visit in turn."""

    @property
    def total(self) -> int:
        """Rows of the data."""
        return self.num_data or self.num_rows + self.num_exact

    @property
    def scale(self) -> int:
        """The N by which a mean over rows to sample from becomes a sum: those rows, or all that they are a part of."""
        return self.num_data if self.is_part else self.num_rows

    @property
    def swept(self) -> int:
        """Rows that a sweep reads."""
        return self.num_data if self.is_part else self.num_rows + self.num_exact

    def part_error(self, variance: float) -> float:
        """e, the standard deviation of log pi_p - log pi if that of one row is `variance`; see `sources.divided`."""
        return math.sqrt(variance / self.num_rows * (1 - self.num_rows / self.num_data)) if self.is_part else 0.0


class Target(NamedTuple):
    """What a proposal may look at: the parts of the kernel as the schedule sets them at this draw."""

    posterior: Posterior
    surrogate: Surrogate | None
    source: Source


class Proposed(NamedTuple):
    """A candidate, and what it cost."""

    position: PyTree
    log_correction: Array | float
    """log q(old | new) - log q(new | old)."""
    rows_read: Array | int = 0
    """Rows read to make it."""


class Ask(NamedTuple):
    """What a test wants to read before it judges again."""

    rows: Array | int
    """How many rows."""
    census: Array | bool = False
    """Every row once, in storage order, however the source samples (then `rows` is N)."""
    apart: Array | bool = False
    """Count these rows as scanned to set the test up, not as looked at by the test."""
    fresh: Array | bool = False
    """Forget the evidence first; rows already seen still do not come again."""


class Seen(NamedTuple):
    """What one look has shown."""

    evidence: Any
    """Evidence of the rows that were asked for."""
    taken: Array
    """How many of these were read."""
    read: Array
    """Rows read in all."""
    known: Array
    """What the other rows add to the log ratio: it goes into the offset."""


class Block(NamedTuple):
    """Some rows of a sweep."""

    rows: PyTree
    index: Array
    """Where the source keeps each row: consecutive numbers."""
    is_valid: Array
    """Entries that count: the others were in an earlier block."""
    share: Array
    """1/c for a row that the source has c times, each as a part of a row; else 1."""
    is_sampled: Array
    """False for rows that every decision reads."""


class Judgement(NamedTuple):
    """The test's answer: what it remembers, what it wants next, and whether and how it has decided."""

    memory: PyTree
    ask: Ask
    is_decided: Array | bool
    is_accepted: Array | bool


class Verdict(NamedTuple):
    """The outcome of one decision, and what it cost."""

    is_accepted: Array
    rows_read: Array
    """Rows read for the decision: what the paper's tables count."""
    rows_scanned: Array
    """Additional rows scanned, for bounds, designs or proposals."""
    log_ratio: Array
    """The estimate Delta* (exact after a full read) that the decision used."""
    is_invalid: Array
    """The log ratio was NaN or +inf, or the test could not decide, so the candidate was rejected."""
    extras: dict[str, Array]
    """What else the test reports, by name."""

    @property
    def is_infinite(self) -> Array:
        """The log ratio was +inf: the position is impossible, or a row has violated the bound of an exact test."""
        return self.log_ratio == math.inf


# ---- what the parts promise --------------------------------------------------------------------


class Evidence(Protocol):
    """A small mergeable summary of the numbers per row seen so far; a record (NamedTuple) of arrays."""

    @property
    def mean(self) -> Array:
        """Mean of the numbers seen; not finite if one of them was not."""

    def empty(self) -> Any:
        """Return the summary of no rows; may be a class method if the evidence so far does not matter."""

    def of(self, values: Array, is_valid: Array) -> Any:
        """Summarise one window; entries that are not valid do not count.

        Called on the evidence so far; may be a class method if that does not matter.
        """

    def merge(self, other: Any) -> Any:
        """Summarise both."""


class Posterior(Protocol):
    """log p0(t) + (1/K) sum_i log p(x_i | t)."""

    @property
    def temperature(self) -> Array | float:
        """K."""

    @property
    def log_prior(self) -> Callable[[PyTree], Array]:
        """log p0(position)."""

    @property
    def log_likelihood(self) -> Callable[[PyTree, PyTree], Array]:
        """log p(row | position), for ONE row."""


class Proposal(Protocol):
    """A rule that proposes candidates. `draw` makes the noise, `propose` uses it."""

    def check(self, position: PyTree) -> None:
        """Refuse a position it cannot move."""

    def draw(self, key: Array, position: PyTree) -> PyTree:
        """Draw all the randomness of one proposal; only the shapes of `position` may matter."""

    def propose(self, noise: PyTree, position: PyTree, target: Target) -> Proposed:
        """Make the candidate; most proposals do not use the target."""


class AcceptanceTest(Protocol):
    """A rule that asks for rows until it can decide. It never sees a parameter, a model or a proposal."""

    def appetite(self, population: Population) -> int:
        """Rows it usually wants between two judgements; sets the width of the source's windows."""

    def draw(self, key: Array) -> PyTree:
        """Draw all the randomness of one decision."""

    def open(self, noise: PyTree, bound: Array | None, population: Population) -> tuple[PyTree, Any, Ask]:
        """Begin: return a memory, the evidence of no rows, and what to read first.

        `bound` is an upper bound on the range (largest minus smallest) of the numbers per row, or None.
        """

    def judge(self, memory: PyTree, offset: Array, evidence: Any, population: Population) -> Judgement:
        """Judge, once the rows asked for have been read. Pure.

        `offset` is the part of the log ratio that does not come from the rows asked for.
        """


@runtime_checkable
class ReportingTest(AcceptanceTest, Protocol):
    """A test that reports more about a decision."""

    def report(self, memory: PyTree, offset: Array, evidence: Any, population: Population) -> dict[str, Array]:
        """Return numbers by name, to keep with the verdict."""


@runtime_checkable
class IntegratedTest(AcceptanceTest, Protocol):
    """A test whose own randomness does not affect how many rows it reads, so that an audit can integrate it out."""

    def chance(self, memory: PyTree, offset: Array, evidence: Any, population: Population) -> Array:
        """P(accept) given the rows that decide."""


@runtime_checkable
class ApproximateTest(AcceptanceTest, Protocol):
    """A test that approximates one on all rows."""

    def exact_chance(self, log_ratio: Array) -> Array:
        """P(accept) of the test on all rows."""


@runtime_checkable
class ExactTest(AcceptanceTest, Protocol):
    """A test that leaves the posterior unchanged, whatever the rows."""

    @property
    def is_exact(self) -> bool:
        """True."""


@runtime_checkable
class BoundedTest(ExactTest, Protocol):
    """A test that is exact if the kernel has a bound, and rows come as it needs them."""

    def check(self, population: Population, *, has_bound: bool) -> None:
        """Refuse a kernel for which it is not."""


@runtime_checkable
class BoundedEvidence(Protocol):
    """What such a test keeps of the numbers per row; it notices those that are beyond the bound."""

    def allowing(self, slack: Array) -> Any:
        """Return the same for numbers that are rounded by this much."""


class Surrogate(Protocol):
    """A control variate: a function q_i of the position for every row, whose sum Q is known in closed form."""

    def check(self, position: PyTree) -> None:
        """Refuse a position that it has no values for."""

    def total(self, position: PyTree, candidate: PyTree) -> Array:
        """Q(t') - Q(t), over ALL rows."""

    def row_difference(self, position: PyTree, candidate: PyTree) -> RowFunction:
        """Return the function of a row q_i(t') - q_i(t)."""


@runtime_checkable
class ModelWithRows(Protocol):
    """A posterior with its rows and a start, such as a regression, or a model of another library."""

    @property
    def posterior(self) -> Posterior:
        """The posterior."""

    @property
    def data(self) -> PyTree:
        """The rows."""

    @property
    def start(self) -> PyTree:
        """Parameters to start from."""


@runtime_checkable
class PlacedSurrogate(Surrogate, Protocol):
    """A surrogate that was made at one position, and is best near it."""

    @property
    def position(self) -> PyTree:
        """Where."""


@runtime_checkable
class SummedSurrogate(Surrogate, Protocol):
    """A surrogate that knows how many rows it sums over."""

    @property
    def num_rows(self) -> int:
        """Rows."""


class Source(Protocol):
    """Rows, in a random order that is new for every decision."""

    @property
    def population(self) -> Population:
        """Say how many rows there are and how they come."""

    def width(self, appetite: int) -> int:
        """Rows to read at one look for a test that wants `appetite` rows between judgements."""

    def some_rows(self, count: int) -> PyTree:
        """Return at most this many of the rows to sample from, practically chosen at random."""

    def draw(self, key: Array) -> PyTree:
        """Draw all the randomness of the row order of one decision."""

    def start(self, noise: PyTree) -> PyTree:
        """Return the cursor of a fresh decision."""

    def look(
        self,
        cursor: PyTree,
        ask: Ask,
        width: int,
        row_function: RowFunction,
        summarise: Callable[[Array, Array], Any],
    ) -> tuple[PyTree, Seen]:
        """Evaluate the row function on the next window; return the cursor and what was seen.

        It returns evidence, not rows, so that a source spread over devices can merge it across them.
        """

    def sweep(
        self,
        summarise: Callable[[Block], PyTree],
        merge: Callable[[Any, Any], Any] = ...,
        *,
        lanes: int = 1,
        results: int = 1,
        report: Callable[[int], None] | None = None,
    ) -> Any:
        """Summarise every row once, in blocks, and merge the summaries: not inside `jit`.

        Args:
            summarise: makes a summary of a block. A part, so that its arrays are arguments of the program, and not
                constants; programs are kept by its `log_likelihood`, if it has one.
            merge: makes the result from the result so far (None at first) and the summaries of some blocks, which have
                the blocks along a first axis. By default they are added up in float64.
            lanes: about how many numbers are worked on at a time for each row: the more, the narrower the blocks.
            results: about how many numbers a summary has: the more, the fewer blocks are summarised at a time.
            report: called with the rows read so far, between dispatches; may raise to end the sweep.
        """

    def order(self) -> np.ndarray | None:
        """Return which row of the user's data each of the source's rows is; None if rows are reweighted."""

    def reweighted(self, exact: Any = (), copies: Any = None, batch_size: int | None = None) -> Source:
        """Return a source of the same rows, some of them read always or more often.

        Args:
            exact: indices of rows that EVERY decision reads; only the others are sampled. For the few rows on which
                most depends (`surrogates.influence`).
            copies: how often the source has each row, at least once; None: once. A row with c copies counts as 1/c of a
                row each time, so that Delta* stays unbiased, and rows that matter more are read more often: row i with
                probability proportional to c_i.
            batch_size: m, the rows a test reads between judgements; None keeps the number.
        """
