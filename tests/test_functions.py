"""Users' functions: seen anew by every part, compiled once for each, and let go."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tallchain import Barker, MetropolisHastings, Posterior, RandomWalk, Schedule, Shuffled, Trace, prepare, sample
from tallchain.functions import Function, calls_lapack, shared

ROWS = np.random.default_rng(1).normal(size=200).astype(np.float32)
centre = 0.0


def log_prior(t: jax.Array) -> jax.Array:
    return -50 * (t - centre) ** 2


def log_likelihood(t: jax.Array, row: jax.Array) -> jax.Array:
    return -1e-6 * (row - t) ** 2


def run(posterior: Posterior, **options) -> Trace:
    kernel = MetropolisHastings(posterior, Shuffled(ROWS, 50), proposal=RandomWalk(0.2), acceptance=Barker())
    options = {"num_chains": 2, "scan": 0, "progress": False} | options
    return sample(jax.random.key(0), kernel, jnp.float32(centre), 40, **options)


def test_a_global_that_changed_is_seen_by_the_next_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    before = run(Posterior(log_prior, log_likelihood))
    monkeypatch.setitem(globals(), "centre", 3.0)
    after = run(Posterior(log_prior, log_likelihood))
    assert np.abs(before.position).max() < 1
    assert np.abs(after.position - 3).max() < 1


def test_a_global_that_changed_is_seen_by_the_next_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = Posterior(log_prior, log_likelihood)

    def scale(draw: jax.Array) -> jax.Array:
        return jnp.float32(1e-3 if centre == 0.0 else 0.5)

    before = run(posterior, schedule=Schedule(scale=scale))
    monkeypatch.setitem(globals(), "centre", 0.01)
    after = run(posterior, schedule=Schedule(scale=scale))
    assert np.abs(np.diff(before.position)).max() < 0.01 < np.abs(np.diff(after.position)).max()


def test_the_same_posterior_compiles_once() -> None:
    traced = 0

    def counted(t: jax.Array, row: jax.Array) -> jax.Array:
        nonlocal traced
        traced += 1
        return log_likelihood(t, row)

    posterior = Posterior(log_prior, counted)
    run(posterior)
    first = traced
    run(posterior)
    again = traced - first  # checks trace, and compile nothing
    run(posterior)
    assert traced - first - again == again < first / 2


def test_functions_and_what_they_hold_are_let_go() -> None:
    def make() -> list[weakref.ref]:
        held = jnp.arange(1000.0)

        def closure(t: jax.Array, row: jax.Array) -> jax.Array:
            return -1e-6 * (row - t) ** 2 + 0 * held[3]

        posterior = Posterior(log_prior, closure)
        run(posterior, scan=2)
        prepare(posterior, ROWS, jnp.float32(0.1), progress=False)
        return [weakref.ref(closure), weakref.ref(held)]

    references = make()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_matrix_products_keep_all_their_digits() -> None:
    """On a GPU the default keeps 10 bits of a factor; the precision is in the program, whatever the machine."""
    posterior = Posterior(lambda w: -0.5 * w @ w, lambda w, row: row @ w)
    for function, arguments in ((posterior.log_prior, (ROWS[:3],)), (posterior.log_likelihood, (ROWS[:3], ROWS[3:6]))):
        assert "HIGHEST" in str(jax.make_jaxpr(function)(*map(jnp.asarray, arguments)))
    kernel = MetropolisHastings(
        posterior, Shuffled(ROWS[:30].reshape(10, 3), 2), proposal=RandomWalk(0.1), bound=lambda a, b: a @ b
    )
    assert "HIGHEST" in str(jax.make_jaxpr(kernel.bound)(jnp.ones(3), jnp.ones(3)))


def test_shared_functions_are_one() -> None:
    assert shared(log_prior) is shared(log_prior)
    assert Posterior(shared(log_prior), log_likelihood).log_prior is shared(log_prior)
    assert Function(log_prior) != Function(log_prior)


def test_a_part_survives_a_trip_through_jax() -> None:
    posterior = jax.tree.map(lambda leaf: leaf, Posterior(log_prior, log_likelihood, 2.0))
    gc.collect()
    assert float(posterior.log_prior(jnp.float32(1.0))) == -50
    leaves, structure = jax.tree.flatten(Posterior(lambda t: t, log_likelihood, 2.0))
    gc.collect()
    with pytest.raises(RuntimeError, match="Keep the object itself"):
        jax.tree.unflatten(structure, leaves)


@pytest.mark.parametrize("flat", [0, 0.0])
def test_a_flat_prior_may_be_a_plain_number(flat: float) -> None:
    trace = run(Posterior(lambda t: flat, lambda t, row: -((row - t) ** 2)))
    assert np.isfinite(trace.position).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: copy.deepcopy(Posterior(log_prior, log_likelihood, 2.0)),
        lambda: pickle.loads(pickle.dumps(Posterior(log_prior, log_likelihood, 2.0))),
        lambda: jax.jit(lambda k: Posterior(log_prior, log_likelihood, k))(2.0),
        jax.jit(lambda: Posterior(log_prior, log_likelihood, jnp.float32(2.0))),
        lambda: jax.tree.map(
            lambda leaf: leaf[0], jax.vmap(lambda k: Posterior(log_prior, log_likelihood, k))(jnp.ones(3))
        ),
    ],
    ids=["deepcopy", "pickle", "jit", "jit of nothing", "vmap"],
)
def test_copies_and_parts_made_in_programs_keep_their_functions(make) -> None:
    posterior = make()
    gc.collect()
    again = jax.tree.map(lambda leaf: leaf, posterior)
    assert float(jax.jit(lambda p, t: p.log_prior(t))(again, jnp.float32(1.0))) == -50


def test_shared_functions_stay_shared_when_pickled() -> None:
    assert pickle.loads(pickle.dumps(shared(log_prior))) is shared(log_prior)


@pytest.mark.parametrize("function", [jnp.linalg.cholesky, jnp.linalg.inv, jnp.linalg.eigvalsh, jnp.linalg.slogdet])
@pytest.mark.parametrize("within", [lambda f: f, jax.vmap, lambda f: lambda x: lax.map(f, x)])
def test_matrix_decompositions_are_found(function: Any, within: Any) -> None:
    def many(x: Any) -> Any:
        return lax.while_loop(lambda i: i[0] < 3, lambda i: (i[0] + 1, within(function)(x)), (0, within(function)(x)))

    assert calls_lapack(jax.jit(many).trace(jnp.ones((4, 3, 3))))
    assert not calls_lapack(jax.jit(lambda x: jax.vmap(jnp.dot)(x, jnp.sin(x))).trace(jnp.ones((4, 3, 3))))


HANGS = """
import jax, jax.numpy as jnp, numpy as np, tallchain as tc
covariance = jnp.eye(400) + 0.1
def log_prior(t):
    return -0.5 * t @ jnp.linalg.solve(covariance + 1e-9 * t[0] ** 2 * jnp.eye(400), t)
posterior = tc.Posterior(log_prior, lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
data = np.random.default_rng(0).normal(size=(200, 400)).astype("float32")
kernel = tc.MetropolisHastings(posterior, tc.Shuffled(data, 20), proposal=tc.RandomWalk(0.01))
tc.sample(jax.random.key(0), kernel, np.zeros(400, np.float32), 5, num_chains=16, scan=2, progress=False)
"""


@pytest.mark.slow
def test_decompositions_of_many_chains_end() -> None:
    """Two groups of chains that decompose matrices at once would wait for each other for ever."""
    subprocess.run([sys.executable, "-W", "error", "-c", HANGS], check=True, timeout=200)
