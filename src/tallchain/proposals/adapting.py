"""The surrogate posterior by itself: the parameters of a transition, and draws, without reading a row.

Whatever it costs does not grow with N.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

from tallchain.checks import check_position
from tallchain.functions import program
from tallchain.keys import fold_in, single_key
from tallchain.progress import shown
from tallchain.proposals.coordinates import Coordinates, Map, check_coordinates, check_round_trip
from tallchain.proposals.transition import (
    KINDS,
    Chain,
    SurrogatePosterior,
    Transition,
    blackjax_of,
    check_algorithm,
    check_sizes,
    key_of,
)
from tallchain.types import Array, PyTree, Target
from tallchain.validation import brief, check_switch, is_positive, is_whole

_TOGETHER = 256  # second derivatives to compute at a time


class Adapted(NamedTuple):
    """An adapted transition, and where its chains are."""

    transition: Transition
    positions: PyTree
    """The last of every chain, along a first axis."""


def adapt_transition(
    key: Array,
    target: Target,
    positions: PyTree,
    algorithm: str = "nuts",
    *,
    coordinates: Coordinates | None = None,
    parameters: dict[str, int] | None = None,
    num_steps: int = 500,
    acceptance: float | None = None,
    is_dense: bool = False,
    repeats: int = 1,
    share_waiting: float = 0.7,
    progress: bool = True,
) -> Adapted:
    """Adapt a `Transition` to the surrogate posterior; no row is read.

    "nuts" and "hmc" are adapted by BlackJAX's `window_adaptation` (Stan's scheme) for every chain; the mass matrices
    are averaged, and the median step size is taken. "mala" and "barker_proposal" have one step size for all chains, by
    dual averaging (Hoffman and Gelman 2014).

    Args:
        key: a JAX key.
        target: as `kernel.target`; its source is not used, and may be None.
        positions: where to start: one position, or one for each chain along a first axis.
        algorithm: as in `Transition`.
        coordinates: as in `Transition`; the posterior should be of about unit size in them.
        parameters: the whole numbers among the parameters: `num_integration_steps`, which "hmc" needs, or
            `max_num_doublings` of "nuts".
        num_steps: of every chain.
        acceptance: rate to aim at; None: 0.8 for "nuts" and "hmc", 0.574 for "mala", 0.4 for "barker_proposal".
        is_dense: whether the mass matrix is a matrix or, by default, diagonal.
        repeats: as in `Transition`.
        share_waiting: as in `Transition`.
        progress: whether to show that it goes on.
    """
    call = "adapt_transition"
    kind = check_algorithm(call, algorithm)
    blackjax_of(call)
    check_coordinates(call, coordinates)
    sizes = check_sizes(call, algorithm, {} if parameters is None else parameters)
    if not is_whole(num_steps, 20):
        raise ValueError(f"`{call}(num_steps=...)` must be a whole number, at least 20; got {brief(num_steps)}.")
    acceptance = kind.acceptance if acceptance is None else acceptance
    if not (is_positive(acceptance) and acceptance < 1):
        raise ValueError(f"`{call}(acceptance=...)` must be between 0 and 1; got {brief(acceptance)}.")
    is_dense = check_switch(call, "is_dense", is_dense)
    if is_dense and "inverse_mass_matrix" not in kind.arrays:
        raise ValueError(f'`{call}(algorithm="{algorithm}", is_dense=True)`: it has no mass matrix.')
    density = SurrogatePosterior.of(f"{call}(target=...)", target)
    starts = _by_chain(f"{call}(positions=...)", density, positions)
    check_round_trip(call, coordinates, jax.tree.map(lambda leaf: leaf[0], starts))
    words = _words(single_key(f"{call}(key=...)", key), starts)
    with shown(check_switch(call, "progress", progress), "adapting"):
        found, last, values = _adapted(
            density,
            coordinates,
            words,
            starts,
            jnp.asarray(acceptance, jnp.result_type(float)),
            algorithm=algorithm,
            sizes=sizes,
            num_steps=int(num_steps),
            is_dense=is_dense,
        )
        found = jax.tree.map(np.asarray, found)
    _check_values(f"{call}(positions=...)", values)
    if not all(np.all(np.isfinite(value)) for value in found.values()) or not found["step_size"] > 0:
        raise ValueError(
            f"`{call}(...)` found no step size for the surrogate posterior: {brief(found['step_size'])}. Is it a "
            "density? Start nearer to the reference of the surrogate, or give a proper prior."
        )
    return Adapted(Transition(algorithm, found | dict(sizes), coordinates, repeats, share_waiting), last)


@program(static_argnames=("algorithm", "sizes", "num_steps", "is_dense"))
def _adapted(
    density: SurrogatePosterior,
    coordinates: Coordinates | None,
    words: Array,
    positions: PyTree,
    acceptance: Array,
    *,
    algorithm: str,
    sizes: tuple[tuple[str, int], ...],
    num_steps: int,
    is_dense: bool,
) -> tuple[dict[str, Array], PyTree, Array]:
    """Return the parameters that are arrays, the last positions, and the log densities at the first."""
    change = Map(coordinates, jax.tree.map(lambda leaf: leaf[0], positions))
    sampler, log_density = getattr(blackjax_of("adapt_transition"), algorithm), change.density(density.log_density)
    starts = jax.vmap(change.to)(positions)
    values = jax.vmap(log_density)(starts)
    if "inverse_mass_matrix" in KINDS[algorithm].arrays:
        at = change.to(density.surrogate.position)
        unit = _units(log_density, at) if coordinates is None else jnp.ones_like(at)
        adapt = partial(_by_windows, sampler, lambda v: log_density(unit * v), acceptance, dict(sizes), num_steps)
        found, last = jax.vmap(partial(adapt, is_dense=is_dense))(words, starts / unit)
        mass = jnp.mean(found["inverse_mass_matrix"], 0) * (jnp.outer(unit, unit) if is_dense else unit**2)
        step_size = jnp.median(found["step_size"])
        return {"step_size": step_size, "inverse_mass_matrix": mass}, jax.vmap(change.back)(unit * last), values
    step_size, last = _by_averaging(sampler, log_density, acceptance, words, starts, num_steps)
    return {"step_size": step_size}, jax.vmap(change.back)(last), values


def _units(log_density: Any, at: Array) -> Array:
    """Return units of the coordinates in which the density has a curvature of 1 at a point, where it has a maximum.

    Stan's scheme is made for coordinates of about unit size: it shrinks variances to 0.001. Those of a posterior over a
    million rows may be smaller than that.
    """

    @jax.vmap
    def curvature(i: Array) -> Array:
        return jax.jvp(jax.grad(log_density), (at,), (jax.nn.one_hot(i, at.size, dtype=at.dtype),))[1][i]

    width = min(at.size, _TOGETHER)
    indices = jnp.minimum(jnp.arange(-(-at.size // width) * width), at.size - 1).reshape(-1, width)
    curvatures = -lax.map(curvature, indices).ravel()[: at.size]
    return jnp.where(jnp.isfinite(curvatures) & (curvatures > 0), lax.rsqrt(curvatures), 1.0)


def _by_windows(
    sampler: Any,
    log_density: Any,
    acceptance: Array,
    sizes: dict[str, int],
    num_steps: int,
    words: Array,
    start: Array,
    *,
    is_dense: bool,
) -> tuple[dict[str, Array], Array]:
    """Step size and mass matrix of one chain."""
    adaptation = blackjax_of("adapt_transition").window_adaptation(
        sampler,
        log_density,
        is_mass_matrix_diagonal=not is_dense,
        target_acceptance_rate=acceptance,
        adaptation_info_fn=lambda *_: (),
        **sizes,
    )
    (state, found), _ = adaptation.run(key_of(words), start, num_steps=num_steps)
    return {name: found[name] for name in ("step_size", "inverse_mass_matrix")}, state.position


def _by_averaging(
    sampler: Any, log_density: Any, acceptance: Any, words: Array, starts: Array, num_steps: int
) -> tuple[Array, Array]:
    """One step size for all chains."""
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    init, update, final = dual_averaging_adaptation(acceptance)
    kernel = sampler.build_kernel()

    def step(carry: Any, at: Array) -> tuple[Any, None]:
        states, averages = carry
        one = partial(kernel, logdensity_fn=log_density, step_size=jnp.exp(averages.log_step_size))
        keys = jax.vmap(lambda words: jr.fold_in(key_of(words), at))(words)
        states, info = jax.vmap(one)(keys, states)
        # A ratio that is not a number rejects; as a rate it would spoil all that follows.
        rate = jnp.mean(jnp.nan_to_num(info.acceptance_rate))
        return (states, update(averages, rate)), None

    first = jax.tree.map(lambda leaf: jnp.asarray(leaf, starts.dtype), init(1.0))
    states = jax.vmap(partial(sampler.init, logdensity_fn=log_density))(starts)
    (states, averages), _ = lax.scan(step, (states, first), jnp.arange(num_steps))
    return final(averages), states.position


def sample_surrogate(
    key: Array, target: Target, transition: Transition, positions: PyTree, num_draws: int, *, progress: bool = False
) -> PyTree:
    """Draw from the surrogate posterior by a transition: (chains, draws, ...), on the device; no row is read.

    Args:
        key: a JAX key; the draws of a chain do not depend on how many chains and draws there are.
        target: as `kernel.target`; its source is not used, and may be None.
        transition: makes the steps, as many for a draw as it `repeats`.
        positions: where to start: one position, or one for each chain along a first axis.
        num_draws: of every chain.
        progress: whether to show that it goes on.
    """
    call = "sample_surrogate"
    if not isinstance(transition, Transition):
        raise TypeError(f"`{call}(transition=...)` must be a Transition(...); got {brief(transition)}.")
    if not is_whole(num_draws, 1):
        raise ValueError(f"`{call}(num_draws=...)` must be a whole number, at least 1; got {brief(num_draws)}.")
    density = SurrogatePosterior.of(f"{call}(target=...)", target)
    starts = _by_chain(f"{call}(positions=...)", density, positions)
    transition.check(jax.tree.map(lambda leaf: leaf[0], starts))
    words = _words(single_key(f"{call}(key=...)", key), starts)
    with shown(check_switch(call, "progress", progress), "sampling the surrogate"):
        drawn, values = _draws(density, transition, words, starts, num_draws=int(num_draws))
        _check_values(f"{call}(positions=...)", values)
    return drawn


@program(static_argnames="num_draws")
def _draws(
    density: SurrogatePosterior, transition: Transition, words: Array, positions: PyTree, *, num_draws: int
) -> tuple[PyTree, Array]:
    """Return the draws, and the log densities at the first positions."""
    chain = Chain(transition, density, jax.tree.map(lambda leaf: leaf[0], positions))

    def draw(states: Any, at: Array) -> tuple[Any, PyTree]:
        keys = jax.vmap(lambda words: jr.fold_in(key_of(words), at))(words)
        states = jax.vmap(chain.step)(keys, states)
        return states, jax.vmap(chain.position)(states)

    first = jax.vmap(chain.init)(positions)
    _, drawn = lax.scan(draw, first, jnp.arange(num_draws))
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), drawn), first.logdensity


def _words(key: Array, positions: PyTree) -> np.ndarray:
    """Return the words of the key of every chain."""
    return np.asarray(jr.key_data(fold_in(key, np.arange(len(jax.tree.leaves(positions)[0])))))


def _by_chain(call: str, density: SurrogatePosterior, positions: PyTree) -> PyTree:
    """Return positions along a first axis; one becomes one chain."""
    positions = check_position(call, positions)
    like = density.surrogate.position
    shapes, expected = (jax.tree.map(np.shape, tree) for tree in (positions, like))
    is_alike = jax.tree.structure(positions) == jax.tree.structure(like)
    if is_alike and shapes == expected:
        positions = jax.tree.map(lambda leaf: leaf[None], positions)
    lengths = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(positions)}
    inner = jax.tree.map(lambda leaf: np.shape(leaf)[1:], positions)
    if not is_alike or inner != expected or len(lengths) != 1 or lengths == {(0,)}:
        raise ValueError(
            f"`{call}` must be one position of shapes {expected}, as the surrogate's, or one for each chain along a "
            f"first axis; got shapes {shapes}."
        )
    return jax.tree.map(lambda leaf: np.asarray(leaf, jnp.result_type(leaf, jnp.float32)), positions)


def _check_values(call: str, values: Array) -> None:
    """Refuse starts where the surrogate posterior is not positive."""
    found = np.asarray(values)
    if not np.all(np.isfinite(found)):
        chain = int(np.nonzero(~np.isfinite(found))[0][0])
        raise ValueError(
            f"`{call}`: the log density of the surrogate posterior is {found[chain]} at the start of chain {chain}. "
            "Start where it is finite, as at the position of the surrogate."
        )
