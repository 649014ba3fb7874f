"""The two posteriors on which every setting is measured, and the settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import tallchain as tc
from tallchain.acceptance import Austere, Confidence, MinibatchBarker, NormalBarker, Penalty
from tallchain.functions import shared
from tallchain.models.gaussian_mixture import Grid
from tallchain.types import AcceptanceTest, Array

SEED = 7
MIXTURE_ROWS = 1_000_000
MIXTURE_STEP, MIXTURE_BATCH = 0.15, 50
PIXEL_ROWS, PIXELS, PIXEL_TEMPERATURE, PIXEL_STEP, PIXEL_BATCH = 100_000, 10, 1000.0, 0.15, 100


class Sizes(NamedTuple):
    """How long to sample."""

    chains: int
    draws: int
    warmup: int


class Setting(NamedTuple):
    """An acceptance test by name."""

    make: Callable[[], AcceptanceTest]
    flat_prior: bool = False
    """Whether the paper's run left the prior out."""
    few: tuple[int, int] | None = None
    """(chains, draws) if it reads too many rows for the usual number; they start in the exact posterior."""

    def sizes(self, usual: Sizes, few: tuple[int, int] | None = None) -> Sizes:
        """Return how long to sample; `few` replaces its own numbers."""
        return usual if self.few is None else Sizes(*(few or self.few), warmup=0)


SETTINGS: dict[str, Setting] = {
    "MinibatchBarker()": Setting(MinibatchBarker),
    "MinibatchBarker(batch=100)": Setting(partial(MinibatchBarker, batch=100)),
    "MinibatchBarker(sigma=1.2)": Setting(partial(MinibatchBarker, 1.2)),
    "MinibatchBarker(skew=False)": Setting(partial(MinibatchBarker, skew=False)),
    'MinibatchBarker(stopping="pilot")': Setting(partial(MinibatchBarker, stopping="pilot")),
    'MinibatchBarker(stopping="pilot", skew=False)': Setting(partial(MinibatchBarker, stopping="pilot", skew=False)),
    'MinibatchBarker(stopping="stein")': Setting(partial(MinibatchBarker, stopping="stein")),
    'MinibatchBarker(stopping="growth")': Setting(partial(MinibatchBarker, stopping="growth")),
    'MinibatchBarker(sigma=1.2, stopping="growth")': Setting(partial(MinibatchBarker, 1.2, stopping="growth")),
    'MinibatchBarker(stopping="growth", skew=True)': Setting(partial(MinibatchBarker, stopping="growth", skew=True)),
    'MinibatchBarker(stopping="growth", skew="printed")': Setting(
        partial(MinibatchBarker, stopping="growth", skew="printed")
    ),
    "MinibatchBarker.paper()": Setting(MinibatchBarker.paper),
    "MinibatchBarker.as_published_code()": Setting(MinibatchBarker.as_published_code, flat_prior=True),
    "Penalty()": Setting(Penalty),
    'Penalty(stopping="pilot")': Setting(partial(Penalty, stopping="pilot")),
    'Penalty(stopping="growth")': Setting(partial(Penalty, stopping="growth")),
    "NormalBarker()": Setting(NormalBarker),
    "Austere(0.005)": Setting(partial(Austere, 0.005), few=(2048, 20)),
    "Confidence(0.005)": Setting(partial(Confidence, 0.005), few=(4096, 2)),
}


MakeKernel = Callable[[AcceptanceTest], tc.MetropolisHastings]


def mixture(num_rows: int = MIXTURE_ROWS, *, flat_prior: bool = False) -> tuple[tc.models.GaussianMixture, MakeKernel]:
    """Return the paper's mixture, and how to sample from it."""
    model = tc.models.gaussian_mixture(num_rows, flat_prior=flat_prior)
    source = tc.Shuffled(model.data, MIXTURE_BATCH)

    def kernel(acceptance: AcceptanceTest) -> tc.MetropolisHastings:
        return tc.MetropolisHastings(
            model.posterior, source, proposal=tc.RandomWalk(MIXTURE_STEP), acceptance=acceptance
        )

    return model, kernel


def exact_starts(grid: Grid, chains: int) -> np.ndarray:
    """Draw positions from the quadrature posterior of the mixture, the same every time."""
    return grid.draw(np.random.default_rng(SEED), chains)


def pixels(num_rows: int = PIXEL_ROWS) -> tuple[tc.models.Regression, MakeKernel]:
    """Return a logistic regression, and how to sample from it.

    Its features are like the pixels of digits: in [0, 1], most of them dark, correlated. There are few of them, with a
    prior and a step for which a random walk converges. On MNIST's 784 pixels with the paper's step of 0.05, no chain of
    any test converges, so its bias could not be measured.
    """
    random = np.random.default_rng(SEED)
    label = random.random(num_rows) < 0.5
    templates = random.normal(size=(2, PIXELS))
    style = random.normal(size=(num_rows, 5)) @ random.normal(size=(5, PIXELS))
    ink = templates[label.astype(int)] + 0.6 * style + random.normal(size=(num_rows, PIXELS))
    x = np.clip(ink / 3, 0, 1).astype(np.float32)
    model = tc.models.logistic_regression(x, label, prior_sd=1.0, temperature=PIXEL_TEMPERATURE, bound=False)
    source = tc.Shuffled(model.data, PIXEL_BATCH)

    def kernel(acceptance: AcceptanceTest) -> tc.MetropolisHastings:
        return tc.MetropolisHastings(model.posterior, source, proposal=tc.RandomWalk(PIXEL_STEP), acceptance=acceptance)

    return model, kernel


def given_ratios(num_rows: int) -> tc.Posterior:
    """Return a posterior for rows that are log ratios: Lambda_i of the step from 0 to 1 is row i, since K = N."""
    return tc.Posterior(shared(_flat), shared(_product), temperature=num_rows)


def _flat(t: Array) -> Array:
    return jnp.zeros_like(t)


def _product(t: Array, x: Array) -> Array:
    return t * x


def sample(kernel: tc.MetropolisHastings, starts: np.ndarray, draws: int, warmup: int = 0) -> tc.Trace:
    """Sample, one chain per start."""
    key = jax.random.key(SEED)
    return tc.sample(key, kernel, starts, draws, num_chains=len(starts), num_warmup=warmup, scan=0, progress=False)
