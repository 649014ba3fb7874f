"""A NumPyro model as functions of a position and ONE row.

The model runs with a plate of one entry. Its arguments that have the rows along their first axis are cut to the row, so
a source can store them as columns; or, if the model needs them whole, the plate takes the index of the row.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.util import compute_log_probs
from numpyro.primitives import Messenger

from tallchain.bridges.structure import Arguments, Model, Structure, plates_of
from tallchain.coordinates import Coordinates
from tallchain.types import Array, PyTree
from tallchain.validation import brief

INDEX = "index"


class SomeRows(Messenger):
    """Has a plate take these entries, and log densities in it without the scale for those left out."""

    def __init__(self, model: Model, plate: str, indices: Array) -> None:
        super().__init__(model)
        self._plate, self._indices, self._scale = plate, indices, 1.0

    def process_message(self, msg: Any) -> None:
        """Change a message of the plate, or of a site in it."""
        if msg["type"] == "plate" and msg["name"] == self._plate:
            size, count = msg["args"][0], len(self._indices)
            self._scale = size / count
            msg["value"], msg["args"] = self._indices, (size, count)
        elif msg["type"] == "sample" and self._scale != 1 and self._plate in plates_of(msg):
            msg["scale"] = msg["scale"] / self._scale


class Reading(NamedTuple):
    """A model, and the rows that it reads."""

    model: Model
    plate: str
    arguments: Arguments
    indices: Array

    def placed(self, place: Callable[[Any], Any]) -> Model:
        """Return the model with sites at the values that `place` has for them."""
        seeded = handlers.seed(SomeRows(self.model, self.plate, self.indices), rng_seed=0)
        return handlers.substitute(seeded, substitute_fn=place)


class Evaluation:
    """The log densities of a model at a position without constraints."""

    def __init__(self, reading: Reading, position: PyTree) -> None:
        log_dets: list[Any] = []

        def place(site: Any) -> Any:
            """Return t(u), and keep log |det dt/du|, scaled as the site is."""
            if site["type"] != "sample" or site["name"] not in position:
                return None
            u, transform = position[site["name"]], biject_to(site["fn"].support)
            value = transform(u)
            scale = 1.0 if site["scale"] is None else site["scale"]
            log_dets.append(jnp.sum(scale * transform.log_abs_det_jacobian(u, value)))
            return value

        found = compute_log_probs(reading.placed(place), *reading.arguments, {}, sum_log_prob=False)
        self._log_probs, self.trace = found
        self._log_dets, self._plate, self._count = log_dets, reading.plate, len(reading.indices)

    def known(self, names: tuple[str, ...]) -> tuple[Array, Array, dict[str, Any]]:
        """Return the log prior, the log likelihoods of the rows, and values of sites."""
        return self.log_prior, self.by_row, self.values(names)

    @property
    def log_prior(self) -> Array:
        """Of latent sites, with the Jacobians, and of what is observed outside of the rows."""
        others = (jnp.sum(of) for name, of in self._log_probs.items() if self._plate not in self._plates(name))
        return sum([*others, *self._log_dets], jnp.zeros(()))

    @property
    def by_row(self) -> Array:
        """Log likelihoods of the rows."""
        each = [self._of_site(name) for name in self._log_probs if self._plate in self._plates(name)]
        return sum(each[1:], each[0])

    def _of_site(self, name: str) -> Array:
        (frame,) = (frame for frame in self.trace[name]["cond_indep_stack"] if frame.name == self._plate)
        log_probs = self._log_probs[name]
        if log_probs.ndim < -frame.dim or log_probs.shape[frame.dim] != self._count:
            raise ValueError(f'"{name}" has log densities of shape {log_probs.shape} for {self._count} rows')
        first = jnp.moveaxis(log_probs, frame.dim, 0)
        return jnp.sum(first.reshape(self._count, -1), 1)

    def _plates(self, name: str) -> list[str]:
        return plates_of(self.trace[name])

    def values(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Values of sites."""
        return {name: self.trace[name]["value"] for name in names}


class Columns:
    """The arguments of a model: arrays with the rows along their first axis, by name, and all others."""

    def __init__(self, model: Model, arguments: Arguments, num_rows: int) -> None:
        leaves, self._structure = jax.tree.flatten_with_path(arguments)
        self._num_rows = num_rows
        self._leaves = {_name(path, _parameters(model)): leaf for path, leaf in leaves}
        self.arrays = {name: leaf for name, leaf in self._leaves.items() if _has_rows(leaf, num_rows)}

        self.frames = [name for name, leaf in self._leaves.items() if hasattr(leaf, "to_numpy")]
        """Names of frames and of their columns, which stay whole."""

    def data(self, *, by_index: bool) -> dict[str, Any]:
        """Return what a source has: the arrays, or the indices of the rows."""
        return {INDEX: np.arange(self._num_rows, dtype=np.int32)} if by_index else self.arrays

    def widened(self) -> Columns:
        """Return the same with floats in float64."""
        found = copy.copy(self)
        found._leaves = {name: _widened(leaf) for name, leaf in self._leaves.items()}
        found.arrays = {name: found._leaves[name] for name in self.arrays}
        return found

    def having(self, arrays: dict[str, Any]) -> Columns:
        """Return the same with other arrays in place of these."""
        found = copy.copy(self)
        found._leaves, found.arrays = self._leaves | arrays, arrays
        return found

    def arguments(self, arrays: dict[str, Any]) -> Arguments:
        """Return the arguments with other arrays in place of these."""
        return jax.tree.unflatten(self._structure, [arrays.get(name, leaf) for name, leaf in self._leaves.items()])


def _widened(leaf: Any) -> Any:
    is_float = isinstance(leaf, np.ndarray | jax.Array) and jnp.issubdtype(leaf.dtype, np.floating)
    return leaf.astype(np.float64) if is_float else leaf


def _has_rows(leaf: Any, num_rows: int) -> bool:
    is_array = isinstance(leaf, np.ndarray | jax.Array) and leaf.ndim > 0 and leaf.dtype.kind in "biuf"
    return is_array and len(leaf) == num_rows


def _parameters(model: Model) -> list[str]:
    """Name the positional parameters of a model, within its handlers."""
    while isinstance(model, Messenger) and model.fn is not None:
        model = model.fn
    try:
        found = inspect.signature(model).parameters.values()
    except (TypeError, ValueError):
        return []
    return [of.name for of in found if of.kind in (of.POSITIONAL_ONLY, of.POSITIONAL_OR_KEYWORD)]


def _name(path: Any, parameters: list[str]) -> str:
    which, first, *rest = path
    if which.idx == 1:
        label = first.key
    else:
        label = parameters[first.idx] if first.idx < len(parameters) else f"*args[{first.idx}]"
    return label + jax.tree_util.keystr(tuple(rest))


class RowModel:
    """The model of one row.

    Args:
        model: the user's.
        structure: its plate and sites.
        columns: of its arguments.
        by_index: keep the arguments whole, and have rows be indices; else it keeps one row of them, to run without.
    """

    def __init__(self, model: Model, structure: Structure, columns: Columns, *, by_index: bool) -> None:
        self.model, self.structure, self.is_by_index = model, structure, by_index
        if by_index:
            arrays = {name: jnp.asarray(leaf) for name, leaf in columns.arrays.items()}
            self._columns, self._first = columns.having(arrays), {INDEX: np.int32(0)}
        else:
            self._columns = columns.having({name: np.array(leaf[:1]) for name, leaf in columns.arrays.items()})
            self._first = {name: leaf[0] for name, leaf in self._columns.arrays.items()}

    def at(self, position: PyTree, row: PyTree = None) -> Evaluation:
        """Evaluate the model at a position and a row; for what all rows share any row will do."""
        return Evaluation(self.reading(row), position)

    def reading(self, row: PyTree = None) -> Reading:
        """Return the model of a row."""
        row = self._first if row is None else row
        one = {name: jnp.asarray(value)[None] for name, value in row.items()}
        arguments = self._columns.arguments({} if self.is_by_index else one)
        indices = one[INDEX] if self.is_by_index else jnp.zeros(1, jnp.int32)
        return Reading(self.model, self.structure.plate, arguments, indices)


class LogPrior:
    """log p0 at a position without constraints: of all sites outside of the rows."""

    def __init__(self, rows: RowModel) -> None:
        self._rows = rows

    def __call__(self, position: PyTree) -> Array:
        """Return the log density of a position."""
        return self._rows.at(position).log_prior

    def __repr__(self) -> str:
        return f"that of {getattr(self._rows.model, '__name__', 'the model')}"


class LogLikelihood:
    """log p(row | position)."""

    def __init__(self, rows: RowModel) -> None:
        self._rows = rows

    def __call__(self, position: PyTree, row: PyTree) -> Array:
        """Return the log likelihood of one row."""
        return self._rows.at(position, row).by_row[0]


class Sites(Coordinates):
    """Latent sites, and deterministic ones, of positions without constraints."""

    def __init__(self, rows: RowModel, deterministic: tuple[str, ...]) -> None:
        self._rows, self._latent = rows, rows.structure.latent
        self.deterministic = deterministic
        self._names = (*self._latent, *deterministic)

    def constrain(self, position: PyTree) -> PyTree:
        """Return the values of all sites."""
        return self._rows.at(position).values(self._names)

    def in_order(self, parameters: PyTree, like: PyTree) -> PyTree:
        """Return them in the order of the model, deterministic ones last."""
        return {name: parameters[name] for name in self._names}

    def chosen(self, parameters: PyTree) -> PyTree:
        """Return the latent sites."""
        if not isinstance(parameters, dict) or not {*self._latent} <= {*parameters} <= {*self._names}:
            got = ", ".join(map(str, parameters)) if isinstance(parameters, dict) else brief(parameters)
            raise ValueError(f"must be a dict of the latent sites of the model, {', '.join(self._latent)}; got {got}.")
        return {name: parameters[name] for name in self._latent}

    def unconstrain(self, parameters: PyTree) -> PyTree:
        """Return the position of latent sites, or of many along leading axes."""
        many = {name: np.shape(value)[: np.ndim(value) - len(self._latent[name])] for name, value in parameters.items()}
        leading = next(iter(many.values()))
        for name, value in parameters.items():
            if np.shape(value) != leading + self._latent[name]:
                raise ValueError(f'"{name}" must have shape {self._latent[name]}; got {np.shape(value)}.')
        one = self._unconstrain_one
        for _ in leading:
            one = jax.vmap(one)
        position, is_allowed = jax.jit(one)(parameters)
        for name, allowed in is_allowed.items():
            if not np.all(allowed):
                got = brief(np.asarray(parameters[name]))
                raise ValueError(f'"{name}" must be in the support of its prior; got {got}.')
        return {name: np.asarray(position[name]) for name in self._latent}

    def _unconstrain_one(self, values: PyTree) -> tuple[PyTree, PyTree]:
        """Return the position, and whether each value is one that its site can have: other sites may decide it."""
        found, is_allowed = {}, {}

        def place(site: Any) -> Any:
            name = site["name"]
            if site["type"] != "sample" or name not in values:
                return None
            support = site["fn"].support
            found[name] = biject_to(support).inv(values[name])
            is_allowed[name] = jnp.all(support(values[name])) & jnp.all(jnp.isfinite(found[name]))
            return values[name]

        reading = self._rows.reading()
        handlers.trace(reading.placed(place)).get_trace(*reading.arguments[0], **reading.arguments[1])
        return found, is_allowed
