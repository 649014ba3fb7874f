"""What a firefly kernel refuses."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallchain.models import Regression
from tallchain.models.families import Bernoulli
from tallchain.sources.stored import Stored
from tallchain.types import Source
from tallchain.validation import brief, is_whole

_MOST_BYTES = 2**26  # of a chain while it decides
_NUMBERS = 16  # per row, besides its features


def check_model(regression: Any) -> None:
    """Refuse what is not a plain logistic regression."""
    call = "`FireflyMC(regression=...)`"
    if not isinstance(regression, Regression):
        raise TypeError(
            f"{call} must be a logistic regression, such as Regression(families.Bernoulli(), ...); got "
            f"{brief(regression)}. Other posteriors have no bound here: use MetropolisHastings."
        )
    if regression.family != Bernoulli("logit"):
        raise ValueError(
            f'{call} must have the family Bernoulli(link="logit"), whose bound is known; got {regression.family!r}. '
            "Use MetropolisHastings."
        )
    if not regression.layout.is_vector:
        parts = ", ".join(regression.layout.shapes())
        raise ValueError(
            f"{call} must have no groups and no prior with scales of its own; got one with {parts}. Use "
            "MetropolisHastings, as `prepare(...).kernel()` makes it."
        )
    weight = regression.data.get("weight")
    if weight is not None and not np.all(weight == 1):
        raise ValueError(
            f"{call} must have no weights: each row counts once; got weights from {weight.min():g} to "
            f"{weight.max():g}. Repeat rows by their counts, or use MetropolisHastings."
        )
    temperature = float(regression.posterior.temperature)
    if temperature != 1:
        raise ValueError(f"{call} must have temperature 1; got {temperature:g}. Use MetropolisHastings for others.")


def place_of(regression: Regression, reference: Any) -> np.ndarray:
    """Return the position of a reference, or a position, in float32 as the rows are unless it has more digits."""
    place = getattr(reference, "position", reference)
    try:
        values = np.asarray(place)
        regression.layout.check(values)
        if values.dtype.kind != "f" or not np.all(np.isfinite(values)):
            raise ValueError(f"got {brief(place)}.")
    except (TypeError, ValueError) as error:
        raise ValueError(
            "`FireflyMC(reference=...)` must be a Reference, as `find_reference(...)` returns it, or a position of "
            f"finite floats: {error}"
        ) from error
    return values


def check_rows(source: Any, num_rows: int) -> Source:
    """Return a source that has each row of the regression once, in memory."""
    if not isinstance(source, Stored):
        raise TypeError(f"`FireflyMC(source=...)` must have its rows in memory, as Shuffled has; got {brief(source)}.")
    if source.population.total != num_rows:
        raise ValueError(
            f"`FireflyMC(source=...)` must have the {num_rows:,} rows of the regression; it has "
            f"{source.population.total:,}."
        )
    if not (isinstance(source.data, dict) and {"x", "y"} <= source.data.keys()):
        raise ValueError("`FireflyMC(source=...)` must have the rows of the regression, `regression.data`.")
    if source.share is not None or source.num_exact:
        raise ValueError("`FireflyMC(source=...)` must have all rows alike; got a source in which they have weights.")
    return source


def check_capacity(capacity: Any, num_rows: int) -> None:
    """Refuse a length that no list has."""
    if capacity is not None and not (is_whole(capacity, 1) and capacity <= num_rows):
        raise ValueError(
            f"`FireflyMC(capacity=...)` must be a whole number from 1 to N = {num_rows:,}, or None; got "
            f"{brief(capacity)}."
        )


def bytes_of(capacity: int, num_dark: int, size: int) -> int:
    """Memory of one chain while it decides, about."""
    return 4 * (size + _NUMBERS) * (capacity + num_dark)


def check_memory(capacity: int, num_dark: int, size: int, expected: float) -> None:
    """Refuse lists so long that there is nothing left of the idea."""
    needed = bytes_of(capacity, num_dark, size)
    if needed > _MOST_BYTES:
        raise ValueError(
            f"`FireflyMC(capacity={capacity}, brighten=...)` would take {needed / 2**20:,.0f} MiB for each chain: "
            f"{expected:,.0f} rows are expected to be bright, and up to {num_dark:,} dark ones proposed. Give the mode "
            "as `reference`; if it is, the bounds are too loose for these rows: use MetropolisHastings."
        )
