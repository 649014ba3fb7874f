"""Steps of tallchain as a kernel of `numpyro.infer.MCMC`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from tallchain.bridges.model import Bridged, bridged
from tallchain.bridges.structure import Model
from tallchain.kernel import MetropolisHastings, State
from tallchain.keys import make_key
from tallchain.prepare import prepare
from tallchain.prepared import Prepared
from tallchain.types import AcceptanceTest, Array, Proposal, PyTree
from tallchain.validation import brief, is_traced

_STARTS = 1024


class TallChainState(NamedTuple):
    """Where a chain is, and what its last step was: each is a field for `extra_fields`."""

    i: Array
    """Steps made."""
    z: PyTree
    """The latent sites, unconstrained."""
    accepted: Array
    rows_read: Array
    """Rows that the acceptance test looked at."""
    log_ratio: Array
    """The estimate of the log ratio that decided."""
    invalid: Array
    """The log ratio was NaN or +inf, and the candidate was rejected."""
    mean_accept_prob: Array
    """Share of the steps that were accepted."""
    rng_key: Array


class TallChain(MCMCKernel):
    """Metropolis-Hastings that reads about forty rows a step, for a NumPyro model whose rows are in one plate.

        mcmc = MCMC(TallChain(model), num_warmup=100, num_samples=1000, num_chains=4, chain_method="vectorized")
        mcmc.run(jax.random.key(0), x, y, extra_fields=("rows_read", "accepted"))

    Before the first step `tallchain.prepare` finds the mode, expands there, and chooses proposals: nothing adapts, so a
    short warm-up is enough. `prepared` has what it found (`print` it). `tallchain.fit` has more: it draws until draws
    are enough, reads all rows at the end to check the decisions, and runs many chains in lockstep, which is faster.

    Args:
        model: a NumPyro model, as `bridges.numpyro.posterior` takes it.
        acceptance: how to decide; None for what `prepare` chooses.
        proposal: None for what `prepare` chooses.
        seed: of the preparation.
        progress: show progress of the preparation.
    """

    sample_field = "z"

    def __init__(
        self,
        model: Model,
        *,
        acceptance: AcceptanceTest | None = None,
        proposal: Proposal | None = None,
        seed: int = 0,
        progress: bool = False,
    ) -> None:
        self._model, self._acceptance, self._proposal = model, acceptance, proposal
        self._seed, self._progress = seed, progress
        self._made: _Made | None = None
        self._sample_fn: Any = None  # NumPyro looks here whether there is a sampler

    @property
    def model(self) -> Model:
        """The model."""
        return self._model

    @property
    def prepared(self) -> Prepared | None:
        """What `prepare` has found and chosen; None before the run."""
        return self._made and self._made.prepared

    @property
    def kernel(self) -> MetropolisHastings | None:
        """The sampler; None before the run."""
        return self._made and self._made.kernel

    def init(
        self, rng_key: Array, num_warmup: int, init_params: PyTree, model_args: Any, model_kwargs: Any
    ) -> TallChainState:
        """Prepare, once for all chains, and return where a chain starts, or all of them for a batch of keys."""
        made = self._making(model_args, model_kwargs)
        is_one = is_prng_key(rng_key)
        if init_params is not None:
            _check_start(init_params, made.starts, () if is_one else rng_key.shape[:1])
        made.kernel.check_digits()
        self._sample_fn = made.kernel.step

        def start(key: Array, z: PyTree) -> TallChainState:
            key, chosen = jr.split(key)
            if z is None:
                at = jr.randint(chosen, (), 0, _STARTS)
                z = jax.tree.map(lambda leaf: jnp.asarray(leaf)[at], made.starts)
            none, zero = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
            number = jnp.zeros((), jnp.result_type(float))
            return TallChainState(zero, z, none, zero, number, none, number, key)

        return start(rng_key, init_params) if is_one else jax.vmap(start)(rng_key, init_params)

    def sample(self, state: TallChainState, model_args: Any, model_kwargs: Any) -> TallChainState:
        """Make a step, of one chain or of all."""
        kernel = self._making(model_args, model_kwargs).kernel

        def step(state: TallChainState) -> TallChainState:
            key, step_key = jr.split(state.rng_key)
            moved, verdict = kernel.step(step_key, State(state.z))
            i = state.i + 1
            share = state.mean_accept_prob + (verdict.is_accepted - state.mean_accept_prob) / i
            found = (verdict.is_accepted, verdict.rows_read, verdict.log_ratio, verdict.is_invalid, share)
            new = TallChainState(i, moved.position, *found, key)
            return jax.tree.map(lambda a, b: a if a.dtype == b.dtype else a.astype(b.dtype), new, state)

        return step(state) if is_prng_key(state.rng_key) else jax.vmap(step)(state)

    def postprocess_fn(self, model_args: Any, model_kwargs: Any) -> Callable[[PyTree], PyTree]:
        """Return the function from unconstrained latent sites to all sites that draws have."""
        return self._making(model_args, model_kwargs).bridged.constrain

    def get_diagnostics_str(self, state: TallChainState) -> str:
        """Say how many rows the last step has read, and how many steps were accepted."""
        return f"{int(state.rows_read)} rows a step. acc. prob={float(state.mean_accept_prob):.2f}"

    def _making(self, args: Any, kwargs: Any) -> _Made:
        """Prepare for these arguments, unless that was done."""
        args, kwargs = tuple(args or ()), dict(kwargs or {})
        if is_traced((args, kwargs)):
            raise ValueError(
                "`TallChain(model)`: the model's arguments are traced, and what `prepare` finds depends on their "
                "numbers. Leave `MCMC(jit_model_args=True)` out, and run it outside of `jax.jit`."
            )
        if self._made is None or not self._made.is_for(args, kwargs):
            # In `pmap`, too, with the numbers themselves.
            with jax.ensure_compile_time_eval():
                found = bridged(self._model, *args, **kwargs)
                prepared = prepare(found, seed=self._seed, progress=self._progress)
                kernel = prepared.kernel(self._acceptance, self._proposal)
                starts = prepared.positions(make_key(self._seed + 1), _STARTS)
                self._made = _Made(found, prepared, kernel, starts, (args, kwargs))
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_made": None, "_sample_fn": None}


class _Made(NamedTuple):
    """What was made for some arguments."""

    bridged: Bridged
    prepared: Prepared
    kernel: MetropolisHastings
    starts: PyTree
    arguments: Any

    def is_for(self, args: Any, kwargs: Any) -> bool:
        """Whether these are the same arguments, by identity."""
        (mine, my_names), (its, its_names) = map(jax.tree.flatten, (self.arguments, (args, kwargs)))
        return my_names == its_names and all(a is b for a, b in zip(mine, its, strict=True))


def _check_start(z: PyTree, starts: PyTree, chains: tuple[int, ...]) -> None:
    """Refuse a start that is not one of positions like these."""
    shapes = {name: chains + leaf.shape[1:] for name, leaf in starts.items()}
    given = {name: jnp.shape(leaf) for name, leaf in z.items()} if isinstance(z, dict) else z
    if given != shapes:
        raise ValueError(
            "`mcmc.run(init_params=...)` must have the latent sites without constraints, of these shapes: "
            f"{brief(shapes)}; got {brief(given)}."
        )
    for name, leaf in z.items():
        if not is_traced(leaf) and not np.all(np.isfinite(leaf)):
            raise ValueError(f"`mcmc.run(init_params=...)` must be finite; got {brief(np.asarray(leaf))} for {name}.")
