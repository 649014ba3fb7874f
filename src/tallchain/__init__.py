"""Metropolis-Hastings for tall data: posterior draws from a hundred rows a step."""

from tallchain import acceptance, bounds, checking, firefly, models, plots, proposals, sources, stochastic, surrogates
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
from tallchain.firefly import FireflyMC
from tallchain.fitting import Fit, fit
from tallchain.kernel import MetropolisHastings
from tallchain.models import Posterior
from tallchain.prepare import Prepared, prepare
from tallchain.proposals import PCN, RandomWalk, Transition
from tallchain.sample import sample
from tallchain.schedule import Schedule
from tallchain.sources import Shuffled, WithReplacement
from tallchain.stochastic import StochasticGradient

__version__ = "0.1.0"

__all__ = [
    "MHSS",
    "PCN",
    "Audit",
    "Austere",
    "Barker",
    "BinomialMHSS",
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
    "cache_programs",
    "checking",
    "firefly",
    "fit",
    "models",
    "plots",
    "prepare",
    "proposals",
    "sample",
    "sources",
    "stochastic",
    "surrogates",
]
