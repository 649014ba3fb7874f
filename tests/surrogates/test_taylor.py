"""Control variates and influential rows: unbiased by enumeration, right by quadrature, and broken on purpose."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from scipy.special import expit

import tallchain as tc
from checks import Z_LIMIT
from conftest import SEED
from registry import ACCEPTANCE
from scenarios import normal_vector
from tallchain.kernel import MetropolisHastings
from tallchain.models import logistic_regression
from tallchain.parts import part, replace
from tallchain.surrogates import Taylor, find_reference

NUM_ROWS, BATCH = 4000, 40
RANDOM = np.random.default_rng(11)
X = np.stack([np.ones(NUM_ROWS), RANDOM.standard_t(4, NUM_ROWS)], 1).astype(np.float32)
Y = RANDOM.random(NUM_ROWS) < expit(X @ [-0.5, 0.8])
MODEL = logistic_regression(X, Y, prior_sd=1.0, bound=False)
REFERENCE = find_reference(MODEL.posterior, MODEL.data, np.zeros(2, np.float32), progress=False)
LAPLACE = REFERENCE.laplace
COPIES = 1 + np.round(np.abs(X[:, 1]) ** 3).astype(int).clip(0, 50)
EXACT = np.argsort(-np.abs(X[:, 1]))[:150]

SOURCES: dict[str, Any] = {
    "alike": tc.Shuffled,
    "exact": partial(tc.Shuffled, exact=EXACT),
    "copies": lambda *parts: tc.Shuffled(*parts).reweighted(copies=COPIES),
    "exact, copies, windows": lambda *parts: tc.Shuffled(*parts, windows=True).reweighted(EXACT, COPIES),
    "with replacement": tc.WithReplacement,
    "with replacement, exact, copies": lambda *parts: tc.WithReplacement(*parts).reweighted(EXACT, COPIES),
}


def log_likelihoods(position: np.ndarray, x: np.ndarray = X, y: np.ndarray = Y) -> np.ndarray:
    logits = x.astype(np.float64) @ position
    return y * logits - np.logaddexp(0, logits)


def quadratic(position: np.ndarray, order: int, x: np.ndarray = X, y: np.ndarray = Y) -> np.ndarray:
    """q_i, by the formulas of logistic regression."""
    r = np.asarray(REFERENCE.position, np.float64)
    p, step = expit(x.astype(np.float64) @ r), x.astype(np.float64) @ (position - r)
    return log_likelihoods(r, x, y) + (y - p) * step - (order == 2) * 0.5 * p * (1 - p) * step**2


def logistic_kernel(source: str = "alike", acceptance: Any = None, surrogate: Any = None, **options: Any) -> Any:
    options = {"proposal": tc.PCN(LAPLACE, 0.9)} | options
    return MetropolisHastings(
        MODEL.posterior, SOURCES[source](MODEL.data, BATCH), acceptance=acceptance, surrogate=surrogate, **options
    )


# ---- formulas ----------------------------------------------------------------------------------

HERE, THERE = np.add(REFERENCE.position, [[0.02, -0.05], [-0.04, 0.03]])


@pytest.mark.parametrize("order", [1, 2])
def test_expansions_against_the_formulas(order: int) -> None:
    surrogate = Taylor(MODEL.posterior, MODEL.data, REFERENCE, order)
    here, there = jnp.float32(HERE), jnp.float32(THERE)
    expected = quadratic(np.float64(there), order) - quadratic(np.float64(here), order)
    found = jax.vmap(surrogate.row_difference(here, there))(MODEL.data)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert float(surrogate.total(here, there)) == pytest.approx(expected.sum(), abs=2e-3)


@pytest.mark.parametrize("order", [1, 2])
def test_a_position_takes_a_pass_to_the_same_sums(order: int) -> None:
    known = Taylor(MODEL.posterior, MODEL.data, REFERENCE, order)
    summed = Taylor(MODEL.posterior, MODEL.data, REFERENCE.position, order)
    assert (known.rows_swept, summed.rows_swept) == (0, NUM_ROWS)
    np.testing.assert_allclose(summed.gradient, known.gradient, atol=2e-3)
    if order == 2:
        np.testing.assert_allclose(summed.hessian, known.hessian, rtol=1e-5)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("order", [1, 2])
def test_what_is_known_and_what_is_sampled_add_up_to_delta(source: str, order: int) -> None:
    kernel = logistic_kernel(source, tc.Metropolis(), Taylor(MODEL.posterior, MODEL.data, REFERENCE, order))
    here, there = jnp.float32(HERE), jnp.float32(THERE)
    trial = replace(kernel, proposal=tc.proposals.Fixed(there)).open(kernel.draw(jr.key(0), here), here)
    while trial.ask.rows > 0:
        trial = kernel.look(here, trial)
    delta = (log_likelihoods(np.float64(there)) - log_likelihoods(np.float64(here))).sum()
    delta += float(MODEL.posterior.log_prior(there) - MODEL.posterior.log_prior(here))
    assert float(trial.evidence.mean + trial.offset) == pytest.approx(delta, abs=5e-3)
    always = EXACT if kernel.source.num_exact else []
    known = float(kernel.offset(here, there, 0.0)) + _residuals(there, here, order)[always].sum()
    assert float(trial.offset) == pytest.approx(known, abs=1e-3)


def _residuals(there: Any, here: Any, order: int) -> np.ndarray:
    there, here = np.float64(there), np.float64(here)
    differences = log_likelihoods(there) - log_likelihoods(here)
    return differences - quadratic(there, order) + quadratic(here, order)


def test_where_order_2_is_exact_no_row_has_a_say(key: jax.Array) -> None:
    """Normal rows: the residuals vanish, and the least rows decide exactly."""
    target = normal_vector()
    position = {"a": jnp.float32(0.1), "b": jnp.float32(0.4)}
    surrogate = Taylor(target.posterior, target.data, position)
    kernel = MetropolisHastings(
        target.posterior, tc.Shuffled(target.data, 40), proposal=target.proposal, surrogate=surrogate
    )
    trace = tc.sample(key, kernel, position, 50, num_chains=20, scan=0, progress=False)
    assert trace.rows_read.max() == 60  # a pilot, and the least fresh rows
    here, there = position, {"a": jnp.float32(-0.3), "b": jnp.float32(0.2)}
    residuals = jax.vmap(kernel.row_log_ratio(here, there))(target.data)
    assert float(jnp.abs(residuals).max()) < 1e-3


# ---- unbiased, by enumeration ------------------------------------------------------------------

FEW = 9


@pytest.mark.parametrize(
    ("exact", "copies"), [([], None), ([2, 5], None), ([], [1, 3, 1, 2, 1, 4, 1, 1, 2]), ([1], None)]
)
def test_estimate_and_variance_are_unbiased_over_all_batches(exact: list[int], copies: list[int] | None) -> None:
    """The mean of Delta* over all batches of 3 is Delta, and the mean of s2 its variance."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(FEW, 2)).astype(np.float32), rng.random(FEW) < 0.5
    model = logistic_regression(x, y, prior_sd=1.0, bound=False)
    copies_of = None if copies is None else np.array(copies)
    source = tc.Shuffled(model.data, 3, windows=False).reweighted(np.array(exact, int), copies_of)
    surrogate = Taylor(model.posterior, model.data, np.zeros(2, np.float32), 1)
    kernel = MetropolisHastings(model.posterior, source, proposal=tc.RandomWalk(1.0), surrogate=surrogate)
    here, there = jnp.array([0.3, -0.4]), jnp.array([1.0, 0.8])
    size = source.population.num_rows
    assert size == FEW - len(exact) if copies is None else sum(copies)
    numbers, known = _numbers_by_the_source(kernel, here, there)
    offset = float(kernel.offset(here, there, 0.0)) + known
    batches = np.array(list(itertools.combinations(numbers, 3)))
    estimates = batches.mean(1) + offset
    s2 = batches.var(1, ddof=1) / 3 * (1 - 3 / size)
    delta = (log_likelihoods(np.float64(there), x, y) - log_likelihoods(np.float64(here), x, y)).sum()
    delta += float(model.posterior.log_prior(there) - model.posterior.log_prior(here))
    assert estimates.mean() == pytest.approx(delta, abs=1e-5)
    assert s2.mean() == pytest.approx(estimates.var(), rel=1e-5)


def _numbers_by_the_source(kernel: Any, here: Any, there: Any) -> tuple[np.ndarray, float]:
    """The number of every row to sample from, as the source hands them to a test, and what it knows of others."""
    source, size = kernel.source, kernel.source.population.num_rows
    cursor, known = source.start(source.draw(jr.key(1))), 0.0
    ask, taken = tc.types.Ask(jnp.int32(size)), 0
    while taken == 0:
        cursor, seen = source.look(cursor, ask, size, kernel.row_log_ratio(here, there), lambda v, ok: v)
        known, taken = known + float(seen.known), int(seen.taken)
    return np.asarray(seen.evidence, np.float64), known


# ---- right, by quadrature ----------------------------------------------------------------------


def quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the posterior on a grid, in float64."""
    sd, mean = np.asarray(LAPLACE.standard_deviations, np.float64), np.asarray(REFERENCE.position, np.float64)
    axes = [mean[i] + sd[i] * np.linspace(-7, 7, 141) for i in range(2)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    density = np.array([log_likelihoods(t).sum() - 0.5 * t @ t for t in grid])
    weights = np.exp(density - density.max())
    weights /= weights.sum()
    mean = weights @ grid
    return mean, (weights[:, None] * (grid - mean)).T @ (grid - mean)


MEAN, COVARIANCE = quadrature()


def z_scores(kernel: Any, chains: int = 400, draws: int = 60) -> np.ndarray:
    starts = MEAN + np.random.default_rng(SEED).standard_normal((chains, 2)) @ np.linalg.cholesky(COVARIANCE).T
    trace = tc.sample(
        jr.key(SEED), kernel, starts.astype(np.float32), draws, num_chains=chains, num_warmup=20, scan=0, progress=False
    )
    centred = trace.position.astype(np.float64) - MEAN
    pairs = np.einsum("cti,ctj->ctij", centred, centred).mean(1).reshape(chains, 4)
    found = np.concatenate([centred.mean(1), pairs], 1)
    truth = np.concatenate([np.zeros(2), COVARIANCE.ravel()])
    return (found.mean(0) - truth) / (found.std(0, ddof=1) / np.sqrt(chains))


FAST = {("minibatch", "alike", 2), ("penalty", "copies", 1)}
PRODUCT = [
    pytest.param(acceptance, source, order, marks=[] if (acceptance, source, order) in FAST else [pytest.mark.slow])
    for acceptance in ("minibatch", "penalty", "austere", "confidence", "combined", "metropolis")
    for source, order in (("alike", 1), ("alike", 2), ("exact", 1), ("copies", 1), ("exact, copies, windows", 1))
]


@pytest.mark.parametrize(("acceptance", "source", "order"), PRODUCT)
def test_agrees_with_quadrature(acceptance: str, source: str, order: int) -> None:
    kernel = logistic_kernel(source, ACCEPTANCE[acceptance](), Taylor(MODEL.posterior, MODEL.data, REFERENCE, order))
    assert np.all(np.abs(z_scores(kernel)) < Z_LIMIT)


@part
class _WithoutTotal:
    """A surrogate whose closed form is left out of the offset."""

    surrogate: Taylor

    def check(self, position: Any) -> None:
        pass

    def total(self, position: Any, candidate: Any) -> Any:
        return 0.0

    def row_difference(self, position: Any, candidate: Any) -> Any:
        return self.surrogate.row_difference(position, candidate)


@pytest.mark.parametrize(
    "broken", [pytest.param("sums of other data", marks=pytest.mark.slow), "no closed form", "no inverse weights"]
)
def test_check_refuses(broken: str) -> None:
    surrogate: Any = Taylor(MODEL.posterior, MODEL.data, REFERENCE, 1)
    kernel = logistic_kernel(
        "copies", tc.MinibatchBarker(), surrogate, proposal=tc.RandomWalk.preconditioned(LAPLACE, 0.5)
    )
    match broken:
        case "sums of other data":
            other = logistic_regression(X, Y[::-1], prior_sd=1.0, bound=False)
            surrogate = replace(surrogate, gradient=Taylor(other.posterior, other.data, REFERENCE.position, 1).gradient)
            kernel = replace(kernel, surrogate=surrogate)
        case "no closed form":
            kernel = replace(kernel, surrogate=_WithoutTotal(Taylor(MODEL.posterior, MODEL.data, REFERENCE, 2)))
            # At the mode the gradient is nearly 0: what is left out is the curvature, all of the posterior's.
        case "no inverse weights":
            kernel = replace(kernel, source=replace(kernel.source, share=jnp.ones_like(kernel.source.share)))
    assert not np.all(np.abs(z_scores(kernel, chains=200)) < Z_LIMIT)


# ---- refusals ----------------------------------------------------------------------------------

REFUSALS: dict[str, tuple[Any, str]] = {
    "order": (lambda: Taylor(MODEL.posterior, MODEL.data, REFERENCE, 3), "`Taylor\\(order=...\\)` must be 1 or 2"),
    "shape": (lambda: Taylor(MODEL.posterior, MODEL.data, np.zeros(5)), "does not take one of shapes \\(5,\\)"),
    "rows": (
        lambda: Taylor(MODEL.posterior, jax.tree.map(lambda leaf: leaf[:100], MODEL.data), REFERENCE),
        "found from 4,000 rows, and the data have 100",
    ),
    "not finite": (
        lambda: Taylor(
            MODEL.posterior, MODEL.data | {"x": jnp.asarray(X).at[77].set(jnp.inf)}, np.zeros(2, np.float32)
        ),
        "not finite at the reference, for row 77",
    ),
    "dimension": (
        lambda: Taylor(
            tc.Posterior(lambda t: 0.0, lambda t, x: jnp.sum(t) * x), np.ones(10, np.float32), np.zeros(3000)
        ),
        "needs the 3000 x 3000 matrix",
    ),
    "other rows": (
        lambda: MetropolisHastings(
            MODEL.posterior,
            tc.Shuffled(jax.tree.map(lambda leaf: leaf[:100], MODEL.data), 10),
            proposal=tc.RandomWalk(0.1),
            surrogate=Taylor(MODEL.posterior, MODEL.data, REFERENCE),
        ),
        "sums over 4,000 rows, and the source has 100",
    ),
    "bound": (
        lambda: logistic_kernel(surrogate=Taylor(MODEL.posterior, MODEL.data, REFERENCE), bound=lambda a, b: 1.0),
        "does not bound the residuals",
    ),
    "exact": (lambda: tc.Shuffled(np.ones(10), 2, exact=[3, 3]), "indices of rows, each once"),
    "too many exact": (lambda: tc.Shuffled(np.ones(10), 2).reweighted(exact=np.arange(9)), "leaves 1 of 10 rows"),
    "copies": (
        lambda: tc.Shuffled(np.ones(10), 2).reweighted(copies=np.zeros(10, int)),
        "at least 1, one for each of the 10",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refuses(name: str) -> None:
    make, message = REFUSALS[name]
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("reference", ["mode", Taylor, object()])
def test_what_is_no_reference_is_quoted(reference: Any) -> None:
    with pytest.raises(TypeError, match=r"`Taylor\(reference=...\)` must be a Reference, .*; got ['<]"):
        Taylor(MODEL.posterior, MODEL.data, reference)


def test_what_is_no_posterior_is_quoted() -> None:
    for reference in (REFERENCE, REFERENCE.position):
        with pytest.raises(TypeError, match=r"`Taylor\(posterior=...\)` must be a .* Use `regression.posterior`\."):
            Taylor(MODEL, MODEL.data, reference)


def test_a_position_of_another_shape_is_refused_before_it_compiles(key: jax.Array) -> None:
    kernel = logistic_kernel(surrogate=Taylor(MODEL.posterior, MODEL.data, REFERENCE), proposal=tc.RandomWalk(0.1))
    with pytest.raises(ValueError, match="has a position of shapes"):
        tc.sample(key, kernel, np.zeros((1, 2, 1), np.float32), 5, progress=False)
