"""The correction distribution: its invariants, its errors by independent routes, its files and its refusals."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from conftest import SEED
from tallchain import files
from tallchain.acceptance import correction
from tallchain.acceptance.correction import (
    Correction,
    Law,
    minimax,
    minimax_for,
    program,
    ridge,
    ridge_printed_error,
    store,
)
from tallchain.acceptance.tables import KAPPA3, NU, PRINTED, shipped_laws
from tallchain.experiments import correction as experiment

SIGMAS = [sigma / 10 for sigma in range(5, 17)]
SHIPPED = [*((minimax, (sigma,)) for sigma in SIGMAS), (ridge, (1.0,)), (ridge, (0.9, 2000, 10.0))]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("TALLCHAIN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_solving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not read from a file fails."""

    def refuse(*_: object) -> None:
        pytest.fail("computed a table that should have been read")

    monkeypatch.setattr(correction, "compute_minimax", refuse)
    monkeypatch.setattr(correction, "compute_ridge", refuse)
    monkeypatch.setattr(correction, "compute_for_law", refuse)


def tail_by_sum(table: Correction, x: np.ndarray) -> np.ndarray:
    """P(X_norm + X_corr > x), term by term with scipy.stats."""
    terms = zip(table.atoms, table.weights, strict=True)
    return sum((weight * stats.norm.sf(x, loc=atom, scale=table.sigma) for atom, weight in terms), np.zeros_like(x))


def log_odds_error(tail: np.ndarray, x: np.ndarray) -> float:
    """The worst |logit P(accept | Delta = -x) + x|."""
    return float(np.abs(np.log(tail / (1 - tail)) + x).max())


# ---- What ships ------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_solving")
@pytest.mark.parametrize(("method", "arguments"), SHIPPED)
def test_shipped_tables_are_symmetric_distributions(method, arguments) -> None:
    table = method(*arguments)
    assert table.sigma == arguments[0]
    assert table.method == method.__name__
    assert table.atoms.dtype == table.weights.dtype == np.float64
    assert np.all(np.diff(table.atoms) > 0)
    assert np.array_equal(table.atoms, -table.atoms[::-1])
    assert np.array_equal(table.weights, table.weights[::-1])
    assert np.all(table.weights >= 0)
    assert math.isclose(math.fsum(table.weights), 1.0, abs_tol=1e-14)
    assert table.reach == (20.0 if method is minimax else 10.0)


def test_shipped_file_is_small() -> None:
    assert store.SHIPPED.stat().st_size < 300_000


@pytest.mark.parametrize("sigma", SIGMAS)
def test_recorded_minimax_errors_are_the_true_ones(sigma: float) -> None:
    """On a grid that shares no point with the one used for measuring."""
    table = minimax(sigma)
    x = np.arange(0.0, 20.0, 0.00137)
    tail = tail_by_sum(table, x)
    # 1e-13 for what the subtraction of numbers near 1/2 and logarithms near 20 leave.
    assert np.abs(tail - stats.logistic.sf(x)).max() == pytest.approx(table.cdf_error, rel=1e-2, abs=1e-13)
    assert log_odds_error(tail, x) == pytest.approx(table.log_odds_error, rel=2e-2, abs=1e-13)
    assert log_odds_error(tail, x) <= table.log_odds_error * (1 + 1e-3) + 1e-13


@pytest.mark.parametrize(("arguments", "on_5", "on_10"), [((1.0,), 0.063, 1.3), ((0.9, 2000, 10.0), None, None)])
def test_recorded_ridge_errors_are_the_true_ones(arguments, on_5, on_10) -> None:
    table = ridge(*arguments)
    x = np.linspace(0.0, 10.0, 201)
    tail = tail_by_sum(table, x)
    assert np.abs(tail - stats.logistic.sf(x)).max() == pytest.approx(table.cdf_error, rel=1e-2)
    assert log_odds_error(tail, x) == pytest.approx(table.log_odds_error, rel=5e-2)
    if on_5:
        assert log_odds_error(tail[x <= 5], x[x <= 5]) == pytest.approx(on_5, rel=2e-2)
        assert table.log_odds_error == pytest.approx(on_10, rel=5e-2)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.2, 1.6])
def test_sum_is_logistic_by_quadrature(sigma: float) -> None:
    """P(sum > x) as the integral of the normal density against the tail of the atoms, at a few points."""
    table = minimax(sigma)
    beyond = np.append(np.cumsum(table.weights[::-1])[::-1], 0.0)
    for x in (0.0, 0.7, 2.5, 6.0):
        # Between two neighbouring values of x - atom the integrand is a constant times the normal density.
        edges = np.clip(np.sort(x - table.atoms), -9 * sigma, 9 * sigma)
        edges = np.unique(np.concatenate([[-9 * sigma], edges, [9 * sigma]]))
        tail = 0.0
        for low, high in itertools.pairwise(edges):
            mass = beyond[np.searchsorted(table.atoms, x - (low + high) / 2, side="right")]
            tail += mass * integrate.quad(stats.norm(scale=sigma).pdf, low, high, epsabs=1e-13)[0]
        assert tail == pytest.approx(float(table.upper_tail(x)), rel=1e-9)
        assert abs(tail - 1 / (1 + math.exp(x))) <= table.cdf_error * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize(
    ("sigma", "log_odds", "cdf"), [(1.0, 1e-6, 3e-7), (1.2, 3e-4, 1e-4), (0.9, 1e-8, 3e-9), (1.6, 0.045, 8e-3)]
)
def test_minimax_meets_its_targets(sigma: float, log_odds: float, cdf: float) -> None:
    table = minimax(sigma)
    assert table.log_odds_error <= log_odds
    assert table.cdf_error <= cdf


# ---- The linear program ----------------------------------------------------------------------


def test_solver_agrees_with_what_ships() -> None:
    fresh, shipped = program.compute_minimax(1.1, 20.0), minimax(1.1)
    assert fresh.log_odds_error == pytest.approx(shipped.log_odds_error, rel=0.02)


@pytest.mark.parametrize(
    ("sigma", "error"),
    [(0.9, 8.6e-9), (1.0, 6.6e-7), (1.1, 1.7e-5), (1.2, 1.93e-4), (1.3, 1.3e-3), (1.4, 5.4e-3), (1.5, 1.7e-2)],
)
def test_minimax_is_the_best_approximation(sigma: float, error: float) -> None:
    """It reaches the known optimum, and its error equioscillates, as a best approximation's does.

    Atoms on neighbouring places of the grid stand for one between them; each such atom is a weight and a place.
    """
    table = minimax(sigma, 10.0)
    assert table.log_odds_error <= 1.01 * error
    x = np.arange(0.0, 10.0, 0.01)
    tail = tail_by_sum(table, x)
    relative = (np.log(tail / (1 - tail)) + x) / table.log_odds_error
    signs = np.sign(relative[np.abs(relative) > 0.9])
    alternations = np.count_nonzero(np.diff(signs))
    half = table.atoms[table.atoms >= 0]
    places = 1 + np.count_nonzero(np.diff(half) > 0.07)
    assert alternations >= places


@pytest.mark.parametrize("sigma", [0.45, 0.3, 0.1, 0.02])
def test_small_sigma(sigma: float) -> None:
    """Below 0.5 the table is made from that of 0.8, with the same law of the sum."""
    table = minimax(sigma)
    assert table.log_odds_error < 2e-9
    x = np.random.default_rng(SEED).uniform(0, 20, 500)
    tail = stats.norm.sf((x[:, None] - table.atoms) / sigma) @ table.weights
    assert log_odds_error(tail, x) <= table.log_odds_error * (1 + 1e-3)


def test_tiny_sigma_is_a_staircase_and_says_so() -> None:
    table = minimax(1e-7)
    step = table.atoms[1] - table.atoms[0]
    beyond = np.append(np.cumsum(table.weights[::-1])[::-1], 0.0)
    x = table.atoms[(table.atoms > 0) & (table.atoms < 20)] + step / 1000
    tail = beyond[np.searchsorted(table.atoms, x)]
    assert log_odds_error(tail, x) == pytest.approx(table.log_odds_error, rel=1e-2)
    assert table.log_odds_error < 6e-4


def test_short_reach_claims_no_more() -> None:
    """Within the reach it is better than a table of long reach; beyond it is measured in the CDF alone."""
    short, long = minimax(1.2, 2.0), minimax(1.2)
    assert short.log_odds_error < long.log_odds_error / 5
    x = np.arange(0.0, 30.0, 0.01)
    assert np.abs(tail_by_sum(short, x) - stats.logistic.sf(x)).max() == pytest.approx(short.cdf_error, rel=1e-2)


def test_solver_that_returns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_solve", lambda *_, **__: None)
    with pytest.raises(RuntimeError, match=r"`minimax\(sigma=1\.17, reach=20\.0\)`.*6 attempts"):
        minimax(1.17)


def test_second_attempt_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that fails at first, as HiGHS does at about one setting in thirty."""
    solve, attempts = program._solve, []

    def fail_at_first(sigma, reach, effort):
        attempts.append(effort)
        return None if len(attempts) == 1 else solve(sigma, reach, effort)

    monkeypatch.setattr(program, "_solve", fail_at_first)
    assert minimax(1.3, 10.0).log_odds_error == pytest.approx(1.3e-3, rel=0.05)
    assert len(set(attempts)) == len(attempts) == 2


# ---- Noise of other laws -----------------------------------------------------------------------


def law_by_hand(law: Law, x: np.ndarray) -> np.ndarray:
    """P(noise > x) with scipy.stats, derivatives by finite differences."""
    noise = stats.norm(scale=law.sigma) if math.isinf(law.nu) else stats.t(law.nu, scale=law.sigma)
    h = 1e-3
    second = (noise.pdf(x + h) - 2 * noise.pdf(x) + noise.pdf(x - h)) / h**2
    t = x / law.sigma
    return noise.sf(x) + law.kappa3 / 6 * second - law.printed * (2 * t**2 + 1) * noise.pdf(x) * law.sigma


@pytest.mark.parametrize("law", [Law(1.2, 49.0, 0.25), Law(1.0, kappa3=0.5), Law(0.9, printed=0.06), Law(1.0, 19.0)])
def test_law_is_what_it_says(law: Law) -> None:
    x = np.linspace(-6, 6, 121)
    assert law.upper(x) == pytest.approx(law_by_hand(law, x), abs=1e-6)
    assert law.lower(x) == pytest.approx(1 - law_by_hand(law, x), abs=1e-6)


@pytest.mark.usefixtures("no_solving")
def test_every_law_ships_and_its_table_makes_the_noise_logistic() -> None:
    """The worst error in log-odds over |Delta| <= 10, both signs, by scipy.stats."""
    delta = np.linspace(-10, 10, 21)
    for law in shipped_laws():
        table = minimax_for(law)
        accept = sum(
            (w * law_by_hand(law, -delta - y) for y, w in zip(table.atoms, table.weights, strict=True)),
            np.zeros_like(delta),
        )
        # finite differences and 1 - p near 1 limit what can be seen here
        visible = np.minimum(accept, 1 - accept) > 1e-4
        error = np.abs(np.log(accept / (1 - accept)) - delta)[visible].max()
        assert error < table.log_odds_error + 2e-3, law
        assert table.is_skewed == law.is_skewed


@pytest.mark.usefixtures("no_solving")
def test_errors_of_the_laws_in_use() -> None:
    """No law with an estimated scale or a third cumulant is harder than the normal one at the same sigma."""
    for sigma in (1.0, 1.2):
        worst = max(minimax_for(Law(sigma, nu, kappa3)).log_odds_error for nu in NU for kappa3 in KAPPA3)
        assert worst < 1.2 * max(minimax(sigma).log_odds_error, program._LAW_ERROR_FLOOR)
    assert minimax_for(Law(1.0, printed=PRINTED[1])).log_odds_error < 2e-6


def test_law_is_computed_and_kept(cache: Path) -> None:
    law = Law(1.3, kappa3=0.2)
    computed = minimax_for(law, 8.0)
    assert computed.log_odds_error < 2e-3
    assert [file.stem for file in cache.iterdir()] == [correction.law_key(law, 8.0)]
    assert_same(minimax_for(law, 8.0), computed)


def test_a_table_of_another_law_would_be_wrong() -> None:
    """The negative control: the plain table under skewed noise is off by kappa3/6 in the tails."""
    plain = minimax(1.0)
    _, error = program.measure_law(Law(1.0, kappa3=0.25), plain.atoms, plain.weights, 4.0)
    assert error > 0.02


# ---- The paper's table -----------------------------------------------------------------------


def direct_solution(sigma: float, n: int, value: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The paper's M, v and clipped u with the matrices written out."""
    X, Y = np.arange(-2 * n, 2 * n + 1) * 20 / n, np.arange(-n, n + 1) * 20 / n
    M, v = stats.norm.cdf((X[:, None] - Y) / sigma), stats.logistic.cdf(X)
    u = np.linalg.solve(M.T @ M + value * np.eye(2 * n + 1), M.T @ v)
    return M, v, np.maximum(u, 0)


@pytest.mark.parametrize(("sigma", "n", "value"), [(1.0, 150, 10.0), (0.6, 100, 0.1), (1.6, 37, 1.0), (0.9, 10, 100.0)])
def test_ridge_against_the_matrices_written_out(sigma: float, n: int, value: float) -> None:
    M, v, u = direct_solution(sigma, n, value)
    assert ridge_printed_error(sigma, n, [value]) == pytest.approx(np.abs(M @ u - v).max(), rel=1e-7)
    table = ridge(sigma, n, value)
    assert table.atoms == pytest.approx(np.arange(-n, n + 1) * 20 / n, abs=1e-13)
    assert table.weights == pytest.approx((u + u[::-1]) / (2 * u.sum()), abs=1e-8)


@pytest.mark.parametrize("sigma", [0.8, 0.9, 1.0, 1.1])
def test_appendix_small_grid(sigma: float) -> None:
    for entry in experiment._entries(2000, sigma, experiment.RIDGES):
        assert entry.is_within, entry


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.8, 0.9, 1.0, 1.1])
def test_appendix_large_grid(sigma: float) -> None:
    for entry in experiment._entries(4000, sigma, experiment.RIDGES):
        assert entry.is_within != entry.is_known_to_differ, entry


# ---- Simulation ------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [minimax(1.0), minimax(1.2), minimax(0.5)], ids=["1.0", "1.2", "0.5"])
def test_simulated_sum_is_logistic_and_is_not_without_the_correction(table: Correction) -> None:
    rng = np.random.default_rng(SEED)
    normal = table.sigma * rng.standard_normal(100_000)
    total = normal + rng.choice(table.atoms, normal.size, p=table.weights)
    assert stats.kstest(total, stats.logistic.cdf).pvalue > 1e-4
    assert stats.kstest(normal, stats.logistic.cdf).pvalue < 1e-12


# ---- Files -----------------------------------------------------------------------------------


def assert_same(one: Correction, other: Correction) -> None:
    for name in ("sigma", "cdf_error", "log_odds_error", "reach", "method"):
        assert getattr(one, name) == getattr(other, name)
    assert np.array_equal(one.atoms, other.atoms)
    assert np.array_equal(one.weights, other.weights)


@pytest.mark.parametrize(("method", "arguments"), [(minimax, (1.25, 5.0)), (ridge, (1.0, 50, 10.0, 5.0))])
def test_cached_table_is_read_back_identical(method, arguments, cache: Path, request: pytest.FixtureRequest) -> None:
    computed = method(*arguments)
    (file,) = cache.iterdir()
    assert file.suffix == ".npz"
    request.getfixturevalue("no_solving")
    assert_same(method(*arguments), computed)


@pytest.mark.parametrize("damage", [b"", b"not a zip file", None], ids=["empty", "garbage", "truncated"])
def test_corrupt_file_is_replaced(damage: bytes | None, cache: Path) -> None:
    computed = minimax(1.25, 5.0)
    (file,) = cache.iterdir()
    good = file.read_bytes()
    file.write_bytes(good[: len(good) // 2] if damage is None else damage)
    assert_same(minimax(1.25, 5.0), computed)
    assert file.read_bytes()[:4] == good[:4]


def test_flipped_bytes_are_not_believed(cache: Path) -> None:
    computed = minimax(1.25, 5.0)
    (file,) = cache.iterdir()
    good = bytearray(file.read_bytes())
    for place in range(40, len(good), 97):
        file.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        found = store.load(file, file.stem)
        assert found is None or np.array_equal(found.weights, computed.weights)


def test_another_version_reads_no_stale_file(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minimax(1.25, 5.0)
    monkeypatch.setattr(correction, "_VERSION", correction._VERSION + 1)
    minimax(1.25, 5.0)
    assert len(list(cache.iterdir())) == 2


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file where the folder should be: unwritable for everyone, root included."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TALLCHAIN_CACHE", str(tmp_path / "file"))
    assert minimax(1.25, 5.0).sigma == 1.25


def test_machine_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TALLCHAIN_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert files.cache_folder() is None
    assert minimax(1.25, 5.0).sigma == 1.25


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TALLCHAIN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.cache_folder() == tmp_path / "tallchain"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert files.cache_folder() == Path.home() / ".cache" / "tallchain"


def test_failed_write_leaves_nothing_behind(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez_compressed", disk_full)
    assert minimax(1.25, 5.0).sigma == 1.25
    assert list(cache.iterdir()) == []


def test_build_script_names_what_ships() -> None:
    path = Path(__file__).parents[2] / "scripts" / "build_correction_tables.py"
    spec = importlib.util.spec_from_file_location("build_correction_tables", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    keys = [correction.minimax_key(*setting) for setting in script.MINIMAX]
    keys += [correction.ridge_key(*setting) for setting in script.RIDGE]
    keys += [correction.law_key(law, script.REACH) for law in script.LAWS]
    assert all(store.load(store.SHIPPED, key) is not None for key in keys)
    with np.load(store.SHIPPED) as file:
        assert {name.split("/")[0] for name in file.files} == set(keys)


# ---- Refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0, 0.0, -1.0, 1.61, 2, math.nan, math.inf, "1.0", None, True, 1j, [1.0, 1.2]])
@pytest.mark.parametrize("method", [minimax, ridge])
def test_sigma_is_refused(method, sigma) -> None:
    with pytest.raises(ValueError, match=r"0 < sigma <= 1\.6") as caught:
        method(sigma)
    message = str(caught.value)
    assert f"`{method.__name__}(sigma={sigma!r}" in message
    assert "pi/sqrt(3) = 1.814" in message
    assert "Choose a smaller sigma" in message


@pytest.mark.parametrize(
    ("arguments", "what"),
    [({"n": n}, "whole number n >= 10") for n in (9, 0, -5, 2000.0, "2000", None, True)]
    + [({"ridge": value}, "ridge > 0") for value in (0, -1.0, math.nan, math.inf, "10", None)]
    + [({"reach": value}, "0 < reach <= 20") for value in (0, -1.0, 20.5, math.nan, None)],
)
def test_ridge_refuses(arguments, what: str) -> None:
    (value,) = arguments.values()
    with pytest.raises(ValueError, match=what) as caught:
        ridge(1.0, **arguments)
    assert f"got {next(iter(arguments))} = {value!r}" in str(caught.value)


@pytest.mark.parametrize("reach", [0, -1.0, 101, math.nan, math.inf, "20"])
def test_minimax_refuses_a_reach(reach) -> None:
    with pytest.raises(ValueError, match="0 < reach <= 100"):
        minimax(1.0, reach)


def test_printed_error_refuses() -> None:
    with pytest.raises(ValueError, match="ridge_printed_error"):
        ridge_printed_error(1.0, 2000, [10.0, 0.0])


@pytest.mark.parametrize(
    ("atoms", "weights"),
    [
        ([-1.0, 1.0], [0.5, 0.6]),
        ([-1.0, 2.0], [0.5, 0.5]),
        ([-1.0, 1.0], [0.4, 0.6]),
        ([-1.0, 0.0, 1.0], [-0.1, 1.2, -0.1]),
        ([1.0, -1.0], [0.5, 0.5]),
        ([-1.0, 1.0], [math.nan, math.nan]),
        ([], []),
    ],
)
def test_correction_refuses_what_is_no_symmetric_distribution(atoms, weights) -> None:
    with pytest.raises(ValueError, match="symmetric"):
        Correction(1.0, np.array(atoms), np.array(weights), 0.0, 0.0, 20.0, "mine")


def test_numpy_numbers_are_numbers() -> None:
    assert_same(minimax(np.float64(1.0), np.int64(20)), minimax(1.0))
    assert ridge_printed_error(np.float64(1.0), np.int64(20), np.array([10.0])).shape == (1,)


def test_arrays_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        minimax(1.0).weights[0] = 1.0


# ---- The module and the experiment -----------------------------------------------------------


def test_reading_a_shipped_table_loads_no_solver() -> None:
    code = (
        "import sys; from tallchain.acceptance.correction import minimax; minimax(1.0);"
        "print(*(name for name in ('scipy.optimize', 'scipy.stats') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.split() == []


def test_experiment_at_quick_size() -> None:
    seen = []
    result = experiment.run(experiment.Config.quick(), progress=lambda *step: seen.append(step))
    assert [done for done, _, _ in seen] == [0, 1, 2]
    assert {total for _, total, _ in seen} == {2}
    record = json.loads(json.dumps(result.to_json()))
    assert [entry["printed"] for entry in record["entries"]] == [4.4e-3, 1.3e-3, 1.1e-3, 2.0e-3, 3.6e-3]
    assert all(entry["is_within"] for entry in record["entries"])
    assert record["minimax"][0]["log_odds_error"] == minimax(1.0).log_odds_error
    assert {"numpy", "scipy", "python", "tallchain"} <= set(record["versions"])


def test_experiment_prints_both_values_and_a_mark() -> None:
    rich = pytest.importorskip("rich.console")
    config = experiment.Config(columns=((4000, 1.1),), ridges=(100.0, 10.0, 0.01))
    ours = dict(zip(config.ridges, (4.31e-3, 6.17e-3, 4.0e-2), strict=True))
    entries = tuple(experiment.Entry(4000, 1.1, r, experiment.PRINTED[4000, 1.1][r], x) for r, x in ours.items())
    result = experiment.Result(config, entries, (experiment.Minimax(1.1, 55, 4.1e-6, 1.7e-5),), 1.0, {})
    console = rich.Console(width=120)
    with console.capture() as capture:
        console.print(result.to_table())
    for cell in ("4.31e-03 (4.3e-03) =", "6.17e-03 (6.0e-03) ~", "4.00e-02 (3.5e-02) !", "4.10e-06", "1.70e-05"):
        assert cell in capture.get()


def test_printed_table_is_complete() -> None:
    assert len(experiment.PRINTED) == 8
    assert all(tuple(column) == experiment.RIDGES for column in experiment.PRINTED.values())
    assert len(experiment.KNOWN_TO_DIFFER) == 3
    best = {setting: min(column.values()) for setting, column in experiment.PRINTED.items()}
    assert best[4000, 1.0] == 8.9e-4
