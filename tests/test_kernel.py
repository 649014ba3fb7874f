"""The kernel as a pytree and as a BlackJAX algorithm."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import tallchain as tc
from scenarios import kernel_of, normal_mean
from tallchain.acceptance.evidence import Moments
from tallchain.parts import part
from tallchain.types import Ask, Judgement, Population

TARGET = normal_mean()


def test_the_data_are_an_argument_not_a_constant(key: jax.Array) -> None:
    kernel = kernel_of()
    lowered = jax.jit(lambda kernel, key, state: kernel.step(key, state)).lower(kernel, key, kernel.init(0.5))
    assert len(lowered.as_text()) < 200_000  # 20,000 rows written out would be more
    assert any(np.size(leaf) >= 20_000 for leaf in jax.tree.leaves(kernel))


def test_survives_a_trip_through_its_leaves(key: jax.Array) -> None:
    kernel = kernel_of()
    leaves, structure = jax.tree.flatten(kernel)
    again = jax.tree.unflatten(structure, leaves)
    assert jax.tree.structure(again) == structure
    assert again.width == kernel.width == 100


def test_full_data_tests_read_in_wide_windows() -> None:
    assert kernel_of(acceptance=tc.Barker()).width == 20_000 // 3 + 1
    assert kernel_of(acceptance=tc.MinibatchBarker(batch=37)).width == 37


def test_runs_in_blackjax(key: jax.Array) -> None:
    import blackjax
    from blackjax.base import SamplingAlgorithm

    kernel = kernel_of()
    algorithm = SamplingAlgorithm(kernel.init, kernel.step)
    state, (states, verdicts) = blackjax.util.run_inference_algorithm(
        key, algorithm, 50, initial_position=jnp.float32(0.5)
    )
    assert states.position.shape == verdicts.rows_read.shape == (50,)
    assert np.isfinite(np.asarray(state.position))


@part
class _Census:
    """Scans all rows apart, then looks at 300 fresh ones: what tests with a bound or a design do."""

    def appetite(self, population: Population) -> int:
        return 100

    def draw(self, key: jax.Array) -> tuple:
        return ()

    def open(self, noise, bound, population):
        return (jnp.bool_(True), jnp.float32(0)), Moments.empty(), Ask(population.num_rows, census=True, apart=True)

    def judge(self, memory, offset, evidence, population):
        is_scan, exact = memory
        exact = jnp.where(is_scan, evidence.mean, exact)
        done = ~is_scan & (evidence.count == 300)
        return Judgement(
            (jnp.bool_(False), exact), Ask(300, fresh=is_scan), done, jnp.abs(evidence.mean - exact) > 1e-9
        )


def test_a_census_is_counted_apart_and_rows_come_fresh_after_it(key: jax.Array) -> None:
    for source in (tc.Shuffled, tc.WithReplacement):
        kernel = kernel_of(TARGET.data[:5000], _Census(), temperature=2000.0, source=source)
        trace = tc.sample(key, kernel, 0.5, 20, num_chains=3, scan=0, progress=False)
        assert (trace.rows_scanned == 5000).all()
        assert (trace.rows_read == 300).all()
        assert trace.is_accepted.all()


def test_may_be_built_inside_jit(key: jax.Array) -> None:
    """As BlackJAX's users do, so that the data stay an argument."""

    def build(data, scale, temperature):
        return kernel_of(data, temperature=temperature, scale=scale)

    def decide(key, *settings):
        kernel = build(*settings)
        return kernel.step(key, kernel.init(jnp.float32(0.5)))

    settings = (jnp.asarray(TARGET.data), jnp.float32(0.6), jnp.float32(2000.0))
    traced, plain = jax.jit(decide)(key, *settings), decide(key, *settings)
    assert jax.tree.map(float, traced[0]) == jax.tree.map(float, plain[0])


@part
class _Idle:
    """Never decides, and asks for nothing more."""

    def appetite(self, population: Population) -> int:
        return 10

    def draw(self, key: jax.Array) -> tuple:
        return ()

    def open(self, noise: tuple, bound: None, population: Population) -> tuple[tuple, Moments, Ask]:
        return (), Moments.empty(), Ask(10)

    def judge(self, memory: tuple, offset: jax.Array, evidence: Moments, population: Population) -> Judgement:
        return Judgement(memory, Ask(0), False, True)


def test_a_test_that_neither_decides_nor_asks_is_over(key: jax.Array) -> None:
    """A hang here is the failure."""
    kernel = kernel_of(acceptance=_Idle())
    state, verdict = jax.jit(kernel.step)(key, kernel.init(0.5))
    assert verdict.is_invalid
    assert not verdict.is_accepted
    assert float(state.position) == 0.5
    assert int(verdict.rows_read) == 10
