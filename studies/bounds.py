"""Does a range bound that reads no rows help the confidence test (MHSubLhd) on logistic regression?

Seita et al. (2017, section 5.2) found the symbolic bound of Bardenet et al. (2014) "too high" and gave the test the
range over all rows instead, computed anew for every decision and left out of their counts. Here the test runs with that
range (the rows scanned are counted separately), with that bound (`by_norm`) and with the tighter one of
`logistic_regression`, on the same proposals from the same starts.

Simulated data: normal features; normal features that are correlated and of unequal size; pixels that are independent of
each other; and strokes, small grey images of a bar whose slant is the label, which have blank margins and correlated
pixels, like handwritten digits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from scipy.special import expit

import tallchain as tc
from benchmarks.records import table
from studies.study import Keep, Result, forget
from tallchain.models import Regression, logistic_regression

BATCH, TEMPERATURE = 100, 100.0


# ---- data --------------------------------------------------------------------------------------


def normal(num_rows: int, dimension: int, seed: int) -> Regression:
    """x_j ~ N(0, 1), true coefficients of norm 1.5."""
    random = np.random.default_rng(seed)
    features = random.standard_normal((num_rows, dimension), np.float32)
    return labelled(features, 1.5 * direction(random, dimension), seed)


def unequal(num_rows: int, dimension: int, seed: int) -> Regression:
    """x_j of standard deviations from 0.1 to 2, neighbours correlated by 0.9; true coefficients of norm 1.5."""
    random = np.random.default_rng(seed)
    lag = np.abs(np.subtract.outer(np.arange(dimension), np.arange(dimension)))
    scale = np.geomspace(0.1, 2, dimension)[:, None] * np.linalg.cholesky(0.9**lag)
    return labelled(random.standard_normal((num_rows, dimension)) @ scale.T, 1.5 * direction(random, dimension), seed)


def pixels(num_rows: int, dimension: int, seed: int) -> Regression:
    """x_j uniform on [0, 1] with probability 0.2, else 0; true coefficients of sd 1."""
    random = np.random.default_rng(seed)
    is_lit = random.random((num_rows, dimension)) < 0.2
    return labelled(random.random((num_rows, dimension)) * is_lit, random.standard_normal(dimension), seed)


def strokes(num_rows: int, side: int, seed: int) -> Regression:
    """Draw a bright bar of random place, width and slant; the label is whether it slants much."""
    random = np.random.default_rng(seed)
    label = random.random(num_rows) < 0.5
    across, down = np.meshgrid(*[(np.arange(side) + 0.5) / side] * 2)
    place = 0.5 + 0.06 * random.standard_normal((2, num_rows, 1, 1))
    slant = (np.where(label, 0.6, 0.1) + 0.25 * random.standard_normal(num_rows))[:, None, None]
    width = random.uniform(0.06, 0.1, (num_rows, 1, 1))
    right, below = across - place[0], down - place[1]
    off = right * np.cos(slant) + below * np.sin(slant)
    along = below * np.cos(slant) - right * np.sin(slant)
    image = np.clip(1.5 * np.exp(-0.5 * (off / width) ** 2 - 0.5 * (along / 0.25) ** 4) - 0.1, 0, 1)
    return logistic_regression(image.reshape(num_rows, -1), label, prior_sd=None, temperature=TEMPERATURE)


def direction(random: np.random.Generator, dimension: int) -> np.ndarray:
    """Draw a vector of length 1."""
    vector = random.standard_normal(dimension)
    return vector / np.linalg.norm(vector)


def labelled(features: np.ndarray, truth: np.ndarray, seed: int) -> Regression:
    """Draw labels from the model itself, as many of one kind as of the other."""
    logit = features @ truth
    outcomes = np.random.default_rng(seed + 1).random(len(logit)) < expit(logit - logit.mean())
    return logistic_regression(features, outcomes, prior_sd=None, temperature=TEMPERATURE)


# 13,000 and 100,000 rows at temperature 100, as in the paper; the steps still let a chain move.
DATA: dict[str, tuple[Callable[[int, int, int], Regression], int, int, float]] = {
    "normal, d = 20": (normal, 13_000, 20, 0.05),
    "normal, d = 20, more rows": (normal, 100_000, 20, 0.02),
    "unequal, d = 20": (unequal, 13_000, 20, 0.05),
    "pixels, d = 50": (pixels, 13_000, 50, 0.05),
    "strokes, d = 14 x 14": (strokes, 13_000, 14, 0.05),
}
TESTS = {
    "bernstein": lambda: tc.Confidence(0.1, gamma=2.0),
    "bernstein-serfling": lambda: tc.Confidence(0.1, gamma=2.0, bound="bernstein-serfling"),
}
BOUNDS: dict[str, Callable[[Any], Any]] = {
    "range of all rows": lambda bound: None,
    "by_norm": lambda bound: bound.by_norm,
    "smaller of both": lambda bound: bound,
}
# One inequality with every bound, the other with the best bound and with the range: compilation takes most of the time.
RUNS = [("bernstein", name) for name in BOUNDS] + [
    ("bernstein-serfling", name) for name in ("range of all rows", "smaller of both")
]


# ---- runs --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    data: tuple[str, ...] = tuple(DATA)
    most_rows: int = 100_000
    """Rows of the larger data sets."""
    chains: int = 16
    warmup: int = 4
    draws: int = 20
    pairs: int = 50
    """Steps of the random walk over which to average the ratio of a bound to the range."""
    seed: int = 7

    @classmethod
    def quick(cls) -> Config:
        """One kind of data, and few rows."""
        return cls(("normal, d = 20",), most_rows=1000, chains=4, warmup=1, draws=3, pairs=3)


def run(config: Config, keep: Keep = forget) -> Result:
    """Run every test with every bound, on all data."""
    results: list[dict[str, Any]] = []
    for name in config.data:
        make, num_rows, size, step = DATA[name]
        model = make(min(num_rows, config.most_rows), size, config.seed)
        starts = laplace_starts(model, config)
        entry = {
            "data": name,
            "rows": len(model.data["y"]),
            "features": model.data["x"].shape[1],
            "step": step,
            "rows_read_once_for_the_bounds": model.rows_swept,
            "bound_over_exact_range": over_range(model, starts, step, config),
            "tests": [
                {"test": test, "bound": bound}
                | cost(model, starts, step, TESTS[test](), BOUNDS[bound](model.bound), config)
                for test, bound in RUNS
            ],
        }
        print(entry, flush=True)
        results.append(entry)
        keep(Result.of(configuration(config), results))
    return Result.of(configuration(config), results)


def configuration(config: Config) -> dict[str, Any]:
    """Say how it was measured."""
    return {
        "model": f"logistic_regression(prior_sd=None, temperature={TEMPERATURE})",
        "source": f"Shuffled(batch_size={BATCH})",
        "acceptance": "Confidence(delta=0.1, p=2, gamma=2)",
        "chains": config.chains,
        "warmup": config.warmup,
        "draws": config.draws,
        "pairs_for_the_ratio": config.pairs,
        "seed": config.seed,
        "starts": "normal approximation at the mode",
        "standard_errors": "between independent chains",
    }


def laplace_starts(model: Regression, config: Config) -> np.ndarray:
    """Draw from the normal approximation at the mode, found by Newton's method with a little ridge."""
    x = model.data["x"].astype(np.float64)
    y = model.data["y"]
    factor, mode = 1 / TEMPERATURE, np.zeros(x.shape[1])
    for _ in range(15):
        chance = expit(x @ mode)
        precision = factor * (x.T * (chance * (1 - chance))) @ x + 1e-3 * np.eye(len(mode))
        mode = mode + np.linalg.solve(precision, factor * (y - chance) @ x - 1e-3 * mode)
    noise = np.random.default_rng(config.seed).standard_normal((config.chains, len(mode)))
    return (mode + np.linalg.solve(np.linalg.cholesky(precision).T, noise.T).T).astype(np.float32)


def cost(
    model: Regression, starts: np.ndarray, step: float, acceptance: Any, bound: Any, config: Config
) -> dict[str, float]:
    """Sample, and return how many rows a decision read."""
    source = tc.Shuffled(model.data, BATCH)
    kernel = tc.MetropolisHastings(
        model.posterior, source, proposal=tc.RandomWalk(step), acceptance=acceptance, bound=bound
    )
    options: dict[str, Any] = {"num_chains": config.chains, "num_warmup": config.warmup, "progress": False}
    trace = tc.sample(jax.random.key(config.seed), kernel, starts, config.draws, **options)
    by_chain = trace.rows_read.mean(1)
    return {
        "mean_rows_per_decision": float(by_chain.mean()),
        "standard_error": float(by_chain.std(ddof=1) / np.sqrt(config.chains)),
        "share_that_read_all_rows": float((trace.rows_read == trace.num_rows).mean()),
        "mean_rows_scanned_per_decision": float(trace.rows_scanned.mean()),
        "looked_at_and_scanned_over_N": float((trace.rows_read + trace.rows_scanned).mean() / trace.num_rows),
        "acceptance": float(trace.is_accepted.mean()),
    }


def over_range(model: Regression, starts: np.ndarray, step: float, config: Config) -> dict[str, float]:
    """Mean ratio of each bound to the exact range, over steps of the random walk; 1 is the best possible."""
    bound = model.bound
    assert bound is not None
    random = np.random.default_rng(config.seed + 2)
    sign = 2 * model.data["y"] - 1
    signed = sign[:, None] * model.data["x"].astype(np.float64)
    ratios: dict[str, list[float]] = {"by_norm": [], "by_ellipsoid": [], "smaller of both": []}
    for position in starts[random.integers(len(starts), size=config.pairs)].astype(np.float64):
        candidate = position + step * random.standard_normal(len(position))
        exact = np.ptp(np.logaddexp(0, -signed @ position) - np.logaddexp(0, -signed @ candidate))
        for name, each in zip(ratios, (bound.by_norm, bound.by_ellipsoid, bound), strict=True):
            ratios[name].append(float(each(position, candidate)) / exact)
    return {name: float(np.mean(values)) for name, values in ratios.items()}


def page(result: Result) -> dict[str, str]:
    """What the test reads with each bound."""
    rows = []
    for entry in result.results:
        tests = {test["bound"]: test for test in entry["tests"] if test["test"] == "bernstein"}
        ratio = entry["bound_over_exact_range"]
        for name in BOUNDS:
            test = tests[name]
            factor = "1" if name == "range of all rows" else f"{ratio[name]:.1f}"
            read = [f"{test[key]:,.0f}" for key in ("mean_rows_per_decision", "mean_rows_scanned_per_decision")]
            rows.append([f"{entry['data']}, N = {entry['rows']:,}", name, factor, *read, f"{test['acceptance']:.2f}"])
    header = ["data", "range by", "over the exact range", "rows looked at", "rows scanned", "acceptance"]
    return {"bounds": table(header, rows)}
