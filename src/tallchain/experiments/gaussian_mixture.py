"""The paper's mixture of Gaussians (section 5.1 and appendix): rows per decision, and how close the draws are.

Seita, Pan, Chen and Canny, "An Efficient Minibatch Acceptance Test for Metropolis-Hastings": a million rows of 0.5
N(theta_1, 2) + 0.5 N(theta_1 + theta_2, 2), temperature 10,000, a random walk with steps of standard deviation 0.15
(the paper calls it a covariance), 10 repetitions of 3000 draws. Its Table 1 counts rows, its appendix has two distances
of the draws from the posterior.

Every repetition starts from its own draw of the exact posterior, known by quadrature.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import RectBivariateSpline
from scipy.special import gammaln

from tallchain.acceptance import Austere, Barker, Confidence, MinibatchBarker
from tallchain.experiments.common import Progress, versions
from tallchain.experiments.trials import (
    Arrays,
    Job,
    Printed,
    Rows,
    config_of,
    rows_and_verdicts,
    rows_of,
    run_jobs,
    seconds_of,
    standard_error,
)
from tallchain.kernel import MetropolisHastings
from tallchain.models.gaussian_mixture import GaussianMixture, Grid, gaussian_mixture
from tallchain.proposals import RandomWalk
from tallchain.sources import Shuffled
from tallchain.types import AcceptanceTest

BIN = 0.1
EDGES = (np.arange(-15, 26) * BIN, np.arange(-25, 31) * BIN)
"""The authors' bins, 0.1 wide over [-1.5, 2.5] x [-2.5, 3]."""
PUBLISHED_COUNT = 5000
"""To which the authors rescale the counts of 3000 draws."""
_PARTS = 4  # of a bin, each way, to integrate over
_LEAST_EXPECTED = 5.0  # draws in a pool of bins, for chi-squared to be valid
_BLOCK = 5  # bins, each way
_LEAST_FREEDOM = 3  # degrees of freedom


@dataclasses.dataclass(frozen=True)
class Method:
    """A test of the experiment."""

    name: str
    make: Callable[[int], AcceptanceTest]
    """m -> the test."""
    rows: Printed | None = None
    """Rows per decision in Table 1."""
    one_trial: float | None = None
    """Rows per decision of the one repetition in the figure."""
    poisson: Printed | None = None
    """Log Poisson likelihood in the appendix."""
    chi_squared: Printed | None = None
    has_flat_prior: bool = False
    reads_all: bool = False
    """Whether every decision reads or scans all rows, so that a quick run has fewer of them."""


_PAPER: dict[str, Any] = {
    "rows": Printed(182.3, 11.4),
    "one_trial": 172.0,
    "poisson": Printed(-1307.0, 229.5),
    "chi_squared": Printed(4502.3, 1821.8),
}
METHODS = (
    Method(
        "MinibatchBarker.as_published_code()",
        lambda batch: MinibatchBarker.as_published_code(batch=batch),
        **_PAPER,
        has_flat_prior=True,
    ),
    Method("MinibatchBarker.paper()", lambda batch: MinibatchBarker.paper(batch=batch), **_PAPER),
    Method("MinibatchBarker()", lambda batch: MinibatchBarker(batch=batch)),
    Method(
        "Austere(0.005)",
        lambda batch: Austere(0.005, batch),
        Printed(13540.5, 1521.4),
        12562.0,
        Printed(-1386.9, 322.4),
        Printed(5216.9, 3315.8),
    ),
    Method(
        "Confidence()",
        lambda batch: Confidence(0.01, 2.0, 1.5, batch=batch),
        Printed(65758.9, 3222.6),
        67508.0,
        Printed(-1295.1, 278.0),
        Printed(3462.3, 1519.5),
        reads_all=True,
    ),
    Method("Barker()", lambda batch: Barker(), reads_all=True),
)
OURS, PAPERS = "MinibatchBarker()", "MinibatchBarker.paper()"


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    rows: int = 1_000_000
    draws: int = 3000
    slow_draws: int = 3000
    """Of tests that read all rows at every decision."""
    trials: int = 10
    step: float = 0.15
    batch: int = 50
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Shorter repetitions: half a minute on two cores."""
        return cls(draws=750, slow_draws=15, seed=seed)

    @classmethod
    def paper(cls, seed: int = 0) -> Config:
        """As the paper has it: a quarter of an hour on two cores, nearly all of it for the tests that read all rows."""
        return cls(seed=seed)


class Distances(NamedTuple):
    """How far the draws of a repetition are from the posterior, bin by bin."""

    poisson: float
    """Log Poisson likelihood as the authors computed it."""
    chi_squared: float
    """As the authors computed it."""
    total_variation: float


class Soundness(NamedTuple):
    """The two distances over all bins, for the effective number of draws of all repetitions of a method."""

    effective: float
    """Effective draws: the smaller bulk effective sample size of the two parameters."""
    of_bins: float
    """Effective draws for the counts of bins, which mix faster."""
    poisson: float
    chi_squared: float | None
    """Over its degrees of freedom: about 1 for draws of the posterior. None if there are too few draws."""


@dataclasses.dataclass(frozen=True)
class Found:
    """One method: a summary of its repetitions."""

    method: Method
    rows: Rows
    acceptance: float
    distances: tuple[Distances, ...]
    """By repetition."""
    soundness: Soundness
    grid: Grid
    """What it draws from, by quadrature: the posterior, without its prior where the method has none."""
    example: Arrays
    """The first repetition: its draws and rows per decision."""

    def mean(self, name: str) -> float:
        """Of a distance, over repetitions."""
        return float(np.mean([getattr(each, name) for each in self.distances]))

    def error(self, name: str) -> float:
        """Standard error of `mean`."""
        return standard_error([getattr(each, name) for each in self.distances])


@dataclasses.dataclass(frozen=True)
class Result:
    """What the experiment found."""

    config: Config
    found: tuple[Found, ...]
    seconds: float
    versions: dict[str, str]

    def of(self, name: str) -> Found:
        """What was found for a method."""
        return next(found for found in self.found if found.method.name == name)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the draws as plain dictionaries, lists, numbers and strings."""
        methods = {
            found.method.name: {
                "printed": {
                    name: getattr(found.method, name) for name in ("rows", "one_trial", "poisson", "chi_squared")
                },
                "rows": found.rows._asdict(),
                "acceptance": found.acceptance,
                "distances": [each._asdict() for each in found.distances],
                "soundness": found.soundness._asdict(),
            }
            for found in self.found
        }
        return {
            "experiment": "gaussian-mixture",
            "config": dataclasses.asdict(self.config),
            "methods": methods,
            "seconds": self.seconds,
            "versions": self.versions,
        }


def run(config: Config | None = None, *, folder: Path | None = None, progress: Progress | None = None) -> Result:
    """Run the repetitions of every method; those in `folder` are taken from there, and new ones kept there."""
    config = config or Config.paper()
    targets = {is_flat: target_of(config.rows, config.batch, config.seed, is_flat) for is_flat in (False, True)}
    jobs = [_job(config, targets[method.has_flat_prior], number, method) for number, method in enumerate(METHODS)]
    trials = run_jobs(jobs, folder, progress)
    found = tuple(
        _found(method, trials[method.name], targets[method.has_flat_prior], targets[False].chances)
        for method in METHODS
    )
    return Result(config, found, seconds_of(trials), versions("jax", "numpy", "scipy"))


@dataclasses.dataclass(frozen=True)
class Target:
    """The posterior with or without its prior; made when first asked for."""

    rows: int
    batch: int
    seed: int
    has_flat_prior: bool

    @cached_property
    def mixture(self) -> GaussianMixture:
        """The rows, and the posterior they make."""
        return gaussian_mixture(self.rows, flat_prior=self.has_flat_prior, seed=self.seed)

    @cached_property
    def grid(self) -> Grid:
        """The same by quadrature."""
        return self.mixture.quadrature()

    @cached_property
    def chances(self) -> np.ndarray:
        """Of every bin."""
        return bin_chances(self.grid)

    @cached_property
    def source(self) -> Shuffled:
        """The rows, shuffled."""
        return Shuffled(self.mixture.data, self.batch, self.seed)

    def kernel(self, acceptance: AcceptanceTest, step: float) -> MetropolisHastings:
        """A random walk with this test."""
        return MetropolisHastings(self.mixture.posterior, self.source, proposal=RandomWalk(step), acceptance=acceptance)

    def starts(self, count: int) -> np.ndarray:
        """Draws of the exact posterior."""
        return self.grid.draw(np.random.default_rng(self.seed), count)


@cache
def target_of(rows: int, batch: int, seed: int, has_flat_prior: bool) -> Target:
    """The same one for the same arguments, so that rows and quadrature are made once."""
    return Target(rows, batch, seed, has_flat_prior)


def _job(config: Config, target: Target, number: int, method: Method) -> Job:
    def make() -> tuple[MetropolisHastings, np.ndarray]:
        return target.kernel(method.make(config.batch), config.step), target.starts(config.trials)

    return Job(
        method.name,
        config_of(config, method=method.name),
        config.trials,
        config.slow_draws if method.reads_all else config.draws,
        make,
        lambda trace: rows_and_verdicts(trace) | {"position": trace.position},
        (config.seed, number),
    )


def _found(method: Method, trials: Arrays, target: Target, published: np.ndarray) -> Found:
    return Found(
        method,
        rows_of(trials),
        float(trials["is_accepted"].mean()),
        tuple(distances(position, target.chances, published) for position in trials["position"]),
        soundness(trials["position"], target.chances),
        target.grid,
        {name: trials[name][0] for name in ("position", "rows_read")},
    )


# ---- how close the draws are --------------------------------------------------------------------


def bin_chances(grid: Grid) -> np.ndarray:
    """The posterior's probability of every bin of `EDGES`, by midpoints of 4 x 4 parts of each."""
    log_density = RectBivariateSpline(grid.theta_1, grid.theta_2, grid.log_density)
    middles = [(edges[:-1, None] + (np.arange(_PARTS) + 0.5) * BIN / _PARTS).ravel() for edges in EDGES]
    density = np.exp(log_density(*middles))
    shape = (len(EDGES[0]) - 1, _PARTS, len(EDGES[1]) - 1, _PARTS)
    return density.reshape(shape).sum((1, 3)) * (BIN / _PARTS) ** 2


def distances(position: np.ndarray, chances: np.ndarray, published: np.ndarray | None = None) -> Distances:
    """Compare the draws (draw, 2) of a repetition with the probabilities of the bins.

    The authors' two distances are from `published`, the probabilities with the prior, where they differ.
    """
    share, chance = shares(position, chances)
    counts = share[:-1].reshape(chances.shape)
    authors = published_distances(counts, chances if published is None else published)
    return Distances(*authors, float(0.5 * np.abs(share - chance).sum()))


def soundness(position: np.ndarray, chances: np.ndarray) -> Soundness:
    """Compare the draws (repetition, draw, 2) of all repetitions with the probabilities of the bins.

    Chi-squared is over pools of neighbouring bins. Which bins are pooled depends on their expected counts, not on the
    observed ones. The draws of k pools count as n of them, with 1/n = sum_j (1 - p_j)/ESS_j / (k - 1) and ESS_j the
    effective sample size of pool j's indicator: with this n the mean of chi-squared is its degrees of freedom (J. N.
    K. Rao and A. J. Scott, "The analysis of categorical data from complex sample surveys", 1981, first order).
    """
    effective = float(np.min(_effective(position, "bulk")))
    share, chance = shares(position.reshape(-1, 2), chances)
    pool = _pools(effective * chance)
    observed, expected = (np.bincount(pool, weights=values) for values in (share, chance))
    freedom = len(expected) - 1
    if freedom < _LEAST_FREEDOM:
        poisson = float(np.sum(log_poisson(effective * share, effective * chance)))
        return Soundness(effective, effective, poisson, None)
    indicators = pool[_bin_of(position)][..., None] == np.arange(freedom + 1)
    of_bins = freedom / float(np.sum((1 - expected) / _effective(indicators, "mean")))
    poisson = float(np.sum(log_poisson(of_bins * share, of_bins * chance)))
    chi_squared = of_bins * float(np.sum((observed - expected) ** 2 / expected)) / freedom
    return Soundness(effective, of_bins, poisson, chi_squared)


def _effective(values: np.ndarray, method: str) -> np.ndarray:
    """Effective sample size of values (repetition, draw, ...)."""
    from arviz_stats.base import array_stats

    return np.asarray(array_stats.ess(values.astype(np.float64), chain_axis=0, draw_axis=1, method=method))


def _bin_of(position: np.ndarray) -> np.ndarray:
    """The number of the bin that each draw (..., 2) is in; that of everything outside is the last."""
    index = [np.searchsorted(edges, position[..., axis], side="right") - 1 for axis, edges in enumerate(EDGES)]
    shape = [len(edges) - 1 for edges in EDGES]
    is_inside = np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(index, shape, strict=True)])
    return np.where(is_inside, index[0] * shape[1] + index[1], shape[0] * shape[1])


def shares(position: np.ndarray, chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Observed and expected share of every bin, and last of everything outside: both sum to 1."""
    share = np.bincount(_bin_of(position), minlength=chances.size + 1) / len(position)
    return share, np.append(chances.ravel(), max(1 - chances.sum(), 0.0))


def published_distances(counts: np.ndarray, chances: np.ndarray) -> tuple[float, float]:
    """Log Poisson likelihood and chi-squared as the authors computed them.

    Counts are rescaled to 5000, and only bins with at least one draw, observed and expected, are summed over. The sum
    is then not chi-squared distributed: correlated draws count as independent, the rescaling adds draws, and bins are
    chosen by their counts.
    """
    observed = counts * PUBLISHED_COUNT / counts.sum()
    expected = chances * PUBLISHED_COUNT
    is_counted = (observed >= 1) & (expected >= 1)
    observed, expected = observed[is_counted], expected[is_counted]
    return float(np.sum(log_poisson(observed, expected))), float(np.sum((observed - expected) ** 2 / expected))


def log_poisson(counts: np.ndarray, means: np.ndarray) -> np.ndarray:
    """c log(l) - l - log Gamma(c + 1), also for counts that are not whole."""
    return counts * np.log(np.maximum(means, 1e-300)) - means - gammaln(counts + 1)


def _pools(expected: np.ndarray) -> np.ndarray:
    """The pool of every bin: neighbours, until a pool expects 5 draws; the remainder joins the last pool."""
    pools = np.zeros(len(expected), int)
    number, total = 0, 0.0
    for index in (*_neighbours(), len(expected) - 1):  # and last, the bin of everything outside
        pools[index], total = number, total + expected[index]
        if total >= _LEAST_EXPECTED:
            number, total = number + 1, 0.0
    return np.minimum(pools, max(number - 1, 0))


def _neighbours() -> np.ndarray:
    """The bins in an order that keeps neighbours together: block by block, 5 bins wide each way."""
    first, second = np.meshgrid(*(np.arange(len(edges) - 1) for edges in EDGES), indexing="ij")
    return np.lexsort((second.ravel(), first.ravel(), second.ravel() // _BLOCK, first.ravel() // _BLOCK))
