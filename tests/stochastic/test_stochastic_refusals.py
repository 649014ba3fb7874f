"""What kernels without a test refuse: each quotes the call, says what was received, and what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

import tallchain as tc
from gaussian import BATCH, ROWS, Gaussian, shuffled, with_replacement
from refusals import refuse, table
from tallchain.models import logistic_regression
from tallchain.stochastic import SGFS, SGHMC, SGLD, SGNHT, StochasticGradient
from tallchain.surrogates import Taylor

pytest.importorskip("blackjax")

TARGET = Gaussian.make(size=3)
AT = np.zeros(3, np.float32)
SOURCE = shuffled(TARGET.data)

TWO = {name: np.float32(0.1) for name in "ab"}
SUM = tc.Posterior(lambda t: -0.5 * (t["a"] ** 2 + t["b"] ** 2), lambda t, x: -0.5 * (x[0] - t["a"] - 3 * t["b"]) ** 2)
ONE = tc.Posterior(SUM.log_prior, lambda t, x: -0.5 * (x[0] - t["a"]) ** 2)


def plain(
    dynamics: Any = None, rows: Any = BATCH, source: Any = SOURCE, posterior: Any = TARGET.posterior, **options: Any
) -> StochasticGradient:
    return StochasticGradient(posterior, source, SGLD(1e-3) if dynamics is None else dynamics, rows, **options)


def sample(kernel: Any, **options: Any) -> tc.Trace:
    return tc.sample(jr.key(0), kernel, AT, 3, progress=False, **options)


@table(
    {
        "no step": (lambda: SGLD(0.0), ValueError, "`SGLD(step_size=...)` must be a positive number; got 0.0"),
        "a negative step": (lambda: SGHMC(-1.0), ValueError, "`SGHMC(step_size=...)`", "-1.0"),
        "an infinite step": (lambda: SGNHT(np.inf), ValueError, "`SGNHT(step_size=...)`", "inf"),
        "a word for a step": (lambda: SGFS("long"), ValueError, "`SGFS(step_size=...)`", "'long'"),
        "a step for each coordinate": (lambda: SGLD(np.ones(3)), ValueError, "`SGLD(step_size=...)`", "array"),
        "one step of a trajectory": (lambda: SGHMC(0.1, 1), ValueError, "SGHMC(num_steps=...)", "at least 2", "got 1"),
        "no friction": (lambda: SGHMC(0.1, alpha=0.0), ValueError, "SGHMC(alpha=...)", "0.0"),
        "negative noise": (lambda: SGNHT(0.1, beta=-1.0), ValueError, "SGNHT(beta=...)", "-1.0"),
        "too much noise": (lambda: SGHMC(0.1, alpha=1.0, beta=30.0), ValueError, "negative", "alpha above 1.5"),
        "preconditioner": (lambda: SGFS(1.0, np.ones(3)), ValueError, "SGFS(preconditioner=...)", "square matrix"),
        "not definite": (lambda: SGFS(1.0, -np.eye(3)), ValueError, "positive definite", "-1"),
        "words for a matrix": (lambda: SGFS(1.0, "a"), TypeError, "SGFS(preconditioner=...)", "'a'"),
        "of another size": (lambda: sample(plain(SGFS(1.0, np.eye(2)))), ValueError, "shape (3, 3)", "(2, 2)"),
        "no rows": (lambda: plain(rows=0), ValueError, "StochasticGradient(rows=...)", f"N = {ROWS}", "got 0"),
        "too many rows": (lambda: plain(rows=ROWS + 1), ValueError, "StochasticGradient(rows=...)", str(ROWS + 1)),
        "half a row": (lambda: plain(rows=0.5), ValueError, "StochasticGradient(rows=...)", "0.5"),
        "a type for dynamics": (lambda: plain(SGLD), TypeError, "dynamics=...", "`update`", "Did you mean `SGLD(...)`"),
        "a proposal for dynamics": (
            lambda: plain(tc.RandomWalk(1.0)),
            TypeError,
            "`StochasticGradient(dynamics=...)` must be an object with `update`",
        ),
        "data for a source": (lambda: plain(source=TARGET.data), TypeError, "source=...", "`look`"),
        "a regression for a posterior": (
            lambda: plain(posterior=logistic_regression(TARGET.data, np.arange(ROWS) % 2, bound=False)),
            TypeError,
            "posterior=...",
            "regression.posterior",
        ),
        "a word for a surrogate": (lambda: plain(surrogate="a"), TypeError, "StochasticGradient(surrogate=...)", "'a'"),
        "a surrogate of other rows": (
            lambda: plain(surrogate=Taylor(TARGET.posterior, TARGET.data[:50], AT, 1)),
            ValueError,
            "StochasticGradient(surrogate=...)",
            "50 rows",
        ),
        "scores of copies": (
            lambda: plain(SGFS(1.0), source=SOURCE.reweighted(copies=1 + np.arange(ROWS) % 2)),
            ValueError,
            "SGFS",
            "rows drawn alike",
        ),
        "scores of exact rows": (
            lambda: plain(SGFS(1.0), source=SOURCE.reweighted(exact=[0])),
            ValueError,
            "SGFS",
            "read always",
        ),
        "scores by weight": (
            lambda: plain(SGFS(1.0), source=tc.WithReplacement(TARGET.data, BATCH, weights=1 + np.arange(ROWS))),
            ValueError,
            "SGFS",
            "more often",
        ),
        "scores with a surrogate": (
            lambda: plain(SGFS(1.0), surrogate=Taylor(TARGET.posterior, TARGET.data, AT, 1)),
            ValueError,
            "SGFS",
            "whole scores",
        ),
        "scores of few rows": (
            lambda: sample(plain(SGFS(1.0), rows=3)),
            ValueError,
            "rows=3",
            "3 coordinates",
            "at least 4 rows",
        ),
        "scores of a sum": (
            lambda: tc.sample(jr.key(0), plain(SGFS(1.0), posterior=SUM), TWO, 3, progress=False),
            ValueError,
            "StochasticGradient(dynamics=SGFS(...))",
            f"the scores of {ROWS:,} rows is singular at the start, in the direction of a, b.",
            "SGFS(preconditioner=...)",
        ),
        "scores of nothing": (
            lambda: tc.sample(jr.key(0), plain(SGFS(1.0), posterior=ONE), TWO, 3, progress=False),
            ValueError,
            "in the direction of b.",
            "no row depends on it",
        ),
        "a schedule of no steps": (
            lambda: sample(plain(), schedule=tc.Schedule(scale=lambda draw: 0.0 * draw)),
            ValueError,
            "Schedule(scale=...)",
            "SGLD(step_size=...)",
        ),
        "adaptation": (lambda: sample(plain(), adapt=True), TypeError, "sample(adapt=True)", "StochasticGradient"),
        "recentre": (
            lambda: sample(plain(), num_chains=2, recentre=lambda position: None),
            ValueError,
            "needs a kernel with a surrogate",
        ),
        "audit": (
            lambda: tc.audit(plain(), None),
            TypeError,
            "audit(kernel=...)",
            "has no test",
            "no decisions to repeat",
        ),
        "whole numbers for a start": (
            lambda: tc.sample(jr.key(0), plain(), np.zeros(3, int), 3),
            TypeError,
            "sample(initial=...)",
            "float",
        ),
    }
)
def test_refusals(call: Callable[[], Any], error: type[Exception], fragments: tuple[str, ...]) -> None:
    refuse(call, error, *fragments)


@pytest.mark.parametrize("kind", [SGLD, SGHMC, SGNHT])
def test_without_blackjax(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blackjax", None)
    with pytest.raises(ImportError, match=rf"`{kind.__name__}\(...\)` needs BlackJAX. Install it with `pip install"):
        kind(0.1)


def test_sgfs_needs_no_blackjax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blackjax", None)
    trace = sample(plain(SGFS(1.0), source=with_replacement(TARGET.data)), num_chains=2)
    assert np.isfinite(trace.position).all()


def test_a_matrix_of_ones_own_stands_for_scores_that_are_singular() -> None:
    trace = tc.sample(jr.key(0), plain(SGFS(0.1, ROWS * np.eye(2)), posterior=SUM), TWO, 50, progress=False)
    assert not trace.is_invalid.any()
    assert np.all(np.abs(trace.position["b"]) < 5)


def test_scan_and_schedule_do_not_fail() -> None:
    schedule = tc.Schedule(lambda draw: jnp.where(draw < 1, 10.0, 1.0), lambda draw: 1e-3 * (1 + draw / 100) ** -0.55)
    assert sample(plain(), scan=8, schedule=schedule).scan is None
