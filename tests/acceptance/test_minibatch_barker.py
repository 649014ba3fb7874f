"""The paper's test: hand-made judgements, its closed form, and its acceptance probability at fixed pairs."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from scipy import stats
from scipy.special import expit

from conftest import SEED
from tallchain import MetropolisHastings
from tallchain.acceptance import MinibatchBarker
from tallchain.acceptance.evidence import Moments, SkewMoments
from tallchain.acceptance.stopping import RULES, PilotBatch
from tallchain.acceptance.tables import Noise, Reading, logistic
from tallchain.functions import shared
from tallchain.models import Posterior
from tallchain.parts import replace
from tallchain.proposals import Fixed
from tallchain.sources import Shuffled, WithReplacement
from tallchain.types import Population

POPULATION = Population(10_000, 100, repeats=False)
REPEATING = POPULATION._replace(repeats=True)


def evidence(count: int, mean: float, s2: float, population: Population = POPULATION) -> Moments:
    """Moments for which the estimated variance of the mean is s2."""
    factor = 1.0 if population.repeats else 1 - count / population.num_rows
    squares = s2 / max(factor, 1e-9) * count * (count - 1)
    return Moments(jnp.int32(count), jnp.float32(mean), jnp.float32(squares))


def judge(test, seen: Moments, offset=0.0, normal=0.0, correction=0.0, logistic=0.0, population=POPULATION):
    """Judge with noise of known values: all atoms are `correction`, and the bits are those of X_log = `logistic`."""
    atoms = jnp.full_like(test.tables.atoms, correction)
    test = replace(test, tables=replace(test.tables, atoms=atoms))
    bits = np.uint32(np.clip(expit(logistic) * 2.0**32, 0, 2.0**32 - 1))
    noise = Noise(jnp.float32(normal), jnp.asarray(bits), jnp.zeros(2))
    memory, _, ask = test.open(noise, None, population)
    assert int(ask.rows) == 100
    return test.judge(memory, jnp.float32(offset), seen, population)


def growing(**arguments) -> MinibatchBarker:
    """The paper's stopping rule."""
    return MinibatchBarker(stopping="growth", **arguments)


def test_waits_while_the_variance_is_too_large() -> None:
    judgement = judge(growing(), evidence(100, 5.0, 1.01))
    assert not judgement.is_decided
    assert int(judgement.ask.rows) == 100


def test_decides_below_sigma_squared() -> None:
    assert judge(growing(), evidence(100, 5.0, 0.99)).is_decided
    assert not judge(growing(sigma=0.9), evidence(100, 5.0, 0.82)).is_decided
    assert judge(growing(sigma=1.2), evidence(100, 5.0, 1.43)).is_decided


@pytest.mark.parametrize(
    ("mean", "offset", "normal", "correction", "is_accepted"),
    [
        (0.1, 0.0, 0.0, 0.0, True),
        (0.1, -0.2, 0.0, 0.0, False),
        (-1.0, 0.0, 1.0, 0.3, True),  # padding 0.8, correction 0.3
        (-1.0, 0.0, 1.0, 0.1, False),
        (-1.0, 0.0, -1.0, 1.9, True),
        (-1.0, 0.0, -1.0, 1.7, False),
    ],
)
def test_adds_padding_and_correction(mean, offset, normal, correction, is_accepted) -> None:
    judgement = judge(growing(), evidence(100, mean, 0.36), offset, normal, correction, logistic=99.0)
    assert bool(judgement.is_accepted) is is_accepted


@pytest.mark.parametrize(("logistic", "is_accepted"), [(0.4, False), (0.6, True)])
def test_is_barkers_test_when_all_rows_were_read(logistic: float, is_accepted: bool) -> None:
    seen = Moments(jnp.int32(10_000), jnp.float32(-0.5), jnp.float32(1e12))
    judgement = judge(growing(), seen, normal=50.0, correction=50.0, logistic=logistic)
    assert judgement.is_decided
    assert bool(judgement.is_accepted) is is_accepted


def test_asks_for_no_more_rows_than_there_are() -> None:
    assert int(judge(growing(), evidence(9_950, 0.0, 2.0)).ask.rows) == 50
    ask = judge(growing(), evidence(9_850, 0.0, 2.0, REPEATING), population=REPEATING).ask
    assert (int(ask.rows), bool(ask.census), bool(ask.fresh)) == (100, False, False)
    ask = judge(growing(), evidence(9_950, 0.0, 2.0, REPEATING), population=REPEATING).ask
    assert (int(ask.rows), bool(ask.census), bool(ask.fresh)) == (10_000, True, True)


def test_where_rows_repeat_n_of_them_are_a_census_and_exact() -> None:
    seen = evidence(9_999, -0.5, 0.5, REPEATING)
    assert judge(growing(), seen, correction=0.6, logistic=-99.0, population=REPEATING).is_accepted
    census = evidence(10_000, -0.5, 2.0, REPEATING)
    decided = judge(growing(), census, correction=0.6, logistic=-99.0, population=REPEATING)
    assert decided.is_decided
    assert not decided.is_accepted


def test_applies_the_finite_population_factor_where_rows_do_not_repeat() -> None:
    half = Moments(jnp.int32(5_000), jnp.float32(0.0), jnp.float32(1.5 * 5_000 * 4_999))  # var/b = 1.5, times 1/2
    assert judge(growing(), half).is_decided
    assert not judge(growing(), half, population=REPEATING).is_decided


def test_shortcut_decides_by_sign() -> None:
    test = growing(shortcut=5.0)
    for mean, is_accepted in ((10.1, True), (-10.1, False)):
        judgement = judge(test, evidence(100, mean, 4.0), correction=-99.0 * mean)
        assert judgement.is_decided
        assert bool(judgement.is_accepted) is is_accepted
    assert not judge(test, evidence(100, 9.9, 4.0)).is_decided


def test_one_row_has_no_variance() -> None:
    judgement = judge(growing(), Moments(jnp.int32(1), jnp.float32(0), jnp.float32(0)))
    assert not judgement.is_decided


def test_named_settings() -> None:
    paper, code = MinibatchBarker.paper(), MinibatchBarker.as_published_code()
    assert (paper.sigma, paper.shortcut, paper.tables.atoms.size) == (1.0, None, 8001)
    assert (code.sigma, code.shortcut, code.tables.atoms.size) == (0.9, 5.0, 4001)
    assert paper.appetite(POPULATION) == 100
    assert growing(batch=37).appetite(POPULATION) == 37
    assert growing(batch=20_000).appetite(POPULATION) == 10_000


def test_noise_has_the_laws_it_should(key: jax.Array) -> None:
    """Z normal; X_corr on its atoms with their probabilities; X_log logistic."""
    test = growing()
    noise = jax.jit(jax.vmap(test.draw))(jr.split(key, 200_000))
    nothing = Reading(jnp.zeros(()), jnp.float32(1.0))  # no padding at s2 = sigma^2
    correction = jax.vmap(lambda one: test.tables.total(one, nothing))(noise)
    assert stats.kstest(np.asarray(noise.normal), "norm").pvalue > 1e-4
    assert stats.kstest(np.asarray(jax.vmap(logistic)(noise.bits)), "logistic").pvalue > 1e-4
    atoms, weights = np.asarray(test.tables.atoms).ravel(), np.asarray(test.tables.weights, np.float64).ravel()
    counts = np.bincount(np.searchsorted(atoms, np.asarray(correction)), minlength=len(atoms))
    expected = weights / weights.sum() * counts.sum()
    is_common = expected > 5
    scale = counts[is_common].sum() / expected[is_common].sum()
    assert stats.chisquare(counts[is_common], expected[is_common] * scale).pvalue > 1e-4
    assert abs(np.corrcoef(noise.normal, correction)[0, 1]) < 4.5 / np.sqrt(200_000)


# Every stopping rule with every kind of skew correction it has, and the skewness of the rows.
KINDS = [(stopping, False, 1.0) for stopping in RULES]
KINDS += [(stopping, True, gamma) for stopping in ("fresh", "pilot", "growth") for gamma in (-1.3, 2.0)]
KINDS += [("growth", "printed", 2.0)]


def skewed(count: int, mean: float, s2: float, gamma: float) -> SkewMoments:
    """Moments with a skewness, s2 by sampling with replacement."""
    squares = s2 * count * (count - 1)
    cubes = gamma * count * (squares / count) ** 1.5 * (count - 2) / np.sqrt(count * (count - 1))
    return SkewMoments(jnp.int32(count), jnp.float32(mean), jnp.float32(squares), jnp.float32(cubes))


@pytest.mark.parametrize(("stopping", "skew", "gamma"), KINDS)
def test_chance_agrees_with_judge(stopping: str, skew: bool | str, gamma: float, key: jax.Array) -> None:
    """The closed form is the share of decisions that accept, given the rows."""
    test = MinibatchBarker(stopping=stopping, skew=skew)
    seen, first = (skewed(100, mean, s2, gamma) for mean, s2 in ((-0.9, 0.6), (0.3, 0.8)))
    if not skew:
        seen, first = Moments(*seen[:3]), Moments(*first[:3])

    def decide(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        memory, _, _ = test.open(test.draw(key), None, REPEATING)
        if stopping != "growth":
            memory = memory._replace(pilot=PilotBatch.of(first))
        judgement = test.judge(memory, jnp.float32(0.2), seen, REPEATING)
        return judgement.is_decided & judgement.is_accepted, test.chance(memory, jnp.float32(0.2), seen, REPEATING)

    count = 200_000
    accepted, chances = jax.jit(jax.vmap(decide))(jr.split(key, count))
    expected = float(chances[0])
    assert abs(float(accepted.mean()) - expected) < 4.5 * np.sqrt(expected * (1 - expected) / count)
    assert 0.1 < expected < 0.5


# ---- at a fixed pair, rows and all -------------------------------------------------------------


@jax.jit
def share_accepted(kernel: MetropolisHastings, keys: jax.Array) -> jax.Array:
    state = kernel.init(jnp.float32(0.0))
    return jax.vmap(lambda key: kernel.step(key, state)[1].is_accepted)(keys).mean()


def fixed_pair(delta: float, sd: float, source, acceptance, count: int = 100_000) -> tuple[float, float]:
    """P(accept) by simulation and its standard error, for a move with log ratio `delta` and sd(Delta*) = `sd`.

    The rows of log p(x | 1) - log p(x | 0) = x are normal, so that Delta* is normal at a fixed batch size.
    """
    rows = np.random.default_rng(SEED).standard_normal(100_000)
    rows = (rows - rows.mean()) / rows.std()
    batch = 100
    data = (delta + sd * np.sqrt(batch) * rows).astype(np.float32)  # K = N, so that Lambda_i is the row itself
    kernel = MetropolisHastings(
        Posterior(shared(jnp.zeros_like), shared(jnp.multiply), temperature=len(data)),
        source(data, batch),
        proposal=Fixed(jnp.float32(1.0)),
        acceptance=acceptance,
    )
    share = float(share_accepted(kernel, jr.split(jr.key(SEED), count)))
    return share, float(np.sqrt(max(share * (1 - share), 1e-6) / count))


@pytest.mark.parametrize("count", [30_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("sigma", [0.9, 1.0, 1.2])
@pytest.mark.parametrize(
    "delta", [-1.0, 3.0, *(pytest.param(delta, marks=pytest.mark.slow) for delta in (-3.0, 0.0, 1.0))]
)
def test_acceptance_probability_at_a_fixed_pair_is_barkers(sigma: float, delta: float, count: int) -> None:
    share, error = fixed_pair(delta, 0.6, WithReplacement, growing(sigma=sigma), count)
    assert abs(share - expit(delta)) < 4.5 * error


def test_without_replacement_too() -> None:
    share, error = fixed_pair(1.0, 0.6, partial(Shuffled, windows=False), growing())
    assert abs(share - expit(1.0)) < 4.5 * error


def test_fixed_pair_check_refuses_a_dropped_correction() -> None:
    broken = growing()
    broken = replace(broken, tables=replace(broken.tables, atoms=jnp.zeros_like(broken.tables.atoms)))
    share, error = fixed_pair(-1.0, 0.6, WithReplacement, broken)
    assert abs(share - expit(-1.0)) > 20 * error
