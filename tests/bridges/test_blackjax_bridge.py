"""The kernel as an algorithm of BlackJAX makes the decisions of the kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallchain as tc
from conftest import SEED
from tallchain.bridges.blackjax import TallState, as_top_level_api, build_kernel, init
from tallchain.parts import replace

DATA = np.random.default_rng(SEED).normal(1.0, 1.0, size=2000).astype(np.float32)
POSTERIOR = tc.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)


def kernel_of(posterior: tc.Posterior) -> tc.MetropolisHastings:
    return tc.MetropolisHastings(
        posterior, tc.Shuffled(DATA, 50), proposal=tc.RandomWalk(0.05), acceptance=tc.Penalty()
    )


KERNEL = kernel_of(POSTERIOR)


def of_blackjax(kernel: tc.MetropolisHastings) -> tuple:
    util = pytest.importorskip("blackjax.util")

    def both(key: jax.Array, kernel: tc.MetropolisHastings) -> tuple:
        start = jnp.float32(1)
        algorithm = as_top_level_api(kernel)
        return util.run_inference_algorithm(key, algorithm, 3000, initial_state=algorithm.init(start))

    return jax.jit(both)(jax.random.key(SEED), kernel)


@pytest.fixture(scope="module")
def run() -> tuple:
    return of_blackjax(KERNEL)


def is_right(states: TallState) -> bool:
    """Whether draws are of the posterior, which is N(2000 mean/2001, 1/2001)."""
    draws = np.asarray(states.position, np.float64)[200:]
    batches = draws[: len(draws) // 20 * 20].reshape(20, -1).mean(1)
    z = (draws.mean() - DATA.sum() / 2001) / (batches.std(ddof=1) / np.sqrt(20))
    return bool(abs(z) < 4.5 and 0.8 < draws.std() * np.sqrt(2001) < 1.25)


def test_a_run_of_blackjax_draws_from_the_posterior(run: tuple) -> None:
    final, (states, info) = run
    assert final.position == states.position[-1]
    assert is_right(states)
    assert 0.2 < info.acceptance_rate.mean() < 1
    assert info.rows_read.min() >= 40


def test_the_check_of_draws_finds_other_posteriors() -> None:
    """Of the square root of the likelihood, and of a prior that is not the posterior's."""
    wide = kernel_of(tc.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.25 * (x - t) ** 2))
    aside = kernel_of(tc.Posterior(lambda t: 200 * t, lambda t, x: -0.5 * (x - t) ** 2))
    assert not is_right(of_blackjax(wide)[1][0])
    assert not is_right(of_blackjax(aside)[1][0])


def test_a_step_is_a_decision_of_the_kernel(run: tuple) -> None:
    util_keys = jax.random.split(jax.random.key(SEED), 3000)
    state, expected = TallState(jnp.float32(1)), KERNEL.init(jnp.float32(1))
    step, own = jax.jit(build_kernel()), jax.jit(lambda key, state, kernel: kernel.step(key, state))
    for key in util_keys[:20]:
        state, info = step(key, state, KERNEL)
        expected, verdict = own(key, expected, KERNEL)
        assert state.position == expected.position
        assert info.is_accepted == verdict.is_accepted
    assert state.position == run[1][0].position[19]


def test_starts_are_checked() -> None:
    with pytest.raises(ValueError, match=r"kernel\.init\(position=\.\.\.\)"):
        init(jnp.float32(jnp.nan), KERNEL)


def test_float32_is_refused_where_it_is_not_enough() -> None:
    """In a program too, where BlackJAX's runners start chains."""
    wide = replace(KERNEL, in_float64=True)
    with pytest.raises(ValueError, match=r"2,000 rows .* Run inside `with jax.enable_x64\(True\):`"):
        jax.eval_shape(lambda kernel: init(jnp.float32(1), kernel), wide)


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match=r"must be a MetropolisHastings.*got .*Posterior\(logprior_fn"):
        as_top_level_api(lambda position: 0.0)  # ty: ignore[invalid-argument-type]
