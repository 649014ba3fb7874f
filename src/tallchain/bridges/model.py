"""A NumPyro model as a posterior with rows, compared with the model itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from tallchain.arrays import as_floats
from tallchain.bridges.comparison import UNFIT, Whole
from tallchain.bridges.sites import Columns, LogLikelihood, LogPrior, RowModel, Sites
from tallchain.bridges.structure import NO_NUMPY, Model, Structure, first_line, is_of_numpy, structure_of
from tallchain.functions import QUICKLY
from tallchain.models import Posterior
from tallchain.types import PyTree
from tallchain.validation import brief

_CALL = "bridges.numpyro.posterior(...)"
_APART = 0.5  # of a start from the middle
_SIZES = "Give it sizes, such as the number of groups, as whole numbers."


@dataclasses.dataclass(frozen=True, eq=False)
class Bridged:
    """A NumPyro model as tallchain takes it; give it to `fit` or `prepare`."""

    posterior: Posterior
    """Its functions take positions without constraints; draws have the sites."""
    data: dict[str, np.ndarray]
    """Columns: the arguments with the rows along their first axis; or the indices of the rows."""
    start: dict[str, np.ndarray]
    """Latent sites, near the middle of what they can be."""
    deterministic: tuple[str, ...]
    """Deterministic sites that draws have: those that do not depend on the rows."""

    def constrain(self, position: PyTree) -> dict[str, Any]:
        """Return the sites, latent and deterministic, at one position without constraints."""
        return self.posterior.constrain(position)


def bridged(model: Model, *args: Any, **kwargs: Any) -> Bridged:
    """Take a model, whose plate with observed sites has the rows, and its arguments.

    Arguments that are arrays with the rows along their first axis become columns of the data, and the model is run with
    ONE entry of each. It may index them by the plate's indices (`with plate("rows", N, subsample_size=m) as i`, or
    `numpyro.subsample`), or use them as they are. Where a model that takes indices needs some array whole, rows are
    indices; then the arrays are constants of the programs. What one row gives is compared with the model on whole
    arrays, at every row and two positions.

    Args:
        model: a NumPyro model with one plate of rows, continuous latent sites outside of it, and observed sites in it.
        args: its arguments.
        kwargs: its named arguments.

    Raises:
        ValueError: it is no such model; the error says what to do.
    """
    if not callable(model):
        raise TypeError(f"`{_CALL}` takes a NumPyro model, a function, and its arguments; got {brief(model)}.")
    structure = structure_of(_CALL, model, (args, kwargs))
    columns = Columns(model, (args, kwargs), structure.num_rows)
    with jax.default_matmul_precision("highest"):  # as for all functions of a posterior
        return _bridged(model, structure, columns)


def _bridged(model: Model, structure: Structure, columns: Columns) -> Bridged:
    try:
        whole = Whole.of(model, structure, columns)
    except UNFIT as error:
        raise ValueError(
            f"`{_CALL}`: the model cannot be traced with arrays for {', '.join(columns.arrays) or 'its data'}: "
            f"{first_line(error)}. {NO_NUMPY if is_of_numpy(error) else _SIZES}"
        ) from error
    if not whole.is_finite:
        raise ValueError(
            f"`{_CALL}`: the log density is NaN or infinite wherever the latent sites were tried, near the middle of "
            "what they can be. Check the supports, and rescale the data so that latent sites are of order 1."
        )
    difference = ""
    for by_index in (False, True) if columns.arrays else (True,):
        difference, deterministic = whole.compared(by_index=by_index)
        if not difference:
            rows = RowModel(model, structure, columns, by_index=by_index)
            sites = Sites(rows, deterministic)
            made = Posterior(LogPrior(rows), LogLikelihood(rows), constraints=sites)
            return Bridged(made, columns.data(by_index=by_index), _start(structure, sites), deterministic)
        if not whole.takes_indices:
            break
    raise ValueError(_no_rows(structure, columns, difference))


def _start(structure: Structure, sites: Sites) -> dict[str, np.ndarray]:
    """Return latent sites that are near 0 without constraints; at 0 effects that a scale multiplies have a saddle."""
    random = np.random.default_rng(0)
    shapes = structure.unconstrained.items()
    position = {name: as_floats(random.uniform(-_APART, _APART, shape)) for name, shape in shapes}
    found = jax.jit(sites.constrain, compiler_options=QUICKLY)(position)
    return {name: np.asarray(found[name]) for name in structure.latent}


def _no_rows(structure: Structure, columns: Columns, difference: str) -> str:
    return (
        f'`{_CALL}`: {difference}. An entry of the plate "{structure.plate}" must touch the data of its own row only: '
        f"give the data to the model as arguments, arrays with the {structure.num_rows:,} rows along their first axis, "
        f'and write `with numpyro.plate("{structure.plate}", N, subsample_size=m) as i:` with `x[i]`, `y[i]` in it. '
        "What is computed from all rows, such as their mean, compute before, and give it as a number."
        + "".join(f" `{name}` is no array: give `{name}.to_numpy()`." for name in columns.frames)
    )
