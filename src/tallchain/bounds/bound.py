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
from tallchain.validation import brief, is_positive

_ROUNDING = 1 + 1e-5  # distances are computed in float32


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

    def __call__(self, position: PyTree, candidate: PyTree) -> Array:
        """Return the range bound; infinite where there is none."""
        v, v2 = self._coordinates(position), self._coordinates(candidate)
        distance = MEASURES[self.measure](self.order, v, v2, is_concave=self.is_concave)
        is_inside = jnp.maximum(jnp.sum(v**2), jnp.sum(v2**2)) <= self.radius**2
        return 2 * _ROUNDING * jnp.where(is_inside, self.inside, self.outside) * distance

    def _coordinates(self, position: PyTree) -> Array:
        flat = ravel_pytree(position)[0]
        if self.position is not None:
            flat = flat - ravel_pytree(self.position)[0]
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
    ) -> None:
        if order not in (0, 1, 2) or isinstance(order, bool):
            raise ValueError(f"`Bound(order=...)` must be 0, 1 or 2; got {brief(order)}.")
        if measure not in MEASURES:
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
        set_fields(
            self,
            measure=measure,
            order=int(order),
            is_concave=bool(is_concave),
            rows_swept=0,
            position=None if position is None else jax.tree.map(as_floats, position),
            inverse=None if laplace is None else laplace.inverse,
            radius=np.float32(radius),
            words=None,
            constants=_constants("constants", constants),
            outside=None if outside is None else _constants("outside", outside),
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
        )

    def _largest(self, constants: np.ndarray, source: Stored) -> float:
        """max_i c_i s_i."""
        if source.share is None:
            return float(np.max(constants))
        its = getattr(source, "words", None)
        if _seed(self.words) != _seed(its):  # from one order to the other, by row of the data
            if self.words is not None:
                by_row = np.empty_like(constants)
                by_row[shuffle(np.arange(len(constants), dtype=np.int32), seed_of(self.words))] = constants
                constants = by_row
            constants = constants if its is None else constants[source.order()]
        return float(np.max(constants * np.asarray(source.share)[: len(constants)]))

    @property
    def weights(self) -> np.ndarray:
        """Weights for `WithReplacement`: the constants, in their order, but for rows that hardly matter."""
        mean = float(self.constants.mean(dtype=np.float64))
        return np.maximum(self.constants, 1e-3 * mean) if mean > 0 else np.ones_like(self.constants)


def _constants(name: str, values: Any) -> np.ndarray:
    numbers = np.asarray(values)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
        raise ValueError(f"`Bound({name}=...)` must be a vector of numbers, one for each row; got {brief(values)}.")
    if not np.all(numbers >= 0):  # NaN, too
        at = int(np.argmin(numbers >= 0))
        raise ValueError(f"`Bound({name}=...)` must be at least 0; got {numbers[at]} for row {at}.")
    return numbers.astype(np.float32)


def _seed(words: np.ndarray | None) -> int:
    return -1 if words is None else seed_of(words)
