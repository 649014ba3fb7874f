"""What `sample` says of a start and of functions that do not go together; nothing is compiled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallchain as tc

RANDOM = np.random.default_rng(2)
DATA = {"x": RANDOM.normal(size=(50, 3)).astype(np.float32), "y": RANDOM.normal(size=50).astype(np.float32)}


def log_likelihood(t: jax.Array, row: dict) -> jax.Array:
    return -((row["y"] - row["x"] @ t) ** 2)


def sample(likelihood: Any, initial: Any, **options: Any) -> tc.Trace:
    posterior = tc.Posterior(lambda t: -0.5 * jnp.sum(t**2), likelihood)
    kernel = tc.MetropolisHastings(posterior, tc.Shuffled(DATA, 5), proposal=tc.RandomWalk(0.1))
    return tc.sample(jax.random.key(0), kernel, initial, 2, scan=0, progress=False, **options)


@pytest.mark.parametrize(
    ("likelihood", "initial", "error", "message"),
    [
        (log_likelihood, jnp.zeros(4), ValueError, r"a position of shape \(4,\) and a row of .*Does the start fit"),
        (log_likelihood, jnp.zeros((8, 3)), ValueError, "looks like 8 positions.*Set `num_chains`"),
        (lambda row, t: log_likelihood(t, row), jnp.zeros(3), ValueError, "in the wrong order: .*the position first"),
        (log_likelihood, jnp.zeros(3, jnp.float16), TypeError, "must be float32 or float64; got float16"),
        (log_likelihood, jnp.zeros(3, jnp.bfloat16), TypeError, "must be float32 or float64; got bfloat16"),
    ],
    ids=["length", "many", "swapped", "half", "brain"],
)
def test_refusals(likelihood: Any, initial: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sample(likelihood, initial)


def test_a_likelihood_that_never_looks_at_its_row_is_asked_about() -> None:
    def whole(t: jax.Array, row: dict) -> jax.Array:
        return -jnp.sum((DATA["y"] - DATA["x"] @ t) ** 2)

    with pytest.warns(RuntimeWarning, match="never uses its row, and holds an array of 50 rows"):
        sample(whole, jnp.zeros(3))
