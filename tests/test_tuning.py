"""Adaptation of the scale in the warm-up: where it aims, that it gets there, that it stops, and what it refuses."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from scipy import optimize, special

from checks import agrees, check_records
from conftest import SEED
from registry import FEW_ROWS
from scenarios import SCENARIOS
from tallchain import (
    MHSS,
    Barker,
    Metropolis,
    MetropolisHastings,
    MinibatchBarker,
    Penalty,
    Posterior,
    RandomWalk,
    Schedule,
    Shuffled,
    sample,
)
from tallchain.abilities import Tuning
from tallchain.mixing import Moves
from tallchain.proposals import PCN, Fixed, Hamiltonian, Langevin, Laplace
from tallchain.tuning import Points, Tuner, acceptance_curve, best_acceptance

WALK, LANGEVIN, HAMILTONIAN, FIXED_LENGTH = Tuning(1, 2), Tuning(3, 2), Tuning(2, 2), Tuning(2, 1)


# ---- where it aims -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tuning", "best"),
    [
        (WALK, [0.234, 0.159, 0.221, 0.189, 0.173]),
        (LANGEVIN, [0.574, 0.347, 0.525, 0.424, 0.380]),
        (FIXED_LENGTH, [0.651, 0.381, 0.588, 0.468, 0.419]),
        (HAMILTONIAN, [0.452, 0.286, 0.420, 0.346, 0.313]),
    ],
)
def test_the_best_acceptance_of_every_test(tuning: Tuning, best: list[float]) -> None:
    """Values of the literature (Metropolis; Barker's walk), and of an independent maximisation."""
    tests = [Metropolis(), Barker(), Penalty(max_sd=0.5), Penalty(max_sd=1.0), Penalty(max_sd=1.2)]
    assert [best_acceptance(test, tuning) for test in tests] == pytest.approx(best, abs=1.5e-3)
    assert best_acceptance(MinibatchBarker(), tuning) == best_acceptance(Barker(), tuning)
    assert best_acceptance(MHSS(), tuning) == best_acceptance(Metropolis(), tuning)
    power = tuning.speed / tuning.order
    for noise, expected in ((0.0, best[0]), (1.2, best[4])):
        chance = lambda s, noise=noise: 2 * special.ndtr(-0.5 * np.hypot(s, noise))  # noqa: E731
        found = optimize.minimize_scalar(lambda s, of=chance: -(s**power) * of(s), bounds=(1e-3, 20), method="bounded")
        assert chance(found.x) == pytest.approx(expected, abs=1.5e-3)


def test_the_curve_is_the_mean_acceptance() -> None:
    from tallchain.tuning import _SPREADS

    s = _SPREADS[5500]
    deltas = np.random.default_rng(0).normal(-(s**2) / 2, s, 400_000)
    for test, chances in ((Barker(), special.expit(deltas)), (Metropolis(), np.exp(np.minimum(deltas, 0)))):
        assert acceptance_curve(test)[5500] == pytest.approx(chances.mean(), abs=4.5 * chances.std() / 632)


@pytest.mark.parametrize("tuning", [WALK, LANGEVIN, HAMILTONIAN])
@pytest.mark.parametrize("wrong", [1e-4, 1e3])
def test_it_finds_the_scale_on_its_own_curve(tuning: Tuning, wrong: float) -> None:
    """From a scale that is far too small or too large, with the noise of 1000 decisions a round."""
    rng, test = np.random.default_rng(SEED), Metropolis()
    chance = lambda scale: 2 * special.ndtr(-0.5 * scale**tuning.order)  # noqa: E731
    tuner = Tuner(test, tuning, 800)
    for _ in tuner.ends:
        tuner.update(rng.binomial(1000, chance(wrong * tuner.factor)) / 1000, 100.0)
    assert chance(wrong * tuner.factor) == pytest.approx(best_acceptance(test, tuning), abs=0.04)


# ---- in a run ------------------------------------------------------------------------------------

TARGET = SCENARIOS["normal vector"](FEW_ROWS)
FACTOR = np.linalg.cholesky(TARGET.covariance)
LAPLACE = Laplace({"a": TARGET.mean[0], "b": TARGET.mean[1]}, TARGET.covariance)


def run(proposal: Any, test: Any = None, **options: Any) -> Any:
    starts = TARGET.starts(np.random.default_rng(SEED), 100)
    given = {"num_chains": 100, "num_warmup": 150, "adapt": True, "scan": 0, "progress": False} | options
    kernel = MetropolisHastings(
        TARGET.posterior, Shuffled(TARGET.data, 100), proposal=proposal, acceptance=test or Metropolis()
    )
    return sample(jr.key(SEED), kernel, starts, 100, **given)


@pytest.mark.parametrize("test", [Metropolis, pytest.param(Barker, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "proposal",
    [RandomWalk(0.01 * FACTOR), RandomWalk(30.0), PCN(LAPLACE, 0.01), Langevin(0.02 * FACTOR, 1000)],
    ids=["short walk", "long walk", "pcn", "langevin"],
)
def test_the_acceptance_gets_to_where_it_is_best(proposal: Any, test: Any) -> None:
    trace = run(proposal, test())
    if isinstance(proposal, PCN):  # a posterior that is normal: independent proposals are best
        assert trace.kernel.proposal.beta == pytest.approx(1)
    else:
        assert trace.is_accepted.mean() == pytest.approx(best_acceptance(test(), proposal.tuning), abs=0.05)
    assert any("the scale was adapted in 8 rounds of the warm-up" in note for note in trace.notes)
    assert agrees(trace, TARGET)
    check_records(trace, 100, 100)


def test_where_long_steps_read_more_rows_they_are_shorter() -> None:
    """On a made-up sampler whose rows grow with the square of the scale: the best by a search on a grid."""
    test, chance = Metropolis(), lambda scale: 2 * special.ndtr(-0.5 * scale)
    for least in (1.0, 100.0, 1e6):
        rows = lambda scale, least=least: least + 50 * scale**2  # noqa: E731
        tuner = Tuner(test, WALK, 800)
        for _ in tuner.ends:
            tuner.update(chance(0.1 * tuner.factor), rows(0.1 * tuner.factor), least)
        grid = np.geomspace(1e-2, 10, 2000)
        speed = lambda scale, rows=rows: scale**2 * chance(scale) / rows(scale)  # noqa: E731
        assert speed(0.1 * tuner.factor) > 0.98 * speed(grid).max()


def test_the_scale_is_frozen_and_the_draws_do_not_depend_on_chunks() -> None:
    trace, again = run(RandomWalk(0.05)), run(RandomWalk(0.05), chunk_size=7)
    jax.tree.map(np.testing.assert_array_equal, trace.position, again.position)
    frozen = sample(jr.key(1), trace.kernel, {"a": 0.3, "b": -0.5}, 200, num_chains=100, scan=0, progress=False)
    assert frozen.is_accepted.mean() == pytest.approx(trace.is_accepted.mean(), abs=0.03)


def test_a_run_without_adaptation_is_as_it_was() -> None:
    """The draws of a kernel with the scale that was found, from the end of the warm-up, are those of the run."""
    trace = run(RandomWalk(0.5 * FACTOR), adapt=False)
    assert not any("adapted" in note for note in trace.notes)
    assert np.array_equal(trace.kernel.proposal.scale, 0.5 * FACTOR)


def test_trajectories_do_not_turn_back() -> None:
    """An angle is adapted up to a quarter turn of the whole trajectory."""
    trace = run(Hamiltonian(0.01, 3, 1000, LAPLACE), num_warmup=160)
    assert any("the longest there is" in note for note in trace.notes)
    assert float(trace.kernel.proposal.scale) <= np.pi / 6 + 1e-6
    assert float(trace.kernel.proposal.scale) > 0.1


@pytest.mark.parametrize(("shorter", "is_longest"), [(-6.6, True), (-6.25, False), (-5.9, False)])
def test_one_round_in_which_a_chain_sticks_does_not_shorten_the_longest_steps(shorter: float, is_longest: bool) -> None:
    """That round is bad, and its error large; the middle one of all rounds at a scale counts."""
    gains, errors = np.array([-6.1, shorter, -6.3, -8.2, -6.2]), np.array([0.1, 0.1, 0.1, 1.3, 2.7])
    tuner = Tuner(Metropolis(), Tuning(order=1, speed=2, most=1.0), 800)
    found = tuner._if_it_pays(Points(np.array([0.0, -0.3, 0.0, 0.0, -0.01]), gains, errors), 0.0)
    assert found == (0.0 if is_longest else -0.3)


NORMAL = Posterior(lambda t: jnp.zeros(()), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))


@pytest.mark.parametrize("steps", [3, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("d", [pytest.param(1, marks=pytest.mark.slow), 10])
def test_trajectories_beyond_which_everything_is_rejected(steps: int, d: int) -> None:
    """Leapfrog steps are unstable from a scale of two standard deviations on, and nearly always accepted before.

    The best trajectories make a quarter turn, or three; after half a turn the squares are where they were.
    """
    rows = np.random.default_rng(0).normal(size=(500, d)).astype(np.float32)
    sd = 500**-0.5
    starts = (rows.mean(0) + sd * np.random.default_rng(1).normal(size=(32, d))).astype(np.float32)
    for given in (0.01, 0.33, 30.0):
        proposal = Hamiltonian(given * sd, steps, 500)
        kernel = MetropolisHastings(NORMAL, Shuffled(rows, 50), proposal=proposal, acceptance=Metropolis())
        trace = sample(
            jr.key(SEED), kernel, starts, 40, num_chains=32, num_warmup=100, adapt=True, scan=0, progress=False
        )
        assert trace.is_accepted.mean() > 0.2, (given, trace.notes)
        moves = Moves.of(np.asarray(trace.position, np.float64))
        assert moves is not None
        assert moves.log_effective(moves.variance)[0] > np.log(0.3), (given, trace.notes)


@pytest.mark.parametrize("tuning", [WALK, Tuning(2, 2, turns=True)])
@pytest.mark.parametrize("given", [0.0, 1e-12], ids=["nothing moves", "all spread"])
def test_far_too_short_steps_are_not_taken_for_turns(tuning: Tuning, given: float) -> None:
    """Chains that start together: in rounding they stay where they are, and beyond it they spread as walks do."""
    rng, tuner, at = np.random.default_rng(SEED), Tuner(Metropolis(), tuning, 800), np.zeros((16, 1, 2))
    for _ in tuner.ends:
        draws = at + np.cumsum(given * tuner.factor * rng.normal(size=(16, 50, 2)), 1)
        tuner.update(1.0, 100.0, 100.0, Moves.of(draws))
        at = draws[:, -1:]
    assert tuner.factor > 1e3
    assert tuner.is_lost
    assert "would be best if rows were free" in tuner.words


def test_without_noise_penalty_is_metropolis() -> None:
    """A surrogate leaves none: then all is accepted that Metropolis' test would."""
    tuner, chance = Tuner(Penalty(), LANGEVIN, 800), lambda scale: 2 * special.ndtr(-0.5 * scale**3)
    for _ in tuner.ends:
        tuner.update(chance(0.3 * tuner.factor), 100.0)
    assert chance(0.3 * tuner.factor) == pytest.approx(0.574, abs=0.04)


def test_one_round_that_reads_everything_does_not_make_the_next_steps_tiny() -> None:
    tuner, chance = Tuner(Metropolis(), WALK, 800), lambda scale: 2 * special.ndtr(-0.5 * scale)
    for _ in tuner.ends:
        scale = 0.3 * tuner.factor
        tuner.update(chance(scale), 340.0 if scale < 4 else 4274.0, 320.0)
    assert 1.2 < 0.3 * tuner.factor < 4


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"adapt": "yes"}, TypeError, r"`sample\(adapt=\.\.\.\)` must be True or False; got 'yes'"),
        ({"num_warmup": 0}, ValueError, r"`sample\(adapt=True, num_warmup=0\)` adapts the scale in 8 rounds"),
        (
            {"schedule": Schedule(temperature=lambda draw: 2.0 + 0.0 * draw)},
            ValueError,
            "a scale that suits one temperature does not suit another",
        ),
        (
            {"schedule": Schedule(scale=lambda draw: 0.1 + 0.0 * draw)},
            ValueError,
            "a scale is either scheduled or adapted",
        ),
    ],
)
def test_bad_settings(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(RandomWalk(0.1), **options)


def test_a_proposal_without_a_scale_is_refused() -> None:
    with pytest.raises(TypeError, match=r"`sample\(adapt=True\)` needs a MetropolisHastings kernel whose proposal has"):
        run(Fixed({"a": 0.1, "b": 0.2}))


@pytest.mark.parametrize("scale", [1e-30, 1e12])
def test_a_scale_that_is_off_by_many_orders_of_magnitude_is_warned_of(scale: float) -> None:
    with pytest.warns(RuntimeWarning, match="found no scale: the scale was adapted in 8 rounds"):
        run(RandomWalk(scale))
