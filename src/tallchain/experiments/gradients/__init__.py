"""Gradient proposals under the paper's test, next to stochastic gradients without one, on the paper's two experiments.

Seita, Pan, Chen and Canny, "An Efficient Minibatch Acceptance Test for Metropolis-Hastings", has random walks only, and
names proposals that follow the gradient of a minibatch as future work. Here they run under the library's default test,
`MinibatchBarker()`, next to the paper's own random walk. SGLD, SGHMC, SGNHT and SGFS follow the same gradients and keep
every update.

    mixture     total variation between draws and posterior against rows read in all: rows of the test, and gradients
                of rows; and the error of the variances against the length of a step. Without a test it grows.
    MNIST-13k   accuracy on the test images against rows read in all.

Every sampler runs at several lengths of a step, so that none is judged by an unlucky one.
"""

from __future__ import annotations

from tallchain.experiments.gradients.config import Config, DigitsConfig, MixtureConfig
from tallchain.experiments.gradients.contenders import ALPHA, CONTENDERS, MINIBATCH, PAIRS, Contender
from tallchain.experiments.gradients.entries import DigitsEntry, MixtureEntry, Ratio
from tallchain.experiments.gradients.result import Result
from tallchain.experiments.gradients.runs import run

__all__ = [
    "ALPHA",
    "CONTENDERS",
    "MINIBATCH",
    "PAIRS",
    "Config",
    "Contender",
    "DigitsConfig",
    "DigitsEntry",
    "MixtureConfig",
    "MixtureEntry",
    "Ratio",
    "Result",
    "run",
]
