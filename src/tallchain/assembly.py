"""Whether the parts of a kernel fit together: refusals, and the bound for a source."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tallchain.bounds import Bound
from tallchain.functions import as_function
from tallchain.parts import check_registered
from tallchain.residuals import ResidualSurrogate
from tallchain.types import PlacedSurrogate, Posterior, Source, SummedSurrogate, Surrogate
from tallchain.validation import brief, is_traced


def check_part(call: str, value: Any, need: str) -> None:
    """Refuse a class for an object, and an object without this method; `call` is like "FireflyMC(source=...)"."""
    if isinstance(value, type) or not hasattr(value, need):
        raise TypeError(
            f"`{call}` must be an object with `{need}`; got {brief(value)}."
            + (f" Did you mean `{value.__name__}(...)`?" if isinstance(value, type) else "")
            + (" Use `regression.posterior`." if hasattr(value, "posterior") else "")
        )
    check_registered(call, value)


def check_surrogate(surrogate: Any, posterior: Posterior, source: Source, kernel: str = "MetropolisHastings") -> None:
    """Refuse what is no surrogate, or one of another posterior or other rows."""
    if surrogate is None:
        return
    if isinstance(surrogate, type) or not hasattr(surrogate, "row_difference"):
        raise TypeError(
            f"`{kernel}(surrogate=...)` must be an object with `row_difference`, e.g. surrogates.Taylor(...); got "
            f"{brief(surrogate)}."
        )
    if isinstance(surrogate, ResidualSurrogate) and surrogate.log_likelihood is not posterior.log_likelihood:
        raise ValueError(f"`{kernel}(posterior=..., surrogate=...)`: the surrogate is of another posterior.")
    population = source.population
    if isinstance(surrogate, SummedSurrogate) and surrogate.num_rows != population.total:
        raise ValueError(
            f"`{kernel}(surrogate=...)`: the surrogate sums over {surrogate.num_rows:,} rows, and the source "
            f"has {population.total:,}. Make both from the same data."
        )


def fit_bound(bound: Any, source: Source, surrogate: Surrogate | None) -> Any:
    """Return the bound for the rows as the source gives them; refuse one that does not hold for them."""
    if bound is None:
        return None
    if isinstance(bound, Bound):
        _check_order(bound, surrogate)
        return bound.fitted(source)
    if not callable(bound):
        raise TypeError(
            f"`MetropolisHastings(bound=...)` must be a function, a Bound(...) or None; got {brief(bound)}."
        )
    if surrogate is not None:
        raise ValueError(
            "`MetropolisHastings(surrogate=..., bound=...)`: a bound on the range of the log ratios does not bound the "
            "residuals that a surrogate leaves. Leave it out, or give a `bounds.Bound`, which does; without one, a "
            "test that needs a range reads all rows to find it."
        )
    population = source.population
    if population.total < population.num_rows + population.num_exact:
        raise ValueError(
            "`MetropolisHastings(bound=...)` does not work with a source that has some rows several times "
            f"(`copies=...`; this one has {population.num_rows:,} for {population.total:,} rows of data). Each copy "
            "counts as a part of a row, so the bound does not hold for the numbers the test sees. Leave the bound "
            "or the copies out; without a bound, a test that needs one reads all rows."
        )
    return as_function(bound)


def _check_order(bound: Bound, surrogate: Surrogate | None) -> None:
    """Refuse a bound for another surrogate: of another order, or expanded elsewhere."""
    order = getattr(surrogate, "order", None) if surrogate is not None else 0
    if order != bound.order:
        what = "no surrogate" if surrogate is None else f"a surrogate of order {order}"
        raise ValueError(
            f"`MetropolisHastings(surrogate=..., bound=...)`: the bound is for a surrogate of order {bound.order} (0: "
            f"none); got {what}."
        )
    if not isinstance(surrogate, PlacedSurrogate) or is_traced((bound.position, surrogate.position)):
        return
    pairs = zip(jax.tree.leaves(bound.position), jax.tree.leaves(surrogate.position), strict=True)
    if not all(np.array_equal(mine, its) for mine, its in pairs):
        raise ValueError(
            "`MetropolisHastings(surrogate=..., bound=...)`: the bound is for a surrogate that was expanded at another "
            "position. Make both at the same one."
        )
