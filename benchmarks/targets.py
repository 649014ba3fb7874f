"""The two posteriors on which every setting is measured, and the settings."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

import tallchain as tc
from tallchain.acceptance import Austere, Confidence, MinibatchBarker, NormalBarker, Penalty
from tallchain.models.gaussian_mixture import Grid

SEED = 7
MIXTURE_STEP, MIXTURE_BATCH = 0.15, 50
PIXEL_ROWS, PIXELS, PIXEL_TEMPERATURE, PIXEL_STEP, PIXEL_BATCH = 100_000, 10, 1000.0, 0.15, 100


class Setting(NamedTuple):
    """An acceptance test by name."""

    make: Any
    flat_prior: bool = False
    """Whether it left the prior out where the paper ran it."""
    few: tuple[int, int] | None = None
    """(chains, draws) where it reads so many rows that fewer must do; they start in the exact posterior."""


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


def mixture(num_rows: int = 1_000_000, *, flat_prior: bool = False) -> tuple[tc.models.GaussianMixture, Any]:
    """The paper's mixture and a function from an acceptance test to a kernel."""
    model = tc.models.gaussian_mixture(num_rows, flat_prior=flat_prior)
    source = tc.Shuffled(model.data, MIXTURE_BATCH)

    def kernel(acceptance: Any) -> tc.MetropolisHastings:
        return tc.MetropolisHastings(
            model.posterior, source, proposal=tc.RandomWalk(MIXTURE_STEP), acceptance=acceptance
        )

    return model, kernel


def exact_starts(grid: Grid, chains: int) -> np.ndarray:
    """Draw positions from the quadrature posterior of the mixture, the same every time."""
    return grid.draw(np.random.default_rng(SEED), chains)


def pixels() -> tuple[tc.models.Regression, Any]:
    """Logistic regression on features like the pixels of digits: in [0, 1], most of them dark, correlated.

    Few of them, with a prior and a step at which a random walk gets around: on MNIST's 784 with the paper's step of
    0.05 no chain of any test converges, and nothing could be said about its bias.
    """
    random = np.random.default_rng(SEED)
    label = random.random(PIXEL_ROWS) < 0.5
    templates = random.normal(size=(2, PIXELS))
    style = random.normal(size=(PIXEL_ROWS, 5)) @ random.normal(size=(5, PIXELS))
    ink = templates[label.astype(int)] + 0.6 * style + random.normal(size=(PIXEL_ROWS, PIXELS))
    x = np.clip(ink / 3, 0, 1).astype(np.float32)
    model = tc.models.logistic_regression(x, label, prior_sd=1.0, temperature=PIXEL_TEMPERATURE, bound=False)
    source = tc.Shuffled(model.data, PIXEL_BATCH)

    def kernel(acceptance: Any) -> tc.MetropolisHastings:
        return tc.MetropolisHastings(model.posterior, source, proposal=tc.RandomWalk(PIXEL_STEP), acceptance=acceptance)

    return model, kernel


def run(kernel: tc.MetropolisHastings, starts: np.ndarray, draws: int, warmup: int = 0) -> tc.Trace:
    """Sample, one chain per start."""
    key = jax.random.key(SEED)
    return tc.sample(key, kernel, starts, draws, num_chains=len(starts), num_warmup=warmup, scan=0, progress=False)
