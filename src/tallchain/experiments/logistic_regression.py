"""The paper's logistic regression (section 5.2 and appendix): 1s against 7s of MNIST, rows and accuracy.

Seita, Pan, Chen and Canny, "An Efficient Minibatch Acceptance Test for Metropolis-Hastings": pixels in [0, 1], no
intercept, a uniform prior, temperature 100, a random walk with the same standard deviation for all 784 coefficients
(the paper calls it a covariance). MNIST-13k are MNIST's own images; MNIST-100k has 87,000 more in infinite-MNIST style,
which are not the paper's images.

Every repetition starts from 0, where both digits are equally likely.

On MNIST-100k the rivals' row counts printed in the paper are several times smaller than ours. An additional run tests
whether the images make the difference: MNIST's own, each several times, 100,007 in all.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from tallchain.acceptance import Austere, Confidence, MinibatchBarker
from tallchain.datasets import Digits, infinite_mnist_style, mnist_1_7
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
from tallchain.models import Regression, logistic_regression
from tallchain.proposals import RandomWalk
from tallchain.schedule import Schedule
from tallchain.sources import Shuffled
from tallchain.types import AcceptanceTest

TEMPERATURE = 100.0
COOLING_DRAWS = 400
"""At temperature 100, in the third panel; then temperature 1, and steps shorter by the same factor."""
STEPS = {0.005: 116.1, 0.01: 216.5, 0.05: 2215.6}
"""Of the study on MNIST-100k, with the rows per decision that the paper prints."""
PARTS = (100, 300, 1000, 3000)
"""Draws from the start, over which rows per decision are shown."""
ACCURACIES = (0.95, 0.97)
"""To be reached."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A data set with the paper's settings for it, and how much of them to run."""

    name: str
    further: int
    """Images in addition to MNIST's own."""
    step: float
    draws: int
    slow_draws: int
    """Of tests that read all rows at every decision."""
    trials: int
    batch: int = 100
    austere_batch: int = 450
    """m of AustereMH(c) from the authors' grid search; its epsilon is 0.01."""
    austere_error: float = 0.05
    """Error that AustereMH(nc) designs every decision for."""
    is_deformed: bool = True
    """Whether additional images are deformed; if not, they are MNIST's own again."""


SMALL = Task("MNIST-13k", 0, 0.05, draws=5000, slow_draws=5000, trials=10)
LARGE = Task("MNIST-100k", 87_000, 0.01, draws=3000, slow_draws=3000, trials=5, austere_batch=300, austere_error=0.1)
REPEATED = dataclasses.replace(LARGE, name="MNIST-13k several times", draws=1000, slow_draws=1000, is_deformed=False)


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the experiment; the paper's unless said otherwise."""

    small: Task = SMALL
    large: Task = LARGE
    repeated: Task | None = REPEATED
    cooling_draws: int = 3000
    cooling_trials: int = 10
    study_draws: int = 3000
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Shorter repetitions: about two minutes on two cores."""
        small = dataclasses.replace(SMALL, draws=750, slow_draws=50)
        large = dataclasses.replace(LARGE, draws=250, slow_draws=12)
        return cls(small, large, repeated=None, cooling_draws=1000, study_draws=250, seed=seed)

    @classmethod
    def paper(cls, seed: int = 0) -> Config:
        """As the paper has it: half an hour on two cores, nearly all of it for the two tests that read all rows."""
        return cls(seed=seed)


@dataclasses.dataclass(frozen=True)
class Method:
    """A test of the experiment."""

    name: str
    make: Callable[[Task, int], AcceptanceTest]
    """(task, N) -> the test."""
    rows: dict[str, Printed] = dataclasses.field(default_factory=dict)
    """Rows per decision in Table 2, by data set."""
    scans: bool = False
    """Whether it reads all rows at every decision, so that a quick run has fewer decisions."""


_PAPER = {"MNIST-13k": Printed(125.4, 9.2), "MNIST-100k": Printed(216.5, 7.9)}
METHODS = (
    Method(
        "MinibatchBarker.as_published_code()",
        lambda task, size: MinibatchBarker.as_published_code(batch=task.batch),
        _PAPER,
    ),
    Method("MinibatchBarker.paper()", lambda task, size: MinibatchBarker.paper(batch=task.batch), _PAPER),
    Method("MinibatchBarker()", lambda task, size: MinibatchBarker(batch=task.batch)),
    Method(
        "Austere.nonconservative()",
        lambda task, size: Austere.nonconservative(size, task.austere_error),
        {"MNIST-13k": Printed(973.8, 49.8), "MNIST-100k": Printed(1098.3, 44.9)},
        scans=True,
    ),
    Method(
        "Austere(0.01)",
        lambda task, size: Austere(0.01, task.austere_batch),
        {"MNIST-13k": Printed(1924.3, 52.4), "MNIST-100k": Printed(2795.6, 364.0)},
    ),
    Method(
        "Confidence()",
        lambda task, size: Confidence(0.01, 2.0, 2.0, batch=task.batch),
        {"MNIST-13k": Printed(10783.4, 78.9), "MNIST-100k": Printed(14977.3, 582.0)},
        scans=True,
    ),
)
OURS, PAPERS = "MinibatchBarker()", "MinibatchBarker.paper()"
REPEATED_METHODS = (PAPERS, "Austere.nonconservative()", "Austere(0.01)", "Confidence()")


@dataclasses.dataclass(frozen=True)
class Found:
    """The repetitions of one method on one data set."""

    name: str
    printed: Printed | None
    rows: Rows
    acceptance: float
    accuracy: np.ndarray
    """Share of the test images classified correctly, by repetition and draw."""
    read: np.ndarray
    """Rows per decision, by repetition and draw."""

    @property
    def over_first(self) -> dict[int, float]:
        """Rows per decision over the first `draws` draws."""
        return {draws: float(self.read[:, :draws].mean()) for draws in PARTS if draws <= self.read.shape[1]}

    @property
    def rows_to_accuracy(self) -> dict[float, float]:
        """Rows read until a draw reaches an accuracy, median over repetitions; inf if most never do."""
        so_far = np.cumsum(self.read, axis=1)
        found = {}
        for wanted in ACCURACIES:
            is_there = self.accuracy >= wanted
            rows = np.take_along_axis(so_far, is_there.argmax(1)[:, None], 1)[:, 0]
            found[wanted] = float(np.median(np.where(is_there.any(1), rows, np.inf)))
        return found

    @property
    def final(self) -> list[float]:
        """Accuracy by repetition: mean over the last fifth of its draws."""
        last = max(1, self.accuracy.shape[1] // 5)
        return self.accuracy[:, -last:].mean(1).tolist()


@dataclasses.dataclass(frozen=True)
class Result:
    """What the experiment found."""

    config: Config
    tables: dict[str, tuple[Found, ...]]
    """Table 2, by data set."""
    cooling: dict[str, Found]
    """The third panel, by data set."""
    repeated: tuple[Found, ...]
    """With MNIST's own images several times; empty if not asked for."""
    study: dict[float, Found]
    """By step, on MNIST-100k."""
    seconds: float
    versions: dict[str, str]

    def of(self, task: str, name: str) -> Found:
        """What was found for a method on a data set."""
        return next(found for found in self.tables[task] if found.name == name)

    def to_json(self) -> dict[str, Any]:
        """Return everything but single draws as plain dictionaries, lists, numbers and strings."""
        return {
            "experiment": "logistic-regression",
            "config": dataclasses.asdict(self.config),
            "tables": {task: {each.name: _json(each) for each in found} for task, found in self.tables.items()},
            "cooling": {task: _json(found) for task, found in self.cooling.items()},
            "repeated": {each.name: _json(each) for each in self.repeated},
            "study": {str(step): _json(found) for step, found in self.study.items()},
            "seconds": self.seconds,
            "versions": self.versions,
        }


def _json(found: Found) -> dict[str, Any]:
    return {
        "printed": found.printed,
        "rows": found.rows._asdict(),
        "rows_over_first_draws": found.over_first,
        "rows_to_accuracy": {wanted: rows for wanted, rows in found.rows_to_accuracy.items() if np.isfinite(rows)},
        "acceptance": found.acceptance,
        "final_accuracy": found.final,
        "final_accuracy_error": standard_error(found.final),
    }


def run(config: Config | None = None, *, folder: Path | None = None, progress: Progress | None = None) -> Result:
    """Run all repetitions; those in `folder` are taken from there, and new ones kept there."""
    config = config or Config.paper()
    tasks = {task.name: Data(task, config.seed) for task in (config.small, config.large)}
    jobs: dict[tuple[str, Any], Job] = {}
    for data in tasks.values():
        for method in METHODS:
            jobs[data.task.name, method.name] = _table_job(config, data, method)
    if config.repeated:
        again = Data(config.repeated, config.seed)
        for method in METHODS:
            if method.name in REPEATED_METHODS:
                jobs["repeated", method.name] = _table_job(config, again, method)
    paper = next(method for method in METHODS if method.name == PAPERS)
    for data in tasks.values():
        jobs["cooling", data.task.name] = _job(
            config, data, paper, config.cooling_draws, config.cooling_trials, is_cooling=True
        )
    for step in STEPS:
        data = tasks[config.large.name]
        jobs["study", step] = _job(config, data, paper, config.study_draws, 1, step=step)
    trials = run_jobs(list(jobs.values()), folder, progress)
    found = {key: _found(key, trials[job.name]) for key, job in jobs.items()}
    return Result(
        config,
        {name: tuple(found[name, method.name] for method in METHODS) for name in tasks},
        {name: found["cooling", name] for name in tasks},
        tuple(of for (task, _), of in found.items() if task == "repeated"),
        {step: found["study", step] for step in STEPS},
        seconds_of(trials),
        versions("jax", "numpy", "scipy"),
    )


class Data:
    """A data set, made when first asked for: results already kept do not need it."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self._seed = task, seed

    @cached_property
    def _digits(self) -> Digits:
        if self.task.further and self.task.is_deformed:
            return infinite_mnist_style(self.task.further, seed=self._seed)
        digits = mnist_1_7()
        size = len(digits.train_images)
        return digits._replace(
            train_images=np.resize(digits.train_images, (size + self.task.further, *digits.train_images.shape[1:])),
            train_is_seven=np.resize(digits.train_is_seven, size + self.task.further),
        )

    @cached_property
    def model(self) -> Regression:
        """The images, and the posterior they make."""
        features = self._digits.features()[0]
        return logistic_regression(
            features, self._digits.train_is_seven, prior_sd=None, temperature=TEMPERATURE, bound=False
        )

    @cached_property
    def source(self) -> Shuffled:
        """The images, shuffled."""
        return Shuffled(self.model.data, self.task.batch, self._seed)

    def accuracy(self, positions: np.ndarray) -> np.ndarray:
        """Share of the test images that each position (..., 784) classifies correctly."""
        return np.mean((positions @ self._test_features.T > 0) == self._digits.test_is_seven, axis=-1)

    @cached_property
    def _test_features(self) -> np.ndarray:
        return self._digits.features()[1]


def _table_job(config: Config, data: Data, method: Method) -> Job:
    draws = data.task.slow_draws if method.scans else data.task.draws
    return _job(config, data, method, draws, data.task.trials)


def _job(
    config: Config,
    data: Data,
    method: Method,
    draws: int,
    trials: int,
    *,
    step: float | None = None,
    is_cooling: bool = False,
) -> Job:
    words = f"{data.task.name}, {method.name}"
    words += ", cooling" if is_cooling else "" if step is None else f", study of step {step:g}"
    step = data.task.step if step is None else step
    settings = {"method": method.name, "draws": draws, "step": step, "is_cooling": is_cooling, "seed": config.seed}

    def make() -> tuple[MetropolisHastings, np.ndarray]:
        kernel = MetropolisHastings(
            data.model.posterior,
            data.source,
            proposal=RandomWalk(step),
            acceptance=method.make(data.task, len(data.model.data["y"])),
        )
        return kernel, np.zeros((trials, data.model.data["x"].shape[1]), np.float32)

    return Job(
        words,
        config_of(data.task, **settings),
        trials,
        draws,
        make,
        lambda trace: rows_and_verdicts(trace) | {"accuracy": data.accuracy(trace.position)},
        (config.seed, zlib.crc32(words.encode())),
        _cooling(step) if is_cooling else None,
    )


def _cooling(step: float) -> Schedule:
    """Temperature 100 and then 1; Lambda_i is 100 times as steep there, so that steps are 100 times shorter."""
    return Schedule(
        temperature=lambda draw: jnp.where(draw < COOLING_DRAWS, TEMPERATURE, 1.0),
        scale=lambda draw: jnp.where(draw < COOLING_DRAWS, step, step / TEMPERATURE),
    )


def _found(key: tuple[str, Any], trials: Arrays) -> Found:
    task, name = key
    printed = next((method.rows.get(task) for method in METHODS if method.name == name), None)
    if task == "study":
        printed = Printed(STEPS[name], 0.0)
    return Found(
        str(name),
        printed,
        rows_of(trials),
        float(trials["is_accepted"].mean()),
        trials["accuracy"],
        trials["rows_read"],
    )
