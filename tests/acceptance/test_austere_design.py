"""The design of the sequential test: known values, the walk and the test itself simulated, and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import stdtr

from checks import Z_LIMIT
from conftest import SEED
from tallchain.acceptance.austere_design import (
    BATCHES,
    EPSILONS,
    MAX_MU_STD,
    SPACING,
    Design,
    Outcome,
    conservative,
    nonconservative,
    sequential_error,
)

PATHS = 20_000


# ---- Known values ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mu_std", "error", "looks"), [(0, 0.0996, 25.78), (1, 0.0184, 20.21), (2, 0.0069, 13.88), (3, 0.0030, 9.72)]
)
def test_known_values(mu_std: float, error: float, looks: float) -> None:
    outcome = sequential_error(13_000, 450, 0.01, mu_std)
    assert outcome.error == pytest.approx(error, abs=0.00005)
    assert outcome.looks == pytest.approx(looks, abs=0.005)


def test_known_value_of_many_looks() -> None:
    """Recorded from a coarser quadrature, hence the tolerance."""
    outcome = sequential_error(13_000, 50, 0.01, 0.0)
    assert outcome.error == pytest.approx(0.188, abs=0.0015)
    assert outcome.looks == pytest.approx(202.7, abs=0.6)


@pytest.mark.parametrize(("num_rows", "error", "design"), [(13_000, 0.1, (450, 0.01)), (100_000, 0.2, (300, 0.01))])
def test_the_choices_of_the_paper(num_rows: int, error: float, design: tuple[int, float]) -> None:
    assert conservative(num_rows, error) == design


def test_two_looks_in_closed_form() -> None:
    """One look may stop, the second reads all."""
    epsilon, mu_std, share = 0.05, 0.7, 0.6
    outcome = sequential_error(1000, 600, epsilon, mu_std)
    drift, barrier = mu_std * math.sqrt(share / (1 - share)), stats.norm.isf(epsilon)
    below, above = stats.norm.cdf(-barrier - drift), stats.norm.sf(barrier - drift)
    assert outcome.error == pytest.approx(below, rel=1e-9)
    assert outcome.share == pytest.approx(share * (below + above) + (1 - below - above), rel=1e-9)
    assert outcome.looks == pytest.approx(2 - below - above, rel=1e-9)


def test_one_look_reads_all_and_is_right() -> None:
    assert sequential_error(300, 300, 0.1, [0.0, 1.0]).error.tolist() == [0, 0]
    assert sequential_error(300, 300, 0.1, 0.0) == Outcome(0, 1, 1)


# ---- The walk, simulated -----------------------------------------------------------------------


def simulate_walk(num_rows: int, batch: int, epsilon: float, mu_std: float, *, finite: bool = True) -> Outcome:
    """The paper's recursion path by path; without `finite`, that of rows drawn from an endless supply.

    Per path: whether wrong, share and looks.
    """
    rng = np.random.default_rng(SEED)
    barrier = stats.norm.isf(epsilon)
    num_looks = -(-num_rows // batch)
    wrong, looks = np.zeros(PATHS), np.full(PATHS, num_looks)
    paths, z, before = np.arange(PATHS), np.zeros(PATHS), 0.0
    for look in range(1, num_looks):
        now = look * batch / num_rows
        left, left_before = (1 - now, 1 - before) if finite else (1.0, 1.0)
        drift = (now - before) / left_before / math.sqrt(now * left)
        memory = math.sqrt(before / now * left / left_before)
        spread = math.sqrt((now - before) / (now * left_before))
        z = drift * mu_std + memory * z + spread * rng.standard_normal(z.size)
        stops = np.abs(z) > barrier
        wrong[paths[stops]] = 0.5 if mu_std == 0 else z[stops] < 0
        looks[paths[stops]] = look
        paths, z, before = paths[~stops], z[~stops], now
    return Outcome(wrong, np.minimum(looks * batch / num_rows, 1.0), looks)


def z_scores(paths: Outcome, expected: Outcome) -> np.ndarray:
    """Means of the paths against their expectations, in standard errors."""
    return np.array(
        [(p.mean() - e) / (p.std(ddof=1) / math.sqrt(p.size)) for p, e in zip(paths, expected, strict=True)]
    )


WALKS = [
    (13_000, 450, 0.01, 0.0),
    (13_000, 450, 0.01, 1.0),
    (13_000, 450, 0.01, 3.0),
    (13_000, 50, 0.01, 0.0),
    (1000, 150, 0.2, 0.5),
    (1000, 50, 0.1, 10.0),
    (100_000, 50, 0.01, 0.5),  # 2,000 looks: several are taken at a time
]


@pytest.mark.parametrize("walk", WALKS)
def test_agrees_with_simulated_walks(walk: tuple) -> None:
    assert np.abs(z_scores(simulate_walk(*walk), sequential_error(*walk))).max() < Z_LIMIT


@pytest.mark.slow
def test_agrees_with_simulated_walks_of_twenty_thousand_looks() -> None:
    walk = (1_000_000, 50, 0.01, 1.0)
    assert np.abs(z_scores(simulate_walk(*walk), sequential_error(*walk))).max() < Z_LIMIT


@pytest.mark.parametrize("walk", WALKS[:5])
def test_walks_without_the_finite_population_factor_do_not_agree(walk: tuple) -> None:
    assert np.abs(z_scores(simulate_walk(*walk, finite=False), sequential_error(*walk))).max() > Z_LIMIT


def test_taking_looks_together_costs_little() -> None:
    """With 400 bins no looks are taken together, with 100 most of them are."""
    mu_std = np.array([0.0, 0.5, 1.0, 3.0])
    few, many = (sequential_error(100_000, 50, 0.001, mu_std, bins=bins) for bins in (100, 400))
    np.testing.assert_allclose(few.error, many.error, rtol=1e-3)
    np.testing.assert_allclose(few.share, many.share, rtol=2e-3)
    np.testing.assert_allclose(few.looks, many.looks, rtol=2e-3)


# ---- The test itself, simulated ----------------------------------------------------------------


def simulate_test(
    num_rows: int, batch: int, epsilon: float, mu_std: float, *, runs: int, finite: bool = True
) -> Outcome:
    """Student's test on Gaussian rows without replacement; per run: whether wrong, share and looks.

    Rows standardised to mean mu_std / sqrt(N - 1) and standard deviation 1 over all N, in an order that is random.
    """
    rng = np.random.default_rng(SEED)
    rows = rng.standard_normal((runs, num_rows))
    rows = (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True) + mu_std / math.sqrt(num_rows - 1)
    n = np.arange(batch, num_rows, batch)
    mean = np.cumsum(rows, 1)[:, n - 1] / n
    sd = np.sqrt((np.cumsum(rows**2, 1)[:, n - 1] / n - mean**2) * n / (n - 1))
    factor = 1 - (n - 1) / (num_rows - 1) if finite else 1.0
    stops = stdtr(n - 1, -np.abs(mean) / (sd * np.sqrt(factor / n))) < epsilon
    early = stops.any(1)
    first = np.where(early, stops.argmax(1), n.size)
    is_below = mean[np.arange(runs), np.minimum(first, n.size - 1)] < 0
    looks = first + 1.0
    return Outcome((early & is_below) * 1.0, np.minimum(looks * batch / num_rows, 1.0), looks)


@pytest.mark.parametrize("finite", [True, False])
def test_agrees_with_the_real_test(finite: bool) -> None:
    """Up to 3% for Student's tail taken for the normal one; without the finite-population factor it does not."""
    test = (3000, 150, 0.05, 1.0)
    runs = simulate_test(*test, runs=5000, finite=finite)
    expected = sequential_error(*test)
    excess = [
        (abs(values.mean() - value) - 0.03 * value) / (values.std(ddof=1) / math.sqrt(values.size))
        for values, value in zip(runs, expected, strict=True)
    ]
    assert (max(excess) < Z_LIMIT) == finite


# ---- Shapes and order --------------------------------------------------------------------------


def test_is_even_and_keeps_the_shape_of_mu_std() -> None:
    mu_std = np.array([[-2.0, 0.0], [2.0, -30.0]])
    outcome = sequential_error(13_000, 450, 0.01, mu_std)
    for values, one in zip(outcome, sequential_error(13_000, 450, 0.01, 2.0), strict=True):
        assert values.shape == mu_std.shape
        assert np.ndim(one) == 0
        assert values[0, 0] == values[1, 0] == pytest.approx(one, rel=1e-12)


@pytest.mark.parametrize("num_rows", [700, 13_000])
def test_a_larger_mu_std_is_easier(num_rows: int) -> None:
    for batch, epsilon in itertools.product((50, 300), (0.001, 0.05, 0.2)):
        outcome = sequential_error(num_rows, batch, epsilon, np.linspace(0, 12, 49))
        for values in outcome:
            assert np.all(np.diff(values) < 1e-12)
            assert values[-1] < values[0]


@pytest.mark.parametrize("mu_std", [0.0, 1.0, 5.0])
def test_a_smaller_epsilon_reads_more_and_errs_less(mu_std: float) -> None:
    outcomes = [sequential_error(13_000, 100, epsilon, mu_std) for epsilon in EPSILONS]
    assert np.all(np.diff([outcome.share for outcome in outcomes]) < 0)
    assert np.all(np.diff([outcome.looks for outcome in outcomes]) < 0)
    assert np.all(np.diff([outcome.error for outcome in outcomes]) > 0)


def test_extremes_are_finite() -> None:
    outcome = sequential_error(10**9, 50, 1e-12, [0.0, 1e-9, 1e9, 1e100])
    assert np.all(np.isfinite(outcome))
    assert outcome.looks[3] == pytest.approx(1)
    assert outcome.share[0] == pytest.approx(1, abs=1e-6)
    assert sequential_error(1, 1, 0.1, 0.0) == Outcome(0, 1, 1)


# ---- Designs -----------------------------------------------------------------------------------


def brute_force(num_rows: int, error: float, mu_std: np.ndarray) -> list[Design]:
    """Every pair, followed to its end."""
    pairs = [Design(batch, epsilon) for batch in BATCHES for epsilon in EPSILONS if batch <= num_rows]
    outcomes = [sequential_error(num_rows, *pair, mu_std) for pair in pairs]
    shares = [np.where(outcome.error <= error, outcome.share, np.inf) for outcome in outcomes]
    return [pairs[i] for i in np.argmin(shares, 0)]


@pytest.mark.parametrize(
    ("num_rows", "error"), [(330, 0.05), (2000, 0.1), pytest.param(13_000, 0.2, marks=pytest.mark.slow)]
)
def test_designs_are_those_of_brute_force(num_rows: int, error: float) -> None:
    designs = nonconservative(num_rows, error)
    expected = brute_force(num_rows, error, designs.mu_std)
    assert list(map(Design, designs.batch.tolist(), designs.epsilon.tolist())) == expected
    assert conservative(num_rows, error) == expected[0]


@pytest.mark.parametrize(
    ("num_rows", "error"), [(2000, 0.02), (13_000, 0.1), pytest.param(100_000, 0.2, marks=pytest.mark.slow)]
)
def test_designs_keep_the_bound(num_rows: int, error: float) -> None:
    designs = nonconservative(num_rows, error)
    for i in range(0, designs.mu_std.size, 5):
        design = Design(int(designs.batch[i]), float(designs.epsilon[i]))
        assert sequential_error(num_rows, *design, designs.mu_std[i]).error <= error
    everywhere = sequential_error(num_rows, *conservative(num_rows, error), designs.mu_std)
    assert np.all(everywhere.error <= error)


def test_designs_are_looked_up_by_the_nearest_entry() -> None:
    designs = nonconservative(2000, 0.1)
    assert designs.mu_std.size == designs.batch.size == designs.epsilon.size == round(MAX_MU_STD / SPACING) + 1
    assert designs.mu_std[[0, -1]].tolist() == [0.0, MAX_MU_STD]
    np.testing.assert_allclose(np.diff(designs.mu_std), SPACING)
    for i in range(designs.mu_std.size):
        design = Design(int(designs.batch[i]), float(designs.epsilon[i]))
        assert designs.at(i * SPACING) == designs.at(-(i + 0.4) * SPACING) == design
    assert designs.at(-1e9) == designs.at(MAX_MU_STD)


@pytest.mark.slow
def test_a_million_rows_are_designed() -> None:
    assert conservative(1_000_000, 0.1) == (50, 0.001)


# ---- Refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("design", [conservative, nonconservative])
def test_designs_refuse(design) -> None:
    name = design.__name__
    for error in (0, 1, -0.1, math.nan, "0.1", None, True):
        with pytest.raises(ValueError, match=rf"`{name}\(1000, error=.*\)` needs 0 < error < 1"):
            design(1000, error)
    for num_rows in (0, 49, 1e6, "1000", None, True):
        with pytest.raises(ValueError, match=rf"`{name}\(.*, error=0.1\)` needs num_rows .* 50 or more; got"):
            design(num_rows, 0.1)


@pytest.mark.parametrize("design", [conservative, nonconservative])
def test_an_unachievable_bound_is_refused_with_the_least_error(design) -> None:
    least = min(sequential_error(13_000, batch, EPSILONS[0], 0.0).error for batch in BATCHES)
    with pytest.raises(ValueError, match=rf"{design.__name__}\(13000, error=0.001\).*mu_std = 0 is {least:.4g}"):
        design(13_000, 0.001)
    assert sequential_error(13_000, *conservative(13_000, 1.001 * least), 0.0).error <= 1.001 * least


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_rows": 0}, "num_rows to be a whole number, 1 or more; got num_rows = 0"),
        ({"num_rows": 1e4}, "num_rows to be a whole number"),
        ({"batch": 0}, "batch to be a whole number, from 1 to 1000; got batch = 0"),
        ({"batch": 1001}, "batch to be a whole number"),
        ({"epsilon": 0.0}, "0 < epsilon < 0.5"),
        ({"epsilon": 0.5}, "0 < epsilon < 0.5"),
        ({"mu_std": math.nan}, "mu_std = nan"),
        ({"mu_std": [0.0, -math.inf]}, "mu_std"),
        ({"bins": 19}, "bins to be a whole number, from 20"),
        ({"bins": 40, "epsilon": 1e-12}, "bins to be a whole number, from 45"),
    ],
)
def test_sequential_error_refuses(changed: dict, message: str) -> None:
    arguments = {"num_rows": 1000, "batch": 100, "epsilon": 0.05, "mu_std": 1.0, "bins": 100} | changed
    with pytest.raises(ValueError, match=rf"`sequential_error\(.*\)` needs .*{message}"):
        sequential_error(**arguments)
