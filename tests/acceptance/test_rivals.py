"""The rivals: hand-made judgements, formulas by other means, and their promises about disagreement."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax import random as jr
from scipy import integrate, stats
from scipy.special import expit, hyp0f1

from conftest import SEED
from scenarios import SCENARIOS, Scenario, normal_mean
from studies.targets import exact_starts
from tallchain import MetropolisHastings, Posterior, RandomWalk
from tallchain.acceptance import Austere, Confidence, Metropolis, MinibatchBarker, NormalBarker, Penalty
from tallchain.acceptance.austere import standard_error
from tallchain.acceptance.evidence import Extremes, Moments
from tallchain.acceptance.penalty import penalty
from tallchain.acceptance.tables import Reading
from tallchain.kernel import State
from tallchain.models import gaussian_mixture
from tallchain.parts import part, replace, static
from tallchain.proposals import Fixed
from tallchain.sources import Shuffled
from tallchain.types import Population

POPULATION = Population(10_000, 100, repeats=False)
REPEATING = POPULATION._replace(repeats=True)


def moments(count: int, mean: float, sd: float) -> Moments:
    """Rows with this mean and this standard deviation (divisor n - 1)."""
    return Moments(jnp.int32(count), jnp.float32(mean), jnp.float32(sd**2 * (count - 1)))


def judge(test: Any, seen: Any, noise: float = 0.0, offset: float = 0.0, bound=None, population=POPULATION) -> Any:
    memory, _, _ = test.open(jnp.float32(noise), bound, population)
    return test.judge(memory, jnp.float32(offset), seen, population)


# ---- penalty -----------------------------------------------------------------------------------


def test_penalty_waits_for_its_variance() -> None:
    assert not judge(Penalty(stopping="growth"), moments(100, 0.0, 11.0), population=REPEATING).is_decided
    assert judge(Penalty(stopping="growth"), moments(100, 0.0, 9.0), population=REPEATING).is_decided
    assert judge(Penalty(max_sd=1.5, stopping="growth"), moments(100, 0.0, 11.0), population=REPEATING).is_decided


@pytest.mark.parametrize(("log_u", "is_accepted"), [(-0.91, True), (-0.89, False)])
def test_penalty_subtracts_half_the_variance(log_u: float, is_accepted: bool) -> None:
    """s2 = 0.8 and Delta* = -0.5 - 0.4 + 0.4: Delta* - 0.8/2 - 0.0016 is about -0.9."""
    seen = moments(100, -0.9, np.sqrt(80))
    assert bool(judge(Penalty(stopping="growth"), seen, log_u, 0.4, population=REPEATING).is_accepted) is is_accepted


def test_penalty_is_metropolis_when_all_rows_were_read() -> None:
    seen = moments(10_000, -0.5, 1e4)
    assert judge(Penalty(stopping="growth"), seen, -0.51).is_accepted
    assert not judge(Penalty(stopping="growth"), seen, -0.49).is_accepted


@pytest.mark.parametrize("b", [20, 50, 200])
@pytest.mark.parametrize("s2", [0.3, 1.0])
def test_penalty_is_the_series_of_0f1(b: int, s2: float) -> None:
    exact = -np.log(hyp0f1((b - 1) / 2, -(b - 1) * s2 / 4))
    assert float(penalty(jnp.float32(s2), jnp.int32(b))) == pytest.approx(exact, rel=1e-6, abs=3 * s2**4 / b**3)


def mean_acceptance_of_penalty(delta: float, s: float) -> float:
    """E min(1, exp(Delta* - s^2/2)), Delta* ~ N(delta, s^2), by quadrature."""
    density = lambda e: stats.norm.pdf(e) * min(1.0, np.exp(delta + s * e - s**2 / 2))  # noqa: E731
    kink = (s**2 / 2 - delta) / s
    return integrate.quad(density, -12, 12, points=[np.clip(kink, -12, 12)], limit=200)[0]


def test_penalty_accepts_more_than_barker() -> None:
    assert mean_acceptance_of_penalty(0.0, 1.0) == pytest.approx(0.617, abs=0.005)
    for delta in np.linspace(-12, 12, 49):
        assert mean_acceptance_of_penalty(delta, 1.0) >= expit(delta) - 1e-9


# ---- detailed balance under normal noise -------------------------------------------------------


def log_odds_error(accept: Any, delta: float, variance: float, b: int, count: int = 400_000) -> tuple[float, float]:
    """log g(delta)/g(-delta) - delta and its standard error, over normal rows at a fixed batch size b.

    Mean and variance of b normal rows are independent: N(delta, V) and V chi2(b-1)/(b-1).
    """
    random = np.random.default_rng(SEED)
    noise = np.sqrt(variance) * random.standard_normal(count)
    s2 = variance * random.chisquare(b - 1, count) / (b - 1)
    there, back = (np.asarray(accept(sign * delta + sign * noise, s2), np.float64) for sign in (1, -1))
    error = np.log(there.mean() / back.mean()) - delta
    spread = there / there.mean() - back / back.mean()
    return float(error), float(spread.std() / np.sqrt(count))


def accept_penalty(estimate: np.ndarray, s2: np.ndarray, b: int = 1000) -> np.ndarray:
    return np.minimum(1, np.exp(estimate - np.asarray(penalty(jnp.asarray(s2), jnp.int32(b)))))


_SOME = {(1.0, 0.5), (1.2, 2.0)}  # in `make test`


def accept_normal_barker(estimate: np.ndarray, s2: np.ndarray) -> np.ndarray:
    return stats.norm.cdf(estimate / np.sqrt(1.702**2 - s2))


@pytest.mark.parametrize(
    ("sigma", "delta"),
    [
        pytest.param(sigma, delta, marks=[] if (sigma, delta) in _SOME else [pytest.mark.slow])
        for sigma in (0.5, 0.9, 1.0, 1.2)
        for delta in (0.5, 2.0)
    ],
)
def test_detailed_balance_under_normal_noise(sigma: float, delta: float) -> None:
    tables = MinibatchBarker(sigma=sigma, stopping="growth").tables

    def chance(pair: tuple[Any, Any]) -> jax.Array:
        return tables.chance(Reading(pair[0], jnp.minimum(pair[1], 0.999 * sigma**2)))

    minibatch = jax.jit(lambda *pairs: lax.map(chance, jax.tree.map(jnp.asarray, pairs), batch_size=20_000))
    for accept in (minibatch, accept_penalty):
        error, standard = log_odds_error(accept, delta, 0.7 * sigma**2, 1000)
        assert abs(error) < 3 * standard, (error, standard)


def test_detailed_balance_check_refuses_normal_barker() -> None:
    error, standard = log_odds_error(accept_normal_barker, 5.0, 0.7, 1000)
    assert abs(error) > 10 * standard


# ---- normal barker -----------------------------------------------------------------------------


def test_normal_barker_pads_to_1_702() -> None:
    seen = moments(100, -1.0, 10.0)  # s2 = 1
    padding = np.sqrt(1.702**2 - 1)
    assert judge(NormalBarker(), seen, 1.01 / padding, population=REPEATING).is_accepted
    assert not judge(NormalBarker(), seen, 0.99 / padding, population=REPEATING).is_accepted
    assert not judge(NormalBarker(), moments(100, -1.0, 17.1), population=REPEATING).is_decided


# ---- austere -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 50, 137, 5_000])
@pytest.mark.parametrize("epsilon", [0.001, 0.05])
def test_austere_stops_where_students_tail_falls_below_epsilon(count: int, epsilon: float) -> None:
    se = 3.0 / np.sqrt(count) * np.sqrt(1 - (count - 1) / 9_999)
    critical = stats.t.isf(epsilon, count - 1) * se
    for factor, is_decided in ((0.999, False), (1.001, True)):
        judgement = judge(Austere(epsilon), moments(count, 0.5 + factor * critical, 3.0), noise=0.7, offset=0.2)
        assert bool(judgement.is_decided) is is_decided
        assert judgement.is_accepted


def test_austere_decides_at_the_end_whatever_the_gap() -> None:
    assert judge(Austere(0.01), moments(10_000, 0.0, 3.0)).is_decided
    assert not judge(Austere(0.01), moments(9_000, 1e-9, 3.0)).is_decided
    assert int(judge(Austere(0.01), moments(9_950, 0.0, 3.0)).ask.rows) == 50


def test_austere_standard_error() -> None:
    seen = moments(2_500, 0.0, 3.0)
    assert float(standard_error(seen, POPULATION)) == pytest.approx(3 / 50 * np.sqrt(1 - 2_499 / 9_999), rel=1e-5)
    assert float(standard_error(seen, REPEATING)) == pytest.approx(3 / 50, rel=1e-5)


def test_austere_scans_before_it_chooses_its_design() -> None:
    test = Austere.nonconservative(10_000, 0.05)
    memory, _, ask = test.open(jnp.float32(0), None, POPULATION)
    assert (int(ask.rows), bool(ask.census), bool(ask.apart)) == (10_000, True, True)
    far, near = (test.judge(memory, jnp.float32(0), moments(10_000, mean, 1.0), POPULATION) for mean in (1.0, 1e-5))
    assert not far.is_decided
    assert far.ask.fresh
    assert int(far.memory.design) == 100
    assert int(near.memory.design) == 0
    assert int(near.ask.rows) == int(test.batches[0])


# ---- confidence --------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", ["bernstein", "bernstein-serfling"])
@pytest.mark.parametrize(("look", "count"), [(1, 100), (4, 338), (9, 8_000)])
def test_confidence_interval(bound: str, look: int, count: int) -> None:
    test = Confidence(delta=0.02, p=3.0, bound=bound)
    memory, _, _ = test.open(jnp.float32(0), jnp.float32(7.0), POPULATION)
    memory = memory._replace(look=jnp.int32(look))
    delta_j = 0.02 * 2 / (3 * look**3)
    sd = 2.0 * np.sqrt((count - 1) / count)
    rho = 1 - (count - 1) / 10_000 if count <= 5_000 else (1 - count / 10_000) * (1 + 1 / count)
    kappa = 7 / 3 + 3 / np.sqrt(2)
    expected = {
        "bernstein": sd * np.sqrt(2 * np.log(3 / delta_j) / count) + 3 * 7 * np.log(3 / delta_j) / count,
        "bernstein-serfling": sd * np.sqrt(2 * rho * np.log(5 / delta_j) / count)
        + kappa * 7 * np.log(5 / delta_j) / count,
    }
    width = float(test.half_width(moments(count, 0.0, 2.0), memory, POPULATION))
    assert width == pytest.approx(expected[bound], rel=1e-4)
    seen = lambda gap: Extremes(moments(count, gap, 2.0), jnp.float32(-3), jnp.float32(3))  # noqa: E731
    assert test.judge(memory, jnp.float32(0), seen(1.001 * width), POPULATION).is_decided
    assert not test.judge(memory, jnp.float32(0), seen(0.999 * width), POPULATION).is_decided


def test_confidence_grows_geometrically() -> None:
    seen = Extremes(moments(101, 0.0, 1.0), jnp.float32(-3), jnp.float32(3))
    assert int(judge(Confidence(gamma=1.5), seen, bound=jnp.float32(6)).ask.rows) == 51  # ceil(1.5 * 101) - 101


def test_confidence_scans_for_the_range_when_nobody_gave_a_bound() -> None:
    test = Confidence()
    memory, _, ask = test.open(jnp.float32(0), None, POPULATION)
    assert (int(ask.rows), bool(ask.census), bool(ask.apart)) == (10_000, True, True)
    range_5 = Extremes(moments(10_000, 0, 1), jnp.float32(-2), jnp.float32(5))
    judgement = test.judge(memory, jnp.float32(0), range_5, POPULATION)
    assert not judgement.is_decided
    assert judgement.ask.fresh
    assert float(judgement.memory.range) == 7
    assert int(judgement.ask.rows) == 100


# ---- disagreement with the full-data decision at the same u ------------------------------------

ROWS = 5000
TARGET = normal_mean(ROWS)


def mixture() -> Scenario:
    """The paper's mixture, few rows of it, with starts from its quadrature."""
    model = gaussian_mixture(ROWS)
    grid = model.quadrature(101)
    starts = lambda random, chains: exact_starts(grid, chains)  # noqa: E731
    return Scenario(model.posterior, model.data, RandomWalk(0.15), grid.mean, grid.covariance, starts)


@jax.jit
def disagreements(kernel: MetropolisHastings, exact: MetropolisHastings, keys: jax.Array, starts: Any) -> jax.Array:
    """Both tests take log u from the same key, so they differ only where the rows read misled one of them."""

    def is_different(key: jax.Array, position: Any) -> jax.Array:
        (_, ours), (_, truth) = (each.step(key, State(position)) for each in (kernel, exact))
        return ours.is_accepted != truth.is_accepted

    return jax.vmap(is_different)(keys, starts)


def share_of_disagreements(test: Any, target: Scenario = TARGET, count: int = 1_000) -> tuple[float, float]:
    """The share over states of the posterior, and the 99 per cent limit above the designed error it may reach."""
    source = Shuffled(target.data, 50, windows=False)
    kernel = MetropolisHastings(target.posterior, source, proposal=target.proposal, acceptance=test)
    exact = replace(kernel, acceptance=Metropolis(), width=2500)
    starts = jax.tree.map(jnp.asarray, target.starts(np.random.default_rng(SEED), count))
    return float(disagreements(kernel, exact, jr.split(jr.key(SEED), count), starts).mean()), 2.33 / np.sqrt(count)


DESIGNED = {
    "austere conservative": (Austere.conservative(ROWS, 0.1), 0.1),
    "austere nonconservative": (Austere.nonconservative(ROWS, 0.05), 0.05),
    "confidence": (Confidence(delta=0.01), 0.01),
    "confidence serfling": (Confidence(delta=0.05, bound="bernstein-serfling"), 0.05),
}
TARGETS = {name: partial(make, ROWS) for name, make in SCENARIOS.items()} | {"mixture": mixture}
# One of them in `make test`, with fewer decisions.
PROMISES = [("austere conservative", "normal mean", 1_000)] + [
    pytest.param(name, target, 5_000, marks=pytest.mark.slow) for name in DESIGNED for target in TARGETS
]


@pytest.mark.parametrize(("name", "target", "count"), PROMISES)
def test_disagrees_no_more_than_designed(name: str, target: str, count: int) -> None:
    test, error = DESIGNED[name]
    share, limit = share_of_disagreements(test, TARGETS[target](), count)
    assert share <= error + limit * np.sqrt(error * (1 - error))


@pytest.mark.slow
def test_disagreement_check_refuses_a_range_that_is_too_small() -> None:
    """One row in 200 carries everything: most batches see none of them, and only the range tells."""
    rows = np.where(np.arange(4_000) % 200 == 0, -200.0, 0.0).astype(np.float32)

    def fixed_kernel(test: Any, largest: float) -> MetropolisHastings:
        posterior = Posterior(jnp.zeros_like, jnp.multiply, temperature=len(rows))
        source = Shuffled(rows, 50, windows=False)
        return MetropolisHastings(
            posterior, source, proposal=Fixed(jnp.float32(1.6)), acceptance=test, bound=lambda t, _: largest * (1 + t)
        )

    keys = jr.split(jr.key(SEED), 5_000)
    right, wrong = (
        float(
            disagreements(
                fixed_kernel(Confidence(delta=0.01), largest),
                fixed_kernel(Metropolis(), 0.0),
                keys,
                jnp.full(len(keys), 0.6, jnp.float32),
            ).mean()
        )
        for largest in (200.0, 0.2)
    )
    limit = 0.01 + 2.33 * np.sqrt(0.01 / len(keys))
    assert right <= limit < wrong


@part
class _Broken:
    """Austere with something wrong: `redraw` takes a new u at every look, `factor` multiplies the variance."""

    inner: Austere
    redraw: bool = static()
    factor: float = static()

    def appetite(self, population: Population) -> int:
        return self.inner.appetite(population)

    def draw(self, key: jax.Array) -> jax.Array:
        return key

    def open(self, noise: jax.Array, bound: None, population: Population) -> Any:
        memory, evidence, ask = self.inner.open(self.inner.draw(noise), bound, population)
        return (memory, noise), evidence, ask

    def judge(self, memory: Any, offset: jax.Array, evidence: Moments, population: Population) -> Any:
        inner, key = memory
        if self.redraw:
            inner = inner._replace(log_u=self.inner.draw(jr.fold_in(key, evidence.count)))
        evidence = evidence._replace(squares=self.factor * evidence.squares)
        judgement = self.inner.judge(inner, offset, evidence, population)
        return judgement._replace(memory=(judgement.memory, key))


@pytest.mark.parametrize("wrong", [{"redraw": True, "factor": 1.0}, {"redraw": False, "factor": 0.001}], ids=str)
def test_disagreement_check_refuses_a_broken_test(wrong: dict[str, Any]) -> None:
    """u redrawn at every look; a factor on the variance that is none of a finite population."""
    share, limit = share_of_disagreements(_Broken(Austere(0.01, batch=10), **wrong))
    assert share > 0.1 + limit * 0.3


@pytest.mark.slow
def test_disagreement_check_passes_the_same_wrapper_unbroken() -> None:
    share, limit = share_of_disagreements(_Broken(Austere(0.01, batch=10), redraw=False, factor=1.0), count=5_000)
    assert share <= 0.1 + limit * 0.3


# ---- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Austere(0.0), r"`Austere\(epsilon=...\)` must be between 0 and 1/2; got 0.0"),
        (lambda: Austere(0.7), r"`Austere\(epsilon=...\)` must be between 0 and 1/2; got 0.7"),
        (lambda: Austere(0.01, batch=0), r"`Austere\(batch=...\)`"),
        (lambda: Austere.conservative(1000, 1.5), "error"),
        (lambda: Confidence(delta=1.0), r"`Confidence\(delta=...\)` must be a probability between 0 and 1; got 1.0"),
        (lambda: Confidence(gamma=1.0), r"`Confidence\(gamma=...\)` must be above 1; got 1.0"),
        (lambda: Confidence(p=0.5), r"`Confidence\(p=...\)` must be above 1; got 0.5"),
        (lambda: Confidence(bound="hoeffding"), r"`Confidence\(bound=...\)` must be one of bernstein"),
        (lambda: Penalty(max_sd=0.0), r"`Penalty\(max_sd=...\)` must be a positive number; got 0.0"),
        (lambda: NormalBarker(batch=2.5), r"`NormalBarker\(batch=...\)`"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_bound_of_the_wrong_shape_is_refused() -> None:
    kernel = MetropolisHastings(
        TARGET.posterior,
        Shuffled(TARGET.data, 50),
        proposal=RandomWalk(0.3),
        acceptance=Confidence(),
        bound=lambda t, candidate: jnp.ones(3),
    )
    with pytest.raises(ValueError, match=r"`bound\(position, candidate\)` must return one float"):
        kernel.init(0.5)
