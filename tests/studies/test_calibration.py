"""Simulation-based calibration: ranks of true parameters among draws are uniform, and not so for broken samplers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

from conftest import SEED
from studies.calibration import Config, rank
from studies.calibration.broken import BROKEN
from studies.calibration.chains import end_of_chains
from studies.calibration.models import MODELS, TESTS, kernel_of, simulate
from studies.calibration.ranks import CHAINS, is_calibrated, p_value, p_values
from tallchain import MetropolisHastings, sample
from tallchain.parts import replace

DEFAULT = "MinibatchBarker()"
# Data sets per test; samplers broken on purpose get as many as the study, to be refused with nearly any seed.
ENOUGH = {"normal mean": 1000, "logistic regression": 300, "Poisson regression": 300}
FEW = Config(sets=300, rows=400, seed=SEED)

# ---- the check itself --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3])
def test_p_values_are_those_of_uniform_ranks(size: int) -> None:
    random = np.random.default_rng(SEED)
    trials = [p_value(random.integers(0, CHAINS + 1, (400, size))) for _ in range(400)]
    assert np.mean(np.array(trials) < 0.05) < 0.1


@pytest.mark.parametrize(("statistic", "shift", "width"), [("mean", 0.5, 1.0), ("spread", 0.0, 2.0)])
def test_p_values_see_draws_moved_or_widened(statistic: str, shift: float, width: float) -> None:
    random = np.random.default_rng(SEED)
    draws = random.normal(shift, width, (400, CHAINS, 3))
    ranks = (draws < random.normal(size=(400, 1, 3))).sum(1)
    found = p_values(ranks)
    assert not is_calibrated(ranks)
    assert found[statistic] < 1e-4 < found["mean" if statistic == "spread" else "spread"]


def test_normal_approximations_are_right_for_the_normal_mean() -> None:
    joint = simulate(MODELS["normal mean"], np.random.default_rng(SEED), 5, 300)
    precision = 1 + 300 / 4
    np.testing.assert_allclose(joint.mode[:, 0], joint.data["y"].sum(1) / 4 / precision, rtol=1e-4)
    np.testing.assert_allclose(joint.root[:, 0, 0], precision**-0.5, rtol=1e-4)


# ---- the samplers ------------------------------------------------------------------------------


@pytest.mark.slow
def test_default_is_calibrated_on_a_normal_mean_and_hot_chains_are_not() -> None:
    assert is_calibrated(rank("normal mean", DEFAULT, FEW).ranks)
    assert not is_calibrated(rank("normal mean", DEFAULT, FEW, _hot).ranks)


def _hot(kernel: MetropolisHastings, step: float) -> MetropolisHastings:
    return replace(kernel, posterior=replace(kernel.posterior, temperature=3 * kernel.posterior.temperature))


@pytest.mark.slow
@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("model", MODELS)
def test_is_calibrated(model: str, test: str) -> None:
    found = rank(model, test, Config(seed=SEED, sets=ENOUGH[model]))
    assert is_calibrated(found.ranks), p_values(found.ranks)
    assert found.memory < 0.1  # chains were long enough for an error to show


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "model"), list(zip(BROKEN, [*MODELS, "normal mean"], strict=True)), ids=lambda value: value
)
def test_check_refuses_broken_samplers(broken: str, model: str) -> None:
    found = rank(model, DEFAULT, Config(seed=SEED), BROKEN[broken])
    assert not is_calibrated(found.ranks), p_values(found.ranks)


@pytest.mark.slow
@pytest.mark.parametrize("test", [DEFAULT, "Confidence(0.1)"])
def test_chains_are_those_of_sample(test: str) -> None:
    """The chains of a data set among many are, number for number, those that `sample` draws for it alone."""
    model, draws = MODELS["logistic regression"], 20
    joint = simulate(model, np.random.default_rng(SEED), 3, 500)
    keys = jnp.stack([_keys(of_set) for of_set in range(3)])
    starts = np.repeat(joint.mode[:, None], CHAINS, 1)
    ends, total = end_of_chains(
        kernel_of(model, TESTS[test], joint), joint.data, model.step * joint.root, keys, starts, draws
    )
    rows_read = 0
    for of_set in range(3):
        kernel = kernel_of(model, TESTS[test], joint, of_set)
        rows = jax.tree.map(lambda leaf, i=of_set: jnp.asarray(leaf[i]), joint.data)  # as they lie there: unshuffled
        kernel = replace(kernel, source=replace(kernel.source, data=rows))
        trace = sample(jr.key(of_set), kernel, starts[of_set], draws, num_chains=CHAINS, progress=False)
        np.testing.assert_allclose(ends[of_set], trace.position[:, -1], rtol=1e-5, atol=1e-6)
        rows_read += trace.rows_read.sum()
    assert (total.num_decisions, total.rows_read) == (3 * CHAINS * draws, rows_read)


def _keys(of_set: int) -> jax.Array:
    return jax.vmap(lambda chain: jr.fold_in(jr.key(of_set), chain))(jnp.arange(CHAINS))
