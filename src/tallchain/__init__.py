"""Metropolis-Hastings for tall data: posterior draws from a hundred rows a step."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tallchain import acceptance, bounds, checking, firefly, models, proposals, sources, stochastic, surrogates
from tallchain.acceptance import (
    MHSS,
    Austere,
    Barker,
    BinomialMHSS,
    Combined,
    Confidence,
    Metropolis,
    MinibatchBarker,
    NormalBarker,
    Penalty,
    ScalableMH,
    TunaMH,
)
from tallchain.caching import cache_programs
from tallchain.checking import Audit, SamplingError, SamplingWarning, Trace, audit
from tallchain.checkpoints import CheckpointError
from tallchain.firefly import FireflyMC
from tallchain.kernel import MetropolisHastings
from tallchain.models import Posterior
from tallchain.prepare import Prepared, prepare
from tallchain.proposals import PCN, RandomWalk, Transition
from tallchain.sample import resume, sample
from tallchain.schedule import Schedule
from tallchain.sources import Shuffled, WithReplacement
from tallchain.stochastic import StochasticGradient

if TYPE_CHECKING:
    from tallchain import bridges, plots
    from tallchain.fitting import Fit, fit
    from tallchain.packs import pack

__version__ = "0.1.0"

_LATER = {"Fit": "tallchain.fitting", "fit": "tallchain.fitting", "pack": "tallchain.packs"}
_MODULES = ("bridges", "plots")
"""What is imported when it is first used, as the others are, so that `import tallchain` takes less time."""


def __getattr__(name: str) -> Any:
    """Return what is imported later."""
    if name in _MODULES:
        return import_module(f"tallchain.{name}")
    if name not in _LATER:
        raise AttributeError(f"module 'tallchain' has no attribute {name!r}")
    return vars(import_module(_LATER[name]))[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_MODULES})


__all__ = [
    "MHSS",
    "PCN",
    "Audit",
    "Austere",
    "Barker",
    "BinomialMHSS",
    "CheckpointError",
    "Combined",
    "Confidence",
    "FireflyMC",
    "Fit",
    "Metropolis",
    "MetropolisHastings",
    "MinibatchBarker",
    "NormalBarker",
    "Penalty",
    "Posterior",
    "Prepared",
    "RandomWalk",
    "SamplingError",
    "SamplingWarning",
    "ScalableMH",
    "Schedule",
    "Shuffled",
    "StochasticGradient",
    "Trace",
    "Transition",
    "TunaMH",
    "WithReplacement",
    "acceptance",
    "audit",
    "bounds",
    "bridges",
    "cache_programs",
    "checking",
    "firefly",
    "fit",
    "models",
    "pack",
    "plots",
    "prepare",
    "proposals",
    "resume",
    "sample",
    "sources",
    "stochastic",
    "surrogates",
]
