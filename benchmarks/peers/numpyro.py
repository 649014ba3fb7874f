"""NumPyro: NUTS on all rows, and HMCECS."""

from __future__ import annotations

import time
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro  # ty: ignore[import-not-found]
import numpyro.distributions as dist  # ty: ignore[import-not-found]
from jax import random as jr
from numpyro.infer import HMCECS, NUTS  # ty: ignore[import-not-found]

from benchmarks.peers.problem import Problem
from benchmarks.peers.stepped import Stepped

BLOCKS = 10  # of the subsample; one of them is redrawn at a time


class NumPyro(Stepped):
    """A NumPyro kernel for the model of a logistic regression; subsampled if it is HMCECS.

    Uses its own `init` and `sample`: `numpyro.infer.MCMC` compiles anew at every run of chains under `vmap`, which is
    the only way to run more than one chain with HMCECS. HMCECS keeps the rows that its proxy reads as constants of the
    program.
    """

    def __init__(self, problem: Problem, chains: int, warmup: int, *, subsample: int | None = None) -> None:
        super().__init__(problem, chains, warmup)
        self._subsample = None if subsample is None else min(subsample, problem.target.num_rows // 2)
        self._data = {name: jnp.asarray(values) for name, values in problem.target.model.data.items()}

    @property
    def rows(self) -> Any:
        """The data as they are."""
        return self._data["x"], self._data["y"]

    @property
    def rows_per_gradient(self) -> int:
        """The subsample, if there is one."""
        return self._subsample or super().rows_per_gradient

    @cached_property
    def _kernel(self) -> Any:
        if self._subsample is None:
            return NUTS(self._model)
        proxy = HMCECS.taylor_proxy({"t": self.problem.reference.position}, degree=2)
        return HMCECS(NUTS(self._model), num_blocks=min(BLOCKS, self._subsample), proxy=proxy)

    def _model(self, x: jax.Array, y: jax.Array) -> None:
        t = numpyro.sample("t", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("rows", len(y), subsample_size=self._subsample):
            xs, ys = jnp.asarray(numpyro.subsample(x, event_dim=1)), numpyro.subsample(y, event_dim=0)
            numpyro.sample("y", dist.Bernoulli(logits=xs @ jnp.asarray(t)), obs=ys)

    def step(self, rows: Any, key: jax.Array, state: Any) -> tuple[Any, jax.Array, jax.Array, jax.Array]:
        """One draw; its state has a key of its own."""
        state = self._kernel.sample(state, rows, {})
        inner = getattr(state, "hmc_state", state)
        return state, state.z["t"], inner.accept_prob, inner.num_steps

    def prepare(self, key: jax.Array) -> dict[str, float]:
        """Make the proxy, compile, adapt."""
        began = time.perf_counter()
        start, chains = jr.split(key)
        positions = self.problem.starts(start, self.chains)
        state = self._kernel.init(start, self.warmup, {"t": positions[0]}, self.rows, {})
        self._states = jax.block_until_ready(_spread(state, jr.split(chains, self.chains)))
        made = time.perf_counter()
        return {
            "mode": self.problem.seconds,
            "proxy": made - began,
            "compilation": self._compile(key),
            "warmup": self._warm_up(key, self.warmup),
        }


def _spread(state: Any, keys: jax.Array) -> Any:
    """One state for all chains, each with a key of its own."""
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(keys), *jnp.shape(leaf))), state)
    if hasattr(many, "hmc_state"):
        many = many._replace(hmc_state=many.hmc_state._replace(rng_key=jax.vmap(partial(jr.fold_in, data=1))(keys)))
    return many._replace(rng_key=keys)
