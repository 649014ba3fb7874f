"""How much to measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallchain.experiments.gradients.contenders import CONTENDERS
from tallchain.experiments.logistic_regression import SMALL
from tallchain.validation import is_positive, is_whole

Steps = Mapping[str, tuple[float, ...]]
"""By sampler, the steps that it runs at; a sampler that is not named is left out."""

_LEAST_DRAWS = 8

MIXTURE_STEPS: Steps = {
    "RandomWalk": (0.15,),
    "Langevin": (0.03, 0.045, 0.07, 0.1, 0.14, 0.17),
    "Hamiltonian": (0.05, 0.1),
    "Amagold": (0.01, 0.02, 0.04, 0.06),
    "SGLD": (0.03, 0.045, 0.07, 0.1, 0.14, 0.17),
    "SGHMC": (0.01, 0.02, 0.04, 0.06),
    "SGNHT": (0.02, 0.04),
    "SGFS": (0.1, 0.5, 2.0),
}
"""The paper's step for the walk. For the others steps around the best ones of a grid, and for the pairs of `PAIRS`
steps whose squares differ by a factor of 32."""
MIXTURE_QUICK: Steps = {
    "RandomWalk": (0.15,),
    "Langevin": (0.045, 0.1, 0.17),
    "SGLD": (0.045, 0.1, 0.17),
}
DIGITS_STEPS: Steps = {
    "RandomWalk": (0.05,),
    "Langevin": (0.05, 0.07),
    "Hamiltonian": (0.02, 0.03),
    "Amagold": (0.01, 0.02),
    "SGLD": (0.03, 0.05, 0.1, 0.2),
    "SGHMC": (0.01, 0.03, 0.1),
    "SGNHT": (0.01, 0.05),
}
"""The paper's step for the walk, and steps around the best ones of a grid for the others."""
DIGITS_QUICK: Steps = {"RandomWalk": (0.05,), "Langevin": (0.05,), "SGLD": (0.1,)}


@dataclass(frozen=True)
class MixtureConfig:
    """Sizes on the mixture of Gaussians."""

    rows: int = 1_000_000
    """N; the temperature is N/100."""
    batch: int = 50
    repetitions: int = 4
    chains: int = 64
    """Of a repetition: its draws are put together."""
    budget: int = 500_000
    """Rows that a chain reads in all, about."""
    steps: Steps = field(default_factory=lambda: dict(MIXTURE_STEPS))


@dataclass(frozen=True)
class DigitsConfig:
    """Sizes on MNIST-13k."""

    batch: int = SMALL.batch
    repetitions: int = 10
    budget: int = 400_000
    """Rows that a repetition, which is one chain, reads in all, about."""
    steps: Steps = field(default_factory=lambda: dict(DIGITS_STEPS))


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    mixture: MixtureConfig = field(default_factory=MixtureConfig)
    digits: DigitsConfig = field(default_factory=DigitsConfig)
    seed: int = 0

    def __post_init__(self) -> None:
        _check(self.mixture, "mixture")
        _check(self.digits, SMALL.name)

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Walk, Langevin and SGLD alone, fewer chains and steps: a quarter of a minute, most of it to compile."""
        mixture = MixtureConfig(chains=32, budget=60_000, steps=dict(MIXTURE_QUICK))
        return cls(mixture, DigitsConfig(budget=60_000, steps=dict(DIGITS_QUICK)), seed)

    @classmethod
    def paper(cls, seed: int = 0) -> Config:
        """With the paper's N, and rows enough to see the biases: some ten minutes on two cores."""
        return cls(seed=seed)


def draws_within(budget: int, name: str, task: str) -> int:
    """Return how many draws of a sampler read about so many rows."""
    return max(budget // CONTENDERS[name].costs[task], _LEAST_DRAWS)


def _check(config: MixtureConfig | DigitsConfig, task: str) -> None:
    call = type(config).__name__
    for name in ("rows", "batch", "repetitions", "chains", "budget"):
        value = getattr(config, name, 1)
        if not is_whole(value, 1):
            raise ValueError(f"`{call}({name}=...)` must be a whole number, at least 1; got {value!r}.")
    known = [name for name, contender in CONTENDERS.items() if task in contender.costs]
    if not config.steps or not set(config.steps) <= set(known):
        raise ValueError(f"`{call}(steps=...)` must name some of {', '.join(known)}; got {config.steps!r}.")
    if not all(steps and all(is_positive(step) for step in steps) for steps in config.steps.values()):
        raise ValueError(f"`{call}(steps=...)` must have positive numbers for every sampler; got {config.steps!r}.")
