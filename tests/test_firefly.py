"""Firefly Monte Carlo: formulas by enumeration, draws against a posterior on a grid, full lists."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr
from scipy import stats

import tallchain as tc
from conftest import SEED
from refusals import refuse
from tallchain.firefly import CapacityError, FireflyMC, Langevin
from tallchain.firefly.bound import gap, log_odds, slope, touches
from tallchain.firefly.lists import NONE, Bright, binomial_table, brighten_chance, darken_chance, flip
from tallchain.models import Regression, families, logistic_regression
from tallchain.models.priors import Normal
from tallchain.parts import replace
from tallchain.proposals import PCN, Laplace, RandomWalk

Z_LIMIT = 4.5

# ---- five rows, all 32 sets of bright rows -----------------------------------------------------

X = np.array([[1, 0.5], [1, -1], [1, 2], [1, -0.3], [1, 1.2]])
Y = np.array([1, 0, 1, 1, 0])
HERE, THERE, TOUCH = np.array([0.3, -0.2]), np.array([0.8, 0.5]), np.array([0.2, 0.1])
SETS = np.array(list(product([False, True], repeat=5)))


class Exact(NamedTuple):
    """log B and g of every row at a position, by the definition, in float64."""

    log_bound: np.ndarray
    gap: np.ndarray

    @classmethod
    def at(cls, t: np.ndarray, x: np.ndarray) -> Exact:
        s, xi = (2 * Y - 1) * (x @ t), np.abs(x @ TOUCH)
        log_sigmoid = lambda s: -np.logaddexp(0, -s)  # noqa: E731
        log_bound = log_sigmoid(xi) + (s - xi) / 2 - np.tanh(xi / 2) / (4 * xi) * (s**2 - xi**2)
        return cls(log_bound, log_sigmoid(s) - log_bound)

    def log_joint(self, t: np.ndarray) -> np.ndarray:
        """log p(t, z), by set."""
        bright = np.where(SETS, np.log(np.expm1(self.gap)), 0).sum(1)
        return -0.5 * t @ t + self.log_bound.sum() + bright

    @property
    def given_t(self) -> np.ndarray:
        """P(z | t), by set."""
        return np.where(SETS, -np.expm1(-self.gap), np.exp(-self.gap)).prod(1)


@pytest.fixture(scope="module")
def five() -> FireflyMC:
    with jax.enable_x64(True):
        return FireflyMC(logistic_regression(X, Y, bound=False), TOUCH, brighten=0.02, capacity=5)


def stored(kernel: FireflyMC) -> np.ndarray:
    return np.asarray(kernel.source.data["x"], np.float64)


def log_ratios(kernel: FireflyMC, here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Delta of the kernel's own, by set."""
    x = jnp.asarray(stored(kernel))
    lists = jnp.asarray(np.where(SETS, np.arange(5), NONE))
    ratio = lambda index: kernel.log_ratio(here, there, Bright(index, x, x @ TOUCH))  # noqa: E731
    return np.asarray(jax.vmap(ratio)(lists))


def test_acceptance_with_fresh_switches(five: FireflyMC) -> None:
    """The check value of an enumeration by hand."""
    with jax.enable_x64(True):
        accepted = np.exp(np.minimum(log_ratios(five, HERE, THERE), 0))
    assert Exact.at(HERE, stored(five)).given_t @ accepted == pytest.approx(0.802672, abs=1e-6)


def test_steps_of_the_parameters_are_balanced(five: FireflyMC) -> None:
    here, there = (Exact.at(t, stored(five)).log_joint(t) for t in (HERE, THERE))
    with jax.enable_x64(True):
        forward, backward = log_ratios(five, HERE, THERE), log_ratios(five, THERE, HERE)
    np.testing.assert_allclose(forward, there - here, atol=1e-8)
    flow = here + np.minimum(forward, 0), there + np.minimum(backward, 0)
    np.testing.assert_allclose(*flow, atol=1e-8)


def moves(kernel: FireflyMC, q: float, t: np.ndarray) -> np.ndarray:
    """P(z -> z') by the kernel's own chances, (32, 32)."""
    with jax.enable_x64(True):
        x = jnp.asarray(stored(kernel))
        odds = log_odds(gap(x @ TOUCH, x @ (t - TOUCH)))
        darkens, brightens = np.asarray(darken_chance(odds, q)), q * np.asarray(brighten_chance(odds, q))
    leaves = np.where(SETS, darkens, brightens)  # by set and row
    turns = SETS[:, None] != SETS[None]
    return np.where(turns, leaves[:, None], 1 - leaves[:, None]).prod(-1)


@pytest.mark.parametrize("q", [0.003, 0.02, 1.0])
def test_steps_of_the_switches_are_balanced(five: FireflyMC, q: float) -> None:
    matrix, law = moves(five, q, THERE), Exact.at(THERE, stored(five)).given_t
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-12)
    flow = law[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-8)


def test_lists_change_with_these_chances(five: FireflyMC) -> None:
    """From rows 2 and 3, at a position where odds are on either side of q."""
    count, q, t = 40_000, 0.1, np.array([2.5, 1.0])
    start = np.array([3, NONE, 2, NONE, NONE], np.int32)
    numbers, r = jnp.asarray(binomial_table(5, q)), jnp.asarray(TOUCH, jnp.float32)

    def one(key: jax.Array) -> jax.Array:
        at = jnp.asarray(t, jnp.float32)
        found = flip(key, start, at, r, five.source.data, brighten=jnp.float32(q), table=numbers, size=5).bright
        return jnp.zeros(5, bool).at[jnp.where(found.is_row, found.index, 5)].set(True, mode="drop")

    ends = np.asarray(jax.jit(jax.vmap(one))(jr.split(jr.key(SEED), count)))
    begin = int(np.flatnonzero((SETS == [False, False, True, True, False]).all(1))[0])
    expected, seen = count * moves(five, q, t)[begin], (ends[:, None] == SETS).all(-1).sum(0)
    is_usual = expected > 5
    assert is_usual.sum() >= 8
    assert seen[~is_usual].sum() <= 5 * expected[~is_usual].sum() + 5
    chi_square = ((seen - expected)[is_usual] ** 2 / expected[is_usual]).sum()
    assert stats.chi2.sf(chi_square, is_usual.sum()) > 1e-4


def test_gaps_and_slopes() -> None:
    """Against the definition in long doubles, also where float32 would cancel; slopes against differences."""
    touch, step = (
        grid.ravel() for grid in np.meshgrid([-3, -0.2, 0, 1e-4, 0.7, 5], [-9, -1, -0.1, 2e-3, 0.9, 1.1, 40])
    )
    wide = np.longdouble
    xi, s = np.abs(touch).astype(wide), np.abs(touch.astype(wide) + step)
    lam = np.where(xi > 0, np.tanh(xi / 2) / (4 * np.where(xi > 0, xi, 1)), 0.125)
    log_cosh = lambda u: u + np.log1p(np.exp(-2 * u))  # noqa: E731
    exact = lam * (s**2 - xi**2) - log_cosh(s / 2) + log_cosh(xi / 2)
    got = np.asarray(gap(jnp.float32(touch), jnp.float32(step)), float)
    assert np.all(got >= 0)
    # The rounding of what is added up, T d/2 and lambda d^2; l and log B are of order 1, and of order 40 far out.
    np.testing.assert_array_less(np.abs(got - exact), 4e-7 * (np.abs(np.tanh(xi / 2) * step) + lam * step**2))
    with jax.enable_x64(True):
        up, down = (np.asarray(log_odds(gap(touch, step + e))) for e in (1e-6, -1e-6))
        np.testing.assert_allclose(np.asarray(slope(touch, step)), (up - down) / 2e-6, rtol=2e-3)


@pytest.mark.parametrize(("size", "q"), [(5, 1.0), (5, 0.02), (300, 0.01), (10**6, 4e-5), (10**6, 1e-9)])
def test_numbers_of_proposals_are_binomial(size: int, q: float) -> None:
    numbers = binomial_table(size, q).astype(float) / 2**32
    np.testing.assert_allclose(numbers, stats.binom.cdf(np.arange(len(numbers)), size, q), atol=2**-31)
    assert stats.binom.sf(len(numbers), size, q) < 2**-32


# ---- draws against a posterior on a grid -------------------------------------------------------


class Known(NamedTuple):
    """A logistic regression of two coefficients, with what numerical integration says of it."""

    model: Regression
    laplace: Laplace
    mean: np.ndarray
    covariance: np.ndarray
    starts: np.ndarray
    """Draws from the posterior."""


CHAINS, LENGTH = 160, 100


@pytest.fixture(scope="module")
def known() -> Known:
    random = np.random.default_rng(SEED)
    x = random.normal(size=(300, 2)).astype(np.float32)
    y = random.random(300) < 1 / (1 + np.exp(-x @ [1.5, -1.0]))
    signed = x.astype(np.float64) * (2 * y[:, None] - 1)
    mode = np.zeros(2)
    for _ in range(20):
        p = 1 / (1 + np.exp(-signed @ mode))
        precision = (signed * (p * (1 - p))[:, None]).T @ signed + np.eye(2) / 4
        mode += np.linalg.solve(precision, (1 - p) @ signed - mode / 4)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    steps = np.linspace(-7, 7, 281)
    grid = np.stack(np.meshgrid(*(mode[:, None] + sd[:, None] * steps)), -1).reshape(-1, 2)
    log_density = -np.logaddexp(0, -grid @ signed.T).sum(1) - (grid**2).sum(1) / 8
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = weight @ grid
    covariance = (grid - mean).T @ ((grid - mean) * weight[:, None])
    starts = grid[random.choice(len(grid), CHAINS, p=weight)].astype(np.float32)
    model = logistic_regression(x, y, prior_sd=2.0, bound=False)
    return Known(model, Laplace.of_precision(mode.astype(np.float32), precision), mean, covariance, starts)


def kernel_of(known: Known, proposal: Any = None, **options: Any) -> FireflyMC:
    """With lists and tables of one length, so that kernels share programs."""
    return FireflyMC(known.model, np.asarray(known.laplace.mean), proposal=proposal, **{"capacity": 64} | options)


def run(kernel: FireflyMC, known: Known, **options: Any) -> tc.Trace:
    options = {"num_chains": CHAINS, "num_warmup": 20, "progress": False} | options
    return tc.sample(jr.key(SEED), kernel, known.starts[: options["num_chains"]], LENGTH, **options)


def z_scores(trace: tc.Trace, known: Known) -> np.ndarray:
    """Means and second moments against the truth, in standard errors between chains, which are independent."""
    centred = trace.position.astype(np.float64) - known.mean
    pairs = np.einsum("cti,ctj->ctij", centred, centred).reshape(*centred.shape[:2], -1)
    means = np.concatenate([centred, pairs], -1).mean(1) - np.append(np.zeros(2), known.covariance)
    return means.mean(0) / (means.std(0, ddof=1) / np.sqrt(len(means)))


PROPOSALS: dict[str, Callable[[Laplace], Any]] = {
    "walk": lambda _: None,
    "langevin": lambda _: Langevin(),
}


@pytest.mark.parametrize("name", PROPOSALS)
def test_draws_are_from_the_posterior(known: Known, name: str) -> None:
    trace = run(kernel_of(known, PROPOSALS[name](known.laplace)), known)
    assert np.abs(z_scores(trace, known)).max() < Z_LIMIT
    assert trace.position.shape == (CHAINS, LENGTH, 2)
    moved = np.any(np.diff(trace.position, axis=1) != 0, -1)
    assert (moved == trace.is_accepted[:, 1:]).all()
    assert (trace.rows_read >= trace.extras["bright"]).all()
    assert trace.extras["bright"].mean() == pytest.approx(float(trace.kernel.expected_bright), rel=0.2)
    assert trace.scan is None
    assert trace.complaints() == []


@pytest.mark.slow
def test_the_walk_allows_for_bright_rows() -> None:
    """Of 400 rows whose bounds are poor many are bright, and t given them varies much less than t."""
    random = np.random.default_rng(SEED)
    x = 3 * random.normal(size=(400, 10)).astype(np.float32)
    y = random.random(400) < 1 / (1 + np.exp(-x @ random.normal(size=10)))
    model = logistic_regression(x, y, prior_sd=1.0, bound=False)
    reference = tc.surrogates.find_reference(model.posterior, model.data, np.zeros(10, np.float32), progress=False)
    starts = np.asarray(jax.vmap(reference.laplace.draw)(jr.split(jr.key(SEED), 32)))
    wide = RandomWalk.preconditioned(reference.laplace)
    accepted = {}
    for name, proposal in {"default": None, "wide": wide}.items():
        kernel = FireflyMC(model, reference, proposal=proposal)
        trace = tc.sample(jr.key(SEED), kernel, starts, 100, num_chains=32, num_warmup=50, progress=False)
        accepted[name] = trace.is_accepted.mean()
    assert trace.extras["bright"].mean() > 10
    assert 0.15 < accepted["default"] < 0.4, accepted
    assert accepted["wide"] < 0.1, accepted


def test_any_chance_to_brighten_will_do(known: Known) -> None:
    """Also one that is far above the odds of most rows: more are proposed, and none stays bright for long."""
    trace = run(kernel_of(known, PCN(known.laplace, 0.8), brighten=0.05), known)
    assert np.abs(z_scores(trace, known)).max() < Z_LIMIT
    assert trace.rows_read.mean() > 15


BROKEN: dict[str, Callable[[FireflyMC], FireflyMC]] = {
    "another sum of the bounds": lambda kernel: replace(
        kernel, sums=replace(kernel.sums, gradient=kernel.sums.gradient + 3.0)
    ),
    "other odds for the dark": lambda kernel: replace(kernel, brighten=5 * kernel.brighten),
    "no bright rows": lambda kernel: replace(kernel, table=jnp.full_like(kernel.table, 2**32 - 1)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_check_fails_for_a_broken_kernel(known: Known, name: str) -> None:
    kernel = BROKEN[name](kernel_of(known, Langevin(known.laplace)))
    assert np.abs(z_scores(run(kernel, known), known)).max() > 2 * Z_LIMIT


def test_chunks_and_other_chains_do_not_matter(known: Known) -> None:
    kernel = kernel_of(known)
    one = run(kernel, known, num_chains=8, num_warmup=0)
    other = run(kernel, known, num_chains=4, num_warmup=0, chunk_size=7, keep="moments", thin=5)
    np.testing.assert_allclose(one.position[:4, ::5], other.position, rtol=1e-5)
    assert other.moments is not None


def test_steps_of_one_chain(known: Known) -> None:
    kernel = kernel_of(known)
    state = kernel.init(known.laplace.mean)
    step = jax.jit(kernel.step)
    for at in range(20):
        state, verdict = step(jr.fold_in(jr.key(SEED), at), state)
        assert int(verdict.extras["bright"]) == int(np.sum(np.asarray(state.bright) != NONE))
    assert np.isfinite(np.asarray(state.position)).all()


def test_the_summary_says_what_it_is(known: Known) -> None:
    said = str(run(kernel_of(known), known, num_chains=8, num_warmup=0).summary())
    for words in ("FireflyMC(brighten=", "exact", "RandomWalk(scale=2 x 2 matrix)"):
        assert words in said
    assert "NOT CHECKED" not in said


def test_offsets_count_and_a_source_is_not_copied(known: Known) -> None:
    """An offset of x.c moves the posterior by -c, if the prior is flat; rows may be in any order."""
    x, y, move = known.model.data["x"], known.model.data["y"], np.array([0.5, 0.25], np.float32)
    wide = tc.models.Prior(Normal(1e3), Normal(1e3))
    steps = RandomWalk.preconditioned(known.laplace)
    moments = []
    for by in (0, 1):
        model = Regression(families.Bernoulli(), y=y, x=x, offset=by * (x @ move), prior=wide, intercept=False)
        rows = tc.Shuffled(model.data, 20)
        kernel = FireflyMC(model, known.laplace.mean - by * move, proposal=steps, capacity=64, source=rows)
        assert kernel.source is rows
        moments.append((np.asarray(kernel.sums.gradient), np.asarray(kernel.sums.curvature)))
        rows = Bright(
            jnp.arange(300), jnp.asarray(rows.data["x"][:300]), touches(kernel.sums.position, rows.data)[:300]
        )
        moments[-1] += (np.asarray(rows.log_odds(known.laplace.factor[0])),)
    for one, other in zip(*moments, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


# ---- a list that is full -----------------------------------------------------------------------


def test_a_full_list_stops_the_run_and_keeps_the_draws(known: Known) -> None:
    with pytest.raises(tc.SamplingError, match=r"FireflyMC\(capacity=6\).*Set `capacity=") as caught:
        run(kernel_of(known, capacity=6), known, num_warmup=0)
    trace = caught.value.trace
    assert isinstance(caught.value.__cause__, CapacityError)
    assert trace.num_draws > 0
    assert trace.is_interrupted
    assert not trace.is_invalid.any()
    assert (trace.extras["bright"] <= 6).all()
    whole = run(kernel_of(known), known, num_warmup=0)
    chains = np.setdiff1d(np.arange(CHAINS), list(trace.left_out))
    np.testing.assert_array_equal(trace.extras["bright"][:, 0] <= 6, whole.extras["bright"][chains, 0] <= 6)


def test_a_start_far_away_ends_with_advice(known: Known) -> None:
    """At once, or after a few draws."""
    far = known._replace(starts=known.starts + 20)
    refuse(lambda: run(kernel_of(known), far), RuntimeError, "FireflyMC(capacity=", "start the chains nearer")
