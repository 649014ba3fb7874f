"""Rows that come later: they take the places of empty ones (`tallchain.room`), and sums grow by theirs alone.

At the reference r the sums of the surrogate, and of the log posterior and its derivatives, grow by those of the new
rows. With g and H the gradient and the negative Hessian of the log posterior at r, the mode moves by H^-1 g.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from tallchain.arrays import as_floats, inverse_of_lower
from tallchain.bounds import Bound, Fitted, regression_bound
from tallchain.bounds.bound import ROUNDING
from tallchain.kernel import MetropolisHastings
from tallchain.parts import part, replace, set_fields
from tallchain.prepared import Prepared
from tallchain.proposals import PCN, Laplace
from tallchain.room import has_weights, places_of, weights_of
from tallchain.sources import WithReplacement
from tallchain.sources.copying import allocate
from tallchain.sources.rows import on_host, slice_rows
from tallchain.sources.stored import Stored
from tallchain.sources.sweeping import Piece, add, sweep
from tallchain.surrogates import Influence, Predictors, Reference, Taylor
from tallchain.surrogates.passes import Passes, Terms, unravelled
from tallchain.types import Array, Block, Posterior, Proposal, PyTree
from tallchain.weighing import Exact

_MUCH = 2.0  # times as large as before may the largest bound become, until all rows get other weights to be drawn by
_PIECE = 2**13  # new rows that are swept at a time: any number of them has the same programs


class Grown(NamedTuple):
    """What was prepared, and the sampler, with the new rows."""

    prepared: Prepared
    kernel: MetropolisHastings
    distance: float
    """From the reference to the mode as it is now, in posterior standard deviations, root mean square; 0 if unknown."""
    new: NewRows
    rows_swept: int


def grown(prepared: Prepared, kernel: MetropolisHastings, rows: PyTree, seed: int) -> Grown | None:
    """Add rows in the places of empty ones, by sweeps over these rows; None if a new row has no bound.

    Args:
        prepared: has its rows in memory, with room enough.
        kernel: made of it.
        rows: on the host, with weights.
        seed: of the choice of places.
    """
    assert isinstance(prepared.source, Stored)
    random, new = np.random.default_rng(seed), NewRows.of(rows)
    swept = _swept(prepared, new)
    places = random.permutation(places_of(prepared.source))[: len(weights_of(rows))]
    if prepared.exact is not None:
        assert swept.bound is not None
        if not _is_bounded(prepared.exact.bound, swept.bound):
            return None
        places = _ranked(prepared.exact, swept.bound, places)
    source = _filled(prepared.source, rows, places)
    reference, normal, distance = prepared.reference, None, 0.0
    if isinstance(reference, Reference):
        assert swept.terms is not None
        reference = _with_terms(reference, swept.terms)
        surrogate = _of_reference(prepared, reference)
        normal, distance = _moved(reference)
    else:
        surrogate = _added(reference.surrogate, swept.surrogate)
        reference = reference._replace(surrogate=surrogate)
    parts: dict[str, Any] = {"proposal": _around(kernel.proposal, normal)}
    if kernel.surrogate is not None:
        parts["surrogate"] = surrogate
    exact = prepared.exact
    if exact is not None:
        assert swept.bound is not None
        before = kernel.bound if isinstance(kernel.bound, Fitted) else exact.bound.fitted(exact.source)
        exact, bound = _exact(exact, before, swept.bound, source, places)
        if isinstance(kernel.bound, Fitted):
            parts |= {"source": exact.source, "bound": bound}
    if "source" in parts:
        pass  # drawn by weight
    elif jax.tree.leaves(kernel.source)[0] is jax.tree.leaves(prepared.source)[0]:
        parts["source"] = replace(kernel.source, data=source.data)  # the same rows, in the same memory
    else:
        own = random.permutation(places_of(kernel.source))[: len(places)]
        parts["source"] = _filled(kernel.source, rows, own)
    changes: dict[str, Any] = {"source": source, "reference": reference, "surrogate": surrogate, "exact": exact}
    changes |= {"normal": normal, "proposal": _around(prepared.proposal, normal)}
    read = len(weights_of(rows)) * (1 if exact is None else 2)
    changes["scored"] = _of_source(prepared.scored, posterior=prepared.posterior, **changes)
    now = dataclasses.replace(prepared, **changes)
    return Grown(now, replace(kernel, **parts), distance, new, read)


def rehearsed(prepared: Prepared) -> tuple[Prepared, NewRows]:
    """Compile what `grown` needs, so that the first new rows do not wait for it, and draw empty rows as others are.

    Returns new rows to try other things on, too.
    """
    assert isinstance(prepared.source, Stored)
    one = jax.tree.map(lambda leaf: np.array(leaf[:1]), prepared.source.data)
    weights_of(one)[:] = 0
    new = NewRows.of(one)
    _swept(prepared, new)
    exact, source = prepared.exact, prepared.source
    _filled(source, one, places_of(source)[:1])  # what is written to must be got from the system first
    if exact is not None:
        weights = _mimicked(exact.bound.weights_of(source), source)
        drawn = WithReplacement.of_stored(source, exact.source.batch_size, weights)
        prepared = dataclasses.replace(prepared, exact=dataclasses.replace(exact, source=drawn))
    return prepared, new


def terms_of(prepared: Prepared, rows: PyTree) -> Terms | None:
    """Return sums over new rows at the reference; None where there is no mode."""
    if has_weights(prepared.posterior, rows):
        return _terms(prepared, NewRows.of(rows))
    return _terms(prepared, WithReplacement.of_checked(rows, len(jax.tree.leaves(rows)[0]), 1))


def _terms(prepared: Prepared, new: WithReplacement) -> Terms | None:
    reference = prepared.reference
    if not isinstance(reference, Reference):
        return None
    passes = Passes(prepared.posterior, new, reference.position)
    terms = passes(_flat(reference.position), np.eye(reference.gradient.size))
    if not terms.is_finite:
        raise ValueError(
            "`fit.update(new_rows)`: the log likelihood of a new row, or a derivative, is not finite near the mode of "
            "the rows before. Look for extreme values in the new rows."
        )
    return terms


@part
class NewRows(WithReplacement):
    """New rows alone, to sweep over in pieces of one shape; empty ones follow the last."""

    @classmethod
    def of(cls, rows: PyTree) -> NewRows:
        """Take rows with weights."""
        count = len(weights_of(rows))
        size = -(-count // _PIECE) * _PIECE
        padded = jax.tree.map(lambda leaf: leaf[np.minimum(np.arange(size), count - 1)], rows)
        weights_of(padded)[count:] = 0
        made = cls.of_checked(padded, size, 1)
        assert isinstance(made, NewRows)
        return made

    def sweep(
        self,
        summarise: Callable[[Block], PyTree],
        merge: Callable[[Any, Any], Any] = add,
        *,
        lanes: int = 1,
        results: int = 1,
        report: Callable[[int], None] | None = None,
    ) -> Any:
        """Summarise every row once; see `Source.sweep`."""
        firsts = range(0, self.num_rows, _PIECE)
        pieces = (Piece(slice_rows(self.data, slice(first, first + _PIECE)), begin=first) for first in firsts)
        return sweep(summarise, merge, pieces, num_rows=_PIECE, lanes=lanes, results=results, report=report)


class _Swept(NamedTuple):
    """What sweeps over new rows have found, around the reference."""

    terms: Terms | None
    surrogate: Taylor | Predictors | None
    """Where there is no mode: of the new rows alone."""
    bound: Bound | None
    """For an exact test: of the new rows alone."""


def _swept(prepared: Prepared, new: NewRows) -> _Swept:
    posterior, reference, surrogate, bound = prepared.posterior, prepared.reference, None, None
    terms = _terms(prepared, new)
    if isinstance(reference, Reference):
        pass  # whose sums say it all
    elif isinstance(held := reference.surrogate, Predictors):
        surrogate = Predictors(posterior, new, held.position, order=held.order, reach=held.reach)
    else:
        surrogate = Taylor(posterior, new, held.position, held.order)
    if prepared.exact is not None:
        of = prepared.exact.bound
        assert of.inverse is not None
        factor = as_floats(inverse_of_lower(np.asarray(of.inverse, np.float64)))
        around = set_fields(object.__new__(Laplace), mean=of.position, factor=factor, inverse=of.inverse)
        ball = bool(np.isfinite(of.radius))
        bound = regression_bound(posterior, new, around, of.order, measure=of.measure, ball=ball)
    return _Swept(terms, surrogate, bound)


def _filled(source: Any, rows: PyTree, places: np.ndarray) -> Any:
    """Write rows to places."""
    first, last = source.num_exact, source.num_exact + source.num_rows

    def written(leaf: Array, new: np.ndarray) -> Array:
        values = on_host(leaf)
        if values is None:
            leaf = leaf.at[places].set(new.astype(leaf.dtype))
            return leaf.at[last:].set(leaf[first : first + leaf.shape[0] - last])
        held = allocate(values.shape, values.dtype)
        held[...] = values
        held[places] = new
        held[last:] = held[first : first + len(held) - last]  # the first rows again, so that no window wraps around
        return jax.device_put(held)

    return replace(source, data=jax.tree.map(written, source.data, rows))


def _of_source(scored: Any, *, posterior: Posterior, source: Stored, surrogate: Any, normal: Any, **_: Any) -> Any:
    """Return scores, or what finds them, without the rows before: they would stay in memory."""
    if isinstance(scored, Influence):
        return dataclasses.replace(scored, source=source)
    sized, options = scored.args[0], scored.keywords
    return partial(scored.func, sized, posterior, source, surrogate, normal, **options)


def _is_bounded(bound: Bound, more: Bound) -> bool:
    """Whether the new rows have bounds of the same kind."""
    return bool(np.all(np.isfinite(more.constants))) and (bound.outside is None) == (more.outside is None)


def _flat(position: PyTree) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(position)])


def _with_terms(reference: Reference, terms: Terms) -> Reference:
    """Add sums over new rows to those at the reference."""
    gradient, hessian = np.asarray(terms.gradient), np.asarray(terms.products)
    hessian = (hessian + hessian.T) / 2
    return dataclasses.replace(
        reference,
        log_likelihood=reference.log_likelihood + float(terms.value),
        likelihood_gradient=reference.likelihood_gradient + gradient,
        likelihood_hessian=reference.likelihood_hessian + hessian,
        gradient=reference.gradient + gradient / reference.temperature,
        hessian=reference.hessian - hessian / reference.temperature,
    )


def _moved(reference: Reference) -> tuple[Laplace, float]:
    """Return the normal distribution at the mode, a Newton step away, and how long that step is."""
    step = np.linalg.solve(reference.hessian, reference.gradient)
    flat = _flat(reference.position) + step
    distance = float(np.sqrt(max(step @ reference.gradient, 0.0) / len(step)))
    return Laplace.of_precision(unravelled(reference.position, flat), reference.hessian), distance


def _of_reference(prepared: Prepared, reference: Reference) -> Taylor | Predictors | None:
    """Return the surrogate with the sums of a reference; the number of rows that it was made for stays."""
    held = prepared.surrogate
    if isinstance(held, Predictors):
        return replace(held, sums=Predictors.of_reference(prepared.posterior, reference).sums)
    if held is None:
        return None
    hessian = None if held.hessian is None else as_floats(reference.likelihood_hessian)
    return replace(held, gradient=as_floats(reference.likelihood_gradient), hessian=hessian)


def _added(held: Any, more: Any) -> Any:
    """Add the sums over new rows to a surrogate in the bulk of a posterior."""
    if isinstance(held, Predictors):
        return replace(held, sums=jax.tree.map(_sum, held.sums, more.sums))
    sums = {name: jax.tree.map(_sum, getattr(held, name), getattr(more, name)) for name in ("gradient", "hessian")}
    return replace(held, **sums)


def _sum(one: Array, other: Array) -> Array:
    return as_floats(np.asarray(one, np.float64) + np.asarray(other, np.float64))


def _around(proposal: Proposal, normal: Laplace | None) -> Proposal:
    """Return a proposal around the mode as it is now. Others do not depend on the place, or hardly."""
    return replace(proposal, laplace=normal) if isinstance(proposal, PCN) and normal is not None else proposal


def _ranked(exact: Exact, more: Bound, places: np.ndarray) -> np.ndarray:
    """Return the places in the order of the new rows: the larger the constant of a row, the oftener its place comes."""
    assert exact.source.share is not None
    found = np.empty_like(places)
    often = np.argsort(np.asarray(exact.source.share)[places], kind="stable")
    found[np.argsort(-more.constants[: len(places)], kind="stable")] = places[often]
    return found


def _exact(exact: Exact, bound: Fitted, more: Bound, source: Stored, places: np.ndarray) -> tuple[Exact, Fitted]:
    """Bound the new rows too. They are drawn as often as their places were to be, unless some need it much oftener."""
    held, count = exact.bound, len(places)
    for old, new in ((held.constants, more.constants), (held.sizes, more.sizes), (held.outside, more.outside)):
        if old is not None and new is not None:
            # In place: a larger constant holds as well, for the fit before, and for another update of it.
            old[places] = np.maximum(old[places], new[:count])
    assert exact.source.share is not None
    share = np.asarray(exact.source.share)[places]
    largest = {"inside": float(np.max(share * more.constants[:count])), "size": float(np.max(more.sizes[:count]))}
    largest["rounding"] = ROUNDING * float(np.max(share * more.sizes[:count]))
    if held.outside is not None and more.outside is not None:
        largest["outside"] = float(np.max(share * more.outside[:count]))
    if largest["inside"] > _MUCH * float(bound.inside):
        drawn = WithReplacement.of_stored(source, exact.source.batch_size, _mimicked(held.weights_of(source), source))
        return dataclasses.replace(exact, source=drawn), held.fitted(drawn)
    wider = {name: as_floats(max(float(getattr(bound, name)), value)) for name, value in largest.items()}
    drawn = replace(exact.source, data=source.data)
    return dataclasses.replace(exact, source=drawn), replace(bound, **wider)


def _mimicked(weights: np.ndarray, source: Stored) -> np.ndarray:
    """Give empty rows the weights of others: a row that takes a place then needs no other table to be drawn from."""
    places, found = places_of(source), np.array(weights)
    there = np.setdiff1d(np.random.default_rng(len(places)).choice(len(found), 2 * len(places) + 8), places)
    found[places] = found[np.resize(there, len(places))] if len(there) else found.mean()
    return found
