"""The benchmark against peers: its designs, and that every sampler draws from the same posterior."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallchain as tc
from benchmarks.measure import load
from benchmarks.peers import compare
from benchmarks.peers.__main__ import chosen
from benchmarks.peers.problem import Problem, Run, Sampler, effective, laplace_moments, log_density, moments
from benchmarks.peers.reference import make_reference, read_reference
from benchmarks.peers.rows import rows_against_n, rows_figure
from benchmarks.peers.settings import SETTINGS, Setting, missing
from benchmarks.peers.targets import Target, covertype, dummies, flights, rare
from conftest import SEED

pytestmark = pytest.mark.slow

ROWS = 2000
ENOUGH, MOST_RUNS = 50, 50  # effective draws to tell something from, and runs to have them from


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Two coefficients: a quadrature knows their posterior."""
    random = np.random.default_rng(SEED)
    x = random.standard_normal((ROWS, 2), np.float32)
    y = random.random(ROWS) < 1 / (1 + np.exp(-x @ [0.5, -1.0]))
    return Problem.of(Target("two", tc.models.logistic_regression(x, y, bound=False), ("a", "b")))


def quadrature(problem: Problem, is_flat: bool = False, size: int = 81) -> dict[str, np.ndarray]:
    """Mean and standard deviation on a grid of 6 standard deviations of the Laplace approximation either way."""
    points = np.linspace(-6, 6, size)
    w = np.stack(np.meshgrid(points, points, indexing="ij"), -1).reshape(-1, 2)
    laplace, rows = problem.laplace, problem.rows
    at = np.asarray(laplace.mean) + w @ np.asarray(laplace.factor).T
    values = np.asarray(jax.lax.map(lambda t: log_density(rows, t), jnp.asarray(at, jnp.float32)))
    values = values.astype(np.float64) + (0.5 * (at**2).sum(1) if is_flat else 0)  # the prior is N(0, 1)
    weights = np.exp(values - values.max())
    weights /= weights.sum()
    mean = weights @ at
    return {"mean": mean, "sd": np.sqrt(weights @ (at - mean) ** 2)}


def check(name: str, problem: Problem, chains: int, seconds: float, is_flat: bool = False) -> Run:
    """Run a sampler as the benchmark does, twice or more, and compare its moments with the quadrature's."""
    setting = SETTINGS[name]
    line = missing(setting)
    if line is not None:
        pytest.skip(line)
    sampler = setting.make(problem, chains, 300)
    assert {"mode", "warmup"} <= sampler.prepare(jax.random.key(SEED)).keys()
    runs: list[Run] = []
    size = 0.0
    while len(runs) < 2 or (not size > ENOUGH and len(runs) < MOST_RUNS):  # on a slow machine a run makes few draws
        runs.append(sampler.run(jax.random.key(SEED + len(runs)), seconds))
        draws = np.concatenate([run.draws for run in runs], 1)
        size = effective(draws) * draws[..., 0].size
    assert size > ENOUGH, "the chains hardly move"
    assert draws.shape[::2] == (chains, 2)
    assert all(0 < run.acceptance <= 1 and run.rows > 0 for run in runs)
    exact, found = quadrature(problem, is_flat), moments(draws)
    np.testing.assert_allclose((found["mean"] - exact["mean"]) / exact["sd"], 0, atol=4.5 / size**0.5)
    np.testing.assert_allclose(found["sd"] / exact["sd"], 1, atol=4.5 / size**0.5)
    return runs[-1]


@pytest.mark.parametrize("name", [name for name, setting in SETTINGS.items() if setting.is_ours])
def test_ours_agrees_with_quadrature(name: str, problem: Problem) -> None:
    run = check(name, problem, 64, 2.0)
    assert run.rows < ROWS


def test_random_walk_agrees_with_quadrature(problem: Problem) -> None:
    run = check("BlackJAX walk", problem, 4, 0.3)
    assert run.rows == ROWS


@pytest.mark.filterwarnings("ignore")  # of the peers' own
@pytest.mark.parametrize("name", [name for name in SETTINGS if "NUTS" in name or "HMCECS" in name])
def test_gradient_samplers_agree_with_quadrature(name: str, problem: Problem) -> None:
    run = check(name, problem, 4, 1.0)
    assert run.rows >= (1000 if name == "NumPyro HMCECS" else ROWS)


@pytest.mark.filterwarnings("ignore")
def test_pymhss_agrees_with_quadrature(problem: Problem) -> None:
    """It has a flat prior, which moves these means by up to 0.07 standard deviations."""
    check("PyMHSS", problem, 1, 2.0, is_flat=True)


class Fake:
    """Independent draws of the Laplace approximation, at a fixed pace."""

    def __init__(self, problem: Problem, chains: int, warmup: int, *, pace: float) -> None:
        self.problem, self.chains, self.pace = problem, chains, pace

    def prepare(self, key: jax.Array) -> dict[str, float]:
        return {"mode": 1.0, "warmup": 2.0}

    def run(self, key: jax.Array, seconds: float) -> Run:
        laplace = self.problem.laplace
        w = np.random.default_rng(SEED).normal(size=(self.chains, 1000, 2))
        return Run(np.asarray(laplace.mean) + w @ np.asarray(laplace.factor).T, self.pace, 0.5, 10.0)


def broken(problem: Problem, chains: int, warmup: int) -> Sampler:
    raise RuntimeError("no\nsuch thing")


def test_compares_in_turns_and_saves_what_fails(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.measure.RESULTS", tmp_path)
    monkeypatch.setattr(compare, "RESULTS", tmp_path)
    monkeypatch.setattr(Problem, "of", lambda target: problem)
    settings = {
        "ours": Setting(partial(Fake, pace=0.1), (1, 4), is_ours=True),
        "peer": Setting(partial(Fake, pace=10.0), (2,)),
        "broken": Setting(broken, (1,)),
        "missing": Setting(broken, (1,), "no_such_package"),
    }
    monkeypatch.setattr(compare, "SETTINGS", settings)
    plan = compare.Plan(0.1, 2, 20, tuple(settings))
    compare.compare(problem.target, plan, laplace_moments(problem))
    saved = load("peers").results["two"]
    assert saved["samplers"]["broken"] == {"failed": "RuntimeError: no"}
    assert saved["samplers"]["missing"]["failed"].startswith("no_such_package is not installed")
    ours, peer = saved["samplers"]["ours"], saved["samplers"]["peer"]
    assert ours["chains"] == 4
    assert ours["draws_per_second"] == pytest.approx([40_000, 40_000])
    assert ours["setup_seconds"] == 3
    assert peer["seconds_to_1000"] == pytest.approx(3 + 1000 / peer["median_ess_per_second"])
    assert saved["ratios"]["ours"]["peer"]["ess_per_second"] == pytest.approx(200, rel=0.2)
    assert ours["distance"]["mean"] < 0.1
    assert saved["laplace_distance"]["mean"] == 0


def test_reference_agrees_with_quadrature(problem: Problem, tmp_path: Path) -> None:
    make_reference(problem.target, tmp_path / "two.npz", draws=500, chains=8, warmup=200)
    found, exact = read_reference(tmp_path / "two.npz", problem.target), quadrature(problem)
    np.testing.assert_allclose((found["mean"] - exact["mean"]) / found["mcse_mean"], 0, atol=4)
    np.testing.assert_allclose((found["sd"] - exact["sd"]) / found["mcse_sd"], 0, atol=4)
    other = problem.target._replace(columns=("a",))
    with pytest.raises(ValueError, match="not of 2,000 and 1"):
        read_reference(tmp_path / "two.npz", other)


def test_design_of_covertype(tmp_path: Path) -> None:
    random = np.random.default_rng(SEED)
    size = 300
    path = tmp_path / "tiny.npz"
    columns = {
        "X": random.integers(-173, 7173, (size, 10)).astype(np.int16),
        "wild": random.integers(0, 4, size).astype(np.uint8),
        "soil": np.resize(np.arange(40), size).astype(np.uint8),
        "y": random.integers(1, 8, size).astype(np.uint8),
    }
    np.savez(path, allow_pickle=False, **columns)
    target = covertype(path=path)
    x = target.model.data["x"]
    assert x.shape == (size, 53)
    assert target.d == 53
    assert target.model.posterior.temperature == 1
    np.testing.assert_array_equal(x[:, 0], 1)
    np.testing.assert_allclose(x[:, 1:11].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(x[:, 1:11].std(0), 1, atol=1e-5)
    assert set(np.unique(x[:, 11:])) == {0, 1}
    np.testing.assert_array_equal(target.model.data["y"], columns["y"] == 2)
    some = covertype(100, path)
    assert some.num_rows == 100


def test_covertype_wants_a_file() -> None:
    with pytest.raises(ValueError, match="--covertype PATH"):
        covertype()


def test_dummies_leave_out_the_most_frequent_level() -> None:
    values, names = dummies(np.array(["b", "a", "b", "c"]), "is")
    np.testing.assert_array_equal(values, [[0, 0], [1, 0], [0, 0], [0, 1]])
    assert names == ["is_a", "is_c"]


def test_rare_events_are_rare() -> None:
    target = rare(20_000)
    assert target.d == 6
    assert 30 < target.model.data["y"].sum() < 100


def test_flights_are_complete_or_missing() -> None:
    try:
        target = flights(1000)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    assert target.num_rows == 1000
    assert target.d >= 13
    assert any(name.startswith("carrier_") for name in target.columns)


def test_chooses_samplers_by_name() -> None:
    assert chosen(["numpyro"]) == ("NumPyro NUTS", "NumPyro HMCECS")
    assert chosen(["tallchain", "pymhss"]) == ("tallchain", "PyMHSS")
    assert chosen(None) == tuple(SETTINGS)
    with pytest.raises(SystemExit, match="no such sampler"):
        chosen(["nothing"])


def test_rows_against_n(tmp_path: Path) -> None:
    records = list(rows_against_n((10_000,), chains=8, draws=20))
    rows = {record["order"]: record["rows_per_decision"] for record in records}
    assert rows[2] < rows[1] < rows[0]
    rows_figure(records).savefig(tmp_path / "rows.png")
    assert (tmp_path / "rows.png").exists()
