"""Temperature 1 in one call: what is chosen, what is said, and that it is right; and surrogates that move."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from scipy.special import expit

import tallchain as tc
from checks import Z_LIMIT
from tallchain.models import logistic_regression
from tallchain.surrogates import Taylor

NUM_ROWS = 20_000
RANDOM = np.random.default_rng(21)
X = np.stack([np.ones(NUM_ROWS), *RANDOM.standard_normal((2, NUM_ROWS))], 1).astype(np.float32)
MODEL = logistic_regression(X, RANDOM.random(NUM_ROWS) < expit(X @ [-0.5, 0.8, 0.1]), prior_sd=1.0, bound=False)
CHAINS, DRAWS = 100, 40


@pytest.fixture(scope="module")
def prepared() -> tc.Prepared:
    return tc.prepare(MODEL.posterior, MODEL.data, np.zeros(3, np.float32), progress=False)


def test_order_2_with_independent_proposals(prepared: tc.Prepared, key: jax.Array) -> None:
    assert prepared.surrogate is not None
    assert prepared.surrogate.order == 2
    assert isinstance(prepared.proposal, tc.PCN)
    told = str(prepared)
    assert "chosen: order 2" in told
    assert "PCN with beta = 1" in told
    assert "test                 MHSS, which is exact" in told
    assert "to report            MHSS (exact) with control variates of order 2, PCN proposals" in told
    assert prepared.exact is not None
    assert prepared.rows_swept == prepared.reference.rows_swept + prepared.exact.rows_swept
    kernel = prepared.kernel()
    trace = tc.sample(key, kernel, prepared.starts(key, CHAINS), DRAWS, num_chains=CHAINS, progress=False)
    assert trace.is_accepted.mean() > 0.8
    assert trace.rows_read.mean() == pytest.approx(prepared.exact.rows, rel=0.5)
    assert trace.rows_read.mean() < 1
    assert not trace.complaints()
    told = str(trace.summary())
    assert "MHSS(limit=1000, two_stages=False)   exact" in told
    assert "the test is exact" in told
    w = np.asarray(jax.vmap(jax.vmap(prepared.laplace.whiten))(trace.position), np.float64)
    by_chain = w.mean(1)
    error = by_chain.std(0, ddof=1) / np.sqrt(CHAINS)
    assert np.all(np.abs(by_chain.mean(0)) < Z_LIMIT * error + 0.03)  # normal but for order 1/sqrt(N)
    assert np.all(np.abs(w.std((0, 1)) - 1) < 0.06)


def test_another_test_reads_rows_by_influence(prepared: tc.Prepared, key: jax.Array) -> None:
    """Rows are scored only when a test asks for it; exact tests have their bound and their rows."""
    kernel = prepared.kernel(tc.Penalty())
    assert isinstance(kernel.source, tc.Shuffled)
    assert kernel.bound is None
    assert "0.0" not in str(prepared.influence).split("chosen:")[1]
    trace = tc.sample(key, kernel, prepared.starts(key, CHAINS), DRAWS, num_chains=CHAINS, progress=False)
    assert trace.rows_read.mean() == pytest.approx(40, rel=0.05)
    for test in (tc.acceptance.ScalableMH(), tc.acceptance.TunaMH(), tc.acceptance.MHSS(two_stages=True)):
        assert isinstance(prepared.kernel(test).source, tc.WithReplacement)


def test_survives_a_pickle(prepared: tc.Prepared, key: jax.Array) -> None:
    again = pickle.loads(pickle.dumps(prepared))
    assert str(again) == str(prepared)
    kernels = again.kernel(), prepared.kernel()
    assert jax.tree.structure(kernels[0]) == jax.tree.structure(kernels[1])
    jax.tree.map(np.testing.assert_array_equal, *kernels)
    jax.tree.map(np.testing.assert_array_equal, again.starts(key, 3), prepared.starts(key, 3))


def test_a_bound_takes_the_place_of_the_surrogate(prepared: tc.Prepared) -> None:
    """It bounds the log ratios of rows; of what a surrogate leaves of them it says nothing."""

    def bound(position, candidate):
        return jnp.float32(9.0)

    kernel = prepared.kernel(bound=bound)
    assert isinstance(kernel.acceptance, tc.Confidence)
    assert kernel.bound.function is bound
    assert kernel.surrogate is None
    assert kernel.source.population.total == NUM_ROWS
    assert kernel.source.population.num_exact == 0


def test_no_surrogate_pays_where_the_posterior_is_far_from_normal() -> None:
    """A flat top with steep sides: at the mode no row says anything, one standard deviation away each says a lot."""
    rows = RANDOM.exponential(0.1, 400).astype(np.float32)
    posterior = tc.Posterior(
        lambda t: -0.5 * jnp.sum(t**2),
        lambda t, x: -x * jax.nn.softplus(50 * (jnp.sqrt(t[0] ** 2 + 0.01) - 1)),
    )
    prepared = tc.prepare(posterior, rows, np.zeros(1, np.float32), progress=False)
    assert prepared.surrogate is None
    assert "NO SURROGATE PAYS" in str(prepared)
    assert isinstance(prepared.proposal, tc.RandomWalk)
    assert prepared.recentre is None
    assert prepared.kernel().surrogate is None


@pytest.mark.slow
def test_chains_find_back_from_tails_that_are_heavier_than_the_proposals() -> None:
    """Five separated rows, 80 times each at temperature 80: independent proposals alone keep chains in the tail."""
    x = np.array([-2, -1, 0.5, 1, 2], np.float32)
    rows = np.tile(x, 80)
    model = tc.models.logistic_regression(rows[:, None], rows > 0, prior_sd=10.0, temperature=80.0)
    grid = np.linspace(-60, 90, 30_001)
    log_density = -np.logaddexp(0, -np.abs(x) * grid[:, None]).sum(1) - grid**2 / 200
    weights = np.exp(log_density - log_density.max())
    mean = weights @ grid / weights.sum()
    sd = np.sqrt(weights @ (grid - mean) ** 2 / weights.sum())
    prepared = tc.prepare(model.posterior, model.data, np.zeros(1, np.float32), progress=False)
    assert isinstance(prepared.proposal, tc.PCN)
    assert 0.1 < prepared.proposal.walk <= 0.5
    options = {"num_chains": 64, "scan": 0, "progress": False}
    starts = prepared.starts(jr.key(1), 64)
    trace = tc.sample(jr.key(2), prepared.kernel(), starts, 1000, **options)
    assert trace.position.std() == pytest.approx(sd, rel=0.03)
    assert trace.position.mean() == pytest.approx(mean, abs=0.05 * sd)
    stuck = prepared.kernel(proposal=tc.PCN(prepared.laplace))
    assert tc.sample(jr.key(2), stuck, starts, 1000, **options).position.std() < 0.96 * sd


def test_what_is_written_to_the_data_afterwards_does_not_get_in() -> None:
    rows = np.linspace(-1, 2, 500)
    posterior = tc.Posterior(lambda t: -0.5 * t**2, lambda t, row: -0.5 * (row["x"] - t) ** 2)
    prepared = tc.prepare(posterior, {"x": rows}, np.float32(0), progress=False)
    recentre = prepared.recentre
    assert recentre is not None
    before = recentre(np.float32(0.1))
    rows[17] += 5
    assert np.max(prepared.kernel().source.data["x"]) == 2
    assert recentre(np.float32(0.1)).gradient == before.gradient


# ---- surrogates that move ----------------------------------------------------------------------


def far_kernel(prepared: tc.Prepared) -> tc.MetropolisHastings:
    """The surrogate of order 1 is made ten standard deviations from the mode."""
    laplace = prepared.laplace
    off = laplace.colour(jnp.full(3, 10 / np.sqrt(3), jnp.float32))
    surrogate = Taylor(MODEL.posterior, MODEL.data, off, 1)
    proposal = tc.RandomWalk.preconditioned(laplace)
    return tc.MetropolisHastings(MODEL.posterior, tc.Shuffled(MODEL.data, 50), proposal=proposal, surrogate=surrogate)


def test_a_surrogate_far_from_the_chains_moves_to_them(prepared: tc.Prepared, key: jax.Array) -> None:
    def recentre(position):
        return Taylor(MODEL.posterior, MODEL.data, position, 1)

    kernel, starts = far_kernel(prepared), prepared.starts(jr.key(5), CHAINS)
    options = {"num_chains": CHAINS, "num_warmup": 20, "scan": 0, "progress": False}
    stayed = tc.sample(key, kernel, starts, DRAWS, **options)
    moved = tc.sample(key, kernel, starts, DRAWS, recentre=recentre, **options)
    assert "moved to their mean" in moved.notes[0]
    assert "moved to their mean" in str(moved.summary())
    assert moved.rows_read.mean() < 0.5 * stayed.rows_read.mean()
    assert stayed.notes == ()
    assert stayed.kernel is not None
    assert stayed.kernel.surrogate is kernel.surrogate
    assert not np.array_equal(moved.kernel.surrogate.position, kernel.surrogate.position)
    with pytest.raises(ValueError, match=r"with a different surrogate than the kernel.*`audit\(trace.kernel, trace\)`"):
        tc.audit(kernel, moved)
    assert pickle.loads(pickle.dumps(moved)).kernel is None
    assert moved.warmup.num_decisions == 20 * CHAINS
    assert moved.num_draws == DRAWS


def test_a_surrogate_at_the_mode_stays(prepared: tc.Prepared, key: jax.Array) -> None:
    starts = prepared.starts(jr.key(5), CHAINS)
    options = {"num_chains": CHAINS, "num_warmup": 10, "scan": 0, "progress": False}
    for test, said in ((tc.Penalty(), "which stayed"), (tc.acceptance.MHSS(), "the surrogate stayed")):
        kernel = prepared.kernel(test)
        plain = tc.sample(key, kernel, starts, 20, **options)
        same = tc.sample(key, kernel, starts, 20, recentre=prepared.recentre, **options)
        assert said in same.notes[-1]
        np.testing.assert_array_equal(plain.position, same.position)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"recentre": 3, "num_chains": 2}, TypeError, "must be a function"),
        ({"recentre": lambda p: p, "num_chains": 1}, ValueError, "run more"),
    ],
)
def test_refuses(prepared: tc.Prepared, key: jax.Array, options, error, message: str) -> None:
    with pytest.raises(error, match=message):
        tc.sample(key, prepared.kernel(), np.zeros(3, np.float32), 2, progress=False, **options)


def test_a_reweighted_source_is_refused_before_the_search() -> None:
    posterior = tc.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
    source = tc.Shuffled(np.linspace(-1, 1, 50, dtype=np.float32), 5)
    for reweighted in (
        source.reweighted(exact=[1]),
        source.reweighted(copies=np.full(50, 2)),
        source.reweighted(copies=np.ones(50, int)),
    ):
        with pytest.raises(ValueError, match=r"`prepare\(data=...\)`: the source is already reweighted"):
            tc.prepare(posterior, reweighted, 0.0)


@pytest.mark.parametrize(
    ("name", "value"), [("orders", 2), ("orders", (3,)), ("orders", "2"), ("num_draws", 1), ("seed", "a"), ("seed", -1)]
)
def test_numbers_are_checked_before_rows_are_read(name: str, value: object) -> None:
    posterior = tc.Posterior(lambda t: -0.5 * t**2, lambda t, x: pytest.fail("a row was read"))
    with pytest.raises(ValueError, match=rf"`prepare\({name}=...\)` must be"):
        tc.prepare(posterior, np.zeros(50, np.float32), 0.0, **{name: value})


@pytest.mark.parametrize("num_chains", [0, -1, 2.5])
def test_starts_are_for_whole_chains(prepared: tc.Prepared, num_chains: object, key: jax.Array) -> None:
    with pytest.raises(ValueError, match=r"`starts\(num_chains=...\)` must be a whole number"):
        prepared.starts(key, num_chains)
