"""The worst case of section 2.2, against simulations in NumPy that share no code with the library."""

from __future__ import annotations

import dataclasses
import io
import json
import math

import numpy as np
import pytest
from scipy import special, stats

from conftest import SEED
from tallchain.experiments import worst_case
from tallchain.experiments.worst_case import LEMMA, Config, Entry, Point, Result, WorstCase, runs

NUM_ROWS, BATCH, NUM_DECISIONS = 1000, 50, 3000
TINY = Config(
    num_rows=(NUM_ROWS,),
    tests=("minibatch", "austere", "confidence"),
    num_decisions=NUM_DECISIONS,
    budget=1e9,
    study_rows=NUM_ROWS,  # and as many decisions: what was compiled for the test itself serves the study
    study_decisions=NUM_DECISIONS,
    factors=(1.0, 3.0),
    seed=SEED % 1000,
)


@pytest.fixture(scope="module")
def result() -> Result:
    return worst_case.run(TINY)


@pytest.fixture(scope="module")
def entries(result) -> dict[str, Entry]:
    return {entry.test: entry for entry in result.entries}


# ---- an independent simulation -----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Simulated:
    """Decisions of the worst case, their rows in random order, in float64 and with nothing of the library."""

    log_u: np.ndarray
    log_ratios: np.ndarray
    """N (log p(x_i | t') - log p(x_i | t)), by decision and row in the order they are read."""

    @classmethod
    def draw(cls, count: int, seed: int) -> Simulated:
        random = np.random.default_rng(seed)
        x = random.normal(0.5, 1, NUM_ROWS)
        t = random.normal(x.mean(), NUM_ROWS**-0.5, (count, 1))
        proposed = random.normal(t, NUM_ROWS**-0.5)
        rows = random.permuted(np.broadcast_to(x, (count, NUM_ROWS)), axis=1)
        log_ratios = NUM_ROWS * (stats.norm.logpdf(rows, proposed) - stats.norm.logpdf(rows, t))
        return cls(np.log(random.random(count)), log_ratios)

    def rows_read(self, sizes: list[int], stops) -> np.ndarray:
        """Rows at the first size where stops(look, n, mean, sd, threshold) is true; N if at none."""
        read = np.full(len(self.log_u), NUM_ROWS)
        for look, n in reversed(list(enumerate(sizes, 1))):
            seen = self.log_ratios[:, :n]
            read = np.where(stops(look, n, seen.mean(1), seen.std(1, ddof=1), self.log_u), n, read)
        return read


@pytest.fixture(scope="module")
def simulated() -> Simulated:
    return Simulated.draw(4000, SEED)


def standard_error(n: int, sd: np.ndarray) -> np.ndarray:
    return sd / math.sqrt(n) * math.sqrt(1 - (n - 1) / (NUM_ROWS - 1))


def minibatch_rows(simulated: Simulated) -> np.ndarray:
    sizes = list(range(BATCH, NUM_ROWS, BATCH))
    return simulated.rows_read(sizes, lambda look, n, mean, sd, log_u: sd**2 / n * (1 - n / NUM_ROWS) < 1)


def austere_rows(simulated: Simulated) -> np.ndarray:
    def stops(look, n, mean, sd, log_u):
        return stats.t.sf(np.abs(mean - log_u) / standard_error(n, sd), n - 1) < 0.005

    return simulated.rows_read(list(range(BATCH, NUM_ROWS, BATCH)), stops)


def confidence_rows(simulated: Simulated) -> np.ndarray:
    sizes = [BATCH]
    while (grown := sizes[-1] + math.ceil(sizes[-1] / 2)) < NUM_ROWS:
        sizes.append(grown)
    spread = np.ptp(simulated.log_ratios, axis=1)

    def stops(look, n, mean, sd, log_u):
        log_term = math.log(3 / (0.01 / (2 * look**2)))
        width = sd * math.sqrt((n - 1) / n) * math.sqrt(2 * log_term / n) + 3 * spread * log_term / n
        return np.abs(mean - log_u) > width

    return simulated.rows_read(sizes, stops)


SIMULATED_ROWS = {"minibatch": minibatch_rows, "austere": austere_rows, "confidence": confidence_rows}


@pytest.mark.parametrize("test", SIMULATED_ROWS)
def test_shares_agree_with_the_simulation(test, entries, simulated):
    entry, rows = entries[test], SIMULATED_ROWS[test](simulated)
    is_full = rows == NUM_ROWS
    pooled = (entry.num_full + is_full.sum() + 1) / (entry.num_decisions + rows.size)
    error = math.sqrt(pooled * (1 - pooled) * (1 / entry.num_decisions + 1 / rows.size))
    assert abs(entry.full_share - is_full.mean()) < 4 * error
    error = math.hypot(entry.mean_share_error, rows.std() / NUM_ROWS / math.sqrt(rows.size))
    assert abs(entry.mean_share - rows.mean() / NUM_ROWS) < 4 * error


def test_simulation_tells_tests_apart(entries, simulated):
    """The check above would notice if one test were taken for another."""
    entry, rows = entries["minibatch"], austere_rows(simulated)
    error = math.hypot(entry.mean_share_error, rows.std() / NUM_ROWS / math.sqrt(rows.size))
    assert abs(entry.mean_share - rows.mean() / NUM_ROWS) > 8 * error


# ---- the entries -------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ["minibatch", "austere"])
def test_mean_share_is_as_expected(test, entries):
    entry = entries[test]
    # The formulas take the estimated variance for the true one, and Student's tail for the normal one.
    assert abs(entry.mean_share - entry.expected_mean) < 4 * entry.mean_share_error + 0.01


def test_austere_stays_below_its_ceiling(entries):
    entry = entries["austere"]
    assert entry.full_share_limits[0] < entry.expected_full < 2 * entry.full_share


@pytest.mark.parametrize("test", ["austere", "confidence"])
def test_rivals_keep_to_the_lemma_at_small_n(test, entries):
    assert entries[test].full_share_limits[0] > LEMMA
    assert entries[test].verdict == "above"


def test_lemma_does_not_speak_of_the_minibatch_test(entries):
    assert entries["minibatch"].verdict is None


def test_acceptance_is_that_of_the_exact_posterior(entries, simulated):
    """Of Metropolis' test for a normal posterior with steps of its own sd: (2/pi) arctan 2. Barker's by simulation."""
    delta = simulated.log_ratios.mean(1)
    barker = special.expit(delta)
    error = math.sqrt(0.25 / NUM_DECISIONS)
    assert abs(entries["confidence"].acceptance - 2 / math.pi * math.atan(2)) < 4 * error
    assert abs(entries["minibatch"].acceptance - barker.mean()) < 4 * math.hypot(error, barker.std() / 60)


def test_one_seed_one_result(entries):
    again = runs.measure_entry(TINY, NUM_ROWS, "minibatch")
    other = runs.measure_entry(dataclasses.replace(TINY, seed=TINY.seed + 1), NUM_ROWS, "minibatch")
    assert again == entries["minibatch"]
    assert other.mean_share != again.mean_share


# ---- the study ---------------------------------------------------------------------------------


def test_study_follows_its_formula(result):
    assert len(result.study) == 3 * len(TINY.factors)
    for point in result.study:
        assert abs(point.mean_share - point.expected_mean) < 4 * point.mean_share_error + 0.01, point


def test_rows_go_as_the_square_of_step_over_temperature(result):
    points = {(point.series, point.factor): point for point in result.study}
    for series, power in (("temperature", 2), ("step", 2), ("both", 1)):
        one, three = (points[series, factor].expected_with_replacement for factor in TINY.factors)
        np.testing.assert_allclose(one / three, 3**power)
        np.testing.assert_allclose(one, 1, atol=0.2)
        assert points[series, 3.0].mean_share < points[series, 1.0].mean_share


# ---- formulas ----------------------------------------------------------------------------------


def test_lemma_is_the_printed_number():
    np.testing.assert_allclose(LEMMA, 0.2997 * 0.14988 * 0.18932, rtol=1e-3)
    assert f"{LEMMA:.4f}" == "0.0085"


def test_expected_minibatch_in_closed_form():
    """For tiny batches E[z^2/(1 + z^2)] = 1 - sqrt(pi e/2) erfc(1/sqrt 2); all rows iff z^2 > N/m - 1."""
    full, mean = worst_case.expected_minibatch(1_000_000, 1, 1.0)
    np.testing.assert_allclose(mean, 1 - math.sqrt(math.pi * math.e / 2) * math.erfc(math.sqrt(0.5)), atol=1e-4)
    assert full < 1e-12
    full, mean = worst_case.expected_minibatch(1000, 500, 1.0)
    np.testing.assert_allclose([full, mean], [2 * stats.norm.sf(1), 0.5 + stats.norm.sf(1)], atol=1e-3)


def test_ceiling_has_the_density_of_mu_std_at_0():
    random = np.random.default_rng(SEED)
    y, z = random.standard_normal((2, 2_000_000))
    mu_std = (-z * (y + z / 2) - np.log(random.random(y.size))) / np.abs(z)
    num_rows, epsilon = 5_000_000, 0.005
    edge = stats.norm.isf(epsilon) * math.sqrt(BATCH / num_rows)
    count = np.sum(np.abs(mu_std) < edge)
    ceiling = worst_case.austere_ceiling(num_rows, BATCH, epsilon)
    assert abs(count - ceiling * y.size) < 4 * math.sqrt(count)


@pytest.mark.parametrize(("count", "total"), [(0, 10), (3, 1000), (500, 1000), (7, 7)])
def test_wilson_limits(count, total):
    expected = stats.binomtest(count, total).proportion_ci(method="wilson")
    np.testing.assert_allclose(worst_case.wilson_limits(count, total), expected, atol=1e-12)


def test_log_ratio_is_well_conditioned_in_float32():
    """N = 10^6: Delta from float32 log likelihoods; the same with rows not measured from their mean is wrong."""
    num_rows, random = 1_000_000, np.random.default_rng(SEED)
    worst = WorstCase.make(num_rows, 1, SEED)
    assert abs(worst.x.mean()) < 1e-12

    def error(x: np.ndarray, mean: float) -> float:
        rows = x.astype(np.float32)
        errors = []
        for y, z in random.standard_normal((20, 2)):
            t, new = np.float32(mean + y / 1000), np.float32(mean + (y + z) / 1000)
            terms = worst_case.log_likelihood(new, rows) - worst_case.log_likelihood(t, rows)
            assert terms.dtype == np.float32
            errors.append(num_rows * np.asarray(terms, np.float64).mean() + z * (y + z / 2))
        return float(np.abs(errors).max())

    assert error(worst.x, 0.0) < 1e-4
    assert error(worst.x + 0.5, 0.5) > 1e-3


def test_range_of_the_log_ratios_is_exact():
    x = np.random.default_rng(SEED).standard_normal(100)
    ratios = worst_case.log_likelihood(0.3, x) - worst_case.log_likelihood(-0.4, x)
    np.testing.assert_allclose(worst_case.LogRatioRange(float(np.ptp(x)))(-0.4, 0.3), np.ptp(ratios), rtol=1e-6)


# ---- what is handed out ------------------------------------------------------------------------


def test_json_round_trip(result):
    record = result.to_json()
    assert json.loads(json.dumps(record)) == record
    assert record["experiment"] == "worst-case"
    assert record["config"]["num_rows"] == [NUM_ROWS]
    read = [{field.name: row[field.name] for field in dataclasses.fields(Entry)} for row in record["entries"]]
    assert tuple(Entry(**row) for row in read) == result.entries
    assert tuple(Point(**row) for row in record["study"]) == result.study
    assert set(record["versions"]) == {"tallchain", "python", "jax", "numpy", "scipy"}


def test_tables_and_findings_name_every_test(result):
    from rich.console import Console

    console = Console(width=130, file=io.StringIO())
    console.print(result.to_table(), result.to_study_table())
    output = console.file.getvalue()
    for entry in result.entries:
        assert entry.label in output
        assert f"{entry.full_share:.4f}" in output
    findings = " ".join(result.findings())
    assert "Above the lemma's 0.0085 at every N: AustereMH, MHSubLhd (bound)." in findings
    assert "MinibatchBarker is no exception at temperature 1" in findings


def test_findings_tell_of_a_share_below_the_lemma(result, entries):
    few = dataclasses.replace(entries["austere"], num_rows=10**6, num_decisions=8000, num_full=40)
    findings = " ".join(dataclasses.replace(result, entries=(*result.entries, few)).findings())
    assert few.verdict == "below"
    assert "AustereMH at N = 1,000,000 reads all N rows in 0.0050 of its decisions" in findings
    assert "below the lemma's 0.0085" in findings


def test_progress_reaches_its_end(monkeypatch, entries, result):
    monkeypatch.setattr(runs, "measure_entry", lambda config, num_rows, test: entries[test])
    monkeypatch.setattr(runs, "measure_point", lambda *point, stream: result.study[0])
    steps = []
    worst_case.run(TINY, progress=lambda *step: steps.append(step))
    assert [done for done, _, _ in steps] == list(range(10))
    assert steps[-1] == (9, 9, "done")
    assert steps[0][2] == "MinibatchBarker, N = 1,000"


def test_decisions_keep_to_the_budget():
    config = Config.paper()
    for num_rows in config.num_rows:
        for test, contender in worst_case.CONTENDERS.items():
            count = config.decisions(test, num_rows)
            assert 2 <= count <= config.num_decisions
            assert count * num_rows <= config.budget * contender.effort
    assert config.decisions("austere", 10**6) >= 5000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_rows", ()),
        ("num_rows", (100,)),
        ("num_rows", (1000.0,)),
        ("study_rows", 10),
        ("tests", ()),
        ("tests", ("austere", "coin")),
        ("num_decisions", 1),
        ("study_decisions", True),
        ("budget", 0),
        ("factors", ()),
        ("factors", (1.0, -2.0)),
        ("seed", -1),
    ],
)
def test_refuses_bad_input_by_name(field, value):
    with pytest.raises(ValueError, match=rf"`Config\({field}=\.\.\.\)`.*got"):
        dataclasses.replace(TINY, **{field: value})


@pytest.mark.slow
def test_quick_and_the_tests_left_out_above():
    config = dataclasses.replace(Config.quick(SEED % 1000), tests=tuple(worst_case.CONTENDERS))
    result = worst_case.run(config)
    assert len(result.entries) == 2 * len(worst_case.CONTENDERS)
    for entry in result.entries:
        assert entry.verdict in (None, "above")
        if entry.expected_mean is not None:
            assert abs(entry.mean_share - entry.expected_mean) < 4 * entry.mean_share_error + 0.01
    minibatch, penalty = result.of("minibatch"), result.of("penalty")
    assert [entry.mean_share for entry in minibatch] == [entry.mean_share for entry in penalty]
    for bound, scan in zip(result.of("confidence"), result.of("confidence-scan"), strict=True):
        assert (bound.mean_scanned, scan.mean_scanned) == (0.0, 1.0)
        assert dataclasses.replace(scan, test="confidence", mean_scanned=0.0) == bound
    austere, repeats = result.of("austere"), result.of("austere-repeats")
    assert austere[1].full_share < austere[0].full_share / 2  # without replacement it falls with N; with, it does not
    assert repeats[1].full_share > repeats[0].full_share / 1.3
