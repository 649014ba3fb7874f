"""New rows for a fit, as its source has them; or what is wrong with them, before anything is changed."""

from __future__ import annotations

import hashlib
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from tallchain.fitting.held import Held
from tallchain.models.design import row_offset, row_weights
from tallchain.models.likelihood import RegressionLogLikelihood, regression_of
from tallchain.room import Slot, has_weights
from tallchain.sources.rows import take_data
from tallchain.types import Posterior, PyTree
from tallchain.validation import brief

CALL = "fit.update(new_rows)"


class Arrived(NamedTuple):
    """Rows that are to be added."""

    rows: PyTree
    """As the rows of the fit are, without weights unless these have some of their own."""
    num_rows: int
    checksum: str | None = None
    num_dropped: int = 0
    missing: dict[str, int] = {}  # noqa: RUF012 - nobody writes to it
    """Values that were missing, by column."""


def arrived(fit: Held, new: Any, missing: Literal["refuse", "drop"]) -> Arrived:
    """Read new rows: a table for a fit of a formula, else rows as the fit was given."""
    if fit.spec is not None and fit.model is not None:
        return _of_table(fit, new, missing)
    if missing != "refuse":
        raise TypeError(f"`{CALL[:-1]}, missing=...)` goes with a formula; got {brief(missing)}.")
    assert fit.prepared is not None
    held = fit.prepared.source.data  # ty: ignore[missing-attribute]
    held = held.row if isinstance(held, Slot) else held
    rows, num_rows = take_data(CALL.removesuffix("(new_rows)"), new)
    model = regression_of(fit.prepared.posterior)
    if model is not None and isinstance(rows, dict) and not _takes_weights(fit, held, rows):
        held = {name: held[name] for name in held if name != "weight"}
    _check_alike(held, rows)
    rows = jax.tree.map(_converted, rows, held)
    if model is not None:
        known = fit.model.data["y"] if fit.model is not None else np.asarray(held["y"])
        rows = _checked(model, rows, known)
    return Arrived(rows, num_rows)


def _takes_weights(fit: Held, held: dict[str, Any], rows: dict[str, Any]) -> bool:
    """Whether rows of a regression must say how often they count: those of the fit do, and not only for its room."""
    if fit.model is not None or "weight" not in held:
        return fit.model is not None and "weight" in fit.model.data
    weight = np.asarray(held["weight"])
    return "weight" in rows or not np.all((weight == 0) | (weight == 1))


def _converted(leaf: Any, of: Any) -> np.ndarray:
    """Return new rows in the type of those of the fit, or refuse numbers that it does not have."""
    new = np.asarray(leaf)
    made = new.astype(of.dtype)
    is_kept = made == new if made.dtype.kind in "iu" else np.isfinite(made) == np.isfinite(new)
    if not np.all(is_kept):
        raise ValueError(f"`{CALL}` must hold numbers as those of the fit, {of.dtype}; got {new[~is_kept][0]}.")
    return made


def _of_table(fit: Held, new: Any, missing: Literal["refuse", "drop"]) -> Arrived:
    from tallchain.formulas.arrivals import arrivals
    from tallchain.tables import open_table

    assert fit.spec is not None
    assert fit.model is not None
    table = open_table(new, CALL)
    found = arrivals(f"`{CALL}`", fit.spec, fit.model, table, missing)
    both = f"{fit.facts.checksum} {table.checksum()}".encode()
    checksum = f"blake2b:{hashlib.blake2b(both, digest_size=16).hexdigest()}"
    return Arrived(found.rows, len(found.rows["x"]), checksum, found.num_dropped, found.missing)


def _check_alike(held: PyTree, rows: PyTree) -> None:
    """Refuse rows that are not like those of the fit."""
    mine, its = (jax.tree.structure(tree) for tree in (held, rows))
    if mine != its:
        raise ValueError(f"`{CALL}` must be rows like those of the fit, {_shapes(held)}; got {_shapes(rows)}.")
    for leaf, new in zip(jax.tree.leaves(held), jax.tree.leaves(rows), strict=True):
        is_exact = np.can_cast(new.dtype, leaf.dtype, "same_kind") or new.dtype.kind == "b"
        if new.shape[1:] != leaf.shape[1:] or not is_exact:
            raise ValueError(f"`{CALL}` must be rows like those of the fit, {_shapes(held)}; got {_shapes(rows)}.")


def _shapes(tree: PyTree) -> str:
    said = [
        f"{jax.tree_util.keystr(path) or 'an array'}: {leaf.dtype}{['rows', *leaf.shape[1:]]}".replace("'", "")
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]
    return ", ".join(said)


def _checked(model: RegressionLogLikelihood, rows: dict[str, np.ndarray], known: np.ndarray) -> dict[str, np.ndarray]:
    """Check the rows of a regression that was made of arrays; outcomes before them are known."""
    call = CALL.removesuffix("(new_rows)")
    rows = rows | {"y": model.family.more_outcomes(call, rows["y"], known)}
    for name in ("x", "slopes"):
        if name in rows and not np.all(np.isfinite(rows[name])):
            raise ValueError(f"`{CALL}` must hold finite numbers; got others in {name!r}.")
    if model.layout.has_intercept and not np.all(rows["x"][:, 0] == 1):
        raise ValueError(f"`{CALL}` must have 1 in the first column of `x`, for the intercept, as the rows of the fit.")
    for name, check in (("offset", row_offset), ("weight", row_weights)):
        if name in rows:
            rows[name] = check(call, rows[name], len(rows["x"]))
    for term in model.layout.terms:
        codes = rows["groups"][:, term.factor]
        if codes.min() < 0 or codes.max() >= term.num_levels:
            raise ValueError(
                f"`{CALL}`: groups of {term.name!r} must be numbers from 0 to {term.num_levels - 1}; got {codes.min()} "
                f"to {codes.max()}. Fit all rows anew for groups that the fit does not have."
            )
    return rows


def with_weights(posterior: Posterior, rows: PyTree, like: PyTree) -> PyTree:
    """Give new rows weights, as the rows of a source that has some."""
    if has_weights(posterior, rows) or not has_weights(posterior, like):
        return rows
    ones = np.ones(len(jax.tree.leaves(rows)[0]), np.float32)
    return Slot(rows, ones) if isinstance(like, Slot) else rows | {"weight": ones}
