"""Refusals before the search for a mode begins."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.arrays import as_floats
from tallchain.checks import check_functions, check_posterior
from tallchain.sources import as_source
from tallchain.types import PyTree, Source
from tallchain.validation import brief, is_whole

MOST_COORDINATES = 2000
"""Of a position, for a d x d Hessian."""


def check_start(posterior: Any, data: PyTree, initial: PyTree, max_iterations: Any) -> tuple[Source, PyTree]:
    """Return a source, and the start in JAX's default float, or raise an error that says what is wrong."""
    check_posterior("find_reference", posterior)
    source = as_source("find_reference", data)
    if not is_whole(max_iterations, least=1):
        raise ValueError(
            f"`find_reference(max_iterations=...)` must be a whole number, at least 1; got {brief(max_iterations)}."
        )
    start = _check_initial(initial)
    check_functions(posterior, start, source)
    return source, start


def _check_initial(initial: PyTree) -> PyTree:
    call = "`find_reference(initial=...)`"
    leaves = jax.tree_util.tree_leaves_with_path(initial)
    size = sum(np.size(leaf) for _, leaf in leaves)
    if size == 0:
        raise ValueError(f"{call} must hold at least one number; got {brief(initial)}.")
    for path, leaf in leaves:
        values, name = np.asarray(leaf), jax.tree_util.keystr(path) or "the position"
        if not jnp.issubdtype(values.dtype, jnp.floating):
            raise TypeError(f"{call} must be of a float type; got {values.dtype} for {name}. Write 1.0 for 1.")
        if not np.all(np.isfinite(values)):
            raise ValueError(f"{call} must be finite; got {brief(values)} for {name}.")
    if size > MOST_COORDINATES:
        raise ValueError(
            f"{call} has d = {size:,} coordinates; the d x d Hessian is made for at most {MOST_COORDINATES:,}. Fix or "
            "drop some of them, or sample without a reference."
        )
    return jax.tree.map(as_floats, initial)
