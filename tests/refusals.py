"""How a refusal is tested, and a small model for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

import tallchain as tc
from tallchain.parts import part
from tallchain.types import Array, Proposed

ROWS = np.linspace(-1, 1, 20, dtype=np.float32)
SCALE = "`RandomWalk(scale=...)`"


def log_prior(t: Array) -> Array:
    return -0.5 * jnp.sum(t**2)


def log_likelihood(t: Array, row: Array) -> Array:
    return -0.5 * jnp.sum((row - t) ** 2)


def kernel_with(
    log_prior: Any = log_prior, log_likelihood: Any = log_likelihood, data: Any = ROWS, scale: Any = 0.5, **parts: Any
) -> tc.MetropolisHastings:
    chosen = {"proposal": tc.RandomWalk(scale), "acceptance": tc.Barker()} | parts
    return tc.MetropolisHastings(tc.Posterior(log_prior, log_likelihood), tc.Shuffled(data, 5), **chosen)


def sample(initial: Any = 0.5, num_samples: Any = 3, *, kernel: Any = None, **options: Any) -> tc.Trace:
    kernel = kernel_with() if kernel is None else kernel
    return tc.sample(jr.key(0), kernel, initial, num_samples, progress=False, **options)


def refuse(call: Callable[[], Any], error: type[Exception], *fragments: str) -> None:
    """The call must raise, and the message must hold the fragments in this order."""
    with pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, fragments))):
        call()


def table(cases: dict[str, tuple]) -> Any:
    """Parametrise by name: what to call, the exception, and fragments of the message in order."""
    values = [(call, error, fragments) for call, error, *fragments in cases.values()]
    return pytest.mark.parametrize(("call", "error", "fragments"), values, ids=list(cases))


@part
class Still:
    """A proposal without a scale."""

    def check(self, position: Any) -> None:
        pass

    def draw(self, key: Array, position: Any) -> tuple:
        return ()

    def propose(self, noise: tuple, position: Any) -> Proposed:
        return Proposed(position, 0.0)
