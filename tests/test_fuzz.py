"""Whatever the rows and settings: `sample` ends with finite draws and counts that add up, or refuses clearly."""

from __future__ import annotations

import warnings
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from conftest import SEED
from registry import ACCEPTANCE, SETTINGS, SOURCES
from tallchain import MetropolisHastings, Posterior, RandomWalk, Trace, sample

TESTS = {name: make for name, make in (ACCEPTANCE | SETTINGS).items() if name != "austere designed"}  # of fixed N
LIKELIHOODS = {
    "linear": lambda t, row: t["a"] * row["x"] + jnp.sum(t["b"]) * row["y"],
    "normal": lambda t, row: -((row["x"] - t["a"]) ** 2) - (row["y"] - jnp.sum(t["b"])) ** 2,
    "logistic": lambda t, row: jax.nn.log_sigmoid(row["x"] * t["a"] + row["y"] * jnp.sum(t["b"])),
    "steep": lambda t, row: -jnp.exp(row["x"] * t["a"]) + row["y"] * jnp.sum(t["b"]),
    "rooted": lambda t, row: jnp.log(row["x"] - t["a"]) + row["y"] * jnp.sum(t["b"]),  # NaN where x < a
}
SCALES = (1e-30, 1e-12, 1e-3, 1.0, 1e6, 1e15, 1e30)
TAINTS = (None, 0.0, 1e30, -1e30, np.inf, -np.inf, np.nan)
DRAWS, WARMUP = 5, 2


def rows_of(random: np.random.Generator, num_rows: int, scale: float, taint: float | None, dtype: str) -> dict:
    with np.errstate(over="ignore", invalid="ignore"):
        x = (scale * random.standard_normal(num_rows)).astype(dtype)
        if taint is not None:
            x[random.integers(num_rows, size=1 + num_rows // 50)] = np.asarray(taint).astype(dtype)
    return {"x": x, "y": (scale * random.standard_normal(num_rows)).astype(np.float32)}


def check(trace: Trace, num_rows: int, repeats: bool, num_chains: int) -> None:
    assert trace.is_accepted.shape == (num_chains, DRAWS)
    assert all(np.isfinite(leaf).all() for leaf in trace.variables().values())
    assert not (trace.is_accepted & ~np.isfinite(trace.log_ratio)).any()
    assert not (trace.is_accepted & trace.is_invalid).any()
    assert (trace.rows_read >= 0).all()
    assert (trace.rows_scanned >= 0).all()
    assert repeats or (trace.rows_read <= num_rows).all()
    assert (trace.rows_read <= 3 * num_rows).all()
    assert trace.warmup.num_decisions == num_chains * WARMUP
    moved = np.any([np.diff(trace.position["a"], axis=1) != 0, np.any(np.diff(trace.position["b"], axis=1), -1)], 0)
    assert not (moved & ~trace.is_accepted[:, 1:]).any()


@pytest.mark.parametrize("max_examples", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_any_rows_and_settings(max_examples: int) -> None:
    settings = hypothesis.settings(
        max_examples=max_examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    settings(hypothesis.given(data=st.data())(draw_and_check))()


def draw_and_check(data: Any) -> None:
    choose = lambda values: data.draw(st.sampled_from(list(values)))  # noqa: E731
    likelihood, source = choose(LIKELIHOODS), choose(SOURCES)
    num_rows, num_chains = choose((1, 2, 23, 150, 700)), choose((1, 2, 8))
    batch_size = min(choose((1, 2, 20, 50)), num_rows)
    temperature, step = choose((1e-3, 1.0, 1e4)), choose((1e-6, 0.3, 1e5))
    posterior = Posterior(
        lambda t: -0.5 * (t["a"] ** 2 + jnp.sum(t["b"] ** 2)), LIKELIHOODS[likelihood], temperature=temperature
    )
    acceptance, dtype = TESTS[choose(TESTS)](), choose(("float32", "float64", "int32"))
    # What differs below is an argument of the same program: many data sets for one compilation.
    tuples = st.tuples(st.sampled_from(SCALES), st.sampled_from(TAINTS))
    for scale, taint in data.draw(st.lists(tuples, min_size=6, max_size=6)):
        rows = rows_of(np.random.default_rng(SEED), num_rows, scale, taint, dtype)
        start = {"a": jnp.float32(-0.1), "b": jnp.full(2, 0.1)}
        refusal = None
        try:
            made = SOURCES[source](rows, batch_size)
            kernel = MetropolisHastings(posterior, made, proposal=RandomWalk(step), acceptance=acceptance)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # what is wrong with such draws, in words
                options = {"num_chains": num_chains, "num_warmup": WARMUP, "scan": 2, "progress": False}
                trace = sample(jax.random.key(SEED), kernel, start, DRAWS, **options)
        except (ValueError, TypeError) as error:
            refusal = str(error)
        if refusal is None:
            check(trace, num_rows, source == "with replacement", num_chains)
        else:
            assert "`" in refusal  # it quotes the call
