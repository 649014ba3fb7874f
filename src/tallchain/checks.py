"""Refusals before anything large compiles: each quotes the call, says what was received, and what to do."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.abilities import ReadingProposal
from tallchain.coordinates import as_given, coordinates_of
from tallchain.functions import QUICKLY, program
from tallchain.names import in_order_of
from tallchain.types import Array, Posterior, PyTree, Source, Target
from tallchain.validation import brief, is_traced

_EVALUATIONS = 2**18  # row likelihoods evaluated to look for values that are not finite


def check_position(call: str, position: Any) -> PyTree:
    """Return a position as arrays, or raise an error if it does not hold numbers."""

    def array(leaf: Any) -> Any:
        try:
            held = jnp.asarray(leaf)
            return held if is_traced(held) else np.asarray(held)  # slices by JAX would be programs of their own
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"`{call}` must be a position: an array, or a pytree of arrays; got {brief(leaf)}."
            ) from error

    arrays = jax.tree.map(array, position)
    if sum(leaf.size for leaf in jax.tree.leaves(arrays)) == 0:
        raise ValueError(f"`{call}`: the initial position must hold at least one number; got {brief(position)}.")
    return arrays


def position_of(call: str, posterior: Posterior, parameters: Any) -> PyTree:
    """Return the position of parameters that a user gave, one or many; `call` is like "sample(initial=...)".

    A posterior without constraints takes its parameters as they are, and they are checked later.
    """
    coordinates = coordinates_of(posterior)
    if coordinates is None:
        return parameters
    try:
        chosen = coordinates.chosen(parameters)
    except ValueError as error:
        raise ValueError(f"`{call}` {error}") from error
    arrays = in_order_of(check_position(call, chosen), chosen)
    _check_floats(call, arrays)
    try:
        return coordinates.unconstrain(arrays)
    except ValueError as error:
        raise ValueError(f"`{call}`: {error}") from error


class Movable(Protocol):
    """What moves positions: a proposal, or the dynamics of a kernel without a test."""

    def check(self, position: PyTree) -> None:
        """Refuse a position that it cannot move."""


def check_start(call: str, target: Target, proposal: Movable, bound: Any, positions: PyTree) -> None:
    """Refuse a start from which this kernel cannot run; `positions` has the chains along the first axis."""
    _check_floats(call, positions)
    posterior, surrogate, source = target
    first = jax.tree.map(lambda leaf: leaf[0], positions)
    if surrogate is not None:
        surrogate.check(first)
    check_functions(posterior, first, source)
    row = jax.tree.map(lambda leaf: leaf[0], source.some_rows(1))
    _ask_about_row(posterior.log_likelihood, first, row, source.population.total)
    if bound is not None:
        check_scalar("bound(position, candidate)", "It bounds the range over ALL rows.", bound, first, first)
    if isinstance(proposal, ReadingProposal):
        _check_gradient(posterior.log_likelihood, first, row, type(proposal).__name__)
    if not is_traced((target, proposal, positions)):
        proposal.check(first)
        _check_values(target, positions)
        if isinstance(proposal, ReadingProposal):
            _check_slopes(target, positions)


def check_posterior(call: str, posterior: Any) -> None:
    """Refuse what is no posterior."""
    if isinstance(posterior, type) or not hasattr(posterior, "log_likelihood"):
        hint = ""
        if hasattr(posterior, "posterior"):
            hint = " Use `regression.posterior`."
        elif callable(posterior):
            hint = " Of a NumPyro model make one by `bridges.numpyro.posterior(model, ...)`."
        raise TypeError(f"`{call}(posterior=...)` must be a Posterior(...); got {brief(posterior)}.{hint}")


def check_functions(posterior: Posterior, position: PyTree, source: Source) -> None:
    """Refuse a log prior, or a log likelihood, that is not one float at this position; nothing is computed."""
    log_prior, log_likelihood, parameters = as_given(posterior, position)
    check_scalar("log_prior(position)", "Sum over the coordinates.", log_prior, parameters)
    check_likelihood(log_likelihood, parameters, source)


def check_likelihood(log_likelihood: Any, position: PyTree, source: Source) -> None:
    """Refuse a log likelihood that is not one float at this position and a row of the source; nothing is computed."""
    row = jax.tree.map(lambda leaf: leaf[0], source.some_rows(1))
    hint = "It is for ONE row, and tallchain maps it over rows: sum over the entries of a row, not over rows."
    check_scalar("log_likelihood(position, row)", hint, log_likelihood, position, row)


def are_scalars(target: Target, position: PyTree) -> bool:
    """Whether log prior and log likelihood are scalars at a position of these shapes."""
    row = jax.tree.map(lambda leaf: leaf[0], target.source.some_rows(1))
    try:
        prior = jax.eval_shape(target.posterior.log_prior, position)
        likelihood = jax.eval_shape(target.posterior.log_likelihood, position, row)
    except Exception:  # whatever the user's function raises: it does not take positions of these shapes
        return False
    return jnp.shape(prior) == jnp.shape(likelihood) == ()


def _check_floats(call: str, positions: PyTree) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(positions):
        where = f"`{call}`: the initial position{jax.tree_util.keystr(path)}"
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(
                f"{where} must be of a float type, so that a proposal can move it; got {leaf.dtype}. "
                "Write 1.0 for 1, or convert it with `jnp.asarray(x, float)`."
            )
        if leaf.dtype.itemsize < 4:
            raise TypeError(
                f"{where} must be float32 or float64; got {leaf.dtype}, which would give draws with 2 or 3 "
                "digits. Convert it with `jnp.asarray(x, jnp.float32)`."
            )
        if not is_traced(leaf) and not np.all(np.isfinite(leaf)):
            raise ValueError(f"{where} must be finite; got {brief(np.asarray(leaf))}.")


def check_scalar(call: str, hint: str, function: Any, *arguments: PyTree) -> None:
    """Refuse a function that does not return one float at these arguments; nothing is computed."""
    try:
        out = jax.eval_shape(function, *arguments)
    except Exception as error:  # whatever the user's function raises
        raise ValueError(_raised(call, function, arguments, error)) from error
    if not hasattr(out, "shape") or out.shape != () or not jnp.issubdtype(out.dtype, jnp.floating):
        got = f"shape {out.shape}, {out.dtype}" if hasattr(out, "shape") else repr(out)
        raise ValueError(f"`{call}` must return one float (shape ()); got {got}. {hint}")


def _check_gradient(log_likelihood: Any, position: PyTree, row: PyTree, name: str) -> None:
    """Refuse a likelihood that JAX cannot differentiate by the position."""
    try:
        jax.eval_shape(jax.grad(log_likelihood), position, row)
    except Exception as error:  # whatever the user's function raises
        said = (str(error).strip() or "no message").splitlines()[0]
        raise ValueError(
            f"`log_likelihood(position, row)` has no gradient by the position, and {name}(...) needs one: "
            f"{type(error).__name__}: {said.rstrip('.')}. Use `RandomWalk`, which needs none."
        ) from error


def _raised(call: str, function: Any, arguments: tuple[PyTree, ...], error: Exception) -> str:
    names = call[call.index("(") + 1 : -1].split(", ")
    shapes = (f"a {name} of {_shapes(argument)}" for name, argument in zip(names, arguments, strict=True))
    said = (str(error).strip() or "no message").splitlines()[0]
    message = f"`{call}` raised {type(error).__name__} for {' and '.join(shapes)}: {said.rstrip('.')}. "
    try:
        jax.eval_shape(function, *reversed(arguments))
    except Exception:
        return message + "Does the start fit the model?" + (" The row is ONE row." if "row" in names else "")
    if len(arguments) == 1:
        return message
    return message + f"Its arguments are in the wrong order: write `{call}`, the {names[0]} first."


def _shapes(tree: PyTree) -> str:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return ", ".join(f"{jax.tree_util.keystr(path)} shape {jnp.shape(leaf)}".strip() for path, leaf in leaves)


def _ask_about_row(log_likelihood: Any, position: PyTree, row: PyTree, num_rows: int) -> None:
    """Warn of a likelihood that never uses its row, and holds an array of as many rows itself."""
    closed = jax.make_jaxpr(log_likelihood)(position, row)
    rows = closed.jaxpr.invars[-len(jax.tree.leaves(row)) :]
    used = [each for equation in closed.jaxpr.eqns for each in equation.invars] + list(closed.jaxpr.outvars)
    held: list[Any] = [*closed.consts, *(getattr(each, "val", None) for each in used)]
    if not any(each is one for each in used for one in rows) and any(
        np.shape(each)[:1] == (num_rows,) for each in held
    ):
        warnings.warn(
            f"`log_likelihood(position, row)` never uses its row, and holds an array of {num_rows:,} rows. Does it sum "
            "over all data? It is for ONE row, and tallchain adds the rows up: every row would count as all of them.",
            RuntimeWarning,
            stacklevel=4,
        )


@program(compiler_options=QUICKLY)
def _values(posterior: Posterior, positions: PyTree, rows: PyTree) -> tuple[Array, Array]:
    """Log priors by chain, and log likelihoods by chain and row."""
    each_row = jax.vmap(posterior.log_likelihood, (None, 0))
    return jax.vmap(posterior.log_prior)(positions), jax.vmap(each_row, (0, None))(positions, rows)


def _some_values(posterior: Posterior, source: Source, positions: PyTree) -> tuple[np.ndarray, np.ndarray, PyTree]:
    """Log priors by chain, log likelihoods by chain and row, and the rows: some of them."""
    chains = len(jax.tree.leaves(positions)[0])
    rows = source.some_rows(max(1, min(1024, _EVALUATIONS // chains)))
    priors, values = map(np.asarray, _values(posterior, positions, rows))
    return priors, values, rows


def are_possible(posterior: Posterior, source: Source, positions: PyTree) -> np.ndarray:
    """Whether log prior and log likelihood are finite at each position, as far as some rows tell."""
    priors, values, _ = _some_values(posterior, source, positions)
    return np.isfinite(priors) & np.isfinite(values).all(1)


def _check_values(target: Target, positions: PyTree) -> None:
    priors, values, rows = _some_values(target.posterior, target.source, positions)
    if not np.all(np.isfinite(priors)):
        chain = int(np.nonzero(~np.isfinite(priors))[0][0])
        raise ValueError(
            f"`log_prior(position)` is {priors[chain]} at the initial position of chain {chain}. Start where the "
            "prior is positive."
        )
    if not np.all(np.isfinite(values)):
        chain, at = (int(i[0]) for i in np.nonzero(~np.isfinite(values)))
        row = jax.tree.map(lambda leaf: np.asarray(leaf[at]), rows)
        raise ValueError(
            f"`log_likelihood(position, row)` is {values[chain, at]} at the initial position of chain {chain}, for the "
            f"row {brief(row)}. Start where every row is possible, and look for missing values in the data."
        )


@program(compiler_options=QUICKLY)
def _slopes(posterior: Posterior, positions: PyTree, rows: PyTree) -> Array:
    """Whether gradients of the log likelihood are finite, by chain and row."""

    def one(position: PyTree, row: PyTree) -> Array:
        leaves = jax.tree.leaves(jax.grad(posterior.log_likelihood)(position, row))
        return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(positions, rows)


def _check_slopes(target: Target, positions: PyTree) -> None:
    chains = len(jax.tree.leaves(positions)[0])
    rows = target.source.some_rows(max(1, min(64, _EVALUATIONS // chains)))
    is_finite = np.asarray(_slopes(target.posterior, positions, rows))
    if not is_finite.all():
        chain, at = (int(i[0]) for i in np.nonzero(~is_finite))
        row = jax.tree.map(lambda leaf: np.asarray(leaf[at]), rows)
        raise ValueError(
            f"the gradient of `log_likelihood(position, row)` is nan or infinite at the initial position of chain "
            f"{chain}, for the row {brief(row)}. A branch of `jnp.where` that is not taken hands NaN on to the "
            "gradient: replace what goes into it with another `jnp.where`."
        )
