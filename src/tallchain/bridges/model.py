"""A NumPyro model as a posterior with rows, compared with the model itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.arrays import as_floats
from tallchain.bridges.sites import INDEX, Columns, Evaluation, LogLikelihood, LogPrior, Reading, RowModel, Sites
from tallchain.bridges.structure import Model, Structure, structure_of
from tallchain.functions import QUICKLY
from tallchain.models import Posterior
from tallchain.types import PyTree
from tallchain.validation import brief

_CALL = "bridges.numpyro.posterior(...)"
_COMPARED = 32  # rows
_APART = 0.5  # of a start from the middle
_RELATIVE, _ABSOLUTE = 1e-3, 1e-3  # differences between log densities, by rounding
_UNFIT = (TypeError, ValueError, IndexError, AssertionError)  # what models raise for arrays of other shapes


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
    indices; then the arrays are constants of the programs. What the row gives is compared with the model on whole
    arrays, at some rows and two positions.

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
        whole = _Whole.of(model, structure, columns)
    except _UNFIT as error:
        raise ValueError(
            f"`{_CALL}`: the model cannot be traced with arrays for {', '.join(columns.arrays) or 'its data'}: "
            f"{_first_line(error)}. Give it sizes, such as the number of groups, as whole numbers."
        ) from error
    indices = {INDEX: np.arange(structure.num_rows, dtype=np.int32)}
    difference = ""
    for data in (columns.arrays, indices) if columns.arrays else (indices,):
        rows = RowModel(model, structure, columns, by_index=data is indices)
        difference, deterministic = whole.compared(rows, data)
        if not difference:
            sites = Sites(rows, deterministic)
            made = Posterior(LogPrior(rows), LogLikelihood(rows), constraints=sites)
            return Bridged(made, data, _start(structure, sites), deterministic)
        if not whole.takes_indices:
            break
    raise ValueError(_no_rows(structure, difference))


def _start(structure: Structure, sites: Sites) -> dict[str, np.ndarray]:
    """Return latent sites that are near 0 without constraints; at 0 effects that a scale multiplies have a saddle."""
    random = np.random.default_rng(0)
    shapes = structure.unconstrained.items()
    position = {name: as_floats(random.uniform(-_APART, _APART, shape)) for name, shape in shapes}
    found = jax.jit(sites.constrain, compiler_options=QUICKLY)(position)
    return {name: np.asarray(found[name]) for name in structure.latent}


@dataclasses.dataclass(frozen=True)
class _Whole:
    """What the model says of some rows, at two positions, when it has its arguments whole."""

    positions: PyTree
    """Along a first axis."""
    indices: np.ndarray
    """Of the rows."""
    names: tuple[str, ...]
    """Of deterministic sites."""
    found: tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]
    """Log priors, log likelihoods by position and row, values of these sites."""
    takes_indices: bool
    """Whether the model can be asked for some rows: else it was run on all of them."""

    @classmethod
    def of(cls, model: Model, structure: Structure, columns: Columns) -> _Whole:
        """Run the model on some rows; on all if its shapes do not allow less."""
        random, names = np.random.default_rng(0), structure.deterministic
        positions = {name: as_floats(random.uniform(-1, 1, (2, *of))) for name, of in structure.unconstrained.items()}

        def found(indices: np.ndarray) -> Any:
            def known(position: PyTree, arrays: Any) -> Any:
                reading = Reading(model, structure.plate, columns.arguments(arrays), jnp.asarray(indices))
                return Evaluation(reading, position).known(names)

            program = jax.jit(jax.vmap(known, (0, None)), compiler_options=QUICKLY)
            return jax.tree.map(np.asarray, program(positions, columns.arrays))

        some = _some(structure.num_rows)
        if len(some) < structure.num_rows:
            try:
                return cls(positions, some, names, found(some), True)
            except _UNFIT:  # the model does not take its arrays by indices
                pass
        every = np.arange(structure.num_rows, dtype=np.int32)
        log_priors, by_row, values = found(every)
        return cls(positions, some, names, (log_priors, by_row[:, some], values), structure.has_indices)

    def compared(self, rows: RowModel, data: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        """Say what differs, in words that are empty if nothing does; name the sites that do not depend on the rows."""
        some = {name: column[self.indices] for name, column in data.items()}

        def known(position: PyTree, some: PyTree) -> Any:
            by_row = jax.vmap(lambda row: rows.at(position, row).by_row[0])(some)
            one = rows.at(position)
            return one.log_prior, by_row, one.values(self.names)

        try:
            program = jax.jit(jax.vmap(known, (0, None)), compiler_options=QUICKLY)
            mine, theirs = jax.tree.map(np.asarray, program(self.positions, some)), self.found
        except _UNFIT as error:
            return f"given the data of one row alone, the model fails ({_first_line(error)})", ()
        if not _is_close(mine[0], theirs[0]):
            return "the log density of what is outside of the plate depends on the rows", ()
        if not _is_close(mine[1], theirs[1]):
            return "the log density of a row is another when the model has the data of that row alone", ()
        return "", tuple(name for name in self.names if _is_close(mine[2][name], theirs[2][name]))


def _some(num_rows: int) -> np.ndarray:
    return np.unique(np.linspace(0, num_rows - 1, min(num_rows, _COMPARED)).astype(np.int32))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _is_close(mine: Any, theirs: Any) -> bool:
    is_alike = np.shape(mine) == np.shape(theirs)
    return is_alike and bool(np.allclose(mine, theirs, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True))


def _no_rows(structure: Structure, difference: str) -> str:
    return (
        f'`{_CALL}`: {difference}. An entry of the plate "{structure.plate}" must touch the data of its own row only: '
        f"give the data to the model as arguments, arrays with the {structure.num_rows:,} rows along their first axis, "
        f'and write `with numpyro.plate("{structure.plate}", N, subsample_size=m) as i:` with `x[i]`, `y[i]` in it. '
        "What is computed from all rows, such as their mean, compute before, and give it as a number."
    )
