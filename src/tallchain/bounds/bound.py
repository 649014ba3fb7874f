"""A bound on the part that every row has in a log ratio, after a surrogate."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from tallchain.arrays import as_floats, dot
from tallchain.bounds.measures import MEASURES
from tallchain.parts import part, set_fields, static
from tallchain.proposals import Laplace
from tallchain.proposals.laplace import check_laplace
from tallchain.sources.copying import seed_of, shuffle
from tallchain.sources.stored import Stored
from tallchain.types import Array, PyTree, Source
from tallchain.validation import brief, check_switch, is_positive, is_traced

_WIDER = 1 + 1e-5  # distances are computed in float32
ROUNDING = 1e-6
"""Of a row's part in a log ratio, in units of its size: it may be beyond its bound by this much."""


@part
class Fitted:
    """A bound, and how often a source gives each row: an upper bound on the range of the numbers that a test sees.

    Calling gives 2 max_i c_i s_i M(t, t'), s_i = 1/(N p_i) the share of a row that each is.
    """

    measure: str = static()
    order: int = static()
    is_concave: bool = static()
    is_derived: bool = static()
    """Whether the constants were computed from the rows, not given."""
    position: PyTree
    """r; None for a bound of order 0."""
    inverse: Array | None
    """T^-1; None for T = 1."""
    radius: Array
    inside: Array
    """max_i c_i s_i where both positions are within the radius of r."""
    outside: Array
    """The same elsewhere; infinite if there is no such bound."""
    size: Array
    """Of the largest row."""
    rounding: Array
    """By how much a number may exceed its bound by rounding: 1e-6 of the size of a row times its share, at most."""

    def __call__(self, position: PyTree, candidate: PyTree) -> Array:
        """Return the range bound; infinite where there is none."""
        v, v2 = self._coordinates(position), self._coordinates(candidate)
        distance = MEASURES[self.measure](self.order, v, v2, is_concave=self.is_concave)
        is_inside = jnp.maximum(jnp.sum(v**2), jnp.sum(v2**2)) <= self.radius**2
        return 2 * _WIDER * jnp.where(is_inside, self.inside, self.outside) * distance

    def _coordinates(self, position: PyTree) -> Array:
        flat = ravel_pytree(position)[0]
        if self.position is not None:
            here = ravel_pytree(self.position)[0]
            if here.shape != flat.shape:
                raise ValueError(f"the bound is for positions of {here.size} numbers; got one of {flat.size}.")
            flat = flat - here
        return flat if self.inverse is None else dot(self.inverse, flat)


@part
class Bound:
    """|l_i(t') - l_i(t) - q_i(t') + q_i(t)| <= c_i M(t, t') for every row i, with M as in `bounds.measures`.

    `regression_bound` makes it for a regression. For a likelihood of your own, give the constants: with `order` k, c_i
    is an upper bound over all positions on the operator norm of the (k+1)-th derivative of l_i. A row that violates its
    bound ends a run with an error that names it; since rows of small constants are hardly ever drawn, all rows are read
    for it at the end of a run, at `sample(scan=...)` proposals.

    Args:
        constants: c_i, by row of the data, at least 0.
        order: of the surrogate: 0 for none, 1 or 2.
        laplace: N(r, T T'), for coordinates T^-1 (t - r) in which the derivatives are taken; None for the positions
            themselves.
        position: r, where the surrogate was expanded, if `laplace` is None; not needed at order 0.
        measure: "norm"; "predictor" if a row depends on one linear predictor x_i.t; or "scalable", "pymhss".
        is_concave: whether log likelihoods are concave in the predictor, for "predictor" at order 1.
        radius: of the ball around r, in those coordinates, in which the constants hold; by default everywhere.
        outside: constants that hold outside the ball; None if there are none: every row is read there.
        sizes: about how large the log likelihoods of rows are, at least: numbers of this size are rounded, and a row's
            part may exceed its bound by 1e-6 of it. A number for all rows, or one for each.
    """

    measure: str = static()
    order: int = static()
    is_concave: bool = static()
    rows_swept: int = static()
    """Rows read to make it."""
    position: PyTree
    inverse: Array | None
    radius: Array
    words: np.ndarray | None
    """The seed of the shuffle that the constants are in, if they are those of the rows of a `Shuffled`."""
    constants: np.ndarray
    outside: np.ndarray | None
    sizes: np.ndarray
    """By row, or one for all."""

    def __init__(
        self,
        constants: Any,
        order: int,
        *,
        laplace: Laplace | None = None,
        position: PyTree = None,
        measure: str = "norm",
        is_concave: bool = False,
        radius: float = math.inf,
        outside: Any = None,
        sizes: Any = 1.0,
    ) -> None:
        order = check_order("Bound", order)
        if not (isinstance(measure, str) and measure in MEASURES):
            raise ValueError(f"`Bound(measure=...)` must be one of {', '.join(MEASURES)}; got {brief(measure)}.")
        if not (radius == math.inf or is_positive(radius)):
            raise ValueError(f"`Bound(radius=...)` must be a positive number; got {brief(radius)}.")
        if laplace is not None:
            check_laplace("Bound", laplace)
            position = laplace.mean
        if position is None and (order > 0 or radius < math.inf):
            raise ValueError(
                f"`Bound(order={order}, ...)` needs the position where the surrogate was expanded: give `laplace=...` "
                "or `position=...`."
            )
        if position is not None and not all(_is_finite(leaf) for leaf in jax.tree.leaves(position)):
            raise ValueError(f"`Bound(position=...)` must be a position of finite numbers; got {brief(position)}.")
        constants = _constants("constants", constants)
        outside = None if outside is None else _constants("outside", outside, len(constants))
        sizes = _constants("sizes", sizes, len(constants)) if np.ndim(sizes) else _constants("sizes", [sizes])
        set_fields(
            self,
            measure=measure,
            order=order,
            is_concave=check_switch("Bound", "is_concave", is_concave),
            rows_swept=0,
            position=None if position is None else jax.tree.map(as_floats, position),
            inverse=None if laplace is None else laplace.inverse,
            radius=np.float32(radius),
            words=None,
            constants=constants,
            outside=outside,
            sizes=sizes,
        )

    def fitted(self, source: Source) -> Fitted:
        """Return the bound for the rows as a source gives them."""
        if not isinstance(source, Stored):
            raise TypeError(
                f"`MetropolisHastings(bound=Bound(...))` needs a source with rows in memory; got {brief(source)}."
            )
        if len(self.constants) != source.num_data:
            raise ValueError(
                f"`MetropolisHastings(bound=Bound(...))`: the bound has constants for {len(self.constants):,} rows, "
                f"the source {source.num_data:,}. Make both from the same data."
            )
        if source.num_exact or (source.share is not None and getattr(source, "alias", None) is None):
            raise ValueError(
                "`MetropolisHastings(bound=Bound(...))` does not work with `source.reweighted(...)`: use "
                "`WithReplacement(data, batch_size, weights=bound.weights)`."
            )
        return Fitted(
            self.measure,
            self.order,
            self.is_concave,
            self.rows_swept > 0,
            self.position,
            self.inverse,
            as_floats(self.radius),
            as_floats(self._largest(self.constants, source)),
            as_floats(math.inf if self.outside is None else self._largest(self.outside, source)),
            as_floats(np.max(self.sizes)),
            as_floats(ROUNDING * self._largest(self.sizes, source)),
        )

    def _largest(self, values: np.ndarray, source: Stored) -> float:
        """max_i c_i s_i."""
        if source.share is None:
            return float(np.max(values))
        share = np.asarray(source.share)[: len(self.constants)]
        return float(np.max(share * (values if len(values) == 1 else self._ordered(values, source))))

    def _ordered(self, values: np.ndarray, source: Stored) -> np.ndarray:
        """Return numbers by row in the order of a source's rows."""
        its = getattr(source, "words", None)
        if _seed(self.words) == _seed(its):
            return values
        values = self._by_row(values)
        return values if its is None else values[source.order()]

    def _by_row(self, values: np.ndarray) -> np.ndarray:
        """Return numbers in the order of the user's data."""
        if self.words is None:
            return values
        by_row = np.empty_like(values)
        by_row[shuffle(np.arange(len(values), dtype=np.int32), seed_of(self.words))] = values
        return by_row

    @property
    def weights(self) -> np.ndarray:
        """Weights for `WithReplacement`, by row of the data: the constants, but for rows that hardly matter."""
        return self._by_row(self._floored)

    def weights_of(self, source: Stored) -> np.ndarray:
        """The same in the order of a source's rows, for `WithReplacement.of_stored`."""
        return self._ordered(self._floored, source)

    @property
    def _floored(self) -> np.ndarray:
        mean = float(self.constants.mean(dtype=np.float64))
        return np.maximum(self.constants, 1e-3 * mean) if mean > 0 else np.ones_like(self.constants)


def check_order(call: str, order: Any) -> int:
    """Return the order of a surrogate, or raise an error that says what is wrong with it."""
    if isinstance(order, bool) or np.ndim(order) or order not in (0, 1, 2):
        raise ValueError(f"`{call}(order=...)` must be 0, 1 or 2; got {brief(order)}.")
    return int(order)


def _constants(name: str, values: Any, count: int | None = None) -> np.ndarray:
    try:
        numbers = np.asarray(values)
    except ValueError:  # rows of different lengths
        numbers = np.zeros(0)
    if numbers.ndim != 1 or not numbers.size or numbers.dtype.kind not in "iuf":
        raise ValueError(f"`Bound({name}=...)` must be a vector of numbers, one for each row; got {brief(values)}.")
    if count is not None and len(numbers) != count:
        raise ValueError(
            f"`Bound({name}=...)` must have a number for each of the {count:,} rows that `constants` has; got "
            f"{brief(values)}."
        )
    if not np.all(numbers >= 0):  # NaN, too
        at = int(np.argmin(numbers >= 0))
        raise ValueError(f"`Bound({name}=...)` must be at least 0; got {numbers[at]} for row {at}.")
    if numbers.dtype == np.float32:
        return numbers.copy()
    with np.errstate(over="ignore", under="ignore"):
        rounded = numbers.astype(np.float32)
    return np.where(numbers > rounded, np.nextafter(rounded, np.float32(np.inf)), rounded)  # a bound is rounded up


def _is_finite(leaf: Any) -> bool:
    try:
        return is_traced(leaf) or bool(np.all(np.isfinite(np.asarray(leaf, float))))
    except (TypeError, ValueError):  # no numbers
        return False


def _seed(words: np.ndarray | None) -> int:
    return -1 if words is None else seed_of(words)
