"""The lists whose product is the contract test: a new part joins the tests by one line here."""

from __future__ import annotations

from functools import partial

from tallchain.acceptance import (
    Austere,
    Barker,
    Combined,
    Confidence,
    Metropolis,
    MinibatchBarker,
    NormalBarker,
    Penalty,
)
from tallchain.sources import Shuffled, WithReplacement

ACCEPTANCE = {
    "metropolis": Metropolis,
    "barker": Barker,
    "minibatch": MinibatchBarker,
    "published code": MinibatchBarker.as_published_code,
    "penalty": Penalty,
    "combined": Combined,
    "normal barker": NormalBarker,
    "confidence": Confidence,
    "austere": partial(Austere, 0.005),
    "austere designed": lambda: Austere.nonconservative(FEW_ROWS, 0.05),
}

# Settings of a test above, with nothing of their own for the engine to trip over.
SETTINGS = {
    "minibatch growth": partial(MinibatchBarker, stopping="growth"),
    "minibatch pilot": partial(MinibatchBarker, stopping="pilot"),
    "minibatch stein": partial(MinibatchBarker, stopping="stein"),
    "minibatch sigma 1.2": partial(MinibatchBarker, sigma=1.2),
    "penalty growth": partial(Penalty, stopping="growth"),
    "penalty pilot": partial(Penalty, stopping="pilot"),
    "paper": MinibatchBarker.paper,
    "confidence serfling": partial(Confidence, bound="bernstein-serfling"),
}

SOURCES = {
    "windows": partial(Shuffled, windows=True),
    "row by row": partial(Shuffled, windows=False),
    "with replacement": WithReplacement,
}

SCANNING = ("confidence", "austere designed")
READS_ALL = ("metropolis", "barker", "confidence serfling", *SCANNING)
FEW_ROWS = 1001  # for the tests that read all rows at every decision

# A shortcut that decides by sign, and a normal variable for a logistic one, are known to be wrong.
UNSOUND = ("published code", "normal barker")
SOUND = [name for name in ACCEPTANCE if name not in UNSOUND]
