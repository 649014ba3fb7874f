"""Numbers per row against float64 on the host."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallchain import MetropolisHastings, Posterior, RandomWalk, Schedule, Shuffled, audit, prepare, sample
from tallchain.residuals import digits, needs_float64, residual
from tallchain.sources import WithReplacement
from tallchain.surrogates.passes import Passes

RANDOM = np.random.default_rng(3)
FEATURES = RANDOM.normal(size=(2000, 3)).astype(np.float32)
TRUTH = np.array([0.5, -1.0, 0.3])
LABELS = (RANDOM.random(2000) < 1 / (1 + np.exp(-FEATURES @ TRUTH))).astype(np.float32)
DATA = {"x": FEATURES, "y": LABELS}
FACTOR = 1e8


def log_likelihood(t: jax.Array, row: dict) -> jax.Array:
    logit = row["x"] @ t
    return row["y"] * logit - jnp.logaddexp(0.0, logit)


def in_numpy(position: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    x, y = FEATURES.astype(np.float64), LABELS.astype(np.float64)
    terms = [y * (x @ t) - np.logaddexp(0, x @ t) for t in (candidate.astype(float), position.astype(float))]
    return FACTOR * (terms[0] - terms[1])


def test_in_float64_a_difference_is_rounded_once() -> None:
    posterior = Posterior(lambda t: 0.0, log_likelihood)
    position = jnp.asarray(TRUTH, jnp.float32)
    candidate = position + jnp.float32(1e-4)
    expected = in_numpy(np.asarray(position), np.asarray(candidate))
    for in_float64, error in ((True, 1e-6), (False, None)):
        with digits(in_float64):
            number = residual(posterior, None, position, candidate, FACTOR, in_float64=in_float64)
            numbers = jax.jit(jax.vmap(number))(DATA)
        off = np.abs(np.asarray(numbers, float) - expected).max()
        assert off < error * np.abs(expected).max() if error else off > 3


@pytest.mark.parametrize(
    ("num_rows", "temperature", "needs"), [(10**7, 1.0, False), (10**8, 1.0, True), (10**8, 100.0, False)]
)
def test_where_float32_will_not_do(num_rows: int, temperature: float, needs: bool) -> None:
    assert needs_float64(num_rows, temperature) is needs


@pytest.mark.slow
@pytest.mark.parametrize("is_audited", [False, True])
def test_rounding_costs_no_rows_at_1e8(is_audited: bool) -> None:
    """2,000 rows at temperature 2e-5 have the N/K, and so the rounding, of 10^8 rows at temperature 1."""
    posterior = Posterior(lambda t: -0.5 * jnp.sum(t**2), log_likelihood, temperature=2e-5)
    prepared = prepare(posterior, DATA, jnp.zeros(3), progress=False)
    kernel = prepared.kernel()
    assert kernel.in_float64
    starts = prepared.starts(jax.random.key(1), 16)
    trace = sample(jax.random.key(2), kernel, starts, 100, num_chains=16, progress=False)
    assert trace.position.dtype == np.float32
    assert trace.rows_read.mean() < 60
    assert trace.is_accepted.mean() > 0.9
    if is_audited:
        found = audit(trace.kernel, trace, num_decisions=10, num_trials=16, progress=False)
        assert found.log_odds.value < 0.2
    with pytest.raises(ValueError, match=r"with jax\.enable_x64"):
        kernel.init(starts[0])
    with jax.enable_x64(True):
        step = jax.jit(jax.vmap(kernel.step))
        _, verdict = step(jax.random.split(jax.random.key(3), 16), jax.vmap(kernel.init)(starts))
    assert verdict.rows_read.mean() < 60
    assert not MetropolisHastings(
        Posterior(lambda t: 0.0, log_likelihood), Shuffled(DATA, 50), proposal=kernel.proposal
    ).in_float64


def test_sums_over_so_many_rows_are_in_float64() -> None:
    """Whole numbers stay whole, and the sum is right to more digits than float32 has."""
    posterior = Posterior(lambda t: 0.0, lambda t, row: log_likelihood(t, row) + 0 * row["k"][0], temperature=2e-5)
    data = DATA | {"k": np.ones((2000, 1), np.int32)}
    at = np.asarray(TRUTH, np.float32)
    found = Passes(posterior, WithReplacement(data, 1), jnp.asarray(at))(at)
    x = FEATURES.astype(float)
    logits = x @ at.astype(float)
    assert found.value == pytest.approx(np.sum(LABELS * logits - np.logaddexp(0, logits)), rel=1e-13)
    np.testing.assert_allclose(found.gradient, x.T @ (LABELS - 1 / (1 + np.exp(-logits))), rtol=1e-10)


def test_a_schedule_that_cools_tells_its_lowest_temperature() -> None:
    """By which `sample` settles whether the run needs float64."""
    kernel = MetropolisHastings(Posterior(lambda t: 0.0, log_likelihood), Shuffled(DATA, 50), proposal=RandomWalk(0.1))
    cooling = Schedule(temperature=lambda draw: jnp.where(draw < 3, 5.0, 2e-5))
    least = cooling.check(kernel, jnp.zeros(3), 10)
    assert least == pytest.approx(2e-5)
    assert needs_float64(2000, least)
    assert Schedule().check(kernel, jnp.zeros(3), 10) is None
