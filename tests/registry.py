"""The lists whose product is the contract test: a new part joins the tests by one line here."""

from __future__ import annotations

from functools import partial

from tallchain.acceptance import Barker, Metropolis, MinibatchBarker
from tallchain.sources import Shuffled, WithReplacement

ACCEPTANCE = {
    "metropolis": Metropolis,
    "barker": Barker,
    "minibatch": MinibatchBarker,
    "minibatch sigma 1.2": partial(MinibatchBarker, sigma=1.2),
    "paper": MinibatchBarker.paper,
    "published code": MinibatchBarker.as_published_code,
}

FULL_DATA = ["metropolis", "barker"]

# The 5-sigma shortcut of the published code decides some tests by sign: it is not meant to be right.
SOUND = [name for name in ACCEPTANCE if name != "published code"]

SOURCES = {
    "windows": partial(Shuffled, windows=True),
    "row by row": partial(Shuffled, windows=False),
    "with replacement": WithReplacement,
}
