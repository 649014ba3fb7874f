"""Surrogate transitions: steps of another sampler, on the posterior that a surrogate gives, as proposals.

Let Q be the sum of a surrogate over all rows, K the temperature, and pi~(t) = exp(log p0(t) + Q(t)/K). It is evaluated
without rows. If T is a kernel that is REVERSIBLE for pi~, pi~(t) T(t, t') = pi~(t') T(t', t), then a candidate t' from
T(t, .) has

    log q(t | t') - log q(t' | t) = log pi~(t) - log pi~(t'),

prior, surrogate and proposal cancel, and the acceptance test judges the residuals of the surrogate alone. (Liu 2001,
"Monte Carlo Strategies in Scientific Computing", section 9.4.3; Christen and Fox 2005.) The k-th power of a reversible
kernel is reversible. Different kernels one after another are not, in general.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

from tallchain.arrays import as_floats
from tallchain.parts import part, set_fields, static
from tallchain.proposals.coordinates import Coordinates, Map, check_coordinates, check_round_trip
from tallchain.types import Array, PlacedSurrogate, Posterior, Proposed, PyTree, Target
from tallchain.validation import brief, is_positive, is_traced, is_whole


@part
class SurrogatePosterior:
    """pi~(t) = exp(log p0(t) + Q(t)/K): all of a target but its rows."""

    posterior: Posterior
    surrogate: PlacedSurrogate

    @classmethod
    def of(cls, call: str, target: Target) -> SurrogatePosterior:
        """Take it from a target, whose surrogate must have a position."""
        if isinstance(target.surrogate, PlacedSurrogate):
            return cls(target.posterior, target.surrogate)
        has = "none" if target.surrogate is None else f"a {type(target.surrogate).__name__}, which has no position"
        raise ValueError(
            f"`{call}` needs a surrogate that has a position, as Taylor has, and the kernel has {has}. Give "
            "`MetropolisHastings(surrogate=...)` one, e.g. `prepare(...).surrogate`."
        )

    @property
    def log_likelihood(self) -> Any:
        """Whose programs these are."""
        return self.posterior.log_likelihood

    def log_density(self, position: PyTree) -> Array:
        """log pi~(t), but for a constant: Q is 0 where the surrogate was made."""
        known = self.surrogate.total(self.surrogate.position, position)
        return self.posterior.log_prior(position) + known / self.posterior.temperature

    def log_ratio(self, position: PyTree, candidate: PyTree) -> Array:
        """log pi~(t') - log pi~(t), by the same operations as the kernel's, so that they cancel to the last digit."""
        log_prior = self.posterior.log_prior
        known = self.surrogate.total(position, candidate)
        return log_prior(candidate) - log_prior(position) + known / self.posterior.temperature


class Kind(NamedTuple):
    """What an algorithm of BlackJAX takes."""

    arrays: tuple[str, ...]
    sizes: tuple[str, ...] = ()
    """Whole numbers, which belong to the program."""
    optional: tuple[str, ...] = ()
    acceptance: float = 0.8
    """Rate to which its step size is adapted."""


# The steps of BlackJAX's "barker_proposal" are longer where its inverse mass matrix is smaller, so it gets none here.
KINDS = {
    "nuts": Kind(("step_size", "inverse_mass_matrix"), ("max_num_doublings",), ("max_num_doublings",)),
    "hmc": Kind(("step_size", "inverse_mass_matrix"), ("num_integration_steps",)),
    "mala": Kind(("step_size",), acceptance=0.574),
    "barker_proposal": Kind(("step_size",), acceptance=0.4),
}
_WALK = "it does not use the gradient of the surrogate posterior: use `RandomWalk`, which needs no surrogate"
_INEXACT = "its draws do not follow the density that it is given"
_REFUSED = {
    "ghmc": "it keeps its momentum from step to step, so it is not reversible",
    "mclmc": f"{_INEXACT}, and it is not reversible",
    **dict.fromkeys(("rmh", "additive_step_random_walk", "normal_random_walk"), _WALK),
    "irmh": "use `PCN`, whose candidates with beta = 1 do not depend on the position",
    "elliptical_slice": "it is for normal priors: use `PCN`",
    **dict.fromkeys(("sgld", "sghmc", "sgnht", "csgld"), _INEXACT),
}


@part
class Transition:
    """Steps of a BlackJAX algorithm on the surrogate posterior pi~: the test then judges residuals alone.

    `adapt_transition` finds the parameters. The kernel needs a surrogate that has a position, as `Taylor` has.

    Args:
        algorithm: "nuts", "hmc", "mala" or "barker_proposal": each is reversible.
        parameters: by BlackJAX's names: `step_size`; for "nuts" and "hmc" `inverse_mass_matrix`, a vector (diagonal) or
            a matrix (which is factorised for every proposal: `Whitened` is cheaper); for "hmc"
            `num_integration_steps`, for "nuts" optionally `max_num_doublings`.
        coordinates: in which the algorithm runs; None: the flattened position. "mala" and "barker_proposal" take steps
            of the same size in all directions, so they want coordinates such as `Whitened(laplace)`.
        repeats: k, steps of the algorithm for a candidate.
        share_waiting: share of the chains that must wait for a candidate before candidates are made together.
    """

    algorithm: str = static()
    sizes: tuple[tuple[str, int], ...] = static()
    """Parameters that are whole numbers."""
    repeats: int = static()
    share_waiting: float = static()
    parameters: dict[str, Array]
    """The others."""
    coordinates: Coordinates | None

    def __init__(
        self,
        algorithm: str,
        parameters: dict[str, Any],
        coordinates: Coordinates | None = None,
        repeats: int = 1,
        share_waiting: float = 0.7,
    ) -> None:
        kind = check_algorithm("Transition", algorithm)
        blackjax_of("Transition")
        if not is_whole(repeats, 1):
            raise ValueError(f"`Transition(repeats=...)` must be a whole number, at least 1; got {brief(repeats)}.")
        check_coordinates("Transition", coordinates)
        sizes = check_sizes("Transition", algorithm, parameters, known=kind.arrays)
        arrays = {name: _parameter(algorithm, parameters, name) for name in kind.arrays}
        set_fields(
            self,
            algorithm=algorithm,
            sizes=sizes,
            repeats=int(repeats),
            share_waiting=share_waiting,
            parameters=arrays,
            coordinates=coordinates,
        )

    def check(self, position: PyTree) -> None:
        """Refuse coordinates or a mass matrix that do not fit the position."""
        size = check_round_trip("Transition", self.coordinates, position)
        mass = self.parameters.get("inverse_mass_matrix")
        if mass is not None and mass.shape not in ((size,), (size, size)):
            raise ValueError(
                f"`Transition(parameters=...)`: the inverse mass matrix must be of shape ({size},) or ({size}, {size}) "
                f"for the {size} coordinates of the position; got shape {mass.shape}."
            )

    def draw(self, key: Array, position: PyTree) -> Array:
        """Return the words of the key: how many numbers the algorithm needs is not known in advance."""
        return jr.key_data(key)

    def propose(self, noise: Array, position: PyTree, target: Target) -> Proposed:
        """Run the algorithm; a candidate that is not finite is impossible."""
        density = SurrogatePosterior.of("Transition(...)", target)
        chain = Chain(self, density, position)
        moved = chain.position(chain.step(key_of(noise), chain.init(position)))
        log_ratio = density.log_ratio(position, moved)
        is_finite = jnp.isfinite(log_ratio)
        for leaf in jax.tree.leaves(moved):
            is_finite &= jnp.all(jnp.isfinite(leaf))
        candidate = jax.tree.map(lambda new, old: jnp.where(is_finite, new, old), moved, position)
        return Proposed(candidate, jnp.where(is_finite, -log_ratio, -jnp.inf))


def key_of(words: Array) -> Array:
    """Return JAX's own key of these words.

    An algorithm splits its keys again and again. With the rounds of `tallchain.threefry`, which are written out, XLA's
    older loops for a CPU then take gigabytes to compile.
    """
    return jr.wrap_key_data(words, impl="threefry2x32")


class Chain:
    """A transition's algorithm on a surrogate posterior, in its coordinates; for use inside a program.

    It computes in JAX's default float, whatever the types of the position are.
    """

    def __init__(self, transition: Transition, density: SurrogatePosterior, like: PyTree) -> None:
        self._repeats = transition.repeats
        self.map = Map(transition.coordinates, like)
        algorithm = getattr(blackjax_of("Transition"), transition.algorithm)
        arrays = jax.tree.map(as_floats, transition.parameters)
        self._algorithm = algorithm(self.map.density(density.log_density), **arrays, **dict(transition.sizes))

    def init(self, position: PyTree) -> Any:
        """Return the algorithm's state at a position."""
        return self._algorithm.init(self.map.to(position))

    def step(self, key: Array, state: Any) -> Any:
        """Make the steps of one candidate."""
        if self._repeats == 1:
            return self._algorithm.step(key, state)[0]
        return lax.fori_loop(0, self._repeats, lambda i, at: self._algorithm.step(jr.fold_in(key, i), at)[0], state)

    def position(self, state: Any) -> PyTree:
        """Return the position of a state, in the types of a position."""
        return self.map.back(state.position)


# ---- checks ------------------------------------------------------------------------------------


def blackjax_of(call: str) -> Any:
    """Import BlackJAX, which is no dependency of the core."""
    try:
        import blackjax
    except ImportError as error:
        raise ImportError(f"`{call}(...)` needs BlackJAX. Install it with `pip install 'tallchain[all]'`.") from error
    return blackjax


def check_algorithm(call: str, algorithm: Any) -> Kind:
    """Refuse an algorithm that is not known to be reversible."""
    if isinstance(algorithm, str) and algorithm in KINDS:
        return KINDS[algorithm]
    known = ", ".join(f'"{name}"' for name in KINDS)
    reason = _REFUSED.get(algorithm) if isinstance(algorithm, str) else None
    why = f" {reason[0].upper()}{reason[1:]}." if reason else " Others are not tested to be reversible."
    raise ValueError(f"`{call}(algorithm=...)` must be one of {known}; got {brief(algorithm)}.{why}")


def check_sizes(call: str, algorithm: str, parameters: Any, known: tuple[str, ...] = ()) -> tuple[tuple[str, int], ...]:
    """Return those parameters of an algorithm that are whole numbers; refuse unknown ones."""
    kind, call = KINDS[algorithm], f'`{call}(algorithm="{algorithm}", parameters=...)`'
    if not isinstance(parameters, dict):
        raise TypeError(f"{call} must be a dict of parameters by name; got {brief(parameters)}.")
    expected = {*known, *kind.sizes}
    if not (expected - {*kind.optional} <= parameters.keys() <= expected):
        may = f", and may have {', '.join(kind.optional)}" if kind.optional else ""
        needs = ", ".join(name for name in (*known, *kind.sizes) if name not in kind.optional) or "nothing"
        raise ValueError(f"{call} needs {needs}{may}; got {', '.join(map(str, parameters)) or 'nothing'}.")
    for name in parameters.keys() & {*kind.sizes}:
        if not is_whole(parameters[name], 1):
            raise ValueError(f"{call}: {name} must be a whole number, at least 1; got {brief(parameters[name])}.")
    return tuple((name, int(parameters[name])) for name in kind.sizes if name in parameters)


def _parameter(algorithm: str, parameters: dict[str, Any], name: str) -> Array:
    call, given = f'`Transition(algorithm="{algorithm}", parameters=...)`', parameters[name]
    if is_traced(given):
        return as_floats(given)
    if name == "step_size":
        if not is_positive(given):
            raise ValueError(f"{call}: step_size must be a positive number; got {brief(given)}.")
        return as_floats(given)
    try:
        values = np.asarray(given, float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{call}: inverse_mass_matrix must hold numbers; got {brief(given)}.") from error
    is_matrix = values.ndim == 2 and values.shape[0] == values.shape[1]
    if not (np.all(np.isfinite(values)) and (values.ndim == 1 or is_matrix)):
        raise ValueError(f"{call}: inverse_mass_matrix must be a vector or a square matrix; got {brief(given)}.")
    least = np.min(values if values.ndim == 1 else np.linalg.eigvalsh(values), initial=np.inf)
    if not least > 0:
        raise ValueError(
            f"{call}: inverse_mass_matrix must be positive (definite): its entries are variances of the "
            f"coordinates; the least {'entry' if values.ndim == 1 else 'eigenvalue'} is {least:.3g}."
        )
    return as_floats(values)
