"""The runs."""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path
from typing import Protocol

import numpy as np

from tallchain.checking.trace import Trace
from tallchain.experiments.common import Progress, versions
from tallchain.experiments.gaussian_mixture import Target, target_of
from tallchain.experiments.gradients.config import Config, DigitsConfig, MixtureConfig, draws_within
from tallchain.experiments.gradients.contenders import CONTENDERS, describe
from tallchain.experiments.gradients.measures import digits_entry, mixture_entry
from tallchain.experiments.gradients.result import Result
from tallchain.experiments.logistic_regression import SMALL, Data
from tallchain.experiments.trials import Arrays, Job, rows_and_verdicts, run_jobs, seconds_of
from tallchain.schedule import Kernel


def run(config: Config | None = None, *, folder: Path | None = None, progress: Progress | None = None) -> Result:
    """Run every sampler at every step on both tasks; what is in `folder` is taken from there, and new draws kept."""
    config = config or Config.paper()
    target = target_of(config.mixture.rows, config.mixture.batch, config.seed, False)
    places = _OnMixture(config.mixture, target), _OnDigits.make_of(config)
    jobs = {
        (place.task, name, step): _job(place, name, step, config.seed)
        for place in places
        for name, steps in place.of.steps.items()
        for step in steps
    }
    trials = run_jobs(list(jobs.values()), folder, progress)
    found = {key: trials[job.name] for key, job in jobs.items()}
    repetitions = config.mixture.repetitions
    mixture = [mixture_entry(n, s, repetitions, of, target) for (t, n, s), of in found.items() if t == _OnMixture.task]
    digits = [digits_entry(n, s, of) for (t, n, s), of in found.items() if t == _OnDigits.task]
    packages = versions("jax", "numpy", "scipy", "blackjax")
    return Result(config, tuple(mixture), tuple(digits), seconds_of(trials), packages)


class _Place(Protocol):
    """A task, with what its jobs need."""

    @property
    def task(self) -> str:
        """Its name."""
        ...

    @property
    def of(self) -> MixtureConfig | DigitsConfig:
        """Its sizes."""
        ...

    @property
    def settings(self) -> list[int]:
        """What determines its draws, besides sampler and step."""
        ...

    @property
    def chains(self) -> int:
        """Of all repetitions."""
        ...

    def make(self, name: str, step: float) -> tuple[Kernel, np.ndarray]:
        """The sampler, and where its chains start."""
        ...

    def keep(self, trace: Trace) -> Arrays:
        """What to keep."""
        ...


@dataclasses.dataclass(frozen=True)
class _OnMixture:
    """Every chain starts from its own draw of the exact posterior."""

    of: MixtureConfig
    target: Target
    task = "mixture"

    @property
    def settings(self) -> list[int]:
        return [self.of.rows, self.of.batch]

    @property
    def chains(self) -> int:
        return self.of.repetitions * self.of.chains

    def make(self, name: str, step: float) -> tuple[Kernel, np.ndarray]:
        posterior, source = self.target.mixture.posterior, self.target.source
        kernel = CONTENDERS[name].kernel(step, self.task, posterior, source, self.of.batch)
        return kernel, self.target.starts(self.chains)

    def keep(self, trace: Trace) -> Arrays:
        return rows_and_verdicts(trace) | {"position": trace.position}


@dataclasses.dataclass(frozen=True)
class _OnDigits:
    """Every chain starts from 0, where both digits are equally likely."""

    of: DigitsConfig
    data: Data
    task = SMALL.name

    @classmethod
    def make_of(cls, config: Config) -> _OnDigits:
        return cls(config.digits, Data(dataclasses.replace(SMALL, batch=config.digits.batch), config.seed))

    @property
    def settings(self) -> list[int]:
        return [self.of.batch]

    @property
    def chains(self) -> int:
        return self.of.repetitions

    def make(self, name: str, step: float) -> tuple[Kernel, np.ndarray]:
        model = self.data.model
        kernel = CONTENDERS[name].kernel(step, self.task, model.posterior, self.data.source, self.of.batch)
        return kernel, np.zeros((self.chains, model.data["x"].shape[1]), np.float32)

    def keep(self, trace: Trace) -> Arrays:
        return rows_and_verdicts(trace) | {"accuracy": self.data.accuracy(trace.position)}


def _job(place: _Place, name: str, step: float, seed: int) -> Job:
    words = f"{place.task}, {name}, step {step:g}"
    draws = draws_within(place.of.budget, name, place.task)
    return Job(
        words,
        [place.settings, describe(name, step, place.task), draws, seed],
        place.chains,
        draws,
        lambda: place.make(name, step),
        place.keep,
        (seed, zlib.crc32(words.encode())),
        # A momentum or a matrix that is carried from draw to draw would be lost between two segments.
        segment=draws if CONTENDERS[name].carries else Job.segment,
    )
