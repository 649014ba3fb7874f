"""Scores of rows against NumPy, plans against the variances they predict, and the choice."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

import tallchain as tc
from tallchain.models import linear_regression, logistic_regression
from tallchain.surrogates import Influence, Laplace, Taylor, find_reference, influence

NUM_ROWS, DRAWS = 3001, 6
RANDOM = np.random.default_rng(12)
X = np.stack([np.ones(NUM_ROWS), RANDOM.standard_normal(NUM_ROWS)], 1).astype(np.float32)
X[:20, 1] *= 15  # a few rows with leverage
Y = (X @ [-0.5, 0.8] + RANDOM.standard_normal(NUM_ROWS)).astype(np.float32)
MODEL = linear_regression(X, Y, noise_sd=1.0, prior_sd=1.0)
REFERENCE = find_reference(MODEL.posterior, MODEL.data, np.zeros(2, np.float32), progress=False)
LAPLACE = REFERENCE.laplace
SURROGATE = Taylor(MODEL.posterior, MODEL.data, REFERENCE, 1)


def found(**options) -> Influence:
    options = {"batch_size": 20, "num_draws": DRAWS} | options
    return influence(MODEL.posterior, MODEL.data, SURROGATE, LAPLACE, **options)


def pairs(seed: int, which: int) -> tuple[np.ndarray, np.ndarray]:
    """The proposals that are scored (0) and judged (1), drawn again."""
    key = jr.split(jr.key(seed))[which]
    here, there = (jax.vmap(LAPLACE.draw)(jr.split(each, DRAWS)) for each in jr.split(key))
    return np.asarray(here, np.float64), np.asarray(there, np.float64)


def residuals(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Of order 1, by the formulas of linear regression, by (proposal, row)."""
    x, r = X.astype(np.float64), np.asarray(REFERENCE.position, np.float64)
    value = lambda t: -((Y - x @ t) ** 2) / 2  # noqa: E731
    slope = Y - x @ r
    return np.array([value(b) - value(a) - slope * (x @ (b - a)) for a, b in zip(here, there, strict=True)])


def test_scores_are_root_mean_squares_of_residuals() -> None:
    expected = np.sqrt(np.mean(residuals(*pairs(0, 0)) ** 2, 0))
    np.testing.assert_allclose(found().scores, expected, atol=1e-6, rtol=1e-3)


def test_plans_predict_the_variance_of_the_numbers_per_row() -> None:
    """Of the numbers that a source made by each plan would hand out, computed outright."""
    result = found(method="copies")
    r = residuals(*pairs(0, 1))
    for plan in result.plans:
        c = np.ones(NUM_ROWS)
        if plan.method == "copies":
            c = result.copies
        rest = np.ones(NUM_ROWS, bool)
        rest[np.argsort(-result.scores)[: plan.num_exact]] = False
        size = c[rest].sum()
        numbers = size * r[:, rest] / c[rest]
        p = c[rest] / size
        variance = numbers**2 @ p - (numbers @ p) ** 2
        rows = 1 / (1 / variance + 1 / size)
        assert plan.rows == pytest.approx(rows.mean(), rel=0.01)
        assert plan.most_rows == pytest.approx(rows.max(), rel=0.01)


def test_rows_of_equal_score_are_ranked_too() -> None:
    """Most rows of binary data have a score in common: reading 100 of them always leaves the others to be sampled."""
    x = np.stack([np.ones(NUM_ROWS), RANDOM.random(NUM_ROWS) < 0.2], 1).astype(np.float32)
    model = logistic_regression(x, RANDOM.random(NUM_ROWS) < 0.3, bound=False)
    reference = find_reference(model.posterior, model.data, np.zeros(2, np.float32), progress=False)
    surrogate = Taylor(model.posterior, model.data, reference, 1)
    result = influence(model.posterior, model.data, surrogate, reference.laplace, batch_size=20)
    every, *exact = (plan for plan in result.plans if plan.method != "copies")
    assert len(np.unique(result.scores)) < 5
    assert [plan.num_exact for plan in exact] == [100, 300]
    assert 0.7 * every.rows < exact[0].rows < 0.95 * every.rows
    assert exact[1].rows < 0.8 * exact[0].rows


def test_log_ratios_are_exact() -> None:
    here, there = pairs(0, 1)
    x = X.astype(np.float64)
    density = lambda t: -0.5 * np.sum((Y - x @ t) ** 2) - 0.5 * t @ t  # noqa: E731
    w = lambda t: np.asarray(LAPLACE.whiten(jnp.float32(t)), np.float64)  # noqa: E731
    expected = [density(b) - density(a) + 0.5 * (w(b) @ w(b) - w(a) @ w(a)) for a, b in zip(here, there, strict=True)]
    np.testing.assert_allclose(found().log_ratios, expected, atol=0.01)
    assert found().acceptance > 0.99  # the posterior is normal


def test_rows_that_matter_are_read_more_often() -> None:
    result = found()
    assert result.chosen.method == "copies"
    plain = next(plan for plan in result.plans if plan.method == "none")
    assert result.chosen.cost(20) < plain.cost(20) / 1.2
    assert result.copies is not None
    assert result.copies[:20].mean() > 10 * result.copies[20:].mean()
    assert "* rows that matter more often" in str(result)
    assert result.rows_swept == 2 * DRAWS * NUM_ROWS


def test_rows_alike_are_left_alike() -> None:
    x = RANDOM.standard_normal((NUM_ROWS, 2)).astype(np.float32)
    model = logistic_regression(x, RANDOM.random(NUM_ROWS) < 0.5, prior_sd=1.0, bound=False)
    reference = find_reference(model.posterior, model.data, np.zeros(2, np.float32), progress=False)
    surrogate = Taylor(model.posterior, model.data, reference, 2)
    result = influence(model.posterior, model.data, surrogate, reference.laplace, batch_size=50)
    assert result.chosen.method == "none"
    assert result.copies is None
    assert len(result.exact) == 0


def test_the_chosen_source_reads_as_many_rows_as_predicted() -> None:
    result = found()
    source = tc.Shuffled(MODEL.data, result.batch_size).reweighted(result.exact, result.copies)
    kernel = tc.MetropolisHastings(
        MODEL.posterior, source, proposal=tc.PCN(LAPLACE), acceptance=tc.Penalty(), surrogate=SURROGATE
    )
    starts = jax.vmap(LAPLACE.draw)(jr.split(jr.key(3), 100))
    trace = tc.sample(jr.key(4), kernel, starts, 50, num_chains=100, progress=False)
    assert trace.rows_read.mean() < 4 * result.chosen.cost(result.batch_size)
    assert not trace.complaints()
    assert "rows that matter are sampled up to" in str(trace.summary())


def test_refuses() -> None:
    with pytest.raises(ValueError, match="method"):
        found(method="some")
    with pytest.raises(ValueError, match="num_draws"):
        found(num_draws=1)
    bad = MODEL.data | {"x": jnp.asarray(X).at[5].set(jnp.inf)}
    with pytest.raises(ValueError, match=r"row 5 is not finite .*sample one without bounds in its place, the log-odds"):
        influence(MODEL.posterior, bad, SURROGATE, LAPLACE)


OTHER = Laplace(np.zeros(3), np.eye(3))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"seed": -1}, ValueError, "`influence(seed=...)` must be a whole number, at least 0; got -1."),
        ({"seed": "a"}, ValueError, "`influence(seed=...)` must be a whole number, at least 0; got 'a'."),
        ({"posterior": 3}, TypeError, "`influence(posterior=...)` must be a Posterior(...); got 3."),
        ({"posterior": MODEL}, TypeError, "Use `regression.posterior`."),
        ({"laplace": REFERENCE}, TypeError, "`influence(laplace=...)` must be a Laplace(...), e.g."),
        ({"laplace": OTHER, "surrogate": None}, ValueError, "`influence(posterior=..., laplace=...)`, at the mean"),
        ({"laplace": OTHER}, ValueError, "has a position of shapes (2,); the chain's has (3,)"),
        ({"surrogate": REFERENCE}, TypeError, "`influence(surrogate=...)` must be a Taylor(...) or None; got"),
    ],
)
def test_parts_are_checked_before_rows_are_read(
    changed: dict[str, Any], error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tc.WithReplacement, "sweep", lambda *_, **options: pytest.fail("rows were read"))
    parts = {"posterior": MODEL.posterior, "data": MODEL.data, "surrogate": SURROGATE, "laplace": LAPLACE}
    with pytest.raises(error, match=re.escape(message)):
        influence(**parts | changed)


@pytest.mark.parametrize(
    "copies", [np.full(len(MODEL.data["y"]), 2), np.ones(len(MODEL.data["y"]), int)], ids=["two", "one"]
)
def test_a_source_that_is_reweighted_already_is_refused(copies: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tc.Shuffled(MODEL.data, 10).reweighted(copies=copies)
    monkeypatch.setattr(tc.Shuffled, "order", lambda _: pytest.fail("a permutation of all rows was made"))
    with pytest.raises(ValueError, match="the source is already reweighted"):
        influence(MODEL.posterior, source, None, LAPLACE)


@pytest.mark.parametrize("bad", [1e12, np.inf])
def test_a_cliff_at_some_proposals_does_not_look_free(bad: float) -> None:
    """A row whose residual overflows beyond 1.9 standard deviations, where no proposal scores and one judges."""
    data = (0.02 * np.random.default_rng(0).normal(size=2003)).astype(np.float32)
    data[5] = 1.0
    posterior = tc.Posterior(
        lambda t: -0.5 * jnp.sum(t**2), lambda t, x: jnp.where((x > 0.5) & (t[0] > 1.9), -bad, 0.1 * x * t[0])
    )
    found = influence(posterior, data, None, Laplace(jnp.zeros(1), jnp.eye(1)), seed=5)
    plans = {(plan.method, plan.num_exact): plan for plan in found.plans}
    assert plans["none", 0].most_rows > 2000
    assert plans["copies", 0].most_rows > 2000
    assert plans["exact", 100].most_rows < 100
    assert found.chosen.method == "exact"
    assert 5 in found.exact
