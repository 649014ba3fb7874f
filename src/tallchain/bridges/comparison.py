"""A model of one row, compared with the model on whole arrays: at EVERY row, and at two positions.

Nothing less would do. A dummy that one row in a thousand has, centred by the model itself, is 0 in most rows and would
be 0 in all of them if the model had one row alone. Differences are looked for in float64, where the data allow it, so
that only rounding is overlooked, and not a likelihood that is small.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.arrays import as_floats
from tallchain.bridges.sites import Columns, Evaluation, Reading, RowModel
from tallchain.bridges.structure import Model, Structure, first_line
from tallchain.functions import SOON
from tallchain.residuals import digits
from tallchain.types import PyTree

# What models raise for arrays of other shapes.
UNFIT = (TypeError, ValueError, IndexError, AssertionError)
_NEAR = (1.0, 0.01)  # of positions: far from 0 some log densities overflow, or are the same everywhere
_FURTHER = (2.0,) * 8  # where to look if these are not finite
_BLOCK = 2**16  # rows at a time
_FEW = 32  # rows, to see whether a model can be asked for some
_WIDE, _NARROW = 1e-5, 1e-3  # relative differences by rounding
_MOST_BYTES = 2**28  # of data that are copied in float64


class _Found(NamedTuple):
    """What a model says at a position."""

    log_prior: np.ndarray
    by_row: np.ndarray
    values: dict[str, np.ndarray]
    """Of deterministic sites."""

    @property
    def is_finite(self) -> bool:
        """Whether there is something to compare."""
        return bool(np.isfinite(self.log_prior) and np.any(np.isfinite(self.by_row)))


@dataclasses.dataclass(frozen=True)
class Whole:
    """What the model says when it has its arguments whole."""

    model: Model
    structure: Structure
    columns: Columns
    positions: list[PyTree]
    found: list[_Found]
    """By position."""
    takes_indices: bool
    """Whether the model can be asked for some rows: else it was run on all of them."""
    is_wide: bool
    """In float64."""

    @classmethod
    def of(cls, model: Model, structure: Structure, columns: Columns) -> Whole:
        """Run the model on all rows; in float32 if there are many, or if it takes no other."""
        if sum(leaf.nbytes for leaf in columns.arrays.values()) <= _MOST_BYTES:
            try:
                return cls._run(model, structure, columns, is_wide=True)
            except UNFIT:
                pass
        return cls._run(model, structure, columns, is_wide=False)

    @classmethod
    def _run(cls, model: Model, structure: Structure, columns: Columns, *, is_wide: bool) -> Whole:
        def known(position: PyTree, arrays: Any, indices: Any) -> Any:
            reading = Reading(model, structure.plate, columns.arguments(arrays), indices)
            return Evaluation(reading, position).known(structure.deterministic)

        with digits(is_wide):
            columns = columns.widened() if is_wide else columns
            takes_indices = structure.has_indices
            if structure.num_rows > _FEW:
                takes_indices = _fits(known, structure.unconstrained, columns.arrays)
            most = _BLOCK if takes_indices else structure.num_rows
            ask = partial(jax.jit(known, compiler_options=SOON), arrays=jax.tree.map(jnp.asarray, columns.arrays))
            positions, found = [], []
            for position in _positions(structure.unconstrained):
                positions.append(position)
                found.append(_ask(ask, position, structure.num_rows, most))
                if len(found) >= len(_NEAR) and any(each.is_finite for each in found):
                    break
        return cls(model, structure, columns, positions, found, takes_indices, is_wide)

    @property
    def is_finite(self) -> bool:
        """Whether there is something to compare, at some position."""
        return any(found.is_finite for found in self.found)

    def compared(self, *, by_index: bool) -> tuple[str, tuple[str, ...]]:
        """Compare with the model of one row.

        Returns what differs, in words that are empty if nothing does, and the sites that do not depend on the rows.
        """
        names, data = self.structure.deterministic, self.columns.data(by_index=by_index)
        with digits(self.is_wide):
            rows = RowModel(self.model, self.structure, self.columns, by_index=by_index)

            def known(position: PyTree, some: PyTree) -> Any:
                one = rows.at(position)
                return one.log_prior, jax.vmap(lambda row: rows.at(position, row).by_row[0])(some), one.values(names)

            program = jax.jit(known, compiler_options=SOON)
            for position, theirs in zip(self.positions, self.found, strict=True):
                usual = _usual(theirs.by_row)
                for block in _blocks(len(theirs.by_row), _BLOCK):
                    some = {name: column[block] for name, column in data.items()}
                    try:
                        mine = _Found(*jax.tree.map(np.asarray, program(position, some)))
                    except UNFIT as error:
                        return f"given the data of one row alone, the model fails ({first_line(error)})", ()
                    if not self._is_close(mine.log_prior, theirs.log_prior, 1.0):
                        return "the log density of what is outside of the plate depends on the rows", ()
                    if not self._is_close(mine.by_row, theirs.by_row[block], usual):
                        return "the log density of a row is another when the model has the data of that row alone", ()
                names = tuple(name for name in names if self._is_close(mine.values[name], theirs.values[name], 0.0))
        return "", names

    def _is_close(self, mine: Any, theirs: Any, usual: float) -> bool:
        """Whether the difference is one of rounding, for numbers of which some have this size."""
        relative = _WIDE if self.is_wide else _NARROW
        is_alike = np.shape(mine) == np.shape(theirs)
        return is_alike and bool(np.allclose(mine, theirs, rtol=relative, atol=relative * usual, equal_nan=True))


def _usual(numbers: np.ndarray) -> float:
    finite = np.abs(numbers[np.isfinite(numbers)])
    return float(np.median(finite)) if finite.size else 0.0


def _positions(shapes: dict[str, tuple[int, ...]]) -> Iterator[PyTree]:
    random = np.random.default_rng(0)
    for near in (*_NEAR, *_FURTHER):
        yield {name: as_floats(near * random.uniform(-1, 1, shape)) for name, shape in shapes.items()}


def _ask(known: Callable[..., Any], position: PyTree, num_rows: int, most: int) -> _Found:
    """Ask the model for all rows, at most some at a time."""
    by_row = np.empty(num_rows, jnp.result_type(float))
    for rows in _blocks(num_rows, most):
        indices = np.arange(rows.start, rows.stop, dtype=np.int32)
        log_prior, by_row[rows], values = jax.tree.map(np.asarray, known(position, indices=indices))
    return _Found(log_prior, by_row, values)


def _fits(known: Callable[..., Any], shapes: dict[str, tuple[int, ...]], arrays: Any) -> bool:
    """Whether the model can be asked for a few rows."""
    try:
        jax.eval_shape(known, next(_positions(shapes)), arrays, np.arange(_FEW, dtype=np.int32))
    except UNFIT:
        return False
    return True


def _blocks(num_rows: int, most: int) -> Iterator[slice]:
    """Cut the rows into blocks of one size, for which one program is compiled: the last two may overlap."""
    size = min(num_rows, most)
    for first in range(0, num_rows, size):
        begin = min(first, num_rows - size)
        yield slice(begin, begin + size)
