"""Refusals before anything large compiles: each quotes the call, says what was received, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.types import PyTree, is_traced

if TYPE_CHECKING:
    from tallchain.kernel import MetropolisHastings

_EVALUATIONS = 2**18  # row likelihoods evaluated to look for values that are not finite


def check_start(kernel: MetropolisHastings, positions: PyTree) -> None:
    """Refuse a start from which the kernel cannot run; `positions` has the chains along the first axis."""
    _check_floats(positions)
    first = jax.tree.map(lambda leaf: leaf[0], positions)
    if kernel.surrogate is not None:
        kernel.surrogate.check(first)
    check_scalar("log_prior(position)", "Sum over the coordinates.", kernel.posterior.log_prior, first)
    row = jax.tree.map(lambda leaf: leaf[0], kernel.source.first_rows(1))
    hint = "It is for ONE row, and tallchain maps it over rows: sum over the entries of a row, not over rows."
    check_scalar("log_likelihood(position, row)", hint, kernel.posterior.log_likelihood, first, row)
    if kernel.bound is not None:
        check_scalar("bound(position, candidate)", "It bounds the range over ALL rows.", kernel.bound, first, first)
    if not is_traced((kernel, positions)):
        kernel.proposal.check(first)
        _check_values(kernel, positions)


def are_scalars(kernel: MetropolisHastings, position: PyTree) -> bool:
    """Whether log prior and log likelihood come out as scalars at a position of these shapes."""
    row = jax.tree.map(lambda leaf: leaf[0], kernel.source.first_rows(1))
    try:
        prior = jax.eval_shape(kernel.posterior.log_prior, position)
        likelihood = jax.eval_shape(kernel.posterior.log_likelihood, position, row)
    except Exception:  # whatever the user's function raises: it does not take positions of these shapes
        return False
    return jnp.shape(prior) == jnp.shape(likelihood) == ()


def _check_floats(positions: PyTree) -> None:
    leaves = jax.tree_util.tree_leaves_with_path(positions)
    if not leaves:
        raise ValueError("The initial position must hold at least one array; got an empty pytree.")
    for path, leaf in leaves:
        where = f"initial position{jax.tree_util.keystr(path)}"
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(
                f"The {where} must be of a float type, so that a proposal can move it; got {leaf.dtype}. "
                "Write 1.0 for 1, or convert it with `jnp.asarray(x, float)`."
            )
        if not is_traced(leaf) and not np.all(np.isfinite(leaf)):
            raise ValueError(f"The {where} must be finite; got {np.asarray(leaf)!r}.")


def check_scalar(call: str, hint: str, function: Any, *arguments: PyTree) -> None:
    """Refuse a function that does not return one float at these arguments; nothing is computed."""
    out = jax.eval_shape(function, *arguments)
    if not hasattr(out, "shape") or out.shape != () or not jnp.issubdtype(out.dtype, jnp.floating):
        got = f"shape {out.shape}, {out.dtype}" if hasattr(out, "shape") else repr(out)
        raise ValueError(f"`{call}` must return one float (shape ()); got {got}. {hint}")


def _check_values(kernel: MetropolisHastings, positions: PyTree) -> None:
    priors = np.asarray(jax.vmap(kernel.posterior.log_prior)(positions))
    if not np.all(np.isfinite(priors)):
        chain = int(np.nonzero(~np.isfinite(priors))[0][0])
        raise ValueError(
            f"`log_prior(position)` is {priors[chain]} at the initial position of chain {chain}. Start where the "
            "prior is positive."
        )
    rows = kernel.source.first_rows(max(1, min(1024, _EVALUATIONS // len(priors))))
    each_row = jax.vmap(kernel.posterior.log_likelihood, (None, 0))
    values = np.asarray(jax.vmap(each_row, (0, None))(positions, rows))
    if not np.all(np.isfinite(values)):
        chain, at = (int(i[0]) for i in np.nonzero(~np.isfinite(values)))
        row = jax.tree.map(lambda leaf: np.asarray(leaf[at]), rows)
        raise ValueError(
            f"`log_likelihood(position, row)` is {values[chain, at]} at the initial position of chain {chain}, for the "
            f"row {row!r}. Start where every row is possible, and look for missing values in the data."
        )
