"""Decisions at fixed pairs, on rows that are simulated: the error of detailed balance."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

import tallchain as tc
from studies.combined.constructions import FEW_GROWN, GROWN, PLANNED_ALIKE, Tests, is_early
from studies.combined.given import MANY, Given
from studies.targets import SEED, given_ratios
from tallchain.kernel import Noise
from tallchain.proposals import Fixed
from tallchain.types import AcceptanceTest, Array

DELTAS = np.array([-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0], np.float32)
SHAPE = 1.5625  # of the gamma law with skewness 1.6, about that of the rows of the mixture
LAWS = ("normal", "skewed")


class Case(NamedTuple):
    """Tests, and the rows that they decide on."""

    tests: Tests
    variance: float
    """Of a row."""
    batch: int
    """m."""
    rows: int
    """Rows to simulate for a decision: more than nearly all decisions take."""


CASES = {
    "m = 50": Case(GROWN, 150.0, 50, 700),
    "m = 10": Case(FEW_GROWN, 150.0, 10, 500),
    "m = 200": Case(FEW_GROWN, 600.0, 200, 2000),
    "planned": Case(PLANNED_ALIKE, 150.0, 50, 800),
}


class Decided(NamedTuple):
    """Decisions, by direction, Delta, and rows."""

    is_accepted: Any
    rows_read: Any
    is_early: Any
    """Whether the t-test decided."""
    is_undecided: Any
    """Whether the rows were not enough."""


def simulated_rows(random: np.random.Generator, law: str, shape: tuple[int, ...]) -> np.ndarray:
    """Rows of mean 0 and variance 1."""
    if law == "normal":
        return random.standard_normal(shape, np.float32)
    return (np.float32(SHAPE) - random.standard_gamma(SHAPE, shape, np.float32)) / np.float32(np.sqrt(SHAPE))


@partial(jax.jit, static_argnames="batch")
def decide(test: AcceptanceTest, keys: Array, rows: Array, batch: int) -> Decided:
    """Decide at every Delta, and on the way back, where the rows have the other sign."""
    posterior = given_ratios(MANY)

    def once(sign: Array, delta: Array, key: Array, rows: Array) -> Decided:
        proposal = Fixed(sign, sign * delta)
        kernel = tc.MetropolisHastings(posterior, Given(rows, batch), proposal=proposal, acceptance=test)
        decision = kernel.decide(Noise((), test.draw(key), key), jnp.zeros(()))
        is_accepted, rows_read, *_ = decision.verdict
        is_undecided = decision.verdict.is_invalid
        return Decided(is_accepted, rows_read, is_early(decision) & ~is_undecided, is_undecided)

    ways = jnp.meshgrid(jnp.array([1.0, -1.0]), jnp.asarray(DELTAS), indexing="ij")
    by_rows = jax.vmap(once, (None, None, 0, 0))
    decided = lax.map(lambda way: by_rows(*way, keys, rows), tuple(way.ravel() for way in ways))
    return jax.tree.map(lambda leaf: leaf.reshape(2, len(DELTAS), len(keys)), decided)


def fixed_pairs(case: Case, law: str, decisions: int, at_once: int) -> list[dict[str, Any]]:
    """The error of detailed balance, log a(Delta)/a'(-Delta) - Delta with a' for rows of the other sign.

    Where a' = 1 - a, as for all tests here but "metropolis", this is the error in log-odds of acceptance. All tests see
    the same rows and the same noise, so that differences from the first test are known better than the errors.
    """
    random = np.random.default_rng(SEED)
    made = {name: test() for name, test in case.tests.items()}
    parts: dict[str, list[Decided]] = {name: [] for name in made}
    for chunk in range(decisions // at_once):
        rows = simulated_rows(random, law, (at_once, case.rows)) * np.float32(np.sqrt(case.variance))
        keys = jr.split(jr.fold_in(jr.key(SEED), chunk), at_once)
        for name, test in made.items():
            parts[name].append(jax.tree.map(np.asarray, decide(test, keys, jnp.asarray(rows), case.batch)))
    whole = {name: jax.tree.map(lambda *leaves: np.concatenate(leaves, -1), *part) for name, part in parts.items()}
    reference = next(iter(whole.values()))
    return [
        {"test": name, "law": law, "row_variance": case.variance, "batch": case.batch} | summary(decided, reference)
        for name, decided in whole.items()
    ]


def summary(decided: Decided, reference: Decided) -> dict[str, Any]:
    """Return what a test read, and how wrong it was, alone and compared with the reference."""
    accepted, expected = decided.is_accepted, reference.is_accepted
    rate, expected_rate = accepted.mean(-1), expected.mean(-1)
    turned = (accepted != expected).mean(-1)
    per = accepted.shape[-1]
    round_list = lambda values: np.round(values, 4).tolist()  # noqa: E731
    return {
        "rows": round(float(decided.rows_read.mean()), 1),
        "rows_by_delta": np.round(decided.rows_read.mean((0, 2)), 1).tolist(),
        "early": round(float(decided.is_early.mean()), 3),
        "error": round_list(np.log(rate[0] / rate[1]) - DELTAS),
        "error_se": round_list(np.sqrt(((1 - rate) / rate / per).sum(0))),
        "added": round_list(np.log(rate[0] / rate[1]) - np.log(expected_rate[0] / expected_rate[1])),
        "added_se": round_list(np.sqrt((turned / expected_rate**2 / per).sum(0))),
        "undecided": float(decided.is_undecided.mean()),
    }
